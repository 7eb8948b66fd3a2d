"""The texts byte for byte, and where they stand in a request."""

import copy

import pytest

from guard import (
    Locale,
    Message,
    NoProgressNotice,
    Nudge,
    apply_no_progress_notices,
    build_no_progress_notice,
    missing_anchors,
    pin_notice,
)
from tests.guard.history import GREP, History

NOTICE = NoProgressNotice("call_2_0", "text")
RENDERED: Message = {"role": "user", "content": "<system-notice>\ntext\n</system-notice>"}


def test_the_first_reminder_has_its_exact_text() -> None:
    assert build_no_progress_notice(5, ["grep_search"]) == (
        "检测到重复调用:最近 5 轮的工具调用与结果完全一致(工具:grep_search)。\n"
        "继续重复不会产生新信息。请改变做法:调整参数/关键词/路径、改用其他工具,\n"
        "或基于已有结果直接向用户说明结论与当前阻塞。"
    )


def test_the_second_reminder_has_its_exact_text() -> None:
    assert build_no_progress_notice(10, ["grep_search"]) == (
        "重复调用仍在继续:最近 10 轮的工具调用与结果完全一致(工具:grep_search)。\n"
        "若继续无变化,系统将在第 15 轮自动中止本次执行。请立即换策略或直接给出结论。"
    )


def test_tools_are_named_once_each_in_the_order_of_the_calls() -> None:
    text = build_no_progress_notice(5, ["shell", "grep_search", "shell"])
    assert "(工具:shell/grep_search)" in text


@pytest.mark.parametrize("streak", [5, 10])
def test_english_reminders_say_the_same(streak: int) -> None:
    text = build_no_progress_notice(streak, ["shell"], "en")
    assert text.isascii()
    assert f"last {streak} rounds" in text
    assert "(tools: shell)" in text
    assert ("round 15" in text) is (streak == 10)


@pytest.mark.parametrize("locale", ["zh-CN", "en"])
def test_an_invented_tool_name_cannot_spoil_a_text(locale: Locale) -> None:
    text = build_no_progress_notice(5, ["a\nb\ud800{streak}" + "x" * 100_000], locale)
    assert "a?b?{streak}xx" in text
    assert len(text.encode()) < 1_000


def rounds(count: int, calls: int = 1) -> list[Message]:
    history = History()
    history.add_user("find it")
    history.add_rounds(count, *[GREP] * calls)
    return history.messages


def test_a_notice_stands_directly_behind_its_tool_message() -> None:
    messages = rounds(3)
    assert apply_no_progress_notices(messages, [NOTICE]) == [
        *messages[:5],
        RENDERED,
        *messages[5:],
    ]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_notice_never_stands_between_the_results_of_a_round(position: int) -> None:
    messages = rounds(3, calls=3)
    notice = NoProgressNotice(f"call_2_{position}", "text")
    assert apply_no_progress_notices(messages, [notice]) == [*messages[:9], RENDERED, *messages[9:]]


def test_a_notice_stands_before_a_picture_that_was_injected_behind_the_round() -> None:
    messages = rounds(2)
    picture: Message = {"role": "user", "content": [{"type": "image_url"}], "synthetic": True}
    assert apply_no_progress_notices([*messages, picture], [NOTICE]) == [
        *messages,
        RENDERED,
        picture,
    ]


def test_placing_notices_is_repeatable_and_leaves_its_input_alone() -> None:
    messages, notices = rounds(3), [NOTICE]
    before = copy.deepcopy(messages)
    first = apply_no_progress_notices(messages, notices)
    assert apply_no_progress_notices(messages, notices) == first
    assert (messages, notices) == (before, [NOTICE])
    assert first is not messages
    assert all(a is b for a, b in zip(first[:5], messages, strict=False))


def test_a_missing_anchor_is_left_out_and_named() -> None:
    messages = rounds(2)
    lost = NoProgressNotice("gone", "text")
    assert apply_no_progress_notices(messages, [lost]) == messages
    assert missing_anchors(messages, [lost, NOTICE]) == ("gone",)


def test_a_notice_given_twice_is_shown_once() -> None:
    shown = apply_no_progress_notices(rounds(2), [NOTICE, NOTICE])
    assert shown.count(RENDERED) == 1


def test_an_assistant_message_or_a_call_with_the_same_id_is_no_anchor() -> None:
    messages: list[Message] = [{"role": "assistant", "tool_call_id": "call_2_0", "content": ""}]
    assert apply_no_progress_notices(messages, [NOTICE]) == messages


def test_a_pinned_notice_keeps_its_place_when_ids_recur() -> None:
    history = History(recurring_ids=True)
    history.add_rounds(5, GREP)
    notice = pin_notice(Nudge("call_0", "text"), history.messages)
    history.add_rounds(2, GREP)
    shown = apply_no_progress_notices(history.messages, [notice])
    assert shown == [*history.messages[:10], RENDERED, *history.messages[10:]]


def test_pinning_changes_nothing_when_ids_are_unique() -> None:
    assert pin_notice(Nudge("call_2_0", "text"), rounds(2)) == NOTICE
    assert pin_notice(Nudge("gone", "text"), rounds(2)) == NoProgressNotice("gone", "text")
