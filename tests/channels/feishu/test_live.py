"""Progress cards: what a person sees of a run, whatever the platform and the process do."""

import asyncio
import json
import time
from typing import Any

import pytest

from channels.errors import DeliveryError
from channels.events import Discarded, TextAdded, TextStarted
from channels.feishu.channel import FeishuChannel, FeishuConfig, open_feishu
from channels.feishu.place import Handle, handle_from
from channels.port import ChatAddress, RunSink, Turn
from tests.channels.feishu.clock import MovedClock, quick
from tests.channels.feishu.inbox import (
    MemoryInbox,
    begin,
    ending,
    finish,
    outcome,
    speak,
    use_tool,
)
from tests.fakes.feishu import BOT, FakeFeishu, serve_feishu
from tests.fakes.feishu_chats import Bubble, Card

FAILED = "连续 15 轮没有进展"


def visible(feishu: FakeFeishu, chat_id: str = "oc_1") -> list[Bubble]:
    return feishu.chat(chat_id).visible()


async def asked(feishu: FakeFeishu, inbox: MemoryInbox, chat_id: str = "oc_1") -> Turn:
    """Somebody writes; the run that begins."""
    await feishu.say(chat_id, "hello").done.wait()
    return await inbox.turn(len(inbox.taken))


async def shown(feishu: FakeFeishu, chat_id: str = "oc_1") -> tuple[Bubble, Card]:
    """The card of the chat, as soon as it is there."""
    await feishu.until(lambda: visible(feishu, chat_id))
    bubble = visible(feishu, chat_id)[-1]
    assert bubble.card is not None
    return bubble, bubble.card


async def written(feishu: FakeFeishu, bubble: Bubble, words: str) -> None:
    await feishu.until(lambda: words in bubble.text)


def stream(sink: RunSink, words: str, message_id: str = "m1") -> None:
    sink.emit(TextAdded(message_id, words))


def again(turn: Turn, inbox: MemoryInbox, index: int = -1) -> Turn:
    """The same run after a restart, with what was kept by then."""
    handle = inbox.kept[turn.run_id][index]
    return Turn(turn.session_id, turn.run_id, turn.chat, turn.reply_to, handle, turn.locale)


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
    assert bubble.text == "the report\n✅ Done"
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
    assert inbox.cancelled == [(turn.run_id, "ou_bob")]
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


# What the platform refuses


