"""Rounds that show little but what was shown before."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.overlap import _border, lines_of, overlaps
from guard.rounds import Event
from guard.rules.little_news import little_news
from guard.rules.no_news import NoNews
from tests.guard.rules.rounds import EVENTS, ROUNDS, asked, decisions, rounds
from tests.guard.test_properties import ANY_TEXT

RULE = little_news()
SOURCE = [f"def function_{number}(): return {number}" for number in range(20)]


def numbered(lines: list[str]) -> str:
    return "\n".join(f"{number}:{line}" for number, line in enumerate(lines, 1))


def edited(times: int) -> str:
    """A file as an editor shows it that has inserted one line so many times."""
    return f"[File: a.py ({20 + times} lines)]\n" + numbered([*["import json"] * times, *SOURCE])


def run_again(number: int) -> str:
    """What a script prints that asks a server for another random number each time."""
    return (
        f"[+] Opening connection to host on port 5000: Done\nn = {number * 7919 % 1000}\n"
        "Trying factors\nTraceback (most recent call last):\n  File 'a.py', line 9, in main\n"
        f"    found = root(n)\nValueError: no root for {number}\n"
    )


def scrolled(number: int) -> str:
    lines = [
        f"{line}: step {line} of the algorithm" for line in range(number * 90, number * 90 + 100)
    ]
    return "\n".join(["[File: a.py (3000 lines)]", *lines])


def log(number: int) -> str:
    """All that a server has said so far."""
    return "\n".join(f"INFO request {line} was answered" for line in range(10 + number))


def tail(number: int) -> str:
    """The last ten lines of it."""
    return "\n".join(f"INFO request {line} was answered" for line in range(number, 10 + number))


@pytest.mark.parametrize("result", [edited, run_again], ids=["edit", "script"])
def test_one_call_whose_results_overlap_is_reminded_of_and_ended(result: object) -> None:
    assert callable(result)
    events = rounds(*[("edit 1:1 import json", result(number)) for number in range(11)])
    assert asked(RULE, events) == {"nudge": [9], "stop": [11]}


def test_an_edit_and_a_script_in_turn_are_seen_as_well() -> None:
    cycle = [("edit", edited(n)) if n % 2 else ("run", run_again(n)) for n in range(12)]
    assert asked(RULE, rounds(*cycle)) == {"nudge": [10], "stop": [12]}


def test_the_escaped_lines_of_a_json_result_are_lines() -> None:
    results = [json.dumps({"exit_code": 1, "output": run_again(n)}) for n in range(11)]
    assert asked(RULE, rounds(*[("run", one) for one in results]))["stop"] == [11]


def test_an_odd_call_between_does_not_hide_it() -> None:
    work = [("edit", edited(number)) for number in range(6)]
    events = rounds(*work, ("look", "something new"), *work[:5])
    assert asked(RULE, events) == {"nudge": [10], "stop": [12]}


@pytest.mark.parametrize("result", [scrolled, log, tail], ids=["scroll", "log", "tail"])
def test_a_call_that_shows_something_else_each_time_is_left_alone(result: object) -> None:
    assert callable(result)
    events = rounds(*[("look", result(number)) for number in range(60)])
    assert asked(RULE, events) == {"nudge": [], "stop": []}


@pytest.mark.parametrize(
    "result", ['{{"ok":true,"ticket":{0},"left":{0}}}', "{0}", "price: {0}\nvolume: {0}{0}"]
)
def test_numbers_in_a_short_result_are_news(result: str) -> None:
    events = rounds(*[("next", result.format(number)) for number in range(60)])
    assert asked(RULE, events) == {"nudge": [], "stop": []}


def test_a_test_between_edits_is_work() -> None:
    steps = [(f"edit {n}", edited(n)) if n % 2 else ("test", run_again(n)) for n in range(60)]
    assert asked(RULE, rounds(*steps)) == {"nudge": [], "stop": []}


def do_overlap(before: str, after: str) -> bool:
    return overlaps(lines_of(before), lines_of(after))


MANY = "a\nb\nc\nd\ne\nf\ng"


def test_lines_without_words_and_few_lines_say_nothing() -> None:
    assert not do_overlap("{\n\n}\n---\na\nb: 1", "{\n\n}\n---\na\nb: 2")
    assert do_overlap(f"{{\n\n}}\n---\n{MANY}\nh: 1", f"{{\n\n}}\n---\n{MANY}\nh: 2")


def test_one_line_that_ends_one_and_begins_the_other_does_not_make_a_log() -> None:
    assert do_overlap(f"start\n{MANY}\nh: 1\nstart", f"start\n{MANY}\nh: 2\nstart")


def test_long_results_of_equal_lines_are_compared_in_no_time() -> None:
    before, after = ("a\n" * 31_000 + f"{MANY}\nh: {number}" for number in (1, 2))
    began = time.process_time()
    assert do_overlap(before, after)
    assert time.process_time() - began < 1


def test_a_clock_in_each_line_does_not_make_them_new() -> None:
    said = ["connected", "sent", "asked", "waited", "answered", "closed", "over", "failed"]
    before = "\n".join(f"10:00:0{at} {one}" for at, one in enumerate(said))
    after = "\n".join(f"11:30:4{at} {one}" for at, one in enumerate([*said[:7], "gave up"]))
    assert do_overlap(before, after)


def test_a_step_that_changes_one_of_a_few_lines_is_news() -> None:
    steps = [f"You carry a box\na wall {n} steps ahead\na wall 3 steps left" for n in range(30)]
    assert asked(RULE, rounds(*[("go forward", one) for one in steps])) == {"nudge": [], "stop": []}


@given(ANY_TEXT, ANY_TEXT)
def test_any_two_texts_can_be_compared(before: str, after: str) -> None:
    assert do_overlap(before, after) in (True, False)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=12), st.integers(1, 5))
def test_what_is_appended_is_always_new(words: list[str], more: int) -> None:
    text = "\n".join(words)
    assert not do_overlap(text, "\n".join([text, *[f"new {number}" for number in range(more)]]))


@given(st.lists(st.sampled_from("ab"), max_size=9), st.lists(st.sampled_from("ab"), max_size=9))
def test_a_border_is_the_longest_end_that_is_a_beginning(one: list[str], other: list[str]) -> None:
    lengths = range(min(len(one), len(other)) + 1)
    longest = max(n for n in lengths if one[len(one) - n :] == other[:n])
    assert (_border(one, other) if other else 0) == longest


@given(EVENTS)
def test_it_asks_for_nothing_before_ten_rounds_show_little(events: list[Event]) -> None:
    for number, decision in enumerate(decisions(RULE, events), 1):
        assert decision.asks != "stop" or number > 10
        assert decision.asks == "none" or decision.streak <= 12


@given(st.lists(ROUNDS, max_size=40))
def test_whatever_is_no_news_is_little_news(events: list[Event]) -> None:
    strict = NoNews((8,), 10, window_rounds=12, memory_rounds=8)
    ends = asked(strict, events)["stop"]
    assert not ends or asked(RULE, events)["stop"][0] <= ends[0]
