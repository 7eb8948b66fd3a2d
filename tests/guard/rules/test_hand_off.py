"""The agent asks for a person."""

from hypothesis import given

from guard.policies import DEFAULT, STRICT, Use, with_rules
from guard.rounds import TURN, Event, round_of
from guard.rules.hand_off import HandOff
from tests.guard.rules.rounds import EVENTS, asked, call, decisions, lived, rounds

HANDED = call("hand_off:why", "handed over")


def test_a_call_of_its_tool_ends_the_run() -> None:
    events: list[Event] = [*rounds(("look:a", 1)), TURN, round_of((call("look:b", 2), HANDED))]
    made = decisions(HandOff(), events)
    assert asked(HandOff(), events) == {"nudge": [], "stop": [3]}
    assert (made[2].code, made[2].tools) == ("handoff", ("hand_off",))


def test_a_refused_call_of_it_ends_nothing() -> None:
    refused = call("hand_off:why", '{"error":"denied","message":"the user refused this call"}')
    assert asked(HandOff(), [round_of((refused,))] * 5) == {"nudge": [], "stop": []}


def test_it_stands_before_the_rules_of_any_policy() -> None:
    for policy in (DEFAULT, STRICT):
        wanted = with_rules(policy, Use(HandOff()))
        assert (wanted.name, wanted.uses[1:]) == (policy.name, policy.uses)
        (ruling,) = lived(wanted, [[HANDED]])
        assert ruling.stop is not None
        assert ruling.stop.code == "handoff"


@given(EVENTS)
def test_it_says_nothing_of_other_tools(events: list[Event]) -> None:
    assert asked(HandOff(), events) == {"nudge": [], "stop": []}
