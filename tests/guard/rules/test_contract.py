"""The progress contract: values of a state, and what of them is progress."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import NoProgressCall
from guard.policies import STRICT, PolicyGuard, with_contract
from guard.rounds import (
    TURN,
    Decision,
    Event,
    Round,
    StoredRound,
    Value,
    round_call,
    round_of,
    stored_events,
)
from guard.rules.contract import Contract, Counts, Field
from tests.guard.history import History
from tests.guard.rules.rounds import WAIT, call, decisions, rounds, wait

RESEARCH = Contract(
    (
        Field("evidence_count", "grows", initial=0),
        Field("open_gaps", "shrinks", initial=2),
        Field("open_gaps", "reaches", target=0),
    )
)


def step(action: str, result: str = "found", **values: Value) -> Round:
    return round_of((call(action, result),), values=values)


def codes(rule: Contract, events: list[Event]) -> list[str]:
    return [decision.code for decision in decisions(rule, events)]


def test_two_steps_without_news_end_the_run_with_one_fact_and_one_gap() -> None:
    events: list[Event] = [
        step("search:Agent memory update", "A", open_gaps=1),
        step("open:A1", "F1", evidence_count=1),
        step("search:Agent memory update", "A", evidence_count=1, open_gaps=1),
        step("search:agent memory update", "A", evidence_count=1, open_gaps=1),
    ]
    made = decisions(RESEARCH, events)
    assert [decision.asks for decision in made] == ["none", "none", "none", "stop"]
    assert made[3] == Decision(
        "stop",
        "progress_contract",
        "no_progress",
        streak=2,
        tools=("search",),
        fields=("evidence_count", "open_gaps"),
    )


def test_a_reached_target_is_completion_and_not_a_budget() -> None:
    events: list[Event] = [step("a", open_gaps=1), step("b", open_gaps=0, evidence_count=2)]
    assert codes(RESEARCH, events) == ["", "completed"]


def test_a_target_that_was_left_again_is_not_reached() -> None:
    both = Contract((Field("a", "reaches", target=1), Field("b", "reaches", target=1)), 9)
    assert codes(both, [step("x", a=1), step("x", a=0), step("x", b=1)]) == ["", "", ""]
    assert codes(both, [step("x", a=1), step("x", b=1)]) == ["", "completed"]


@pytest.mark.parametrize(
    ("counts", "values", "moves"),
    [
        ("grows", [1, 2, 1, 2, 3], [False, True, False, False, True]),
        ("shrinks", [3, 2, 3, 2, 1], [False, True, False, False, True]),
        ("changes", ["x", "y", "x", "y", "z"], [False, True, False, False, True]),
        ("grows", ["1", "2", "3", True, 4], [False] * 5),
        ("changes", [1, True, 1.0, "1", 0], [False, True, False, True, True]),
    ],
)
def test_going_back_and_forth_is_no_progress(
    counts: Counts, values: list[Value], moves: list[bool]
) -> None:
    rule = Contract((Field("x", counts),), stop_after=99)
    state, seen = rule.start, []
    for value in values:
        before = state.streak
        state, _ = rule.advance(state, step("a", x=value))
        seen.append(state.streak <= before and state.streak == 0)
    assert seen == moves


def test_a_refused_or_failed_call_is_never_progress() -> None:
    events: list[Event] = [
        step("a", result, evidence_count=number)
        for number, result in enumerate(["denied by the user", "Error: no"], 1)
    ]
    assert codes(RESEARCH, events) == ["", "no_progress"]


def test_a_person_starts_the_count_anew_and_keeps_what_was_reached() -> None:
    events: list[Event] = [step("a", evidence_count=1), step("a"), TURN, step("a")]
    assert codes(RESEARCH, [*events, step("a", evidence_count=1)]) == [
        "",
        "",
        "",
        "",
        "no_progress",
    ]


def test_a_failed_call_beside_another_tells_nothing_that_it_did() -> None:
    history = History(stores_evidence=True)
    refused = NoProgressCall("close", "1", '{"error":"denied","message":"the user refused"}')
    for told in ({"evidence_count": 1}, {}):
        history.add_round(refused, NoProgressCall("look", "1", "fine"))
        history.messages[-2] = {**history.messages[-2], "values": {"evidence_count": 9}}
        history.messages[-1] = {**history.messages[-1], "values": told}
    events = [one for one in stored_events(history.messages) if isinstance(one, StoredRound)]
    assert [event.values for event in events] == [{"evidence_count": 1}, None]


def test_what_is_open_is_named_by_its_label() -> None:
    parts = (Field("a", "reaches", True, False, label="the first source"), Field("b", "grows"))
    rule = Contract(parts, stop_after=1)
    [stop] = decisions(rule, rounds(("x", 1)))
    assert stop.fields == ("the first source", "b")


def test_what_another_run_found_before_is_a_step_that_tells_nothing() -> None:
    known = round_call(NoProgressCall("search", "x", "A"), known=True)
    alone = round_of((known,), values={"evidence_count": 1})
    assert codes(RESEARCH, [alone, alone]) == ["", "no_progress"]
    beside = round_of((known, call("open:B")), values={"evidence_count": 1})
    assert codes(RESEARCH, [alone, beside]) == ["", ""]


def test_a_task_that_does_not_move_may_be_handed_to_a_person() -> None:
    rule = replace(RESEARCH, stop_code="handoff", nudge_after=1)
    made = decisions(rule, [step("a"), step("a")])
    assert [(decision.asks, decision.code) for decision in made] == [
        ("nudge", "handoff"),
        ("stop", "handoff"),
    ]
    assert codes(rule, [step("a", open_gaps=0)]) == ["completed"]


def test_the_goal_is_looked_for_before_the_lack_of_progress() -> None:
    fields = tuple(Field(name, "reaches", target=1, initial=0) for name in "ab")
    events: list[Event] = [
        step("x", a=1),
        step("x", b=1, a=0),
        step("x", b=0, a=1),
        step("x", b=1),  # the second in a row that shows nothing new, and both are reached
    ]
    assert codes(Contract(fields, 2), events) == ["", "", "", "completed"]


def test_waits_that_move_the_state_start_the_count_anew_and_never_add_to_it() -> None:
    quiet, moved = wait(), replace(wait(), values={"evidence_count": 1})
    assert codes(RESEARCH, [step("a"), quiet, moved, step("a"), quiet, moved, quiet]) == [""] * 7
    assert codes(RESEARCH, [quiet, quiet, step("a"), step("a")]) == ["", "", "", "no_progress"]
    reached = replace(wait(), values={"open_gaps": 0})
    assert codes(RESEARCH, [reached]) == ["completed"]


def test_waits_are_told_to_the_contract_in_a_wait_lane_too() -> None:
    waits = round_call(WAIT)
    guard = PolicyGuard(with_contract(STRICT, RESEARCH))
    stops = []
    for calls, values in (
        ([call("a")], None),
        ([waits], {"evidence_count": 1}),
        ([call("b")], None),
        ([waits], None),
        ([call("c")], None),
    ):
        stops.append(guard.end_round(calls, values=values).stop)
    assert [stop.code if stop else "" for stop in stops] == ["", "", "", "", "no_progress"]


def test_a_wait_is_no_step() -> None:
    assert codes(RESEARCH, [step("a"), wait(), wait(), step("a")]) == ["", "", "", "no_progress"]


def test_a_reminder_comes_before_the_end_where_the_contract_wants_one() -> None:
    rule = Contract((Field("n", "grows", initial=0),), stop_after=3, nudge_after=2)
    assert [d.asks for d in decisions(rule, [step("a")] * 3)] == ["none", "nudge", "stop"]


@pytest.mark.parametrize("field", [("x", "reaches", None), ("x", "grows", 3)])
def test_a_target_goes_with_reaches_only(field: tuple[str, Counts, Value | None]) -> None:
    with pytest.raises(ValueError, match="target"):
        Field(*field)


VALUES: st.SearchStrategy[Value] = (
    st.integers(-3, 3) | st.booleans() | st.sampled_from(["", "a"]) | st.floats(allow_nan=True)
)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), VALUES), max_size=20))
def test_any_values_are_judged_and_equal_ones_are_never_progress_twice(
    told: list[dict[str, Value]],
) -> None:
    fields = (
        Field("a", "grows"),
        Field("b", "shrinks"),
        Field("c", "changes"),
        Field("d", "reaches", target=99),
    )
    rule = Contract(fields, stop_after=10**6)
    state = rule.start
    for values in told:
        state, _ = rule.advance(state, round_of((call("a", "x"),), values=values))
        again, _ = rule.advance(state, round_of((call("a", "x"),), values=values))
        assert again.streak == state.streak + 1


def test_a_target_that_is_there_at_first_sight_is_progress() -> None:
    rule = Contract((Field("state", "reaches", target="ok"), Field("tests", "reaches", target=0)))
    state, _ = rule.advance(rule.start, step("look", state="ok"))
    assert (state.streak, state.version) == (0, 1)
    state, _ = rule.advance(rule.start, step("look", state="open"))
    assert (state.streak, state.version) == (1, 0)


def test_a_contract_that_was_reached_judges_no_more() -> None:
    rule = Contract((Field("tests", "reaches", target=0, initial=3),))
    events: list[Event] = [
        step("test", tests=0),
        TURN,
        *(step(f"look {n}", tests=0) for n in range(5)),
    ]
    assert codes(rule, events) == ["completed"] + [""] * 6
