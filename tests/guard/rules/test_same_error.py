"""The same failure again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.rounds import TURN, Event, round_of
from guard.rules.same_error import SameError
from tests.guard.rules.rounds import EVENTS, ROUNDS, asked, call, decisions, rounds

RULE = SameError(nudge_at=(3,), stop_at=5)


def test_reworded_arguments_do_not_hide_an_unchanged_error() -> None:
    events = rounds(*[(f"agenda v{n}", "401 unauthorised") for n in range(5)])
    assert asked(RULE, events) == {"nudge": [3], "stop": [5]}


def test_what_the_error_quotes_is_the_argument() -> None:
    events = rounds(*[(n, f"Error: unknown column 'c{n}' in 'field list'") for n in range(5)])
    assert asked(RULE, events)["stop"] == [5]


def test_different_reasons_are_counted_apart() -> None:
    texts = ["Error: no column", "Error: no table", "Error: denied", "Error: syntax"]
    assert asked(RULE, rounds(*[(n, texts[n % 4]) for n in range(20)])) == {"nudge": [], "stop": []}


def test_a_reason_of_several_tools_is_one_only_if_the_policy_says_so() -> None:
    events = rounds(*[(f"tool{n % 3}:{n}", "Invalid action!") for n in range(5)])
    assert asked(RULE, events) == {"nudge": [], "stop": []}
    across = SameError((3,), 5, across_tools=True)
    assert asked(across, events) == {"nudge": [3], "stop": [5]}


def test_one_other_failure_between_is_passed_over() -> None:
    events = rounds(*[(n, "Error: x" if n % 3 != 2 else "Error: y") for n in range(8)])
    assert asked(RULE, events) == {"nudge": [4], "stop": [7, 8]}


def test_a_success_known_already_is_passed_over_and_news_start_over() -> None:
    known = rounds(("look", "same"), *[("go", "Error: x"), ("look", "same")] * 5)
    assert asked(RULE, known) == {"nudge": [6], "stop": [10]}
    fresh = [("go", "Error: x") if n % 2 else ("edit", f"patch {n}") for n in range(30)]
    assert asked(RULE, rounds(*fresh)) == {"nudge": [], "stop": []}


def test_a_round_counts_only_if_every_call_failed() -> None:
    mixed = [round_of((call("a", "Error: x"), call(n, f"found {n}"))) for n in range(20)]
    assert asked(RULE, mixed) == {"nudge": [], "stop": []}
    siblings = [round_of(tuple(call(f"{n}{m}", "Error: x") for m in range(3))) for n in range(2)]
    assert asked(RULE, siblings) == {"nudge": [], "stop": []}


@pytest.mark.parametrize(
    "result", ["updated successfully", "", "[]", "0 matches", "No more results."]
)
def test_equal_answers_that_are_no_failures_say_nothing(result: str) -> None:
    assert asked(RULE, rounds(*[(n, result) for n in range(20)])) == {"nudge": [], "stop": []}


@given(EVENTS)
def test_it_never_asks_more_often_than_rounds_failed(events: list[Event]) -> None:
    failed = 0
    for event, decision in zip(events, decisions(RULE, events), strict=True):
        failed = 0 if event is TURN else failed + (getattr(event, "failure", None) is not None)
        assert decision.streak <= failed


@given(st.lists(ROUNDS, max_size=30))
def test_a_new_success_starts_over(before: list[Event]) -> None:
    events = [*before, *rounds(("new", "never seen"), *[("a", "error: denied")] * 4)]
    assert all(decision.asks != "stop" for decision in decisions(RULE, events)[len(before) :])