async def test_a_card_that_is_refused_for_an_unknown_reason_becomes_one_text(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    odd = {"code": 230099, "msg": "Failed, ext=ErrCode: 999999; ErrMsg: x"}
    feishu.fail("POST", "/cardkit/v1/cards", body=odd)
    feishu.fail("POST", "/reply", body=odd)
    begin(channel, turn)
    await finish(channel, turn, "the full answer")
    [bubble] = visible(feishu)
    assert bubble.kind == "text"
    assert bubble.text == "the full answer\n\n✅ 已完成"


@pytest.mark.parametrize(("status", "code"), [(400, 987654), (200, 230001)])
async def test_a_card_that_cannot_be_posted_is_left_alone(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, status: int, code: int
) -> None:
    turn = await asked(feishu, inbox)
    fault = feishu.fail("POST", "/reply", code, status=status)
    sink = begin(channel, turn)
    await fault.met.wait()
    speak(sink, "the answer")
    await finish(channel, turn, "the answer")
    [bubble] = visible(feishu)
    assert bubble.text == "the answer\n✅ 已完成"
    assert feishu.called("PUT", "/cards/") == []


async def test_a_final_card_that_is_refused_is_told_as_a_message_and_stops_typing(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, _ = await shown(feishu)
    odd = {"code": 230099, "msg": "Failed, ext=ErrCode: 999999; ErrMsg: x"}
    feishu.fail("PUT", "/cardkit/v1/cards/", body=odd)
    await finish(channel, turn, "the answer")
    assert [one.text for one in visible(feishu)] == ["✅ 已完成", "the answer\n✅ 已完成"]
    assert not bubble.is_typing


async def test_tables_that_are_still_too_many_become_code(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, _ = await shown(feishu)
    tables = {"code": 230099, "msg": "ext=ErrCode: 11310; ErrMsg: card table number over limit"}
    feishu.fail("PUT", "/cardkit/v1/cards/", body=tables)
    await finish(channel, turn, "| a | b |\n| --- | --- |\n| 1 | 2 |")
    assert visible(feishu) == [bubble]
    assert "```" in bubble.text


async def test_an_answer_with_many_tables_and_pages_arrives_whole(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    answer = "\n\n".join(
        f"| t{n} | b |\n| --- | --- |\n| 1 | 2 |\n\n" + "字" * 2000 for n in range(20)
    )
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    speak(sink, answer)
    await finish(channel, turn, answer)
    whole = "\n".join(one.text for one in visible(feishu))
    assert len(visible(feishu)) > 3
    assert all(f"t{n} " in whole for n in range(20))
    assert whole.count("字") == 40_000
    assert not [one for one in feishu.calls if one.code]


@pytest.mark.parametrize("code", [230022, 230028])
async def test_an_answer_that_the_audit_refuses_is_told_as_refused(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, code: int
) -> None:
    turn = await asked(feishu, inbox)
    feishu.fail("POST", "/cardkit/v1/cards", code, times=9)
    feishu.fail("POST", "/reply", code)
    begin(channel, turn)
    await finish(channel, turn, "bad words")
    [bubble] = visible(feishu)
    assert "审核" in bubble.text


async def test_without_the_permission_for_cards_the_answer_comes_as_a_message(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().scopes.add("cardkit:card:write")
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    await finish(channel, turn, "the answer")
    assert [one.text for one in visible(feishu)] == ["the answer\n✅ 已完成"]
    assert "cardkit:card:write" in channel.health().reason


async def test_a_run_whose_message_was_recalled_is_told_in_the_chat(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    feishu.chat("oc_1").bubbles[0].is_gone = True
    begin(channel, turn)
    await finish(channel, turn, "the answer")
    [bubble] = visible(feishu)
    assert bubble.text == "the answer\n✅ 已完成"
    assert bubble.parent_id == ""


async def test_a_run_that_fails_while_its_card_is_being_made_is_told_once(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    gate = asyncio.Event()
    making = feishu.fail("POST", "/cardkit/v1/cards", gate=gate)
    begin(channel, turn)
    await making.met.wait()
    telling = asyncio.create_task(finish(channel, turn, status="failed", text=FAILED))
    await asyncio.sleep(0)
    gate.set()
    await telling
    [bubble] = visible(feishu)
    assert bubble.text == f"❌ 任务失败：{FAILED}"
    assert not bubble.is_typing


@pytest.mark.parametrize("code", [230002, 230013, 230018, 230053, 232009])
async def test_a_chat_that_is_closed_is_a_final_failure(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, code: int
) -> None:
    turn = await asked(feishu, inbox)
    feishu.chat("oc_1").closed_with = code
    begin(channel, turn)
    with pytest.raises(DeliveryError) as error:
        await finish(channel, turn, "the answer")
    assert not error.value.retryable


async def test_a_platform_that_is_down_at_the_end_is_tried_again_later(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox, quick()) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        down = feishu.fail("PUT", "/cards/", status=502, body="<html>", times=99)
        bad = feishu.fail("POST", "/messages", status=502, body="<html>", times=99)
        with pytest.raises(DeliveryError) as error:
            await finish(channels[BOT], turn, "the answer")
        assert error.value.retryable
        down.times = bad.times = 0
        await finish(channels[BOT], turn, "the answer", attempt=2)
    assert bubble.text == "the answer\n✅ 已完成"
    assert visible(feishu) == [bubble]


async def test_a_card_that_the_platform_fails_to_write_is_told_as_a_message_and_closed_later(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox, quick()) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        feishu.fail("PUT", "/cards/", 2200, times=8)
        await finish(channels[BOT], turn, "the answer")
        assert visible(feishu)[-1].text == "the answer\n✅ 已完成"
        await feishu.until(lambda: not bubble.is_typing)
    assert [one.text for one in visible(feishu)] == ["✅ 已完成", "the answer\n✅ 已完成"]


async def test_a_delivery_that_was_told_is_not_told_again(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    for attempt in (1, 2, 3):
        await finish(channel, turn, "the answer", attempt=attempt)
    assert len(visible(feishu)) == 1


# Restarts: the process may die at any instant


async def test_a_card_left_open_by_a_crash_is_closed_by_the_next_life(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        sink = begin(channels[BOT], turn)
        bubble, card = await shown(feishu)
        speak(sink, "half")
        await feishu.until(lambda: "half" in bubble.text)
        await inbox.until(lambda: len(inbox.kept[turn.run_id]) >= 2)
    assert card.is_streaming
    async with open_feishu([config], inbox) as channels:
        await channels[BOT].deliver(ending(again(turn, inbox), "half", status="failed", text="why"))
        await channels[BOT].deliver(ending(again(turn, inbox), "half", status="failed", text="why"))
    assert visible(feishu) == [bubble]
    assert bubble.text == "half\n❌ 任务失败：why"
    assert not card.is_streaming


async def test_a_run_that_goes_on_after_a_restart_goes_on_on_its_card(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        sink = begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        speak(sink, "before")
        await feishu.until(lambda: "before" in bubble.text)
        await inbox.until(lambda: len(inbox.kept[turn.run_id]) >= 2)
    for _ in range(2):
        async with open_feishu([config], inbox) as channels:
            turn = again(turn, inbox)
            speak(begin(channels[BOT], turn), f"life {len(inbox.kept[turn.run_id])}")
            await feishu.until(lambda: "life" in bubble.text)
    async with open_feishu([config], inbox) as channels:
        turn = again(turn, inbox)
        begin(channels[BOT], turn)
        await finish(channels[BOT], turn, "after")
    assert visible(feishu) == [bubble]
    assert bubble.text == "after\n✅ 已完成"
    assert not [one for one in feishu.calls if one.code == 300317]


async def test_a_crash_between_keeping_and_showing_shows_the_card_later(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        showing = feishu.fail("POST", "/reply", gate=asyncio.Event())
        begin(channels[BOT], turn)
        await showing.met.wait()
    assert visible(feishu) == []
    async with open_feishu([config], inbox) as channels:
        await finish(channels[BOT], again(turn, inbox), "the answer")
    [bubble] = visible(feishu)
    assert bubble.text == "the answer\n✅ 已完成"
    assert not bubble.is_typing
    assert showing.gate is not None
    showing.gate.set()


async def test_a_crash_between_showing_and_keeping_shows_no_second_card(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        await inbox.until(lambda: len(inbox.kept[turn.run_id]) >= 2)
    first = handle_from(inbox.kept[turn.run_id][0])
    assert first is not None
    assert first.message_id == ""
    async with open_feishu([config], inbox) as channels:
        await finish(channels[BOT], again(turn, inbox, 0), "the answer")
    assert visible(feishu) == [bubble]
    assert bubble.text == "the answer\n✅ 已完成"


async def test_a_card_of_which_nobody_knows_whether_it_was_shown_is_closed_and_told_besides(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, card = await shown(feishu)
    await inbox.until(lambda: len(inbox.kept[turn.run_id]) >= 2)
    feishu.tenant.forget_uuids()  # more than an hour later the platform knows them no more
    other = MemoryInbox(kept=inbox.kept)
    config = FeishuConfig(BOT, f"secret-of-{BOT}", domain=feishu.url, allow=("*",))
    async with open_feishu([config], other) as channels:
        await finish(channels[BOT], again(turn, inbox, 0), "the answer")
    assert [one.text for one in visible(feishu)] == ["the answer\n✅ 已完成"] * 2
    assert not card.is_streaming
    assert bubble in visible(feishu)


async def test_a_place_that_could_not_be_kept_gets_no_card(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    inbox.is_unavailable = True
    begin(channel, turn)
    await finish(channel, turn, "the answer")
    [bubble] = visible(feishu)
    assert bubble.text == "the answer\n✅ 已完成"
    assert bubble.card is None


async def test_a_reaction_of_an_earlier_life_is_taken_away(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        await inbox.until(
            lambda: any(
                (handle := handle_from(one)) and handle.reactions
                for one in inbox.kept.get(turn.run_id, [])
            )
        )
    person = feishu.chat("oc_1").bubbles[0]
    assert person.reactions
    async with open_feishu([config], inbox) as channels:
        await finish(channels[BOT], again(turn, inbox), "the answer")
        await feishu.until(lambda: not person.reactions)


def test_a_handle_of_another_version_is_read_as_far_as_it_goes() -> None:
    assert handle_from('{"card": "c1", "new": 1}') == Handle("c1")
