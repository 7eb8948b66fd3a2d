"""The state machine: when a streak grows, when it ends, and what it asks for."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from guard import (
    NO_PROGRESS_ABORT_AT,
    NO_PROGRESS_NUDGE_AT,
    Abort,
    NoProgressCall,
    NoProgressGuard,
    NoProgressLoopError,
    NoProgressTail,
    Nudge,
    Rules,
    ToolContract,
    Verdict,
    advance,
    evidence,
    round_signature,
    verdict_of,
)
from tests.guard.history import GREP, WAIT, finish_round

KEY = round_signature([GREP])
OTHER = replace(GREP, result_content="1 match")


def actions(guard: NoProgressGuard, rounds: Sequence[NoProgressCall]) -> list[str]:
    """What the guard asks for after each round of one call."""
    taken = []
    for number, call in enumerate(rounds, start=1):
        finish_round(guard, f"call_{number}", call)
        action = guard.take_action()
        taken.append("" if action is None else type(action).__name__)
    return taken


def test_the_numbers_are_five_ten_and_fifteen() -> None:
    assert NO_PROGRESS_NUDGE_AT == (5, 10)
    assert NO_PROGRESS_ABORT_AT == 15


def test_identical_rounds_are_nudged_at_five_and_ten_and_aborted_from_fifteen_on() -> None:
    taken = actions(NoProgressGuard(), [GREP] * 17)
    expected = {5: "Nudge", 10: "Nudge", 15: "Abort", 16: "Abort", 17: "Abort"}
    assert taken == [expected.get(number, "") for number in range(1, 18)]


def test_a_nudge_names_its_anchor_and_is_handed_out_once() -> None:
    guard = NoProgressGuard()
    actions(guard, [GREP] * 4)
    finish_round(guard, "call_5", GREP)
    action = guard.take_action()
    assert isinstance(action, Nudge)
    assert action.after_tool_call_id == "call_5"
    assert "最近 5 轮" in action.text
    assert guard.take_action() is None
    assert guard.streak == 5


def test_the_verdict_of_a_round_stands_until_it_is_taken() -> None:
    guard = NoProgressGuard()
    before, after = [], []
    for _ in range(15):
        finish_round(guard, "call", GREP)
        before.append(guard.verdict)
        guard.take_action()
        after.append(guard.verdict)
    nudged = [Verdict.NUDGE if number in (5, 10) else Verdict.CONTINUE for number in range(1, 15)]
    assert before == [*nudged, Verdict.ABORT]
    assert after == [Verdict.CONTINUE] * 14 + [Verdict.ABORT]


def test_an_abort_is_repeated_as_long_as_it_is_asked_for() -> None:
    guard = NoProgressGuard()
    actions(guard, [GREP] * 15)
    assert guard.take_action() == Abort()


def test_a_changed_result_restarts_the_streak() -> None:
    guard = NoProgressGuard()
    assert actions(guard, [GREP, OTHER]) == ["", ""]
    assert guard.streak == 1
    assert actions(guard, [OTHER] * 4) == ["", "", "", "Nudge"]


def test_a_changed_result_lets_the_next_streak_be_nudged_again() -> None:
    guard = NoProgressGuard()
    actions(guard, [GREP] * 7)
    assert actions(guard, [OTHER] * 5) == ["", "", "", "", "Nudge"]


def test_key_order_does_not_matter_and_values_do() -> None:
    guard = NoProgressGuard()
    first = replace(GREP, arguments_json='{"a":1,"b":2}')
    actions(guard, [first, replace(GREP, arguments_json='{"b":2,"a":1}')])
    assert guard.streak == 2
    actions(guard, [replace(GREP, arguments_json='{"a":1,"b":3}')])
    assert guard.streak == 1


def test_the_order_of_calls_within_a_round_matters() -> None:
    guard = NoProgressGuard()
    finish_round(guard, "1", GREP, OTHER)
    finish_round(guard, "2", GREP, OTHER)
    assert guard.streak == 2
    finish_round(guard, "3", OTHER, GREP)
    assert guard.streak == 1


def test_two_rounds_in_turn_are_not_a_streak() -> None:
    assert not any(actions(NoProgressGuard(), [GREP, OTHER] * 10))


@pytest.mark.parametrize("calls", [[], [WAIT], [WAIT, WAIT]], ids=["empty", "wait", "waits"])
def test_a_round_without_calls_that_count_ends_the_streak(calls: list[NoProgressCall]) -> None:
    guard = NoProgressGuard()
    actions(guard, [GREP] * 4)
    finish_round(guard, "wait", *calls)
    assert (guard.streak, guard.tail, guard.digest) == (0, None, "")
    assert (guard.tool_names, guard.args_length) == ((), 0)
    assert guard.take_action() is None
    assert not any(actions(guard, [GREP] * 4))


def test_a_round_of_exempt_tools_ends_the_streak() -> None:
    guard = NoProgressGuard(rules=Rules(exempt_tools=frozenset({"poll"})))
    actions(guard, [GREP] * 4)
    finish_round(guard, "5", NoProgressCall("poll", "{}", "x"))
    assert guard.tail is None


def test_a_wait_beside_other_calls_is_left_out_of_the_round() -> None:
    guard = NoProgressGuard()
    finish_round(guard, "1", GREP)
    finish_round(guard, "2", WAIT, GREP)
    finish_round(guard, "3", GREP, replace(WAIT, arguments_json='{"action":"write_stdin"}'))
    assert guard.streak == 3
    assert guard.tool_names == ("grep_search",)


def test_a_tail_at_four_is_nudged_and_one_at_fourteen_aborted_by_the_next_equal_round() -> None:
    assert actions(NoProgressGuard(NoProgressTail(4, KEY, ())), [GREP]) == ["Nudge"]
    assert actions(NoProgressGuard(NoProgressTail(14, KEY, (5, 10))), [GREP]) == ["Abort"]


def test_a_tail_at_five_is_not_nudged_again() -> None:
    guard = NoProgressGuard(NoProgressTail(5, KEY, (5,)))
    assert guard.take_action() is None
    assert actions(guard, [GREP]) == [""]
    assert verdict_of(NoProgressTail(5, KEY, (5,))) is Verdict.CONTINUE


def test_a_tail_that_was_nudged_at_its_next_number_is_not_nudged_there() -> None:
    assert actions(NoProgressGuard(NoProgressTail(4, KEY, (5,))), [GREP]) == [""]


def test_a_tail_tells_its_verdict_without_another_round() -> None:
    assert verdict_of(None) is Verdict.CONTINUE
    assert verdict_of(NoProgressTail(14, KEY, (5, 10))) is Verdict.CONTINUE
    assert verdict_of(NoProgressTail(15, KEY, (5, 10))) is Verdict.ABORT
    assert verdict_of(NoProgressTail(16, KEY, (5, 10))) is Verdict.ABORT


def test_a_tail_at_fifteen_aborts_after_an_equal_round_and_goes_on_after_another() -> None:
    tail = NoProgressTail(15, KEY, (5, 10))
    assert actions(NoProgressGuard(tail), [GREP]) == ["Abort"]
    assert actions(NoProgressGuard(tail), [OTHER]) == [""]


def test_reset_from_replaces_everything() -> None:
    guard = NoProgressGuard()
    actions(guard, [GREP] * 5)
    guard.observe_call(OTHER)
    tail = NoProgressTail(4, KEY, ())
    guard.reset_from(tail)
    assert guard.tail == tail
    assert (guard.streak, guard.digest, guard.tool_names) == (4, KEY[:16], ())
    assert guard.take_action() is None
    assert actions(guard, [GREP]) == ["Nudge"]


def test_reset_from_nothing_starts_over() -> None:
    guard = NoProgressGuard()
    actions(guard, [GREP] * 4)
    guard.reset_from(None)
    assert guard.tail is None
    assert not any(actions(guard, [GREP] * 4))


def test_the_guard_tells_what_a_log_line_needs_and_no_arguments() -> None:
    guard = NoProgressGuard()
    finish_round(guard, "1", GREP, OTHER, replace(GREP, tool_name="read_file"))
    assert guard.tool_names == ("grep_search", "read_file")
    assert guard.args_length == 3 * len(GREP.arguments_json)
    assert guard.tail is not None
    assert guard.digest == guard.tail.last_round_key[:16]


def test_known_evidence_is_not_computed_again() -> None:
    def must_not_be_asked(call: NoProgressCall) -> bool:
        raise AssertionError

    guard = NoProgressGuard(rules=Rules(exempt_calls=(must_not_be_asked,)))
    guard.observe_call(GREP, evidence(GREP))
    guard.end_round("1")
    assert guard.tail == NoProgressTail(1, KEY, ())
    assert guard.faults == ()


def test_faults_are_kept_once_each_and_within_bounds() -> None:
    def broken(call: NoProgressCall) -> bool:
        raise ValueError

    guard = NoProgressGuard(rules=Rules(exempt_calls=(broken,)))
    for number in range(100):
        finish_round(guard, "1", replace(GREP, tool_name=f"tool_{number % 40}"))
    assert len(guard.faults) == len(set(guard.faults)) == 32
    guard.reset_from(None)
    assert len(guard.faults) == 32


def test_a_failing_rule_of_a_tool_does_not_keep_the_guard_from_counting() -> None:
    def broken(value: object) -> object:
        raise ValueError(value)

    guard = NoProgressGuard(rules=Rules(contracts={"grep_search": ToolContract(result=broken)}))
    taken = actions(guard, [GREP] * 15)
    assert taken[14] == "Abort"
    assert guard.faults == ("result rule for 'grep_search': ValueError",)


def test_advance_is_a_pure_fold_that_can_be_asked_ahead() -> None:
    calls = [evidence(GREP)]
    tail: NoProgressTail | None = None
    verdicts = []
    for _ in range(15):
        assert advance(tail, calls) == advance(tail, calls)
        tail, verdict = advance(tail, calls)
        verdicts.append(verdict)
    assert tail == NoProgressTail(15, KEY, (5, 10))
    assert verdicts[4] is verdicts[9] is Verdict.NUDGE
    assert verdicts[14] is Verdict.ABORT


@pytest.mark.parametrize(
    "junk",
    ["[" * 100_000, "\x00\ud800", "9" * 5000, '{"a":NaN}', '{"a":1e999}', "", "x" * 20_000_000],
    ids=["deep", "surrogate", "digits", "nan", "huge", "empty", "long"],
)
def test_hostile_calls_are_counted_like_any_other(junk: str) -> None:
    taken = actions(NoProgressGuard(), [NoProgressCall("", junk, junk)] * 5)
    assert taken[-1] == "Nudge"


def test_guards_share_nothing() -> None:
    guards = [NoProgressGuard() for _ in range(100)]
    for _ in range(14):
        for guard in guards:
            finish_round(guard, "1", GREP)
    assert not any(isinstance(guard.take_action(), Abort) for guard in guards)


def test_the_error_of_a_loop_tells_the_tools_each_once_and_the_streak() -> None:
    error = NoProgressLoopError(["grep_search", "read_file", "grep_search"], 15)
    assert str(error) == (
        "检测到 Agent 连续 15 轮重复执行同一组工具调用(grep_search/read_file)"
        "且结果没有任何变化,已自动中止本次执行以避免无限循环。请调整需求描述后重试。"
    )
    assert error.tool_names == ("grep_search", "read_file")
    assert error.streak == 15
    assert "grep_search/read_file" in str(NoProgressLoopError(error.tool_names, 15, "en"))
    assert str(NoProgressLoopError(error.tool_names, 15, "en")).isascii()
