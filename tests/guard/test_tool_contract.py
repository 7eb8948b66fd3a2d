"""What a tool says of its arguments, results and waits."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import (
    RULES,
    Evidence,
    NoProgressCall,
    NoProgressGuard,
    NoProgressLoopError,
    NoProgressNotice,
    Normaliser,
    Nudge,
    Rules,
    Thresholds,
    ToolContract,
    action_digest,
    build_no_progress_notice,
    canonical_args,
    evidence,
    fill_defaults,
    fold_case,
    id_set,
    ignore_order,
    keep_fields,
    result_digest,
    scan_no_progress_notices,
    squeeze_blanks,
    volatile_keys_of,
)
from guard.policies import DEFAULT, PolicyGuard, scan_rounds, with_contract
from guard.rounds import Round, Value, round_call, round_of, stored_events
from guard.rules.contract import Contract, Field
from tests.guard.history import GREP, History, finish_round
from tests.guard.test_properties import ANY_TEXT, CALLS, JSON, Json, untimed


def rules(contract: ToolContract, tool: str = "search") -> Rules:
    return Rules(contracts={tool: contract})


def action(contract: ToolContract, arguments: object) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return action_digest(NoProgressCall("search", text, ""), rules(contract))


def result(contract: ToolContract, content: object) -> str:
    call = NoProgressCall("search", "{}", json.dumps(content))
    return result_digest(call, rules(contract))


# Arguments.


@pytest.mark.parametrize(
    ("steps", "left", "right"),
    [
        ([fold_case("q")], {"q": "Agent"}, {"q": "aGENT"}),
        ([fold_case()], {"a": {"q": ["Agent"]}}, {"a": {"q": ["agent"]}}),
        ([squeeze_blanks("q")], {"q": " a  b\n"}, {"q": "a b"}),
        ([ignore_order("tags")], {"tags": ["b", "a"]}, {"tags": ["a", "b"]}),
        ([ignore_order()], {"a": [{"b": [2, 1]}]}, {"a": [{"b": [1, 2]}]}),
        ([fold_case("a.q")], {"a": [{"q": "X"}]}, {"a": [{"q": "x"}]}),
        ([fill_defaults({"limit": 10})], {"q": "a"}, {"q": "a", "limit": 10}),
        ([fold_case("q"), squeeze_blanks("q")], {"q": "Agent memory"}, {"q": "agent  memory "}),
    ],
)
def test_arguments_that_mean_the_same_are_one_action(
    steps: list[Normaliser], left: object, right: object
) -> None:
    contract = ToolContract(arguments=tuple(steps))
    assert action(contract, left) == action(contract, right)
    assert action(ToolContract(), left) != action(ToolContract(), right)


@pytest.mark.parametrize(
    ("steps", "left", "right"),
    [
        ([fold_case("q")], {"q": "a", "path": "X"}, {"q": "a", "path": "x"}),
        ([squeeze_blanks("q")], {"q": "ab"}, {"q": "a b"}),
        ([ignore_order("tags")], {"tags": ["a", "a"]}, {"tags": ["a"]}),
        ([ignore_order("tags")], {"order": ["a", "b"]}, {"order": ["b", "a"]}),
        ([fill_defaults({"limit": 10})], {"q": "a"}, {"q": "a", "limit": 20}),
        ([fold_case("q")], {"q": 1}, {"q": "1"}),
    ],
)
def test_what_is_not_named_still_counts(
    steps: list[Normaliser], left: object, right: object
) -> None:
    contract = ToolContract(arguments=tuple(steps))
    assert action(contract, left) != action(contract, right)


def test_identity_is_all_that_makes_the_action() -> None:
    contract = ToolContract(identity=("order.id", "items.sku"))
    paid = {"order": {"id": 7, "note": "x"}, "items": [{"sku": "a", "n": 1}], "trace": 1}
    again = {"order": {"id": 7, "note": "y"}, "items": [{"sku": "a", "n": 9}], "trace": 2}
    assert action(contract, paid) == action(contract, again)
    assert action(contract, paid) != action(contract, {**paid, "order": {"id": 8}})
    assert action(contract, paid) != action(contract, {**paid, "items": [{"sku": "b"}]})


def test_a_call_without_any_field_of_the_identity_is_taken_whole() -> None:
    contract = ToolContract(identity=("id",))
    assert action(contract, {"a": 1}) != action(contract, {"a": 2})
    assert action(contract, "not json 1") != action(contract, "not json 2")


def test_defaults_are_filled_before_the_identity_is_looked_for() -> None:
    contract = ToolContract(identity=("page",), arguments=(fill_defaults({"page": 1}),))
    assert action(contract, {"q": "a"}) == action(contract, {"q": "b", "page": 1})


def test_arguments_that_are_no_json_are_compared_as_text() -> None:
    contract = ToolContract(identity=("id",), arguments=(fold_case(),))
    assert action(contract, "a  b") == action(contract, " a b ")
    found = evidence(NoProgressCall("search", "a  b", ""), rules(contract))
    assert found == evidence(NoProgressCall("search", "a  b", ""))


# Results.


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"results": [{"id": 1, "score": 3}, {"id": 2}]}, {"results": [{"id": 2}, {"id": 1}]}),
        ({"results": [{"id": 1}, {"id": 1}]}, {"took": 3, "results": [{"id": 1}]}),
        ({"results": [], "at": 1}, {"results": [], "at": 2}),
    ],
)
def test_results_with_one_set_of_ids_are_one(left: object, right: object) -> None:
    contract = ToolContract(result=id_set("results.id"))
    assert result(contract, left) == result(contract, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"results": [{"id": 1}]}, {"results": [{"id": 1}, {"id": 2}]}),
        ({"results": [{"id": 1}]}, {"results": [{"id": "1"}]}),
        ({"results": []}, {"results": [{"id": 1}]}),
        ({"error": "a"}, {"error": "b"}),
        ({"results": [{"name": "a"}]}, {"results": [{"name": "b"}]}),
    ],
)
def test_results_with_other_ids_or_errors_are_not(left: object, right: object) -> None:
    contract = ToolContract(result=id_set("results.id"))
    assert result(contract, left) != result(contract, right)


def test_an_id_set_may_be_a_list_of_its_own() -> None:
    contract = ToolContract(result=id_set("ids"))
    assert result(contract, {"ids": ["a", "b"]}) == result(contract, {"ids": ["b", "a", "a"]})
    assert result(contract, {"ids": ["a", "b"]}) != result(contract, {"ids": ["a"]})


# Waits.


def polls(call: NoProgressCall) -> bool:
    return '"state":"pending"' in call.result_content


def test_a_wait_of_a_tool_does_not_count() -> None:
    found = rules(ToolContract(waits=polls))
    pending = NoProgressCall("search", "{}", '{"state":"pending"}')
    assert evidence(pending, found).exempt
    assert not evidence(replace(pending, result_content="{}"), found).exempt
    assert not evidence(replace(pending, tool_name="other"), found).exempt


# Numbers of its own.


def streaks(contract: ToolContract, calls: list[NoProgressCall], rounds: int) -> dict[str, int]:
    guard, found = NoProgressGuard(rules=rules(contract)), {}
    for number in range(1, rounds + 1):
        finish_round(guard, "a", *calls)
        action = guard.take_action()
        if action is not None:
            found[type(action).__name__ + str(number)] = number
    return found


POLL = NoProgressCall("search", "{}", "same")


def test_a_tool_may_have_its_own_numbers() -> None:
    quick = ToolContract(thresholds=Thresholds((2,), 3))
    assert streaks(quick, [POLL], 3) == {"Nudge2": 2, "Abort3": 3}
    reminds = ToolContract(thresholds=Thresholds((4,)))
    assert streaks(reminds, [POLL], 40) == {"Nudge4": 4}
    assert streaks(quick, [GREP], 10) == {"Nudge5": 5, "Nudge10": 10}


def test_in_a_round_of_several_tools_all_must_have_their_own_and_the_most_patient_hold() -> None:
    quick = ToolContract(thresholds=Thresholds((2,), 3))
    assert streaks(quick, [POLL, GREP], 10) == {"Nudge5": 5, "Nudge10": 10}
    both = Rules(
        contracts={"search": quick, GREP.tool_name: ToolContract(thresholds=Thresholds((3,), 4))}
    )
    guard = NoProgressGuard(rules=both)
    found = []
    for _ in range(4):
        finish_round(guard, "a", POLL, GREP)
        found.append(guard.take_action())
    assert [type(one).__name__ for one in found] == ["NoneType", "NoneType", "Nudge", "Abort"]


def test_a_reminder_announces_the_end_that_the_tool_has() -> None:
    for thresholds, line in (
        (Thresholds((2,), 3), "系统将在第 3 轮自动中止本次执行"),
        (Thresholds((2, 4), 9), "继续重复不会产生新信息"),
        (Thresholds((2,)), "继续重复不会产生新信息"),
    ):
        guard = NoProgressGuard(rules=rules(ToolContract(thresholds=thresholds)))
        finish_round(guard, "a", POLL)
        finish_round(guard, "a", POLL)
        nudge = guard.take_action()
        assert isinstance(nudge, Nudge)
        assert line in nudge.text


@pytest.mark.parametrize(("nudge_at", "abort_at"), [((0,), 3), ((3, 3), 5), ((5,), 5), ((), 0)])
def test_numbers_that_make_no_sense_are_refused(nudge_at: tuple[int, ...], abort_at: int) -> None:
    with pytest.raises(ValueError, match="ascend"):
        Thresholds(nudge_at, abort_at)


def test_evidence_out_of_a_store_is_judged_by_the_numbers_of_today() -> None:
    quick = rules(ToolContract(thresholds=Thresholds((2,), 3)))
    known = Evidence(evidence(POLL).action_digest, evidence(POLL).result_digest, exempt=False)
    guard = NoProgressGuard(rules=quick)
    for _ in range(2):
        guard.observe_call(POLL, known)
        guard.end_round("a")
    assert isinstance(guard.take_action(), Nudge)


# Rules that fail.


def raises(_: object) -> object:
    raise KeyError("secret content")


@pytest.mark.parametrize("step", [raises, lambda _: {1, 2}, lambda _: float("nan")])
def test_an_argument_rule_that_fails_is_replaced_by_the_text_rule(step: Normaliser) -> None:
    found = evidence(GREP, Rules(contracts={GREP.tool_name: ToolContract(arguments=(step,))}))
    assert found.action_digest == action_digest(GREP)
    assert len(found.faults) == 1
    assert "argument rule" in found.faults[0]
    assert "secret" not in found.faults[0]


def test_a_wait_rule_that_fails_makes_no_wait() -> None:
    def broken(call: NoProgressCall) -> bool:
        raise ValueError

    found = evidence(GREP, Rules(contracts={GREP.tool_name: ToolContract(waits=broken)}))
    assert not found.exempt
    assert found.faults == ("exempt rule for 'grep_search': ValueError",)


READY_MADE = st.sampled_from(
    [
        fold_case(),
        fold_case("a", "b.c"),
        squeeze_blanks(),
        squeeze_blanks("a.b"),
        ignore_order(),
        ignore_order("a"),
        fill_defaults({"a": 1}),
        id_set("a"),
        id_set("a.b"),
        keep_fields("a"),
    ]
)
NAMED: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.integers() | ANY_TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=10,
)


@untimed
@given(JSON | NAMED, READY_MADE)
def test_a_ready_made_step_takes_any_value_leaves_it_alone_and_settles_at_once(
    value: Json, step: Normaliser
) -> None:
    before = json.dumps(value)
    once = step(value)
    assert json.dumps(value) == before
    assert canonical_args(json.dumps(step(once))) == canonical_args(json.dumps(once))


@untimed
@given(CALLS)
def test_without_a_contract_nothing_changes(call: NoProgressCall) -> None:
    others = Rules(contracts={"elsewhere": ToolContract(("x",), (raises,), raises, polls)})
    assert evidence(call, others) == evidence(call)
    assert evidence(call, Rules(contracts={call.tool_name: ToolContract()})) == evidence(call)


DECLARED = Rules(
    contracts={
        "shell": ToolContract(arguments=(fold_case(),), thresholds=Thresholds((2,), 4)),
        "grep_search": ToolContract(identity=("a",), result=id_set("x")),
        "view_image": ToolContract(waits=lambda call: '"b"' in call.arguments_json),
    }
)


@untimed
@given(
    st.lists(st.tuples(st.lists(CALLS, min_size=1, max_size=3), st.integers(1, 6)), max_size=6),
    st.booleans(),
)
def test_replay_agrees_with_the_live_guards_under_contracts(
    drawn: list[tuple[list[NoProgressCall], int]], stores_evidence: bool
) -> None:
    history = History(stores_evidence, rules=DECLARED)
    guard, policy = NoProgressGuard(rules=DECLARED), PolicyGuard(DEFAULT)
    pushed, rulings = [], []
    for calls in [calls for calls, times in drawn for _ in range(times)]:
        anchor = history.add_round(*calls)
        finish_round(guard, anchor, *calls)
        nudge = guard.take_action()
        if isinstance(nudge, Nudge):
            pushed.append(NoProgressNotice(nudge.after_tool_call_id, nudge.text))
        rulings.append(policy.end_round([round_call(call, DECLARED) for call in calls]))
        scanned = scan_no_progress_notices(history.messages, history.attachments, rules=DECLARED)
        assert (scanned.tail, scanned.notices) == (guard.tail, tuple(pushed))
        assert policy.state.rules == (guard.tail,)
    events = stored_events(history.messages, history.attachments, DECLARED)
    assert scan_rounds(DEFAULT, events) == (policy.state, rulings)


# The trace of four steps that all say "ok".

FOUR_STEPS = Rules(
    contracts={
        "search_docs": ToolContract(
            arguments=(fold_case("query"), squeeze_blanks("query")), result=id_set("results.id")
        )
    }
)


def found(*ids: str, took: int) -> str:
    results = [{"id": id_, "fetched": took, "score": took / 7} for id_ in ids]
    return json.dumps({"ok": True, "request": took, "results": results})


TRACE: list[tuple[NoProgressCall, Mapping[str, Value]]] = [
    (
        NoProgressCall(
            "search_docs", '{"query":"Agent memory update"}', found("A1", "A2", took=31)
        ),
        {"open_gaps": 1},
    ),
    (
        NoProgressCall("open_doc", '{"id":"A1"}', '{"ok":true,"fact":"F1"}'),
        {"evidence_count": 1},
    ),
    (
        NoProgressCall(
            "search_docs", '{"query":"Agent memory update"}', found("A2", "A1", took=44)
        ),
        {"evidence_count": 1, "open_gaps": 1},
    ),
    (
        NoProgressCall(
            "search_docs", '{"query":"agent  memory update "}', found("A1", "A2", took=58)
        ),
        {"evidence_count": 1, "open_gaps": 1},
    ),
]
TWO_SOURCES = Contract(
    (
        Field("evidence_count", "grows", initial=0),
        Field("open_gaps", "shrinks", initial=2),
        Field("open_gaps", "reaches", target=0),
    ),
    stop_after=2,
)


def steps(declared: Rules) -> list[Round]:
    return [round_of((round_call(call, declared),), values=values) for call, values in TRACE]


def test_steps_one_three_and_four_have_one_fingerprint() -> None:
    first, second, third, fourth = steps(FOUR_STEPS)
    assert first.digest == third.digest == fourth.digest != second.digest
    assert len({step.digest for step in steps(RULES)}) == 4
    assert all(len(step.digest) == 16 for step in (first, second))


def test_the_contract_ends_the_run_at_the_fourth_step_and_not_at_the_eighth() -> None:
    history, guard = History(rules=FOUR_STEPS), PolicyGuard(with_contract(DEFAULT, TWO_SOURCES))
    history.add_user("find two independent sources", synthetic=False)
    rulings = []
    for call, values in TRACE:
        history.add_round(call)
        history.messages[-1] = {**history.messages[-1], "values": values}
        rulings.append(guard.end_round([round_call(call, FOUR_STEPS)], values=values))
    assert [ruling.stop is None for ruling in rulings] == [True, True, True, False]
    stop = rulings[3].stop
    assert stop is not None
    assert (stop.code, stop.rule, stop.streak) == ("no_progress", "progress_contract", 2)
    assert stop.fields == ("evidence_count", "open_gaps")
    events = list(stored_events(history.messages, rules=FOUR_STEPS))
    assert scan_rounds(guard.policy, events)[1] == rulings


def test_an_exact_comparison_would_have_taken_the_fourth_step_for_news() -> None:
    plain = steps(RULES)
    assert all(one.action_key != other.action_key for one, other in pairwise(plain))


# A hint for tools that declare nothing.


@pytest.mark.parametrize(
    "value",
    [
        {"id": 1, "items": [{"order_id": 2, "createdAt": "x"}], "name": "n"},
        {"properties": {"id": {}, "order_id": {}, "createdAt": {"type": "string"}}},
    ],
)
def test_fields_that_look_new_with_every_call_are_named(value: object) -> None:
    assert volatile_keys_of(value) == ("createdAt", "id", "order_id")


def test_fields_that_are_never_compared_and_plain_ones_are_not_named() -> None:
    quiet = ["request_id", "trace_id", "updated_at", "duration_ms", "state", "valid", "format"]
    assert volatile_keys_of(dict.fromkeys(quiet, 1)) == ()
    loud = ["uuid", "messageId", "finished_at", "time", "date", "elapsed", "took_ms"]
    assert volatile_keys_of(dict.fromkeys(loud, 1)) == tuple(sorted(loud))


@given(JSON)
def test_any_value_may_be_looked_at(value: Json) -> None:
    assert list(volatile_keys_of(value)) == sorted(set(volatile_keys_of([value])))


def test_texts_of_the_default_numbers_are_the_ones_they_always_were() -> None:
    guard = NoProgressGuard()
    for streak in range(1, 11):
        finish_round(guard, "a", GREP)
        nudge = guard.take_action()
        if isinstance(nudge, Nudge):
            assert nudge.text == build_no_progress_notice(streak, [GREP.tool_name])
    assert "15" in str(NoProgressLoopError(["a"], 15))
