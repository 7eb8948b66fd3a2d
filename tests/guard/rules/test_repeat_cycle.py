"""The same tools with the same arguments again."""

from itertools import groupby

import pytest
from hypothesis import given

from guard.policies import STRICT
from guard.rounds import TURN, Event, Round, round_of
from guard.rules.repeat_cycle import RepeatCycle
from tests.guard.rules.rounds import EVENTS, asked, call, lived, rounds


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_is_no_positive_number_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        RepeatCycle(limit)


@pytest.mark.parametrize(
    ("limit", "nudge", "stop"),
    [(1, [], [1, 2, 3, 4]), (2, [], [2, 3, 4]), (3, [2], [3, 4]), (4, [3], [4])],
)
def test_it_warns_one_round_before_its_limit(limit: int, nudge: list[int], stop: list[int]) -> None:
    events = rounds(*[("a", number) for number in range(4)])
    assert asked(RepeatCycle(limit), events) == {"nudge": nudge, "stop": stop}


def test_failures_count_and_results_do_not_matter() -> None:
    events = rounds(("a", "error: x"), ("a", "fine"), ("a", "error: y"))
    assert asked(RepeatCycle(), events)["stop"] == [3]


def test_only_calls_of_the_named_kinds_are_looked_at() -> None:
    rule = RepeatCycle(kinds=frozenset({"send"}))
    send, read = call("mail:a", "", "send"), call("look:b", "", "read")
    both = [round_of((send, call(f"look:{n}", n, "read"))) for n in range(3)]
    assert asked(rule, both)["stop"] == [3]
    assert asked(rule, [round_of((read,))] * 5) == {"nudge": [], "stop": []}
    between = [round_of((one,)) for one in (send, send, read, send, send)]
    assert asked(rule, between) == {"nudge": [2, 5], "stop": []}


@given(EVENTS)
def test_the_streak_is_the_length_of_the_run_of_equal_actions(events: list[Event]) -> None:
    keys = [event.action_key if isinstance(event, Round) else "" for event in events]
    stops, number = [], 0
    for key, group in groupby(keys):
        for place, _ in enumerate(group, 1):
            number += 1
            if key and place >= 3:
                stops.append(number)
    assert asked(RepeatCycle(), events)["stop"] == stops


def test_a_persons_message_starts_over() -> None:
    events: list[Event] = [*rounds(("a", 1), ("a", 1)), TURN, *rounds(("a", 1), ("a", 1))]
    assert asked(RepeatCycle(), events) == {"nudge": [2, 5], "stop": []}


def test_a_message_that_is_queued_is_no_wait() -> None:
    sent = call("send_sms:hello", '{"status":"queued"}', kind="send")
    rulings = lived(STRICT, [[sent]] * 3)
    assert [ruling.stop is not None for ruling in rulings] == [False, False, True]
