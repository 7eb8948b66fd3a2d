"""The same result with other arguments."""

from hypothesis import given

from guard.rounds import Event
from guard.rules.same_result import SameResult
from tests.guard.rules.rounds import EVENTS, asked, rounds

RULE = SameResult(nudge_at=(3, 6))


def test_other_arguments_with_one_result_are_told_of() -> None:
    events = rounds(*[(f"limit {n}", "[('AD',)]") for n in range(8)])
    assert asked(RULE, events) == {"nudge": [3, 6], "stop": []}


def test_equal_arguments_are_left_to_other_rules() -> None:
    assert asked(RULE, rounds(*[("a", 1)] * 20)) == {"nudge": [], "stop": []}


def test_seven_empty_answers_to_seven_questions_are_not_told_of_by_default() -> None:
    events = rounds(*[(f"person {n}", "[]") for n in range(7)])
    assert asked(SameResult(), events) == {"nudge": [], "stop": []}


@given(EVENTS)
def test_it_never_ends_a_run(events: list[Event]) -> None:
    assert asked(RULE, events)["stop"] == []
