"""Policies: all their rules together, live and from the store."""

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard import Message, NoProgressCall
from guard.policies import (
    DEFAULT,
    NO_RULING,
    POLICIES,
    STRICT,
    UNATTENDED,
    Mode,
    Policy,
    PolicyGuard,
    Ruling,
    Use,
    scan_rounds,
    with_contract,
    with_rules,
)
from guard.rounds import RoundCall, StoredRound, round_call, stored_events
from guard.rules.contract import Contract, Field
from guard.rules.hand_off import HandOff
from guard.rules.no_progress import NoProgress
from guard.rules.repeat_cycle import RepeatCycle
from guard.rules.same_error import SameError
from tests.guard.history import History
from tests.guard.rules.rounds import call, lived
from tests.guard.test_properties import ANY_TEXT, CALLS, HISTORIES, JUNK

FAILURES = st.builds(
    NoProgressCall,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["1", "2"]),
    st.sampled_from(['{"error":"no"}', "Error: timed out", "took 3 ms", '{"status":"running"}']),
)
MIXED = HISTORIES | st.lists(st.lists(FAILURES | CALLS, min_size=1, max_size=2), max_size=30)


@settings(deadline=None, max_examples=40)
@given(MIXED, st.sampled_from(sorted(POLICIES)))
def test_a_scan_agrees_with_the_live_guard_at_every_prefix(
    rounds: list[list[NoProgressCall]], name: str
) -> None:
    history, guard = History(stores_evidence=True), PolicyGuard(POLICIES[name])
    history.add_user("go", synthetic=False)
    rulings = []
    for number, calls in enumerate(rounds):
        if number % 11 == 10:
            history.add_user("a person", synthetic=False)
            guard.begin_turn()
        history.add_user("a note", synthetic=True)
        history.add_round(*calls)
        rulings.append(guard.end_round([round_call(one) for one in calls]))
        events = stored_events(history.messages, history.attachments)
        assert scan_rounds(POLICIES[name], events) == (guard.state, rulings)


@settings(deadline=None, max_examples=40)
@given(MIXED, st.sampled_from(sorted(POLICIES)), st.integers(0, 40))
def test_a_guard_goes_on_from_its_state_as_if_it_had_never_ended(
    rounds: list[list[NoProgressCall]], name: str, at: int
) -> None:
    whole = [[round_call(one) for one in calls] for calls in rounds]
    first = PolicyGuard(POLICIES[name])
    before = [first.end_round(calls) for calls in whole[:at]]
    second = PolicyGuard(POLICIES[name], first.state)
    assert before + [second.end_round(calls) for calls in whole[at:]] == (
        lived(POLICIES[name], whole)
    )


@settings(deadline=None, max_examples=40)
@given(HISTORIES)
def test_no_policy_ends_a_run_later_than_the_default_does(
    rounds: list[list[NoProgressCall]],
) -> None:
    # Told waits are left out by the lane; the histories here have declared ones only.
    whole = [[round_call(one) for one in calls] for calls in rounds]
    by_default = first_stop(lived(DEFAULT, whole))
    for policy in POLICIES.values():
        assert first_stop(lived(policy, whole)) <= by_default


def first_stop(rulings: list[Ruling]) -> int:
    stops = [number for number, ruling in enumerate(rulings) if ruling.stop is not None]
    return stops[0] if stops else len(rulings)


@given(st.lists(JUNK, max_size=8))
def test_no_history_makes_a_policy_raise(messages: list[object]) -> None:
    events = list(stored_events(cast(list[Message], messages)))  # a store can hold anything
    for policy in POLICIES.values():
        scan_rounds(policy, events)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_no_call_makes_a_policy_raise(name: str, arguments: str, content: str) -> None:
    made = round_call(NoProgressCall(name, arguments, content))
    for policy in POLICIES.values():
        lived(policy, [[made]] * 8)


TOLD = st.fixed_dictionaries(
    {},
    optional={
        "known": st.booleans() | st.just("yes"),
        "error_class": st.sampled_from(["", "error: no", "timed out"]),
        "harness": st.booleans(),
        "kind": st.sampled_from(["read", "send", "wait", "sent"]),
        "elapsed_ms": st.integers(-5, 5000),
        "values": st.dictionaries(
            st.sampled_from(["n", "m"]), st.integers(0, 3) | st.none() | st.just([1])
        ),
    },
)
EVERYTHING = with_contract(
    with_rules(UNATTENDED, Use(HandOff())),
    Contract((Field("n", "grows", initial=0), Field("m", "changes")), 5, 3),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.tuples(CALLS | FAILURES, TOLD), min_size=1, max_size=3), max_size=15))
