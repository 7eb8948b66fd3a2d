"""Taking messages in: what is kept, refused, told of, and taken once."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from channels import sentences
from channels.dingtalk.card import render_lost_quote
from channels.dingtalk.decode import decode_address
from channels.port import ChatAddress, Command, Submitted
from tests.channels.dingtalk.house import (
    GROUP_CHAT,
    PRIVATE_CHAT,
    ZH,
    Bot,
    MemoryInbox,
    move_until,
    open_bot,
    said,
    sleep_through,
)
from tests.fakes.clock import Clock
from tests.fakes.dingtalk import Ack, FakeDingTalk


async def test_a_message_is_acknowledged_after_it_was_stored(bot: Bot) -> None:
    bot.inbox.hold = asyncio.Event()
    ack = await bot.platform.push_only(bot.platform.message("hello"))
    await bot.platform.ping(bot.platform.connections[0])
    assert not bot.inbox.taken
    bot.inbox.hold.set()
    assert (await ack).code == 200
    (inbound,) = bot.inbox.taken
    assert inbound.text == "hello"
    assert inbound.keys == ("dingtalk:ding_test:msg:msg1==",)
    assert inbound.chat == ChatAddress("dingtalk", "ding_test", "cidAb+C/d==")


async def test_acknowledgements_take_less_than_a_second_and_are_counted(bot: Bot) -> None:
    acks = [await bot.platform.say(str(number)) for number in range(5)]
    assert max(ack.seconds for ack in acks) < 1
    health = bot.channel.health()
    assert (health.acks, health.state, health.platform) == (5, "up", "dingtalk")
    assert 0 < health.ack_seconds_max < 1


async def test_a_message_that_takes_long_to_store_is_acknowledged_in_time_and_taken_once(
    platform: FakeDingTalk,
) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        bot.inbox.hold = asyncio.Event()
        message = platform.message("hello", createAt=None)
        for _ in range(2):
            ack = asyncio.ensure_future(await platform.push_only(message))
            assert await move_until(clock, ack.done, step=0.1) <= 1
            assert (await ack).code == 500
        bot.inbox.hold.set()
        await bot.inbox.until(lambda: bool(bot.inbox.taken))
        ack = asyncio.ensure_future(await platform.push_only(message))
        await move_until(clock, ack.done, step=0.01)
        assert (await ack).code == 200
        await clock.run_for(60)
        assert len(bot.inbox.taken) == 1
        assert not platform.chat()


async def test_a_repeat_in_the_same_tick_is_taken_once(bot: Bot) -> None:
    bot.inbox.hold = asyncio.Event()
    message = bot.platform.message("hello")
    acks = [await bot.platform.push_only(message) for _ in range(2)]
    bot.inbox.hold.set()
    assert [(await ack).code for ack in acks] == [200, 200]
    assert len(bot.inbox.taken) == 1
    assert bot.channel.health().duplicates == 1


async def test_a_repeat_after_the_run_ended_is_taken_once(platform: FakeDingTalk) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        message = platform.message("hello", createAt=int(clock.wall() * 1000))
        await platform.push(message)
        for hours in (0.05, 1, 6):
            await sleep_through(bot, clock, hours * 3600)
            assert (await platform.push(message)).code == 200
        assert len(bot.inbox.taken) == 1
        assert not platform.chat()


async def test_a_repeat_after_a_restart_is_taken_once(platform: FakeDingTalk) -> None:
    inbox = MemoryInbox()
    message = platform.message("hello")
    for _ in range(2):
        async with open_bot(platform, inbox) as bot:
            assert (await platform.push(message)).code == 200
    assert len(inbox.taken) == 1
    assert bot.channel.health().duplicates == 1


async def test_a_backlog_is_taken_in_the_order_in_which_it_was_written(
    platform: FakeDingTalk,
) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:

        async def push(minutes: float) -> Awaitable[Ack]:
            sent_at = int((clock.wall() - minutes * 60) * 1000)
            return await platform.push_only(platform.message(str(minutes), createAt=sent_at))

        acks = asyncio.gather(*[await push(minutes) for minutes in (3, 9, 1, 6, 0)])
        await move_until(clock, acks.done, step=0.1)
        assert [inbound.text for inbound in bot.inbox.taken] == ["9", "6", "3", "1", "0"]


async def test_messages_of_one_chat_are_taken_in_order(bot: Bot) -> None:
    bot.inbox.hold = asyncio.Event()
    acks = [await bot.platform.push_only(bot.platform.message(str(n))) for n in range(12)]
    bot.inbox.hold.set()
    await asyncio.gather(*acks)
    assert [inbound.text for inbound in bot.inbox.taken] == [str(n) for n in range(12)]


async def test_a_message_that_was_not_stored_is_refused_and_asked_for_again(
    platform: FakeDingTalk,
) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        bot.inbox.is_down = True
        when = {"createAt": int(clock.wall() * 1000)}
        assert (await platform.say("one", **when)).code == 500
        assert (await platform.say("two", **when)).code == 500
        await clock.run_for(30)
        assert not platform.chat()
        bot.inbox.is_down = False
        await move_until(clock, lambda: bool(platform.chat()))
        await clock.run_for(60)
        assert platform.chat() == [sentences.not_received(ZH)]


async def test_a_message_that_comes_again_by_itself_is_taken_and_not_asked_for(
    platform: FakeDingTalk,
) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        message = platform.message("hello", createAt=int(clock.wall() * 1000))
        bot.inbox.is_down = True
        assert (await platform.push(message)).code == 500
        bot.inbox.is_down = False
        assert (await platform.push(message)).code == 200
        await clock.run_for(60)
        assert len(bot.inbox.taken) == 1
        assert not platform.chat()


async def test_a_repeat_of_a_message_that_is_then_not_stored_is_refused_too(bot: Bot) -> None:
    bot.inbox.hold = asyncio.Event()
    message = bot.platform.message("hello")
    acks = [await bot.platform.push_only(message) for _ in range(2)]
    bot.inbox.is_down = True
    bot.inbox.hold.set()
    assert [(await ack).code for ack in acks] == [500, 500]


async def test_a_message_that_breaks_the_application_is_refused_and_may_come_again(
    bot: Bot,
) -> None:
    bot.inbox.breaks = True
    message = bot.platform.message("hello")
    assert (await bot.platform.push(message)).code == 500
    bot.inbox.breaks = False
    assert (await bot.platform.push(message)).code == 200
    assert len(bot.inbox.taken) == 1


async def test_a_message_that_breaks_the_application_is_asked_for_again(
    platform: FakeDingTalk,
) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        bot.inbox.breaks = True
        assert (await platform.say("hello", createAt=None)).code == 500
        await move_until(clock, lambda: bool(platform.chat()))
        await clock.run_for(60)
        assert platform.chat() == [sentences.not_received(ZH)]


async def test_what_the_application_will_not_take_is_told(bot: Bot) -> None:
    bot.inbox.refuses = "排队已满"
    assert (await bot.platform.say("hello")).code == 200
    assert await said(bot.platform) == ["排队已满"]


async def test_a_backlog_is_not_run_but_noted(platform: FakeDingTalk) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:

        def minutes_ago(minutes: float) -> int:
            return int((clock.wall() - minutes * 60) * 1000)

        old = [platform.message("old", createAt=minutes_ago(age)) for age in (40, 30, 20, 11)]
        messages = [
            *old,
            old[0],
            platform.message("/stop", createAt=minutes_ago(2)),
            platform.message("old", createAt=minutes_ago(15), group=True),
            *[platform.message(f"new {age}", createAt=minutes_ago(age)) for age in (9, 1, 0)],
        ]
        acks = asyncio.gather(*[await platform.push_only(message) for message in messages])
        await move_until(clock, acks.done, step=0.1)
        assert [ack.code for ack in await acks] == [200] * 10
        assert [inbound.text for inbound in bot.inbox.taken] == ["new 9", "new 1", "new 0"]
        assert bot.inbox.commands == []
        chats = [(chat.chat_id, decode_address(way)) for chat, way in bot.inbox.late]
        assert len(chats) == bot.channel.health().stale == 6
        assert {chat_id for chat_id, _ in chats} == {PRIVATE_CHAT, GROUP_CHAT}
        assert all(way is not None and way.conversation_id == chat_id for chat_id, way in chats)


async def test_a_message_that_was_noted_as_late_is_not_noted_again(platform: FakeDingTalk) -> None:
    inbox = MemoryInbox()
    message = platform.message("old", createAt=1_700_000_000_000)
    for _ in range(2):
        async with open_bot(platform, inbox) as bot:
            assert (await platform.push(message)).code == 200
    assert len(inbox.late) == 1
    assert bot.channel.health().stale == 0


@pytest.mark.parametrize("text", [" @Bot /new ", "/new", "/NEW"])
async def test_a_command_is_obeyed_and_its_text_answered(bot: Bot, text: str) -> None:
    await bot.platform.say(text, group=True)
    (answer,) = await said(bot.platform, chat_id=GROUP_CHAT)
    assert answer.startswith("done: new")
    chat = ChatAddress("dingtalk", "ding_test", GROUP_CHAT)
    assert bot.inbox.commands == [(chat, "new", "Alice")]
    assert not bot.inbox.taken


@pytest.mark.parametrize("command", ["approve", "deny"])
async def test_an_answer_in_words_counts_at_once_or_never(
    platform: FakeDingTalk, command: Command
) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        for minutes in (0, 2):
            sent_at = int((clock.wall() - minutes * 60) * 1000)
            text = f" @Bot /{command.upper()} "
            await platform.push_only(platform.message(text, group=True, createAt=sent_at))
        await move_until(clock, lambda: bool(bot.inbox.late and platform.chat(GROUP_CHAT)))
        chat = ChatAddress("dingtalk", "ding_test", GROUP_CHAT)
        assert bot.inbox.commands == [(chat, command, "Alice")]
        assert bot.channel.health().stale == 1


async def test_a_side_question_is_brought_without_its_command(bot: Bot) -> None:
    picture = {"type": "picture", "downloadCode": "d1"}
    await bot.platform.say(" @Bot /Side how far\nare you?", group=True)
    content = {"richText": [{"text": "/side what is"}, picture]}
    await bot.platform.say(msgtype="richText", content=content)
    await bot.platform.say("/sideways")
    brought = [(inbound.text, inbound.is_sideline) for inbound in bot.inbox.taken]
    assert brought == [("how far\nare you?", True), ("what is", True), ("/sideways", False)]
    assert len(bot.inbox.taken[1].remote_files) == 1


async def test_a_side_question_without_words_is_answered_by_the_application(bot: Bot) -> None:
    bot.inbox.refuses = "请在 /side 后面写上要问的问题"
    await bot.platform.say("/side")
    assert await said(bot.platform) == [bot.inbox.refuses]


async def test_who_wrote_is_known_by_name_or_by_the_beginning_of_an_id(bot: Bot) -> None:
    await bot.platform.say("one")
    await bot.platform.say("two", senderStaffId="bob", senderNick=None)
    await bot.platform.say("three", senderStaffId=None, senderId="$:LWCP_v1:$y1", senderNick=" ")
    await bot.platform.say("four", senderNick=None)
    senders = [inbound.sender for inbound in bot.inbox.taken]
    assert senders == ["Alice", "bob", "$:LWCP_v1:$…", "Alice"]


async def test_a_bare_mention_is_answered_without_a_run(bot: Bot) -> None:
    await bot.platform.say("  ", group=True)
    (answer,) = await said(bot.platform, chat_id=GROUP_CHAT)
    assert answer.startswith(sentences.bare_mention(ZH))
    assert not bot.inbox.taken


@pytest.mark.parametrize(
    "changes",
    [
        {"text": None},
        {"msgtype": "unknownMsgType"},
        {"msgtype": "richText", "text": None, "content": "not json"},
    ],
)
async def test_what_cannot_be_read_is_acknowledged_and_told(
    bot: Bot, changes: dict[str, Any]
) -> None:
    message = {**bot.platform.message(), **changes}
    assert (await bot.platform.push(message)).code == 200
    assert await said(bot.platform) == [sentences.unreadable(ZH)]


@pytest.mark.parametrize("raw", ["not json", "[]", "{}", '{"msgId":"m"}', "null"])
async def test_what_names_no_chat_is_acknowledged(bot: Bot, raw: str) -> None:
    assert (await bot.platform.push(raw)).code == 200
    assert (await bot.platform.push(raw, "/v1.0/card/instances/callback")).code == 200
    assert (await bot.platform.say("still there")).code == 200
    assert len(bot.inbox.taken) == 1


async def test_speech_is_read_where_the_platform_understood_it(bot: Bot) -> None:
    content = {"downloadCode": "d", "recognition": "turn on"}
    await bot.platform.say(msgtype="audio", content=content)
    await bot.platform.say(msgtype="audio", content={"downloadCode": "d"})
    assert [inbound.text for inbound in bot.inbox.taken] == ["turn on"]
    assert await said(bot.platform) == [sentences.no_transcript(ZH)]


async def test_forwarded_messages_are_brought_and_what_did_not_come_is_told(bot: Bot) -> None:
    content = {"summary": '["Bob:1"]', "chatRecord": '[{"content":"one"}]'}
    for given in (content, {"chatRecord": "[]"}):
        message = bot.platform.message(msgtype="chatRecord", content=given)
        await bot.platform.push({**message, "text": None})
    assert [inbound.text for inbound in bot.inbox.taken] == ["> Bob: one"]
    assert await said(bot.platform) == [sentences.unreadable(ZH)]


async def test_a_quote_that_did_not_come_is_told_once_and_its_message_run(bot: Bot) -> None:
    quoting = {"content": "why?", "repliedMsg": {"msgType": "unknownMsgType"}}
    message = {**bot.platform.message(), "text": quoting}
    await bot.platform.push(message)
    assert await said(bot.platform) == [render_lost_quote(ZH)]
    assert [inbound.text for inbound in bot.inbox.taken] == ["why?"]
    await bot.platform.push({**message, "msgId": "m2", "text": {**quoting, "content": "@Bot "}})
    assert await said(bot.platform, 2) == [render_lost_quote(ZH)] * 2
    assert len(bot.inbox.taken) == 1, "nothing was said but the name"


async def test_a_lost_quote_is_not_told_again_after_a_restart(platform: FakeDingTalk) -> None:
    inbox = MemoryInbox()
    quoting = {"content": "why?", "repliedMsg": {"msgType": "unknownMsgType"}}
    message = {**platform.message(), "text": quoting}
    for _ in range(2):
        async with open_bot(platform, inbox):
            assert (await platform.push(message)).code == 200
            await platform.say("")
    assert platform.chat().count(render_lost_quote(ZH)) == 1


async def test_nobody_on_the_list_means_that_each_chat_is_told_once_an_hour(
    platform: FakeDingTalk,
) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels, allow=()) as bot:
        for _ in range(3):
            await platform.say("hello", createAt=None)
        assert await said(platform) == [sentences.not_allowed(ZH, "staff01")]
        await sleep_through(bot, clock, 3601)
        await platform.say("hello", createAt=None)
        assert len(await said(platform, 2)) == 2
        assert not bot.inbox.taken


@pytest.mark.parametrize(
    ("allow", "is_taken"),
    [
        (("staff01",), True),
        (("staff02",), False),
        (("staff02", "staff01"), True),
        ((GROUP_CHAT,), True),
        (("*",), True),
        (("",), False),
    ],
)
async def test_people_and_groups_on_the_list_are_let_in(
    platform: FakeDingTalk, allow: tuple[str, ...], is_taken: bool
) -> None:
    async with open_bot(platform, allow=allow) as bot:
        await platform.say("hello", group=True)
        assert bool(bot.inbox.taken) is is_taken


@pytest.mark.parametrize(
    "changes",
    [
        {"senderId": "$:LWCP_v1:$bot"},
        {"robotCode": "ding_other"},
        {"group": True, "isInAtList": False},
    ],
)
async def test_what_is_not_meant_for_the_bot_is_acknowledged_and_left_alone(
    bot: Bot, changes: dict[str, Any]
) -> None:
    assert (await bot.platform.say("hello", **changes)).code == 200
    assert (await bot.platform.say("after")).code == 200
    assert [inbound.text for inbound in bot.inbox.taken] == ["after"]
    assert not bot.platform.chats


async def test_a_queued_message_is_told_its_place(bot: Bot) -> None:
    bot.inbox.answer = Submitted("s1", "run1", "queued", 2)
    await bot.platform.say("hello")
    assert await said(bot.platform) == [sentences.queued(ZH, 2)]


async def test_a_bot_speaks_english_where_it_is_told_to(platform: FakeDingTalk) -> None:
    async with open_bot(platform, locale="en"):
        await platform.say("")
        assert await said(platform) == [sentences.bare_mention("en")]
