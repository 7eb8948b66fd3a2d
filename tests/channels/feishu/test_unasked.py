"""What nobody asked for, and what is no ordinary answer: told in the chat, under its label."""

import asyncio
import json
from dataclasses import replace

import pytest

from channels.errors import DeliveryError
from channels.feishu.channel import FeishuChannel, FeishuConfig, open_feishu
from channels.feishu.outbound import REACTION
from channels.port import ChatAddress, Turn
from tests.channels.feishu.clock import quick
from tests.channels.feishu.inbox import MemoryInbox, begin, ending, finish, speak
from tests.channels.feishu.watching import asked, shown, visible, written
from tests.channels.questions import asking, may_write
from tests.fakes.feishu import BOT, FakeFeishu

LABEL = "**每日简报**"


def unasked(reach: str | None = None, thread_id: str = "") -> Turn:
    """A run that tells a text, in a chat that was silent for long."""
    chat = ChatAddress("feishu", BOT, "oc_9", thread_id)
    return Turn("s1", "r9", chat, None, None, "zh-CN", "每日简报", reach)


async def test_it_is_a_new_message_that_is_whole_at_once(
    feishu: FakeFeishu, channel: FeishuChannel
) -> None:
    turn = unasked()
    speak(begin(channel, turn), "晴，20 度。")
    await finish(channel, turn, "晴，20 度。")
    [bubble] = visible(feishu, "oc_9")
    assert bubble.text == f"{LABEL}\n晴，20 度。\n🔔 通知"
    assert (bubble.parent_id, bubble.in_thread) == ("", False)
    assert not feishu.called("POST", "/cardkit"), "nothing was to be seen before"


async def test_what_is_too_long_for_a_card_goes_on_below_it(
    feishu: FakeFeishu, channel: FeishuChannel
) -> None:
    answer = "晴，20 度。" * 3000
    await finish(channel, unasked(), answer)
    first, *others = visible(feishu, "oc_9")
    assert others
    assert first.text.startswith(f"{LABEL}\n晴")
    whole = "".join([first.text.split("\n")[1], *(one.text for one in others)])
    assert whole.count("晴，20 度。") >= 2990
    assert whole.count("晴") == 3000


async def test_in_a_topic_it_follows_the_newest_message_whose_reaction_stays(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.message_event("oc_9", "text", {"text": "hi"}, message_id="om_7")
    feishu.tenant.bubble("om_7").react(BOT, REACTION)
    reach = json.dumps(
        {"message_id": "om_7", "chat_id": "oc_9", "chat_type": "group", "thread_id": "omt_1"}
    )
    await finish(channel, unasked(reach, "omt_1"), "晴")
    [bubble] = visible(feishu, "oc_9")
    assert (bubble.parent_id, bubble.in_thread) == ("om_7", True)
    await finish(channel, await asked(feishu, inbox), "later")
    person = feishu.chat("oc_1").bubbles[0]
    await feishu.until(lambda: feishu.called("DELETE", f"/{person.message_id}/reactions"))
    assert feishu.tenant.bubble("om_7").reactions, "it is of another run"


async def test_in_a_chat_it_is_no_answer_to_the_newest_message(
    feishu: FakeFeishu, channel: FeishuChannel
) -> None:
    reach = json.dumps({"message_id": "om_7", "chat_id": "oc_9", "chat_type": "p2p"})
    await finish(channel, unasked(reach), "晴")
    [bubble] = visible(feishu, "oc_9")
    assert bubble.parent_id == ""


async def test_a_crash_before_it_was_noted_tells_it_once(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    answer = "\n\n".join(["一" * 6000, "二" * 6000])
    for attempt in (1, 2, 3):
        async with open_feishu([config], inbox) as channels:
            turn = unasked()
            begin(channels[BOT], turn)
            await finish(channels[BOT], turn, answer, attempt=attempt)
    whole = "".join(one.text for one in visible(feishu, "oc_9"))
    assert whole.count("一") == whole.count("二") == 6000


async def test_a_lost_answer_of_the_platform_tells_it_once(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    feishu.fail("POST", "/im/v1/messages", is_late=True, status=504, body="<html>", times=9)
    async with open_feishu([config], inbox, quick()) as channels:
        with pytest.raises(DeliveryError) as error:
            await finish(channels[BOT], unasked(), "晴")
        assert error.value.retryable
        feishu.faults.clear()
        await finish(channels[BOT], unasked(), "晴", attempt=2)
    assert len(visible(feishu, "oc_9")) == 1


async def test_without_cards_the_label_heads_the_text(
    feishu: FakeFeishu, channel: FeishuChannel
) -> None:
    odd = {"code": 230099, "msg": "Failed, ext=ErrCode: 999999; ErrMsg: x"}
    feishu.fail("POST", "/im/v1/messages", body=odd)
    await finish(channel, unasked(), "晴")
    [bubble] = visible(feishu, "oc_9")
    assert (bubble.kind, bubble.text) == ("text", "每日简报\n\n晴\n\n🔔 通知")


async def test_the_label_stands_at_the_head_in_every_state(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = replace(await asked(feishu, inbox), label="每日简报")
    sink = begin(channel, turn)
    bubble, _ = await shown(feishu)
    assert bubble.text.startswith(LABEL)
    speak(sink, "看看。")
    await written(feishu, bubble, "看看。")
    assert bubble.text.startswith(LABEL)
    await channel.deliver(asking(turn, may_write()))
    assert bubble.text.startswith(f"{LABEL}\n看看。\n❓")


@pytest.mark.parametrize("status", ["finished", "failed", "cancelled"])
async def test_the_label_stands_at_the_head_of_every_end(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, status: str
) -> None:
    turn = replace(await asked(feishu, inbox), label="*每日*\n简报")
    begin(channel, turn)
    bubble, _ = await shown(feishu)
    ends = {one: ending(turn, "x", status=one) for one in ("finished", "failed", "cancelled")}
    await asyncio.wait_for(channel.deliver(ends[status]), 10)
    assert bubble.text.startswith("**每日 简报**\nx\n")
