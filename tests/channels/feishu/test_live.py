"""Progress cards: what a person sees of a run while it goes, and how it ends."""

import asyncio
import json
import time
from typing import Any

import pytest

from channels.events import Discarded, TextStarted
from channels.feishu.channel import FeishuChannel, FeishuConfig, open_feishu
from channels.port import ChatAddress, Turn
from tests.channels.feishu.clock import MovedClock
from tests.channels.feishu.inbox import (
    MemoryInbox,
    begin,
    finish,
    outcome,
    speak,
    use_tool,
)
from tests.channels.feishu.watching import asked, shown, stream, visible, written
from tests.fakes.feishu import BOT, FakeFeishu, serve_feishu

FAILED = "连续 15 轮没有进展"

# The ordinary way


async def test_a_run_shows_on_one_card_from_thinking_to_finished(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    bubble, card = await shown(feishu)
    assert "思考" in bubble.text
    assert card.is_streaming
    assert bubble.parent_id == feishu.chat("oc_1").bubbles[0].message_id
    done = use_tool(sink, "grep_search")
    await feishu.until(lambda: "grep_search" in bubble.text)
    done()
    speak(sink, "the answer")
    await feishu.until(lambda: "the answer" in bubble.text)
    sink.emit(outcome(turn))
    await finish(channel, turn, "the answer")
    assert visible(feishu) == [bubble]
    assert bubble.text == "the answer\n✅ 已完成"
    assert not bubble.is_typing
    assert not bubble.buttons
    assert card.summary == "✅ 已完成"
    assert "what a tool found" not in json.dumps([one.body for one in feishu.calls])


@pytest.mark.parametrize(
    ("status", "text", "line"),
    [
        ("failed", FAILED, f"❌ 任务失败：{FAILED}"),
        ("cancelled", "", "⏹ 已停止"),
        ("waiting", "选哪个？", "⏸ 等待你的回复：选哪个？"),
    ],
)
async def test_a_run_that_ends_otherwise_keeps_its_text_and_says_why(
    feishu: FakeFeishu,
    inbox: MemoryInbox,
    channel: FeishuChannel,
    status: Any,
    text: str,
    line: str,
) -> None:
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    sink.emit(TextStarted("m1"))
    stream(sink, "half an ans")
    bubble, card = await shown(feishu)
    await feishu.until(lambda: "half" in bubble.text)
    await finish(channel, turn, status=status, text=text)
    assert bubble.text == f"half an ans\n{line}"
    assert not card.is_streaming
    assert card.summary == line


async def test_a_topic_is_answered_in_the_topic_and_a_reply_chain_is_not(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    await feishu.say("oc_1", "a", is_group=True, thread_id="omt_1").done.wait()
    await feishu.say("oc_2", "b", is_group=True, root_id="om_a", parent_id="om_b").done.wait()
    for number in (1, 2):
        turn = await inbox.turn(number)
        begin(channel, turn)
        await finish(channel, turn, "answer")
    assert visible(feishu)[0].in_thread
    assert not visible(feishu, "oc_2")[0].in_thread


async def test_two_runs_in_one_chat_have_a_card_each(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    await feishu.say("oc_1", "a", is_group=True, sender="ou_alice").done.wait()
    await feishu.say("oc_1", "b", is_group=True, sender="ou_bob").done.wait()
    turns = [await inbox.turn(1), await inbox.turn(2)]
    for turn in turns:
        speak(begin(channel, turn), turn.run_id)
    await feishu.until(lambda: len(visible(feishu)) == 2)
    await asyncio.gather(*(finish(channel, turn, f"for {turn.run_id}") for turn in turns))
    people = [one for one in feishu.chat("oc_1").bubbles if one.sender.startswith("ou_")]
    told = {bubble.parent_id: bubble.text for bubble in visible(feishu)}
    assert told == {
        people[0].message_id: "for run1\n✅ 已完成",
        people[1].message_id: "for run2\n✅ 已完成",
    }


async def test_a_run_that_no_message_began_is_told_in_its_chat(
    feishu: FakeFeishu, channel: FeishuChannel
) -> None:
    turn = Turn("s1", "r9", ChatAddress("feishu", BOT, "oc_9"), None, None, "en")
    await finish(channel, turn, "the report")
    [bubble] = visible(feishu, "oc_9")
    assert bubble.text == "the report\n🔔 Notice"
    assert bubble.parent_id == ""


async def test_a_withdrawn_attempt_leaves_the_card(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    bubble, _ = await shown(feishu)
    speak(sink, "broken off")
    await feishu.until(lambda: "broken off" in bubble.text)
    sink.emit(Discarded(("m1",), ()))
    speak(sink, "whole", "m2")
    await feishu.until(lambda: "whole" in bubble.text)
    assert "broken off" not in bubble.text
    await finish(channel, turn, "whole")


# The pace of writing


async def test_a_fast_stream_stays_below_ten_writes_a_second_and_ends_whole(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    bubble, card = await shown(feishu)
    sink.emit(TextStarted("m1"))
    whole = ""
    ends_at = time.monotonic() + 2
    while time.monotonic() < ends_at:
        whole += f"word{len(whole)} "
        stream(sink, f"word{len(whole)} ")
        await asyncio.sleep(0.002)
    await finish(channel, turn, whole)
    assert bubble.text == f"{whole}\n✅ 已完成"
    assert not [one for one in feishu.calls if one.code]
    assert 3 <= len(card.operations) <= 20
    assert all(
        one.startswith(before)
        for before, one in zip(card.texts, card.texts[1:], strict=False)
        if before.startswith("word")
    )


async def test_one_write_is_in_flight_and_the_newest_text_wins(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    bubble, _ = await shown(feishu)
    await feishu.until(lambda: "思考" in bubble.text)
    slow = feishu.fail("PUT", "/elements/answer/content", seconds=1)
    sink.emit(TextStarted("m1"))
    stream(sink, "one ")
    await slow.met.wait()
    before = len(feishu.called("PUT", "/cards/"))
    for word in ("two ", "three ", "four"):
        stream(sink, word)
        await asyncio.sleep(0.1)
    assert len(feishu.called("PUT", "/cards/")) == before
    await feishu.until(lambda: "four" in bubble.text)
    written = [one.body["content"] for one in feishu.called("PUT", "/elements/answer/content")]
    assert written == ["one ", "one two three four"]
    await finish(channel, turn, "one two three four")
    assert not [one for one in feishu.calls if one.code == 300317]


async def test_the_last_write_waits_for_the_one_in_flight(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    bubble, _ = await shown(feishu)
    slow = feishu.fail("PUT", "/elements/answer/content", seconds=0.5)
    speak(sink, "the answer")
    await slow.met.wait()
    await finish(channel, turn, "the answer")
    assert bubble.text == "the answer\n✅ 已完成"
    assert not bubble.is_typing


async def test_a_stream_of_more_than_ten_minutes_is_renewed(inbox: MemoryInbox) -> None:
    clock = MovedClock()
    async with serve_feishu(clock.monotonic) as feishu:
        config = FeishuConfig(BOT, f"secret-of-{BOT}", domain=feishu.url, allow=("*",))
        async with open_feishu([config], inbox, clock.channels) as channels:
            turn = await asked(feishu, inbox)
            sink = begin(channels[BOT], turn)
            bubble, card = await shown(feishu)
            sink.emit(TextStarted("m1"))
            for minute in range(12):
                stream(sink, f"minute {minute} ")
                await written(feishu, bubble, f"minute {minute} ")
                assert card.is_streaming
                clock.advance(60)
            await finish(channels[BOT], turn, "the whole answer")
        assert bubble.text == "the whole answer\n✅ 已完成"
        assert "replace" in card.operations[:-1]
        assert not [one for one in feishu.calls if one.code in (200850, 300309)]


async def test_a_stream_that_is_closed_too_early_is_opened_again(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    bubble, card = await shown(feishu)
    card.content["config"]["streaming_mode"] = False
    speak(sink, "the answer")
    await feishu.until(lambda: "the answer" in bubble.text)
    assert card.is_streaming
    await finish(channel, turn, "the answer")
    assert not card.is_streaming


@pytest.mark.parametrize("code", [230020, 2200, 300313, 200810])
async def test_a_refused_write_is_repeated_with_the_next_number(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, code: int
) -> None:
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    bubble, _ = await shown(feishu)
    feishu.fail("PUT", "/elements/answer/content", code, times=2)
    speak(sink, "the answer")
    await feishu.until(lambda: "the answer" in bubble.text)
    feishu.fail("PUT", "/cardkit/v1/cards/", code, times=2)
    await finish(channel, turn, "the answer")
    assert bubble.text == "the answer\n✅ 已完成"
    numbers = [one.body["sequence"] for one in feishu.called("PUT", "/cards/")]
    assert numbers == sorted(set(numbers))
    assert len(visible(feishu)) == 1


async def test_an_element_that_is_not_found_for_long_is_written_with_the_whole_card(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    bubble, card = await shown(feishu)
    feishu.fail("PUT", "/elements/answer/content", 300313, times=999)
    speak(sink, "the answer")
    await feishu.until(lambda: "the answer" in bubble.text)
    assert "replace" in card.operations
    assert card.is_streaming
    await finish(channel, turn, "the answer")


# Stopping


async def test_the_stop_button_stops_the_run_and_the_card_says_so_at_the_end(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, card = await shown(feishu)
    push = feishu.click(bubble, bubble.buttons[0], sender="ou_bob")
    await push.done.wait()
    assert push.answer == {"toast": {"type": "info", "content": "正在停止"}}
    assert inbox.cancelled == [turn.run_id]
    await finish(channel, turn, status="cancelled")
    assert "⏹ 已停止" in bubble.text
    assert not card.is_streaming
    assert not bubble.buttons


async def test_a_stop_that_takes_long_is_answered_in_time(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.cancel_gate = asyncio.Event()
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, _ = await shown(feishu)
    push = feishu.click(bubble, bubble.buttons[0])
    await push.done.wait()
    assert push.answer["toast"]["content"] == "正在停止"
    assert push.ack_seconds is not None
    assert push.ack_seconds < 3
    inbox.cancel_gate.set()
    await feishu.until(lambda: inbox.cancelled)
    await finish(channel, turn, status="cancelled")


async def test_a_stop_that_could_not_be_taken_is_not_said_to_be_on_its_way(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, card = await shown(feishu)
    inbox.is_unavailable = True
    push = feishu.click(bubble, bubble.buttons[0])
    await push.done.wait()
    assert push.answer["toast"]["type"] == "warning"
    assert "没能停止" in push.answer["toast"]["content"]
    inbox.is_unavailable = False
    await feishu.click(bubble, bubble.buttons[0]).done.wait()
    assert inbox.cancelled == [turn.run_id]
    await finish(channel, turn, status="cancelled")


async def test_a_click_on_a_run_that_is_over_says_so(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, _ = await shown(feishu)
    value = bubble.buttons[0]
    await finish(channel, turn, "answer")
    inbox.running.clear()
    push = feishu.click(bubble, value)
    await push.done.wait()
    assert push.answer["toast"]["content"] == "任务已经结束"


@pytest.mark.parametrize("change", [{"chat": "oc_other"}, {"do": "else"}, {"run": ""}])
async def test_a_click_that_is_not_the_button_of_this_chat_stops_nothing(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, change: dict[str, str]
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, _ = await shown(feishu)
    push = feishu.click(bubble, {**bubble.buttons[0], **change})
    await push.done.wait()
    assert push.acks == [200]
    assert inbox.cancelled == []
    await finish(channel, turn, "answer")


async def test_who_may_not_use_the_bot_may_not_stop_it(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    config = FeishuConfig(BOT, config.app_secret, domain=feishu.url, allow=("ou_alice",))
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        push = feishu.click(bubble, bubble.buttons[0], sender="ou_mallory")
        await push.done.wait()
        assert push.answer["toast"]["type"] == "warning"
        assert inbox.cancelled == []
        await finish(channels[BOT], turn, "answer")
