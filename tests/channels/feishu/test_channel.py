"""What a bot hears, on real sockets and through the real SDK: each message taken once."""

import asyncio
from typing import Any

import pytest

from channels.feishu.channel import FeishuChannel, FeishuConfig, Patience, open_feishu
from channels.port import ChatAddress
from tests.channels.feishu.clock import MovedClock
from tests.channels.feishu.inbox import MemoryInbox, finish
from tests.channels.feishu.watching import done, said, texts
from tests.fakes.feishu import BOT, SECRET, FakeFeishu


async def test_a_message_is_submitted_with_both_keys_and_what_an_answer_needs(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    push = feishu.say("oc_1", "hello", is_group=True, thread_id="omt_1", root_id="om_0")
    await done(push)
    [(inbound, _)] = inbox.taken
    message_id = push.event["event"]["message"]["message_id"]
    event_id = push.event["header"]["event_id"]
    assert inbound.keys == (f"feishu:{BOT}:msg:{message_id}", f"feishu:{BOT}:ev:{event_id}")
    assert inbound.chat == ChatAddress("feishu", BOT, "oc_1", "omt_1")
    assert inbound.text == "hello"
    assert inbound.reply_to is not None
    assert message_id in inbound.reply_to
    assert push.ack_seconds is not None
    assert push.ack_seconds < 1
    assert channel.health().acks == 1


async def test_two_equal_events_in_one_tick_are_one_message(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    event = feishu.message_event("oc_1", "text", {"text": "hello"})
    pushes = [feishu.send(event) for _ in range(5)]
    await done(*pushes)
    assert texts(inbox) == ["hello"]
    assert [push.acks for push in pushes] == [[200]] * 5
    assert channel.health().duplicates == 4


async def test_a_message_is_known_again_hours_after_its_run(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    clock = MovedClock()
    async with open_feishu([config], inbox, clock.channels) as channels:
        event = feishu.message_event("oc_1", "text", {"text": "hello"})
        await done(feishu.send(event))
        await finish(channels[BOT], await inbox.turn(), "answer")
        for seconds in (15, 301, 3600, 21600):
            clock.advance(seconds)
            push = feishu.send(event)
            await done(push)
            assert push.acks == [200]
    assert texts(inbox) == ["hello"]
    assert said(feishu) == ["answer\n✅ 已完成"]


async def test_a_message_that_was_not_kept_is_asked_for_again_and_runs_once(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().lines.ladder = (0.1, 0.1, 0.1)
    inbox.is_unavailable = True
    push = feishu.say("oc_1", "hello")
    await feishu.until(lambda: push.acks == [500])
    inbox.is_unavailable = False
    await done(push)
    assert push.acks[-1] == 200
    assert texts(inbox) == ["hello"]


async def test_a_second_push_is_not_acknowledged_before_the_first_is_kept(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().lines.ladder = ()
    inbox.gate = asyncio.Event()
    event = feishu.message_event("oc_1", "text", {"text": "hello"})
    first, second = feishu.send(event), feishu.send(event)
    await feishu.until(lambda: channel.health().duplicates == 1)
    assert not first.acks
    assert not second.acks
    inbox.is_unavailable = True
    inbox.gate.set()
    await done(first, second)
    assert (first.acks, second.acks) == ([500], [500])


async def test_a_store_that_hangs_is_acknowledged_in_time_as_a_failure(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().lines.ladder = (0.1,)
    inbox.gate = asyncio.Event()
    push = feishu.say("oc_1", "hello")
    await feishu.until(lambda: push.acks == [500])
    assert push.ack_seconds is not None
    assert push.ack_seconds < 3
    inbox.gate.set()
    await done(push)
    assert push.acks == [500, 200]
    assert texts(inbox) == ["hello"]


async def test_what_the_application_refuses_is_answered_with_its_words(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.refuses_with = "队列已满"
    push = feishu.say("oc_1", "hello")
    await done(push)
    assert push.acks == [200]
    await feishu.until(lambda: said(feishu) == ["队列已满"])


async def test_of_a_backlog_what_is_old_is_noted_and_what_is_young_runs_in_its_order(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    ages = (2400, 1800, 60 * 11, 300, 120, 540, 240)
    events = [
        feishu.message_event("oc_1", "text", {"text": f"age {age}"}, age_seconds=age)
        for age in ages
    ]
    command = feishu.message_event("oc_1", "text", {"text": "/stop"}, age_seconds=70)
    pushes = [feishu.send(event) for event in [*events, command]]
    await done(*pushes)
    assert texts(inbox) == ["age 540", "age 300", "age 240", "age 120"]
    assert inbox.commands == []
    assert [chat for chat, _ in inbox.late] == [ChatAddress("feishu", BOT, "oc_1")] * 4
    assert all(push.acks == [200] for push in pushes)
    assert said(feishu) == []
    assert channel.health().stale == 4


async def test_a_late_message_is_acknowledged_as_soon_as_it_is_kept_and_not_before(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().lines.ladder = (0.1,) * 99
    inbox.is_unavailable = True
    push = feishu.say("oc_1", "hello", age_seconds=1800)
    await feishu.until(lambda: 500 in push.acks)
    inbox.is_unavailable = False
    await done(push)
    [(_, reply_to)] = inbox.late
    assert push.event["event"]["message"]["message_id"] in reply_to
    timely = feishu.say("oc_1", "another", age_seconds=1800)
    await done(timely)
    assert timely.acks == [200]
    assert timely.ack_seconds is not None
    assert timely.ack_seconds < 0.9
    assert (inbox.taken, channel.health().stale) == ([], 2)


async def test_a_bare_mention_and_odd_messages_are_answered_in_words(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    pushes = [
        feishu.say("oc_1", "", is_group=True),
        feishu.send(feishu.message_event("oc_2", "post", "not json")),
        feishu.send(feishu.message_event("oc_3", "sticker", {"file_key": "f"})),
    ]
    await done(*pushes)
    await feishu.until(lambda: all(said(feishu, chat) for chat in ("oc_1", "oc_2", "oc_3")))
    assert "/help" in said(feishu)[0]
    assert "无法读取" in said(feishu, "oc_2")[0]
    assert "无法读取" in said(feishu, "oc_3")[0]
    assert inbox.taken == []


async def test_who_may_not_use_the_bot_is_told_their_id_once_an_hour(
    feishu: FakeFeishu, inbox: MemoryInbox
) -> None:
    clock = MovedClock()
    config = FeishuConfig(BOT, SECRET, domain=feishu.url)
    async with open_feishu([config], inbox, clock.channels):
        await done(feishu.say("oc_1", "one"))
        await feishu.until(lambda: len(said(feishu)) == 1)
        assert "ou_alice" in said(feishu)[0]
        await done(feishu.say("oc_1", "two"))
        await done(feishu.say("oc_2", "three"))
        await feishu.until(lambda: len(said(feishu, "oc_2")) == 1)
        assert len(said(feishu)) == 1
        clock.advance(3601)
        await done(feishu.say("oc_1", "four", age_seconds=-3601))
        await feishu.until(lambda: len(said(feishu)) == 2)
    assert inbox.taken == []


async def test_a_message_of_its_own_that_comes_back_is_not_run(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    await done(feishu.say("oc_1", "", is_group=True))
    await feishu.until(lambda: said(feishu))
    own = feishu.chat("oc_1").visible()[0].message_id
    push = feishu.say("oc_1", "echo", is_group=True, message_id=own)
    await done(push)
    assert push.acks == [200]
    assert inbox.taken == []


async def test_bots_that_talk_to_each_other_stop(feishu: FakeFeishu, inbox: MemoryInbox) -> None:
    config = FeishuConfig(BOT, SECRET, domain=feishu.url, allow=("*",), allow_bots=True)
    async with open_feishu([config], inbox):
        for number in range(6):
            event = of_a_bot(feishu, str(number))
            await done(feishu.send(event))
            await done(feishu.send(event))  # a repeat is no turn
        assert texts(inbox) == ["0", "1", "2"]
        await done(feishu.say("oc_1", "a person", is_group=True))
        await done(feishu.send(of_a_bot(feishu, "6")))
    assert texts(inbox)[3:] == ["a person", "6"]


def of_a_bot(feishu: FakeFeishu, text: str) -> dict[str, Any]:
    said = {"text": f"@_user_1 {text}"}
    event = feishu.message_event("oc_1", "text", said, is_group=True, sender="ou_other")
    event["event"]["sender"]["sender_type"] = "bot"
    return event


async def test_events_that_nobody_needs_are_acknowledged(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    whole = {"schema": "2.0", "header": {"event_type": "im.message.message_read_v1"}}
    pushes = [feishu.app().lines.push(event) for event in (whole, {"odd": 1})]
    await done(*pushes)
    assert [push.acks for push in pushes] == [[200], [200]]


async def test_messages_without_an_event_id_are_different_messages(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    for text in ("one", "two"):
        event = feishu.message_event("oc_1", "text", {"text": text})
        del event["header"]["event_id"]
        await done(feishu.send(event))
    assert texts(inbox) == ["one", "two"]


async def test_a_submission_that_breaks_off_holds_up_nobody_and_is_asked_for_again(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.breaks_with = asyncio.CancelledError()
    first = feishu.send(feishu.message_event("oc_1", "text", {"text": "one"}), again=False)
    await done(first)
    assert first.acks == [500]
    inbox.breaks_with = None
    await done(feishu.say("oc_1", "two"), feishu.send(first.event))
    assert sorted(texts(inbox)) == ["one", "two"]


async def test_a_fault_of_the_application_is_told_to_the_operator_without_a_word_of_the_message(
    feishu: FakeFeishu,
    inbox: MemoryInbox,
    channel: FeishuChannel,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inbox.breaks_with = RuntimeError("a secret word")
    push = feishu.send(feishu.message_event("oc_1", "text", {"text": "one"}), again=False)
    await done(push)
    assert push.acks == [500]
    assert "RuntimeError" in caplog.text
    assert "secret word" not in caplog.text


# Lines beside the card


async def test_a_line_is_said_beside_the_card_and_never_raises(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    await done(feishu.say("oc_1", "hello"))
    turn = await inbox.turn()
    await channel.say(turn, "a line")
    assert said(feishu) == ["a line"]
    feishu.chat("oc_1").closed_with = 230002
    await channel.say(turn, "another")
    assert said(feishu) == ["a line"]


async def test_a_line_whose_answer_was_lost_is_said_once(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    patience = Patience(call_seconds=0.3)
    async with open_feishu([config], inbox, patience=patience) as channels:
        await done(feishu.say("oc_1", "hello"))
        turn = await inbox.turn()
        feishu.fail("POST", "/reply", is_late=True, seconds=1)
        await channels[BOT].say(turn, "a line")
        await channels[BOT].say(turn, "a line")
    assert said(feishu) == ["a line", "a line"]
