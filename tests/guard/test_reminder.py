"""What is said of a decision."""

from collections.abc import Iterable
from typing import Any, get_args

import pytest

from guard import NO_PROGRESS_ABORT_AT, Locale, build_no_progress_notice
from guard.notice import build_loop_text
from guard.policies import POLICIES, Policy, Use
from guard.reminder import RuleStop, build_last_turn_notice, build_notice, build_stop_text
from guard.rounds import LOOP_CODE, Decision, Event, Rule, Spent, Value, round_of
from guard.rules.budget import Budget, Limits
from guard.rules.contract import Contract, Field, StopCode
from guard.rules.hand_off import HandOff
from guard.rules.interleaved import InterleavedRepeat
from guard.rules.little_news import little_news
from guard.rules.no_news import NoNews
from guard.rules.no_progress import NoProgress
from guard.rules.period import Period
from guard.rules.repeat_cycle import RepeatCycle
from guard.rules.same_error import SameError
from guard.rules.same_result import SameResult
from guard.rules.waiting import Waiting
from tests.guard.rules.rounds import call, decisions, lived, rounds, wait

LOCALES: tuple[Locale, ...] = get_args(Locale)
SAME = rounds(*[("grep:a", 1)] * 20)
FAILING = rounds(*[(f"sql:{n}", "Error: denied") for n in range(20)])
TURNS = rounds(*[("a:1", 1), ("b:2", 2)] * 6)
DEAR = [
    round_of((call("fetch:a", "Error: timed out"),), Spent(1000, 1000, 1000, 1000))
    for _ in range(12)
]


def stalled(stop_code: StopCode) -> Contract:
    fields = (Field("open_gaps", "shrinks"), Field("state", "reaches", target="done"))
    return Contract(fields, stop_after=4, nudge_after=2, stop_code=stop_code)


def done(**values: Value) -> list[Event]:
    return [round_of((call("close:a", "ok"),), values=values)]


CASES: list[tuple[Rule[Any], Iterable[Event], str]] = [
    (NoProgress(), SAME, LOOP_CODE),
    (RepeatCycle(), SAME, LOOP_CODE),
    (Period(), TURNS, LOOP_CODE),
    (InterleavedRepeat((4,), 6), SAME, LOOP_CODE),
    (NoNews((5,), 7), SAME, LOOP_CODE),
    (little_news(), SAME, LOOP_CODE),
    (SameError((4,), 7), FAILING, LOOP_CODE),
    (SameResult(), rounds(*[(f"read:{n}", "x") for n in range(20)]), LOOP_CODE),
    (Waiting(4, 10**6), [wait()] * 5, "budget_wait"),
    (Budget(Limits(rounds=5)), DEAR, "budget_rounds"),
    (Budget(Limits(elapsed_ms=5000)), DEAR, "budget_time"),
    (Budget(Limits(prompt_tokens=5000)), DEAR, "budget_tokens"),
    (Budget(Limits(calls=5)), DEAR, "budget_calls"),
    (Budget(Limits(retries=5)), DEAR, "budget_retries"),
    (Budget(Limits(cost_micros=5000)), DEAR, "budget_cost"),
    (stalled("no_progress"), SAME, "no_progress"),
    (stalled("handoff"), SAME, "handoff"),
    (stalled("no_progress"), done(state="done"), "completed"),
    (HandOff(), rounds(("hand_off:x", "ok")), "handoff"),
]
IDS = [f"{rule.id}-{code}" for rule, _, code in CASES]


def asked(rule: Rule[Any], events: Iterable[Event]) -> list[Decision]:
    return [decision for decision in decisions(rule, events) if decision.asks != "none"]


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize(("rule", "events", "code"), CASES, ids=IDS)
def test_every_decision_of_every_rule_has_its_texts(
    rule: Rule[Any], events: Iterable[Event], code: str, locale: Locale
) -> None:
    made = asked(rule, events)
    assert {decision.code for decision in made} == {code}
    ends = any(decision.asks == "stop" for decision in made)
    for decision in made:
        for text in (
            build_notice(decision, locale),  # a mode may make a reminder of a stop
            *([build_stop_text(decision, locale)] if ends else []),
            build_last_turn_notice(decision, locale),
        ):
            assert text
            assert "{" not in text
            assert text.isascii() == (locale == "en")
            assert "grep:" not in text  # arguments are never told


