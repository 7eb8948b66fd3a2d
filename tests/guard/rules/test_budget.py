"""What a run may cost."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.policies import Policy, Use
from guard.rounds import TURN, Event, Spent, round_of
from guard.rules.budget import Budget, Limits
from guard.rules.no_progress import NoProgress
from tests.guard.rules.rounds import asked, call, decisions

CODES = {
    "rounds": "budget_rounds",
    "elapsed_ms": "budget_time",
    "prompt_tokens": "budget_tokens",
    "completion_tokens": "budget_tokens",
    "calls": "budget_calls",
    "retries": "budget_retries",
    "cost_micros": "budget_cost",
}
DEAR = round_of((call("a", "Error: timed out"),), Spent(1, 1, 1, 1))
"""Spends one of everything."""


@pytest.mark.parametrize("name", CODES)
def test_each_limit_has_its_code_and_its_warning(name: str) -> None:
    rule = Budget(Limits(**{name: 10}))
    made = decisions(rule, [DEAR] * 10)
    assert [decision.asks for decision in made] == ["none"] * 7 + ["nudge", "none", "stop"]
    assert {made[7].code, made[9].code} == {CODES[name]}


def test_every_limit_is_known() -> None:
    assert [part.name for part in fields(Limits)] == list(CODES)


@pytest.mark.parametrize("name", CODES)
def test_a_limit_that_is_not_positive_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Budget(Limits(**{name: 0}))


def test_without_limits_it_asks_for_nothing() -> None:
    assert asked(Budget(), [DEAR] * 50) == {"nudge": [], "stop": []}


def test_a_persons_message_fills_it_again() -> None:
    events: list[Event] = [*[DEAR] * 4, TURN, *[DEAR] * 5]
    assert asked(Budget(Limits(rounds=5)), events) == {"nudge": [4, 9], "stop": [10]}


def test_a_failure_that_another_try_cannot_mend_is_no_retry() -> None:
    failed = round_of((call("a", "Error: no such column"),))
    assert asked(Budget(Limits(retries=1)), [failed] * 9) == {"nudge": [], "stop": []}


def test_a_budget_is_checked_last() -> None:
    with pytest.raises(ValueError, match="last"):
        Policy("x@1", (Use(Budget()), Use(NoProgress())))


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 200))
def test_it_stops_exactly_when_the_sum_reaches_the_limit(spent: list[int], limit: int) -> None:
    events = [round_of((call("a"),), Spent(prompt_tokens=one)) for one in spent]
    sums = [sum(spent[: number + 1]) for number in range(len(spent))]
    stops = [number for number, total in enumerate(sums, 1) if total >= limit]
    assert asked(Budget(Limits(prompt_tokens=limit)), events)["stop"] == stops
