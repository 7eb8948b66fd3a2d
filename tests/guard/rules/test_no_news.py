"""Rounds that show only what was seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import NoProgressCall
from guard.rounds import Event, round_call, round_of
from guard.rules.no_news import NoNews
from tests.guard.rules.rounds import EVENTS, ROUNDS, asked, call, decisions, rounds

RULE = NoNews(nudge_at=(5,), stop_at=7, window_rounds=9)


@pytest.mark.parametrize("order", ["aaaaaaaa", "abababababa", "abbaabbab", "abcacbbcab"])
def test_a_few_calls_in_any_order_are_no_news(order: str) -> None:
    found = asked(RULE, rounds(*[(letter, letter) for letter in order]))
    first = len(set(order)) + 5
    assert (found["nudge"][0], found["stop"][:1]) == (first, [first + 2])


def test_one_new_call_in_a_round_is_news() -> None:
    events = [round_of((call("a", 1), call(n, n))) for n in range(30)]
    assert asked(RULE, events) == {"nudge": [], "stop": []}


@pytest.mark.parametrize(
    "result", ["took {}.5 seconds", '{{"request_id":"r-{}","state":"took 3 ms"}}']
)
def test_a_result_of_the_same_class_or_the_same_digest_is_no_news(result: str) -> None:
    events = rounds(*[("a", result.format(number)) for number in range(8)])
    assert asked(RULE, events) == {"nudge": [6], "stop": [8]}


def test_work_between_keeps_it_quiet() -> None:
    edits = [("edit", n) if n % 2 else ("test", "same failure") for n in range(60)]
    assert asked(RULE, rounds(*edits))["stop"] == []


def test_what_another_run_found_before_is_no_news() -> None:
    known = [
        round_of((round_call(NoProgressCall("search", f"{n}", f"{n}"), known=True),))
        for n in range(7)
    ]
    assert asked(RULE, known) == {"nudge": [5], "stop": [7]}


def test_a_loop_that_stays_at_its_count_is_told_of_once() -> None:
    edits = [("edit", n) if n % 2 else ("test", "same failure") for n in range(60)]
    assert asked(RULE, rounds(*edits)) == {"nudge": [11], "stop": []}
    noisy = [("edit", n) if n % 2 else ("test", f"failed after {n} ms") for n in range(60)]
    assert asked(RULE, rounds(*noisy)) == {"nudge": [11], "stop": []}


def test_a_relapse_keeps_its_count_and_another_loop_is_told_of_too() -> None:
    first = [("a", 1)] * 6
    relapse = rounds(*first, ("x", 1), *[("a", 1)] * 2)
    assert asked(RULE, relapse) == {"nudge": [6], "stop": [9]}
    quiet = [(f"new {n}", n) for n in range(9)]
    another = rounds(*first, *quiet, *[("b", 2)] * 6)
    assert asked(RULE, another) == {"nudge": [6, 21], "stop": []}


@given(st.lists(ROUNDS, max_size=30), st.integers(0, 29))
def test_a_new_result_is_never_the_round_that_ends_a_run(before: list[Event], number: int) -> None:
    events = [*before, *rounds(("a", f"never seen {number}"))]
    assert decisions(RULE, events)[-1].asks == "none"


@given(EVENTS)
def test_it_asks_for_nothing_before_seven_rounds_are_without_news(events: list[Event]) -> None:
    for number, decision in enumerate(decisions(RULE, events), 1):
        assert decision.asks != "stop" or number > 7
        assert decision.asks == "none" or decision.streak <= 9
