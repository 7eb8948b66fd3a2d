"""One round again and again, with others between."""

from hypothesis import given

from guard.rounds import TURN, Event, Round, round_of
from guard.rules.interleaved import InterleavedRepeat
from tests.guard.rules.rounds import EVENTS, asked, call, decisions, rounds

RULE = InterleavedRepeat(nudge_at=(3,), stop_at=5, window_rounds=7)


def test_other_rounds_between_do_not_hide_it() -> None:
    events = rounds(("a", 1), ("a", 1), ("", ""), ("a", 1), ("a", 1), ("b", 2), ("a", 1))
    assert asked(RULE, events) == {"nudge": [4], "stop": [7]}


def test_work_between_keeps_it_quiet() -> None:
    edits = [("edit", n) if n % 2 else ("test", "same failure") for n in range(60)]
    assert asked(InterleavedRepeat((5,), 6, 9), rounds(*edits))["stop"] == []


def test_clocks_and_the_order_of_lines_do_not_make_it_another_round() -> None:
    noisy = [("a", f"took {n}.5 seconds at 0x7f{n}0\nother line") for n in range(2, 5)]
    swapped = [("a", f"other line\ntook {n}.5 seconds at 0x7f{n}0") for n in range(5, 7)]
    assert asked(RULE, rounds(*noisy, *swapped))["stop"] == [5]


def test_what_the_default_rule_takes_for_equal_is_equal_here_too() -> None:
    told = [("a", f'{{"request_id":"r-{n}","state":"took 3 ms"}}') for n in range(5)]
    assert len({event.alike for event in rounds(*told)}) == 5
    assert asked(RULE, rounds(*told)) == {"nudge": [3], "stop": [5]}


def test_a_round_in_which_only_some_calls_repeat_is_another_one() -> None:
    events = [round_of((call("b", "B"), call(n, n))) for n in range(20)]
    assert asked(RULE, events) == {"nudge": [], "stop": []}


def test_a_relapse_keeps_its_count_and_is_not_told_of_twice() -> None:
    events = rounds(("a", 1), ("a", 1), ("a", 1), ("b", 2), ("c", 3), ("a", 1), ("a", 1))
    assert asked(RULE, events) == {"nudge": [3], "stop": [7]}
    assert decisions(RULE, events)[-1].streak == 5


def test_another_loop_is_told_of_too() -> None:
    events = rounds(*[("a", 1)] * 3, *[("b", 2)] * 3)
    assert asked(RULE, events)["nudge"] == [3, 6]


@given(EVENTS)
def test_the_count_is_that_of_the_window_and_a_wait_leaves_it_alone(events: list[Event]) -> None:
    counted: list[Round] = []
    for event, decision in zip(events, decisions(RULE, events), strict=True):
        if event is TURN:
            counted = []
        elif isinstance(event, Round) and event.counted:
            counted = [*counted, event][-7:]
            count = sum(one.key == event.key or one.alike == event.alike for one in counted)
            assert (decision.asks == "stop") == (count >= 5)
            assert decision.asks == "none" or decision.streak == count
        else:
            assert decision.asks == "none"
