"""What holds for every rule that looks for loops."""

from typing import Any

import pytest

from guard import NoProgressCall, NoProgressGuard
from guard.rounds import Event, Rule, round_call, round_of
from guard.rules.interleaved import InterleavedRepeat
from guard.rules.little_news import little_news
from guard.rules.no_news import NoNews
from guard.rules.no_progress import NoProgress
from guard.rules.period import Period
from guard.rules.repeat_cycle import RepeatCycle
from guard.rules.same_error import SameError
from tests.guard.history import finish_round
from tests.guard.rules.rounds import asked, call, rounds

REFUSED = '{"error":"denied","message":"the user refused this call"}'
LOOPS: list[tuple[Rule[Any], int]] = [
    (NoProgress(), 15),
    (RepeatCycle(), 3),
    (InterleavedRepeat((4,), 6), 6),
    (NoNews((5,), 7), 8),
    (little_news(), 11),
    (SameError((4,), 7), 7),
]
"""With the round that ends a run of equal failures."""


def loop(rule: Rule[Any], name: str, reminds: int) -> list[Event]:
    """Rounds of which the rule reminds with the last."""
    if isinstance(rule, Period):
        return [*rounds((f"{name}1", 1), (f"{name}2", 2)) * 3]
    return [*rounds(*[(name, f"Error: {name}")] * reminds)]


@pytest.mark.parametrize(
    ("rule", "reminds"),
    [
        (NoProgress(), 5),
        (RepeatCycle(), 2),
        (Period(), 6),
        (InterleavedRepeat((4,), 6), 4),
        (NoNews((5,), 7), 6),
        (little_news(), 9),
        (SameError((4,), 7), 4),
    ],
)
def test_another_loop_is_told_of_as_well(rule: Rule[Any], reminds: int) -> None:
    work: list[Event] = [*rounds(*[(f"new {n}", n) for n in range(9)])]
    events = [*loop(rule, "a", reminds), *work, *loop(rule, "b", reminds)]
    assert asked(rule, events) == {"nudge": [reminds, len(events)], "stop": []}


@pytest.mark.parametrize(("rule", "stop"), LOOPS)
def test_a_refused_call_is_never_progress(rule: Rule[Any], stop: int) -> None:
    assert asked(rule, rounds(*[("send", REFUSED)] * stop))["stop"] == [stop]


def test_refused_calls_that_are_worded_anew_are_one_failure() -> None:
    events = rounds(*[(f"send {n}", REFUSED) for n in range(7)])
    assert asked(SameError((4,), 7), events) == {"nudge": [4], "stop": [7]}


def test_a_relapse_into_a_failure_that_was_told_of_keeps_its_count() -> None:
    events = rounds(*[("a", REFUSED)] * 4, ("b", "Error: other"), *[("a", REFUSED)] * 3)
    assert asked(SameError((4,), 7), events) == {"nudge": [4], "stop": [8]}


def test_a_round_is_named_as_the_default_guard_names_it() -> None:
    calls = [NoProgressCall("grep", '{"a": 1}', "x"), NoProgressCall("read", "{}", "y")]
    guard = NoProgressGuard()
    finish_round(guard, "a", *calls)
    seen = round_of([round_call(one) for one in calls])
    assert seen.digest == guard.digest
    assert sum(one.args_length for one in seen.counted) == guard.args_length
    assert round_of(()).digest == NoProgressGuard().digest == ""
    assert call("a:b").args_length == 1
