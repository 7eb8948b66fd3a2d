"""What a person is told beside the answer: a place in the queue, a reaction, what a command did."""

import asyncio

import pytest

from channels.feishu.channel import FeishuChannel
from channels.port import ChatAddress
from tests.channels.feishu.inbox import MemoryInbox, begin, finish
from tests.channels.feishu.watching import done, said
from tests.fakes.feishu import BOT, FakeFeishu


async def test_a_waiting_message_is_told_its_place(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.states = [("started", None), ("queued", 1), ("queued", 2)]
    for number in range(3):
        await done(feishu.say("oc_1", f"message {number}"))
    await feishu.until(lambda: len(said(feishu)) == 2)
    assert "1" in said(feishu)[0]
    assert "2" in said(feishu)[1]


async def test_a_reaction_stands_from_receipt_to_the_end(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.states = [("started", None)]
    await done(feishu.say("oc_1", "hello"))
    bubble = feishu.chat("oc_1").bubbles[0]
    await feishu.until(lambda: list(bubble.reactions.values()) == ["OnIt"])
    turn = await inbox.turn()
    begin(channel, turn)
    await finish(channel, turn, "answer")
    await feishu.until(lambda: bubble.reactions == {})


async def test_a_reaction_goes_with_a_message_that_is_dropped_from_the_queue(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.states = [("queued", 1)]
    await done(feishu.say("oc_1", "hello"))
    bubble = feishu.chat("oc_1").bubbles[0]
    await feishu.until(lambda: list(bubble.reactions.values()) == ["OnIt"])
    channel.forget(await inbox.turn())
    await feishu.until(lambda: bubble.reactions == {})


@pytest.mark.parametrize("text", ["/stop", "/STOP", " /Stop "])
async def test_a_command_is_carried_out_and_answered(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, text: str
) -> None:
    event = feishu.message_event("oc_1", "text", {"text": f"@_user_1{text}"}, is_group=True)
    await done(feishu.send(event))
    await done(feishu.send(event))
    assert inbox.commands == [(ChatAddress("feishu", BOT, "oc_1"), "stop", "ou_alice")]
    await feishu.until(lambda: said(feishu) == ["did stop"])


async def test_a_slow_command_is_acknowledged_and_answered_later(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.gate = asyncio.Event()
    push = feishu.say("oc_1", "/compact")
    await done(push)
    assert push.acks == [200]
    assert push.ack_seconds is not None
    assert push.ack_seconds < 2
    inbox.gate.set()
    await feishu.until(lambda: said(feishu) == ["did compact"])


async def test_a_command_that_is_lost_after_its_acknowledgement_is_told(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.gate = asyncio.Event()
    await done(feishu.say("oc_1", "/new"))
    inbox.is_unavailable = True
    inbox.gate.set()
    await feishu.until(lambda: any("没有收到" in text for text in said(feishu)))


async def test_a_command_that_could_not_be_kept_is_asked_for_again(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().lines.ladder = (0.1, 0.1)
    inbox.is_unavailable = True
    push = feishu.say("oc_1", "/new")
    await feishu.until(lambda: push.acks == [500])
    inbox.is_unavailable = False
    await done(push)
    assert len(inbox.commands) == 1
