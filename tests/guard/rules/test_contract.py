"""The progress contract: values of a state, and what of them is progress."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.rounds import TURN, Decision, Event, Round, Value, round_of
from guard.rules.contract import Contract, Counts, Field
from tests.guard.rules.rounds import call, decisions, wait

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
        "stop", "progress_contract", "no_progress", streak=2, tools=("search",)
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
