"""The default rule inside a policy."""

from hypothesis import given, settings

from guard import NoProgressCall, NoProgressGuard, Verdict
from guard.policies import DEFAULT, PolicyGuard
from guard.rounds import round_call
from tests.guard.history import finish_round
from tests.guard.test_properties import HISTORIES

SAYS = {Verdict.CONTINUE: "none", Verdict.NUDGE: "nudge", Verdict.ABORT: "stop"}


@settings(deadline=None, max_examples=60)
@given(HISTORIES)
def test_the_default_policy_is_the_default_guard(rounds: list[list[NoProgressCall]]) -> None:
    guard, policy = NoProgressGuard(), PolicyGuard(DEFAULT)
    for calls in rounds:
        finish_round(guard, "a", *calls)
        ruling = policy.end_round([round_call(call) for call in calls])
        asked = [found.decision.asks for found in ruling.findings] or ["none"]
        assert asked == [SAYS[guard.verdict]]
        assert policy.state.rules == (guard.tail,)
        for found in ruling.findings:
            assert found.decision.streak == guard.streak
            assert found.decision.tools == guard.tool_names
