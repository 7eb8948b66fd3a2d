"""Rounds in turn."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.rounds import Event, Round
from guard.rules.period import Cycle, Period, PeriodState, cycle_of
from tests.guard.rules.rounds import EVENTS, asked, rounds


def last_cycles(events: list[Event]) -> list[Cycle]:
    """The same by their definition, from the whole history; the smallest first."""
    found = []
    since: list[Round] = []
    for event in events:
        since = [*since, event] if isinstance(event, Round) and event.counted else []
    keys = [event.key for event in since]
    for period in range(2, 6):
        block, laps = keys[len(keys) - period :], 1
        if len(keys) < period or len({event.action_key for event in since[-period:]}) < 2:
            continue
        while keys[-period * (laps + 1) : len(keys) - period * laps] == block:
            laps += 1
        if laps >= 2:
            found.append(Cycle(period, laps))
    return found


@settings(deadline=None)
@given(EVENTS, st.integers(1, 6))
def test_the_cycle_is_what_its_definition_says_at_every_prefix(
    events: list[Event], times: int
) -> None:
    rule, state = Period(), PeriodState()
    events = [*events, *events[-4:] * times]
    for length, event in enumerate(events, 1):
        state, decision = rule.advance(state, event)
        found = last_cycles(events[:length])
        most = max((cycle.laps for cycle in found), default=0)
        assert cycle_of(state) == (found[0] if found else Cycle())
        assert (decision.asks == "stop") == (most >= 5)
        assert decision.asks != "nudge" or most >= 3


def test_a_cycle_is_told_of_once_and_ended_at_the_fifth_lap() -> None:
    events = rounds(*[("a", 1), ("b", 2)] * 5)
    assert asked(Period(), events) == {"nudge": [6], "stop": [10]}


@pytest.mark.parametrize("lap", ["abaab", "aabab", "ababb", "abcab"])
def test_a_cycle_that_ends_like_a_shorter_one_is_told_of_once_too(lap: str) -> None:
    events = rounds(*[(action, action) for action in lap * 5])
    assert asked(Period(), events) == {"nudge": [15], "stop": [25]}


def test_another_cycle_is_told_of_again() -> None:
    events = rounds(*[("a", 1), ("b", 2)] * 3, *[("c", 1), ("d", 2), ("e", 3)] * 3)
    assert asked(Period(), events)["nudge"] == [6, 15]


def test_changing_results_are_no_cycle() -> None:
    events = rounds(*[("ab"[number % 2], number) for number in range(30)])
    assert asked(Period(), events) == {"nudge": [], "stop": []}
