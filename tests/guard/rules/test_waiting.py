"""The lane for rounds that only wait."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard import NoProgressCall
from guard.policies import STRICT, Policy, Use
from guard.rounds import TURN, Event, Round, RoundCall, Turn, round_call
from guard.rules.no_progress import NoProgress
from guard.rules.period import Period
from guard.rules.waiting import Waiting
from tests.guard.rules.rounds import WAIT, asked, call, decisions, lived, rounds, wait

LANE = Waiting(rounds=6, elapsed_ms=1000)


def test_waits_spend_rounds() -> None:
    assert asked(LANE, [wait()] * 7) == {"nudge": [3], "stop": [6, 7]}


def test_waits_spend_time() -> None:
    assert asked(LANE, [wait(400)] * 3) == {"nudge": [2], "stop": [3]}
    assert decisions(LANE, [wait(400)] * 3)[2].code == "budget_wait"


def test_other_rounds_neither_spend_nor_give_back() -> None:
    events: list[Event] = [wait(), *rounds(("a", 1)), wait(), *rounds(("b", 1)), wait(), TURN]
    assert asked(LANE, [*events, wait(), wait(), wait()])["nudge"] == [5, 9]


@pytest.mark.parametrize(("rounds_", "elapsed_ms"), [(0, 1), (1, 0), (-1, 5)])
def test_a_budget_that_is_not_positive_is_refused(rounds_: int, elapsed_ms: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        Waiting(rounds_, elapsed_ms)


LOOPS_ONLY = Policy(
    "loops@1",
    tuple(use for use in STRICT.uses if not isinstance(use.rule, Waiting)),
    has_wait_lane=True,
)
STEPS = st.lists(
    st.builds(call, st.sampled_from("ab"), st.sampled_from(["1", "error: x"])), max_size=25
)


@settings(deadline=None)
@given(STEPS, st.lists(st.integers(0, 25)))
def test_with_the_lane_waits_neither_count_nor_clear(
    steps: list[RoundCall], places: list[int]
) -> None:
    plain: list[list[RoundCall] | Turn] = [[step] for step in steps]
    waited = list(plain)
    marks = [False] * len(plain)
    for place in places:
        waited.insert(place, [round_call(WAIT)])
        marks.insert(place, True)
    rulings = lived(LOOPS_ONLY, waited)
    assert [ruling for ruling, is_wait in zip(rulings, marks, strict=True) if not is_wait] == (
        lived(LOOPS_ONLY, plain)
    )
    assert all(not r.findings for r, is_wait in zip(rulings, marks, strict=True) if is_wait)


def test_a_wait_between_equal_rounds_clears_without_the_lane_only() -> None:
    same, pause = call("a", 1), round_call(WAIT)
    steps: list[list[RoundCall] | Turn] = [[same], [pause], [same], [same], [pause], [same], [same]]
    for has_lane, streaks in ((True, [5]), (False, [])):
        policy = Policy("x@1", (Use(NoProgress()), Use(Period())), has_wait_lane=has_lane)
        found = [nudge.streak for ruling in lived(policy, steps) for nudge in ruling.nudges]
        assert found == streaks


def test_a_result_that_says_it_runs_is_a_wait_in_the_lane_only() -> None:
    told = round_call(NoProgressCall("view_agent", '{"id":1}', '{"status":"running"}'))
    without = Policy("x@1", (Use(LANE), *STRICT.uses))
    within = Policy("x@1", (Use(LANE), *STRICT.uses), has_wait_lane=True)
    first = next(ruling.stop for ruling in lived(without, [[told]] * 20) if ruling.stop)
    assert first.rule == "interleaved_repeat"
    stops = [r.stop.rule for r in lived(within, [[told]] * 20) if r.stop is not None]
    assert stops[0] == "waiting"


def test_a_round_with_work_beside_a_wait_is_a_round() -> None:
    assert isinstance(wait(), Round)
    assert wait().counted == ()
    assert asked(LANE, rounds(("a", 1)) * 9) == {"nudge": [], "stop": []}
