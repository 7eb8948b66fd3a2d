"""Rounds for the tests of rules, as short as they can be said."""

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from guard import NoProgressCall
from guard.policies import Policy, PolicyGuard, Ruling, Use
from guard.rounds import (
    TURN,
    Decision,
    Event,
    Kind,
    Round,
    RoundCall,
    Rule,
    Spent,
    Turn,
    round_call,
    round_of,
)

WAIT = NoProgressCall("shell", '{"action":"await_async","session_id":"s"}', '{"completed":false}')


def call(action: object, result: object = "", kind: Kind = "unknown") -> RoundCall:
    """A call of the tool `t`, or of the tool before a colon in *action*."""
    tool, _, arguments = str(action).rpartition(":")
    return round_call(NoProgressCall(tool or "t", arguments, str(result)), kind=kind)


def rounds(*specs: tuple[object, object]) -> list[Round]:
    """A round of one call for each action and result."""
    return [round_of((call(action, result),)) for action, result in specs]


def wait(elapsed_ms: int = 0) -> Round:
    """A round that only waits."""
    return round_of((round_call(WAIT),), Spent(elapsed_ms))


def decisions(rule: Rule[Any], events: Iterable[Event]) -> list[Decision]:
    """What the rule makes of each event."""
    state, made = rule.start, []
    for event in events:
        state, decision = rule.advance(state, event)
        made.append(decision)
    return made


def asked(rule: Rule[Any], events: Iterable[Event]) -> dict[str, list[int]]:
    """The events, from 1, after which the rule asks for a reminder and for the end."""
    found: dict[str, list[int]] = {"nudge": [], "stop": []}
    for number, decision in enumerate(decisions(rule, events), 1):
        if decision.asks != "none":
            found[decision.asks].append(number)
    return found


def lived(policy: Policy, events: Sequence[Sequence[RoundCall] | Turn]) -> list[Ruling]:
    """What a live guard makes of each round."""
    guard, rulings = PolicyGuard(policy), []
    for event in events:
        if isinstance(event, Turn):
            guard.begin_turn()
        else:
            rulings.append(guard.end_round(event))
    return rulings


def alone(rule: Rule[Any], *, has_wait_lane: bool = False) -> Policy:
    """A policy of this rule only."""
    return Policy("alone@1", (Use(rule),), has_wait_lane=has_wait_lane)


LETTERS = st.sampled_from(["a", "b", "c"])
RESULTS = st.sampled_from(["1", "2", "error: no such thing", "error: denied", ""])
ROUNDS = st.builds(lambda action, result: rounds((action, result))[0], LETTERS, RESULTS)
EVENTS: st.SearchStrategy[list[Event]] = st.lists(
    ROUNDS | st.just(TURN) | st.builds(wait, st.integers(0, 5)), max_size=40
)
"""Few different ones, so that everything repeats."""