def test_round_by_round_and_all_at_once_are_the_same_with_all_that_is_stored(
    rounds: list[list[tuple[NoProgressCall, dict[str, Any]]]],
) -> None:
    history, guard, rulings = History(stores_evidence=True), PolicyGuard(EVERYTHING), []
    for each in rounds:
        begins = len(history.messages)
        history.add_round(*[one for one, _ in each])
        for place, (_, told) in enumerate(each, begins + 1):
            history.messages[place] = {**history.messages[place], **told}
        (event,) = stored_events(history.messages[begins:], history.attachments)
        assert isinstance(event, StoredRound)
        assert event.calls == tuple(built(one, told) for one, told in each)
        assert event.values == merged(each, event.calls)
        rulings.append(guard.end_round(event.calls, event.spent, event.values))
    events = stored_events(history.messages, history.attachments)
    assert scan_rounds(EVERYTHING, events) == (guard.state, rulings)


def built(call: NoProgressCall, told: dict[str, Any]) -> RoundCall:
    kind = told.get("kind", "unknown")
    return round_call(
        call,
        kind="unknown" if kind == "sent" else kind,
        failed_for=told.get("error_class"),
        harness=told.get("harness", False),
        known=told.get("known") is True,
    )


def merged(
    each: list[tuple[NoProgressCall, dict[str, Any]]], calls: tuple[RoundCall, ...]
) -> dict[str, int] | None:
    values: dict[str, int] = {}
    for (_, told), seen in zip(each, calls, strict=True):
        if seen.error_class is None:
            named = told.get("values", {}).items()
            values |= {name: value for name, value in named if isinstance(value, int)}
    return values or None


REPEATS: list[list[RoundCall]] = [[call("a", 1)]] * 4


@pytest.mark.parametrize(
    ("mode", "nudges", "stops"),
    [
        ("off", [], []),
        ("observe", [], []),
        ("nudge", [2, 3], []),
        ("stop", [2], [3, 4]),
    ],
)
def test_a_mode_says_how_far_a_rule_may_go(mode: Mode, nudges: list[int], stops: list[int]) -> None:
    rulings = lived(Policy("x@1", (Use(RepeatCycle(), mode),)), REPEATS)
    assert [n for n, ruling in enumerate(rulings, 1) if ruling.nudges] == nudges
    assert [n for n, ruling in enumerate(rulings, 1) if ruling.stop] == stops
    asked = [n for n, ruling in enumerate(rulings, 1) if ruling.findings]
    assert asked == ([] if mode == "off" else [2, 3, 4])


def test_reminders_come_in_the_order_of_the_policy_and_the_first_stop_is_the_reason() -> None:
    uses = (Use(RepeatCycle(6)), Use(NoProgress()), Use(SameError((5,), 6)))
    rulings = lived(Policy("x@1", uses), [[call("a", "Error: x")]] * 6)
    assert [nudge.rule for nudge in rulings[4].nudges] == [
        "repeat_cycle",
        "no_progress",
        "same_error",
    ]
    assert [found.given for found in rulings[5].findings] == ["stop", "stop"]
    assert rulings[5].stop is not None
    assert rulings[5].stop.rule == "repeat_cycle"


def test_an_outage_is_no_stagnation_until_its_free_tries_are_over() -> None:
    outage = call("fetch", '{"error":"rate limited, try again later"}')
    stops = [n for n, r in enumerate(lived(STRICT, [[outage]] * 20), 1) if r.stop is not None]
    assert stops[0] == STRICT.free_retries + 6


def test_the_default_rule_is_told_of_every_try() -> None:
    outage = call("fetch", "Error: timed out")
    free = Policy("x@1", (Use(NoProgress()),), free_retries=99)
    assert first_stop(lived(free, [[outage]] * 20)) == 14


def test_what_the_harness_wrote_neither_counts_nor_clears() -> None:
    lost = round_call(NoProgressCall("t", "a", '{"error":"cancelled"}'), harness=True)
    plain = lived(STRICT, REPEATS)
    rulings = lived(STRICT, [step for round_ in REPEATS for step in ([lost], round_)])
    assert rulings[1::2] == plain
    assert set(map(id, rulings[::2])) == {id(NO_RULING)}


def test_a_stored_reason_is_believed_whatever_became_of_the_text() -> None:
    history = History(stores_evidence=True)
    history.add_rounds(3, NoProgressCall("t", "a", "[cleared]"))
    known: list[dict[str, Any]] = [
        {**message, "error_class": "failed for x"} if message["role"] == "tool" else dict(message)
        for message in history.messages
    ]
    policy = Policy("x@1", (Use(SameError((), 3)),))
    _, rulings = scan_rounds(policy, stored_events(known))
    assert rulings[-1].stop is not None


def test_names_carry_a_version_and_no_two_policies_share_one() -> None:
    assert list(POLICIES) == ["default@1", "strict@1", "unattended@1", "research@1"]
    assert all(name == policy.name for name, policy in POLICIES.items())
