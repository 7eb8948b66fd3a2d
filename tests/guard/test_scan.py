"""Replay of stored messages: what counts, what is skipped, and that it agrees with a live guard."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest

from guard import (
    Attachment,
    Message,
    NoProgressCall,
    NoProgressGuard,
    NoProgressNotice,
    NoProgressScanResult,
    NoProgressTail,
    Nudge,
    Rules,
    ToolContract,
    apply_no_progress_notices,
    build_no_progress_notice,
    drop_fields,
    round_signature,
    scan_no_progress_notices,
)
from tests.guard.history import GREP, WAIT, History, finish_round

KEY = round_signature([GREP])
OTHER = replace(GREP, result_content="1 match")


def scan_of(history: History) -> NoProgressScanResult:
    return scan_no_progress_notices(history.messages, history.attachments, rules=history.rules)


def streak_of(history: History) -> int:
    tail = scan_of(history).tail
    return tail.streak if tail else 0


def started() -> History:
    history = History()
    history.add_user("find it", synthetic=False)
    return history


def test_nothing_stored_says_nothing() -> None:
    assert scan_no_progress_notices([]) == NoProgressScanResult((), None)


@pytest.mark.parametrize("count", [1, 4, 5, 9, 10, 12, 15, 16])
def test_identical_rounds_leave_their_notices_and_their_tail(count: int) -> None:
    history = started()
    history.add_rounds(count, GREP)
    nudged = tuple(at for at in (5, 10) if at <= count)
    assert scan_of(history) == NoProgressScanResult(
        tuple(
            NoProgressNotice(f"call_{at}_0", build_no_progress_notice(at, ["grep_search"]))
            for at in nudged
        ),
        NoProgressTail(count, KEY, nudged),
        ("grep_search",),
    )


def test_the_anchor_is_the_last_call_of_the_round() -> None:
    history = started()
    history.add_rounds(5, GREP, OTHER)
    assert [notice.after_tool_call_id for notice in scan_of(history).notices] == ["call_5_1"]


def test_changed_results_leave_no_notice_and_restart_the_tail() -> None:
    history = started()
    history.add_rounds(4, GREP)
    history.add_round(OTHER)
    history.add_rounds(4, GREP)
    assert scan_of(history).notices == ()
    assert streak_of(history) == 4


def test_two_rounds_in_turn_leave_no_notice() -> None:
    history = started()
    for _ in range(10):
        history.add_round(GREP)
        history.add_round(OTHER)
    assert scan_of(history).notices == ()


def test_english_notices_are_scanned_in_english() -> None:
    history = started()
    history.add_rounds(5, GREP)
    (notice,) = scan_no_progress_notices(history.messages, locale="en").notices
    assert notice.text == build_no_progress_notice(5, ["grep_search"], "en")


@pytest.mark.parametrize(
    ("text", "synthetic", "streak"),
    [
        ("go on", None, 1),
        ("go on", False, 1),
        ("<system-notice>\ngo on\n</system-notice>", False, 1),
        ("see <system-notice>", None, 1),
        ("", None, 1),
        ("go on", True, 5),
        ("<system-notice>\ngo on\n</system-notice>", None, 5),
        ("\n<system-notice>go on</system-notice>", None, 5),
    ],
)
def test_only_a_person_ends_the_streak(text: str, synthetic: bool | None, streak: int) -> None:
    history = started()
    history.add_rounds(4, GREP)
    history.add_user(text, synthetic)
    history.add_round(GREP)
    assert streak_of(history) == streak


def test_a_person_who_sends_a_picture_ends_the_streak_and_a_notice_with_one_does_not() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:a"}}
    for text, streak in (("look", 0), ("<system-notice>a picture", 4)):
        history = started()
        history.add_rounds(4, GREP)
        parts = [{"type": "text", "text": text}, picture]
        history.messages.append({"role": "user", "content": parts})
        assert streak_of(history) == streak


def test_a_person_behind_the_last_round_leaves_no_tail() -> None:
    history = started()
    history.add_rounds(7, GREP)
    history.add_user("go on")
    result = scan_of(history)
    assert result.tail is None
    assert result.tool_names == ()
    assert len(result.notices) == 1


def test_a_text_of_the_assistant_neither_counts_nor_clears() -> None:
    history = started()
    history.add_rounds(4, GREP)
    history.messages.append({"role": "assistant", "content": "thinking", "tool_calls": []})
    history.messages.append({"role": "system", "content": "compacted"})
    history.add_round(GREP)
    assert streak_of(history) == 5


def test_rounds_of_waits_end_the_streak() -> None:
    history = started()
    history.add_rounds(4, GREP)
    history.add_round(WAIT)
    assert streak_of(history) == 0
    history.add_rounds(4, GREP)
    assert streak_of(history) == 4


def test_fifteen_waits_are_no_streak() -> None:
    history = started()
    history.add_rounds(15, WAIT)
    assert scan_of(history) == NoProgressScanResult((), None)


@pytest.mark.parametrize("answered", [0, 1])
def test_a_round_with_a_missing_result_neither_counts_nor_clears(answered: int) -> None:
    history = started()
    history.add_rounds(4, GREP)
    ids = history.add_calls([GREP, OTHER])
    for id_ in ids[:answered]:
        history.add_result(id_, GREP)
    history.add_round(GREP)
    result = scan_of(history)
    assert result.tail == NoProgressTail(5, KEY, (5,))
    assert result.notices[0].after_tool_call_id == "call_6_0"


def test_an_unanswered_round_at_the_end_is_skipped() -> None:
    history = started()
    history.add_rounds(4, GREP)
    history.add_calls([OTHER])
    assert streak_of(history) == 4


def test_a_round_that_the_harness_answered_neither_counts_nor_clears() -> None:
    history = started()
    history.add_rounds(4, GREP)
    first, second = history.add_calls([GREP, GREP])
    history.add_result(first, GREP)
    history.add_result(second, replace(GREP, result_content='{"error":"interrupted"}'), True)
    history.add_round(GREP)
    assert streak_of(history) == 5


def test_results_without_a_call_are_passed_over() -> None:
    history = started()
    history.add_result("orphan", OTHER)
    history.add_round(GREP)
    history.add_result("late", OTHER)
    history.add_round(GREP)
    assert streak_of(history) == 2


def test_results_are_paired_by_id_whatever_their_order() -> None:
    history = started()
    history.add_round(GREP, OTHER)
    first, second = history.add_calls([GREP, OTHER])
    history.add_result(second, OTHER)
    history.add_result(first, GREP)
    assert streak_of(history) == 2


@pytest.mark.parametrize(
    ("second", "streak"), [("one two", 2), ("two one", 1), ("one three", 1), ("three two", 1)]
)
def test_results_that_share_an_id_are_paired_in_order(second: str, streak: int) -> None:
    twin = {"id": "", "function": {"name": "grep_search", "arguments": GREP.arguments_json}}
    messages: list[Message] = []
    for texts in ("one two", second):
        messages.append({"role": "assistant", "tool_calls": [twin, twin]})
        messages += [{"role": "tool", "tool_call_id": "", "content": t} for t in texts.split()]
    tail = scan_no_progress_notices(messages).tail
    assert tail is not None
    assert tail.streak == streak


def test_recurring_ids_leave_one_notice_behind_its_own_round() -> None:
    history = History(recurring_ids=True)
    history.add_user("find it")
    history.add_rounds(7, GREP)
    notices = scan_of(history).notices
    shown = apply_no_progress_notices(history.messages, notices)
    assert len(shown) == len(history.messages) + 1
    assert "system-notice" in str(shown[11]["content"])


def test_pictures_come_from_the_attachments() -> None:
    history = started()
    for number in range(6):
        picture = Attachment(f"data:image/png;base64,{number}", "image/png")
        history.add_round(
            NoProgressCall("view_image", '{"path":"a"}', '{"media_type":"image"}', picture)
        )
    assert streak_of(history) == 1
    without = scan_no_progress_notices(history.messages).tail
    assert without is not None
    assert without.streak == 6


def test_pictures_that_were_removed_are_known_by_their_stored_digest() -> None:
    history = replace(started(), stores_evidence=True)
    for number in range(6):
        picture = Attachment(f"data:image/png;base64,{number % 2}", "image/png")
        history.add_round(
            NoProgressCall("view_image", '{"path":"a"}', '{"media_type":"image"}', picture)
        )
    assert scan_no_progress_notices(history.messages) == scan_of(history)
    assert streak_of(history) == 1


def test_content_may_be_text_nothing_or_parts() -> None:
    def round_of(content: object) -> list[Message]:
        call = {"id": "a", "function": {"name": "grep", "arguments": "{}"}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": content},
        ]

    parts = [{"type": "text", "text": "0 matches"}]
    result = scan_no_progress_notices([*round_of("0 matches"), *round_of(parts)])
    assert result.tail is not None
    assert result.tail.streak == 2
    result = scan_no_progress_notices([*round_of(""), *round_of(None)])
    assert result.tail is not None
    assert result.tail.streak == 2


def test_rules_of_tools_hold_in_replay() -> None:
    rules = Rules(contracts={"send": ToolContract(result=drop_fields("messageId"))})
    history = replace(started(), rules=rules)
    for number in range(5):
        content = json.dumps({"ok": True, "messageId": number})
        history.add_round(NoProgressCall("send", "{}", content))
    assert streak_of(history) == 5
    assert scan_no_progress_notices(history.messages).tail == NoProgressTail(
        1, round_signature([NoProgressCall("send", "{}", content)]), ()
    )


def test_faults_of_rules_are_told() -> None:
    def broken(value: object) -> object:
        raise ValueError

    history = replace(
        started(), rules=Rules(contracts={"grep_search": ToolContract(result=broken)})
    )
    history.add_rounds(3, GREP)
    assert scan_of(history).faults == ("result rule for 'grep_search': ValueError",)


# The live run and the replay.


def test_a_guard_made_from_the_scanned_tail_goes_on_as_the_live_one() -> None:
    live, history = NoProgressGuard(), started()
    for number in range(1, 17):
        anchor = history.add_round(GREP)
        finish_round(live, anchor, GREP)
        live.take_action()
        assert scan_of(history).tail == live.tail
        reborn, twin = NoProgressGuard(scan_of(history).tail), NoProgressGuard(live.tail)
        for guard in (reborn, twin):
            finish_round(guard, "next", GREP)
        assert reborn.take_action() == twin.take_action(), number
        assert (reborn.tail, reborn.digest) == (twin.tail, twin.digest)


def test_requests_are_the_same_bytes_live_and_after_a_restart() -> None:
    live, history, pushed = NoProgressGuard(), started(), list[NoProgressNotice]()
    requests: list[str] = []
    for _ in range(15):
        requests.append(json.dumps(apply_no_progress_notices(history.messages, pushed)))
        rebuilt = apply_no_progress_notices(history.messages, scan_of(history).notices)
        assert json.dumps(rebuilt) == requests[-1]
        anchor = history.add_round(GREP, OTHER)
        finish_round(live, anchor, GREP, OTHER)
        action = live.take_action()
        if isinstance(action, Nudge):
            pushed.append(NoProgressNotice(action.after_tool_call_id, action.text))
    assert all(
        later.startswith(earlier[:-1])
        for earlier, later in zip(requests, requests[1:], strict=False)
    )
    assert [request.count("/system-notice") for request in requests] == [0] * 5 + [1] * 5 + [2] * 5


def test_results_rewritten_later_do_not_change_the_replay() -> None:
    history = replace(started(), stores_evidence=True)
    history.add_rounds(5, GREP)
    before = scan_of(history)
    history.messages[:] = [rewritten(message) for message in history.messages]
    assert scan_of(history) == before
    assert streak_of(history) == 5


def rewritten(message: Message) -> Message:
    fresh = f"[{message.get('tool_call_id')} was cleared]"
    return {**message, "content": fresh} if message["role"] == "tool" else message


def test_a_cut_history_alone_counts_what_it_holds() -> None:
    history = started()
    history.add_rounds(12, GREP)
    cut = scan_no_progress_notices(history.messages[-2 * 7 :])
    assert cut.tail == NoProgressTail(7, KEY, (5,))
    assert [notice.after_tool_call_id for notice in cut.notices] == ["call_10_0"]
    assert scan_no_progress_notices([]).tail is None


def test_a_cut_history_goes_on_from_the_tail_before_its_first_round() -> None:
    history = started()
    history.add_rounds(12, GREP)
    kept = history.messages[-2 * 3 :]
    before = scan_no_progress_notices(history.messages[: -2 * 3]).tail
    assert before == NoProgressTail(9, KEY, (5,))
    cut = scan_no_progress_notices(kept, tail=before)
    assert cut.tail == scan_of(history).tail
    assert [notice.after_tool_call_id for notice in cut.notices] == ["call_10_0"]


def test_a_person_in_the_kept_part_ends_the_carried_tail() -> None:
    history = started()
    history.add_rounds(3, GREP)
    result = scan_no_progress_notices(history.messages, tail=NoProgressTail(9, KEY, (5,)))
    assert result.tail == NoProgressTail(3, KEY, ())


def test_an_agent_that_compacts_every_twelve_rounds_is_stopped_at_fifteen() -> None:
    history, guard, carried = started(), NoProgressGuard(), None
    for number in range(1, 16):
        finish_round(guard, history.add_round(GREP), GREP)
        if number == 12:
            kept = history.messages[-2 * 3 :]
            carried = scan_no_progress_notices(history.messages[: -2 * 3]).tail
            history.messages[:] = kept
            guard.reset_from(scan_no_progress_notices(kept, tail=carried).tail)
    assert guard.streak == 15
    tail = scan_no_progress_notices(history.messages, tail=carried).tail
    assert tail == guard.tail


def test_a_stored_notice_text_is_passed_over_when_a_rendered_copy_is_scanned() -> None:
    history = started()
    history.add_rounds(12, GREP)
    result = scan_of(history)
    rendered = apply_no_progress_notices(history.messages, result.notices)
    assert scan_no_progress_notices(rendered) == result


JUNK: list[object] = [
    None,
    7,
    "text",
    {},
    {"role": ["user"]},
    {"role": "user"},
    {"role": "tool"},
    {"role": "tool", "tool_call_id": ["a"], "content": {"a": object()}},
    {"role": "assistant", "tool_calls": 5},
    {"role": "assistant", "tool_calls": [None, {"id": [], "function": 3}, {"function": {}}]},
    {"role": "tool", "tool_call_id": None, "result_digest": 5, "exempt": "yes", "harness": 1},
    {"role": "tool", "content": [{"type": "text"}, None]},
    {"role": "tool", "content": 10**5000},
    {"role": "user", "content": [None, {"text": 5}], "synthetic": "yes"},
]


def test_messages_of_no_known_shape_are_passed_over() -> None:
    messages = cast(list[Message], JUNK)  # what a broken store could hold
    attachments = cast(Mapping[str, Attachment], {"": 5})  # as above
    result = scan_no_progress_notices(messages, attachments)
    notices = [NoProgressNotice("", "text"), *result.notices]
    assert len(apply_no_progress_notices(messages, notices)) == len(JUNK) + 1