def test_the_default_rule_says_what_it_always_said() -> None:
    for decision in asked(NoProgress(), SAME):
        streak = decision.streak
        for locale in LOCALES:
            assert build_stop_text(decision, locale) == build_loop_text(streak, ["grep"], locale)
            if decision.asks == "nudge":
                assert build_notice(decision, locale) == (
                    build_no_progress_notice(streak, ["grep"], locale)
                )


ENDS: list[tuple[Rule[Any], Iterable[Event], list[int]]] = [
    (NoProgress(), SAME[:14], [0, NO_PROGRESS_ABORT_AT]),
    (RepeatCycle(), SAME[:2], [3]),
    (Period(), TURNS[:9], [5]),
    (InterleavedRepeat((3, 4), 6), SAME[:5], [0, 6]),
    (InterleavedRepeat((4,), None), SAME, [0]),
    (SameError((4,), 7), FAILING[:6], [7]),
    (SameResult(), SAME, []),
    (stalled("no_progress"), SAME[:3], [4]),
    (Budget(Limits(calls=5)), DEAR[:4], [5]),
]


@pytest.mark.parametrize(("rule", "events", "limits"), ENDS)
def test_the_last_reminder_announces_the_end(
    rule: Rule[Any], events: Iterable[Event], limits: list[int]
) -> None:
    made = asked(rule, events)
    assert [decision.limit for decision in made] == limits
    for decision in made:
        text = build_notice(decision, "en")
        assert ("stop this run" in text) == (decision.limit > 0)


@pytest.mark.parametrize("name", POLICIES)
def test_a_rule_that_may_only_remind_announces_no_end(name: str) -> None:
    uses = tuple(Use(use.rule, "nudge") for use in POLICIES[name].uses)
    told = [
        nudge
        for ruling in lived(Policy("x@1", uses), [[call("a", 1)]] * 20)
        for nudge in ruling.nudges
    ]
    assert told
    assert all("stop this run" not in build_notice(nudge, "en") for nudge in told)


def test_a_cycle_tells_its_laps_and_its_length() -> None:
    (nudge,) = asked(Period(), TURNS[:6])
    assert "in the last 6 rounds the same 2 rounds came 3 times" in build_notice(nudge, "en")


def test_names_are_told_once_and_fit_for_a_text() -> None:
    names = ("a\nb", "a\nb", "c{streak}" + "x" * 100)
    text = build_stop_text(Decision("stop", "same_error", LOOP_CODE, streak=3, tools=names), "en")
    assert "(a?b/c{streak}" + "x" * 55 + ")" in text


def test_what_does_not_move_is_named_and_what_is_reached_is_not() -> None:
    events: list[Event] = [*done(open_gaps=2), *done(open_gaps=1), *SAME[:2]]
    (nudge,) = asked(stalled("no_progress"), events)
    assert nudge.fields == ("open_gaps", "state")
    assert "open_gaps/state" in build_notice(nudge)
    reached = Contract(
        (Field("a", "reaches", target=1), Field("b", "reaches", target=1)), stop_after=1
    )
    assert asked(reached, [*done(a=1), *done(a=1)])[-1].fields == ("b",)


def test_the_last_answer_tells_what_is_missing_unless_the_goal_is_reached() -> None:
    loop = Decision("stop", "no_news", LOOP_CODE, streak=7, tools=("grep",))
    assert "what is missing" in build_last_turn_notice(loop, "en")
    assert "不能再调用任何工具" in build_last_turn_notice(loop)
    goal = Decision("stop", "progress_contract", "completed", tools=("grep",))
    assert "missing" not in build_last_turn_notice(goal, "en")
    assert "without tools" in build_last_turn_notice(goal, "en")


def test_a_rule_that_ends_a_run_carries_its_decision_and_its_text() -> None:
    stop = Decision("stop", "budget", "budget_rounds", streak=500)
    assert RuleStop(stop).decision is stop
    assert str(RuleStop(stop, "en")) == build_stop_text(stop, "en")
    assert "(500)" in str(RuleStop(stop, "en"))
