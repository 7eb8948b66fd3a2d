"""The scripted cases again, for the rules beside the default one."""

from collections.abc import Iterator
from typing import Any

import pytest

from guard import NoProgressCall
from guard.policies import Policy, PolicyGuard, PolicyState, scan_rounds
from guard.rounds import TURN, Turn, round_call, stored_events
from guard.rules.period import Period, PeriodState, cycle_of
from guard.rules.repeat_cycle import RepeatCycle
from tests.guard.history import History
from tests.guard.rules.rounds import alone
from tests.guard.test_cases import CASES, expand

P1 = alone(RepeatCycle(with_waits=True))
P1X = alone(RepeatCycle())
P2 = alone(Period())


def played(id_: str) -> Iterator[list[NoProgressCall] | Turn]:
    """The rounds and turns of the whole script; other events say nothing to these rules."""
    number = 0
    for segment in CASES[id_]["script"]:
        if segment.get("ev") == "user":
            yield TURN
        if "ev" in segment:
            continue
        for calls in expand(segment, number):
            number += 1
            yield calls


def judged(id_: str, policy: Policy, *, goes_on: bool) -> tuple[dict[str, list[int]], PolicyState]:
    """The rounds of reminders and ends; after an end nothing is played until a person speaks."""
    guard, number, is_over = PolicyGuard(policy), 0, False
    found: dict[str, list[int]] = {"nudge": [], "abort": []}
    for event in played(id_):
        if isinstance(event, Turn):
            guard.begin_turn()
            is_over = False
            continue
        number += 1
        if is_over:
            continue
        ruling = guard.end_round([round_call(call) for call in event])
        if ruling.nudges:
            found["nudge"].append(number)
        if ruling.stop is not None:
            found["abort"].append(number)
            is_over = not goes_on
    return found, guard.state


@pytest.mark.parametrize("id_", [id_ for id_ in CASES if CASES[id_]["expect"]["P1"] is not None])
def test_a_repeat_cycle_has_its_verdict(id_: str) -> None:
    expected = CASES[id_]["expect"]
    assert judged(id_, P1, goes_on=False)[0] == expected["P1"]
    assert judged(id_, P1X, goes_on=False)[0] == expected.get("P1x", expected["P1"])


@pytest.mark.parametrize("id_", CASES)
def test_a_period_has_its_laps(id_: str) -> None:
    expected: dict[str, Any] = CASES[id_]["expect"]["P2"]
    found, state = judged(id_, P2, goes_on=True)
    (period,) = state.rules
    assert isinstance(period, PeriodState)
    cycle = cycle_of(period)
    assert (cycle.period or None, cycle.laps) == (expected["p"], expected["laps"])
    assert found["nudge"][:1] == ([] if expected["at3"] is None else [expected["at3"]])


@pytest.mark.parametrize("policy", [P1, P1X, P2], ids=["P1", "P1x", "P2"])
@pytest.mark.parametrize("id_", CASES)
def test_a_stored_case_is_judged_as_it_was_lived(id_: str, policy: Policy) -> None:
    history, guard, rulings = History(stores_evidence=True), PolicyGuard(policy), []
    for event in played(id_):
        if isinstance(event, Turn):
            history.add_user("go on", synthetic=False)
            guard.begin_turn()
        else:
            history.add_round(*event)
            rulings.append(guard.end_round([round_call(call) for call in event]))
    events = stored_events(history.messages, history.attachments)
    assert scan_rounds(policy, events) == (guard.state, rulings)
