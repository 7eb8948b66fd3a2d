"""A bot end to end: messages in, cards and answers out, on real sockets."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final

import pytest

from channels import sentences
from channels.dingtalk.card import render_refused
from channels.dingtalk.channel import open_dingtalk
from channels.dingtalk.turns import Trace
from channels.errors import DeliveryError, FetchError
from channels.events import Outcome
from channels.port import ChatAddress, RemoteFile, Submitted, Turn
from tests.channels.dingtalk.house import (
    GROUP_CHAT,
    TEMPLATE,
    Bot,
    MemoryInbox,
    called,
    calling,
    config,
    delivery,
    move_until,
    open_bot,
    saying,
    started,
)
from tests.fakes.clock import Clock
from tests.fakes.dingtalk import Ack, FakeDingTalk, Refusal, api_refusal, oapi, serve_dingtalk
from tests.fakes.dingtalk_world import BAD_TOKEN, QPS_REFUSAL

ZH: Final = "zh-CN"


@pytest.fixture
async def platform() -> AsyncIterator[FakeDingTalk]:
    """A platform that pings nobody of itself."""
    async with serve_dingtalk(system_ping_seconds=None) as running:
        yield running


@pytest.fixture
async def bot(platform: FakeDingTalk) -> AsyncIterator[Bot]:
    """A bot with cards that everyone may talk to."""
    async with open_bot(platform) as opened:
        yield opened


@pytest.fixture
async def plain_bot(platform: FakeDingTalk) -> AsyncIterator[Bot]:
    """A bot without cards."""
    async with open_bot(platform, card_template_id="") as opened:
        yield opened


async def said(platform: FakeDingTalk, count: int = 1, chat_id: str = "cidAb+C/d==") -> list[str]:
    """The texts in a chat, once there are so many."""
    await platform.until(lambda: len(platform.chat(chat_id)) >= count)
    return platform.chat(chat_id)


async def sleep_through(bot: Bot, clock: Clock, seconds: float) -> None:
    """Let time pass at once; the line is silent meanwhile, so that a new one is opened."""
    opened = bot.platform.opened
    clock.advance(seconds)
    await move_until(
        clock,
        lambda: bot.platform.opened > opened and bot.channel.health().state == "up",
    )


# Taking messages in.


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


async def test_what_the_application_will_not_take_is_told(bot: Bot) -> None:
    bot.inbox.refuses = "排队已满"
    assert (await bot.platform.say("hello")).code == 200
    assert await said(bot.platform) == ["排队已满"]


async def test_a_backlog_is_not_run_but_told_of_once_in_each_chat(platform: FakeDingTalk) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:

        def minutes_ago(minutes: float) -> int:
            return int((clock.wall() - minutes * 60) * 1000)

        messages = [
            *[platform.message("old", createAt=minutes_ago(age)) for age in (40, 30, 20, 11)],
            platform.message("/stop", createAt=minutes_ago(2)),
            platform.message("old", createAt=minutes_ago(15), group=True),
            *[platform.message(f"new {age}", createAt=minutes_ago(age)) for age in (9, 1, 0)],
        ]
        for message in messages:
            await platform.push_only(message)
        await move_until(clock, lambda: bool(platform.chat() and platform.chat(GROUP_CHAT)))
        await clock.run_for(60)
        assert platform.chat() == [sentences.stale(ZH, 5)]
        assert platform.chat(GROUP_CHAT)[0].startswith(sentences.stale(ZH, 1))
        assert [inbound.text for inbound in bot.inbox.taken] == ["new 9", "new 1", "new 0"]
        assert bot.inbox.commands == []
        assert bot.channel.health().stale == 6


@pytest.mark.parametrize("text", [" @Bot /new ", "/new", "/NEW"])
async def test_a_command_is_obeyed_and_its_text_answered(bot: Bot, text: str) -> None:
    await bot.platform.say(text, group=True)
    (answer,) = await said(bot.platform, chat_id=GROUP_CHAT)
    assert answer.startswith("done: new")
    chat = ChatAddress("dingtalk", "ding_test", GROUP_CHAT)
    assert bot.inbox.commands == [(chat, "new", "staff01")]
    assert not bot.inbox.taken


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


async def test_a_steered_message_is_told_so(bot: Bot) -> None:
    bot.inbox.answer = Submitted("s1", "run1", "steered")
    await bot.platform.say("hello")
    assert await said(bot.platform) == [sentences.steered(ZH)]


async def test_a_bot_speaks_english_where_it_is_told_to(platform: FakeDingTalk) -> None:
    async with open_bot(platform, locale="en"):
        await platform.say("")
        assert await said(platform) == [sentences.bare_mention("en")]


# Files.


async def test_a_picture_is_fetched_with_the_ending_that_it_has(bot: Bot) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(8)
    bot.platform.files["d1"] = (png, "application/octet-stream")
    await bot.platform.say(msgtype="picture", content={"downloadCode": "d1"})
    (file,) = bot.inbox.taken[0].remote_files
    fetched = await bot.channel.fetch(file)
    assert (fetched.data, fetched.name, fetched.media_type) == (png, "picture.png", "image/png")


async def test_a_file_without_a_robot_code_is_fetched_as_the_bot(bot: Bot) -> None:
    bot.platform.files["d1"] = (b"%PDF", "application/octet-stream")
    content = {"downloadCode": "d1", "fileName": "a.pdf"}
    await bot.platform.say(msgtype="file", content=content, robotCode=None)
    (file,) = bot.inbox.taken[0].remote_files
    fetched = await bot.channel.fetch(file)
    assert (fetched.name, fetched.media_type) == ("a.pdf", "application/pdf")


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (
            api_refusal(403, "Forbidden.AccessDenied.AccessTokenPermissionDenied"),
            sentences.files_forbidden(ZH),
        ),
        (api_refusal(400, "invalidParameter.downloadCode"), sentences.file_unavailable(ZH, "a")),
        (Refusal(502, {}), sentences.file_unavailable(ZH, "a")),
        (Refusal(200, {}), sentences.file_unavailable(ZH, "a")),
    ],
)
async def test_a_file_that_cannot_be_had_is_told(bot: Bot, refusal: Refusal, text: str) -> None:
    bot.platform.script("messageFiles/download", refusal)
    with pytest.raises(FetchError) as error:
        await bot.channel.fetch(RemoteFile('{"code":"d"}', "a", "text/plain"))
    assert error.value.user_text == text
    assert len(bot.platform.called("messageFiles/download")) == 1


async def test_a_missing_right_is_complained_of_once_an_hour_in_each_chat(bot: Bot) -> None:
    await bot.platform.say("hello")
    for _ in range(3):
        await bot.channel.say(bot.turn(), sentences.files_forbidden(ZH))
    assert await said(bot.platform) == [sentences.files_forbidden(ZH)]
    await bot.channel.say(bot.turn(), "another line")
    assert await said(bot.platform, 2) == [sentences.files_forbidden(ZH), "another line"]


async def test_a_line_beside_the_card_holds_up_nobody(bot: Bot) -> None:
    await bot.platform.say("hello")
    hold = bot.platform.script("sendBySession").hold = asyncio.Event()
    async with asyncio.timeout(1):
        await bot.channel.say(bot.turn(), "a line")
    hold.set()
    assert await said(bot.platform) == ["a line"]


# Cards.


async def test_a_card_shows_the_run_and_ends_with_the_answer(bot: Bot) -> None:
    await bot.platform.say("hello")
    turn = bot.turn()
    sink = bot.channel.watch(turn)
    await bot.platform.until(lambda: bool(bot.platform.cards))
    assert bot.platform.only_card.text == "🤔 思考中…"
    for event in (started(), *calling("grep_search")):
        sink.emit(event)
    await bot.platform.until(lambda: "grep_search" in bot.platform.only_card.text)
    for event in (called("grep_search"), *saying("你好,")):
        sink.emit(event)
    await bot.platform.until(lambda: bot.platform.only_card.text == "你好,")
    sink.emit(Outcome("run1", "finished", "completed"))
    await bot.channel.deliver(delivery(turn, answer="你好,我在。"))
    card = bot.platform.only_card
    assert (card.text, card.flow, card.params["state"]) == ("你好,我在。", "3", "已完成")
    assert card.params["stoppable"] == "false"
    assert not bot.platform.chat()


async def test_a_card_in_a_group_stands_in_the_group(bot: Bot) -> None:
    await bot.platform.say("hello", group=True)
    bot.channel.watch(bot.turn())
    await bot.platform.until(lambda: bool(bot.platform.cards))
    assert bot.platform.only_card.chat_id == GROUP_CHAT
    await bot.channel.deliver(delivery(bot.turn(), answer="done"))
    assert bot.platform.only_card.text == "done"


async def test_two_people_in_a_group_at_once_have_a_card_each(bot: Bot) -> None:
    await bot.platform.say("one", group=True)
    await bot.platform.say("two", group=True, senderStaffId="bob", senderId="$:x")
    for number in (1, 2):
        bot.channel.watch(bot.turn(number))
    for number in (2, 1):
        await bot.channel.deliver(delivery(bot.turn(number), answer=f"answer {number}"))
    cards = bot.platform.cards
    assert {card_id: card.text for card_id, card in cards.items()} == {
        "headway-run1": "answer 1",
        "headway-run2": "answer 2",
    }


async def test_a_busy_stream_writes_one_text_at_a_time_and_never_goes_back(bot: Bot) -> None:
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    hold = bot.platform.script("card/streaming").hold = asyncio.Event()
    for _ in range(200):
        for event in saying("x"):
            sink.emit(event)
    await bot.platform.until(lambda: len(bot.platform.called("card/streaming")) == 1)
    ending = asyncio.create_task(
        bot.channel.deliver(delivery(bot.turn(), answer="x" * 5000)), name="ending"
    )
    await bot.platform.ping(bot.platform.connections[0])
    assert len(bot.platform.called("card/streaming")) == 1
    hold.set()
    await ending
    seen = bot.platform.only_card.seen
    assert seen[-1] == "x" * 5000
    lengths = [len(text) for text in seen[1:]]
    assert lengths == sorted(lengths)
    guids = [call.body["guid"] for call in bot.platform.called("card/streaming")]
    assert len(set(guids)) == len(guids)


@pytest.mark.parametrize("refusal", [QPS_REFUSAL, Refusal(429, {}), Refusal(502, {})])
async def test_a_throttled_card_waits_and_its_end_lands(
    platform: FakeDingTalk, refusal: Refusal
) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        await platform.say("hello", createAt=None)
        sink = bot.channel.watch(bot.turn())
        await platform.until(lambda: bool(platform.cards))
        platform.script("card/streaming", *[refusal] * 6)
        for event in saying("half"):
            sink.emit(event)
        await platform.until(lambda: len(platform.called("card/streaming")) == 1)
        ending = asyncio.create_task(bot.channel.deliver(delivery(bot.turn(), answer="whole")))
        seconds = await move_until(clock, ending.done)
        await ending
        assert seconds >= 2 + 4 + 8
        assert (platform.only_card.text, platform.only_card.flow) == ("whole", "3")
        assert not platform.chat()


async def test_three_streaming_cards_stay_below_the_rate_of_the_app(bot: Bot) -> None:
    for number in (1, 2, 3):
        await bot.platform.say(str(number))
    sinks = [bot.channel.watch(bot.turn(number)) for number in (1, 2, 3)]
    ends_at = time.monotonic() + 2
    while time.monotonic() < ends_at:
        for sink in sinks:
            for event in saying("word "):
                sink.emit(event)
        await asyncio.sleep(0.01)
    await asyncio.gather(
        *(bot.channel.deliver(delivery(bot.turn(n), answer="done")) for n in (1, 2, 3))
    )
    streamed = bot.platform.called("card/streaming")
    assert {call.status for call in streamed} == {200}
    assert {card.text for card in bot.platform.cards.values()} == {"done"}
    assert len(streamed) <= 3 * 6


async def test_a_card_whose_token_ended_goes_on_with_a_new_one(bot: Bot) -> None:
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    await bot.platform.until(lambda: bool(bot.platform.cards))
    bot.platform.script("card/streaming", Refusal(401, {"code": "InvalidAuthentication"}))
    for event in saying("half"):
        sink.emit(event)
    await bot.platform.until(lambda: bot.platform.only_card.text == "half")
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert bot.platform.only_card.text == "whole"


async def test_a_card_whose_token_stays_bad_is_answered_by_a_message(bot: Bot) -> None:
    await bot.platform.say("hello")
    bot.channel.watch(bot.turn())
    await bot.platform.until(lambda: bool(bot.platform.cards))
    bot.platform.script("card/streaming", *[BAD_TOKEN] * 2)
    bot.platform.script("/v1.0/card/instances", *[BAD_TOKEN] * 2)
    with pytest.raises(DeliveryError) as owed:
        await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert owed.value.retryable
    assert bot.platform.chat() == ["whole"]
    await bot.channel.deliver(delivery(bot.turn(), answer="whole", attempt=2))
    assert bot.platform.only_card.text == "whole"
    assert bot.platform.chat() == ["whole"]


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(200, {"result": {"deliverResults": [{"success": False, "errorMsg": "x"}]}}),
        api_refusal(400, "param.templateUnpublished"),
        api_refusal(403, "Forbidden.AccessDenied.AccessTokenPermissionDenied"),
        api_refusal(500, "unknownError"),
    ],
)
async def test_a_card_that_cannot_be_made_is_answered_by_a_message(
    bot: Bot, refusal: Refusal
) -> None:
    bot.platform.script("createAndDeliver", refusal)
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    for event in saying("half"):
        sink.emit(event)
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert bot.platform.chat() == ["whole"]
    assert not bot.platform.called("card/streaming")


async def test_a_card_that_nobody_could_remember_is_not_made(bot: Bot) -> None:
    await bot.platform.say("hello")
    bot.inbox.is_down = True
    bot.channel.watch(bot.turn())
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert not bot.platform.cards
    assert bot.platform.chat() == ["whole"]


async def test_a_template_without_the_variable_ends_in_a_message(bot: Bot) -> None:
    bot.platform.app.templates[TEMPLATE] = frozenset({"msgContent"})
    await bot.platform.say("hello")
    bot.channel.watch(bot.turn())
    bot.platform.script("/v1.0/card/instances", api_refusal(500, "unknownError"))
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert bot.platform.chat() == ["whole"]


async def test_a_run_that_fails_before_its_card_is_there_ends_on_the_card(bot: Bot) -> None:
    hold = bot.platform.script("createAndDeliver").hold = asyncio.Event()
    await bot.platform.say("hello")
    bot.channel.watch(bot.turn())
    await bot.platform.until(lambda: len(bot.platform.called("createAndDeliver")) == 1)
    ending = asyncio.create_task(
        bot.channel.deliver(delivery(bot.turn(), "failed", text="模型不可用"))
    )
    hold.set()
    await ending
    card = bot.platform.only_card
    assert (card.flow, card.text) == ("5", "❌ 模型不可用")
    assert not bot.platform.chat()


async def test_a_card_whose_creation_was_not_answered_is_ended_all_the_same(bot: Bot) -> None:
    bot.platform.script("createAndDeliver").drops = 1
    await bot.platform.say("hello")
    bot.channel.watch(bot.turn())
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert (bot.platform.only_card.text, bot.platform.only_card.flow) == ("whole", "3")
    assert not bot.platform.chat()


async def test_a_failed_run_keeps_its_text_and_gives_the_reason(bot: Bot) -> None:
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    for event in saying("half an answer"):
        sink.emit(event)
    reason = "连续 15 轮没有进展,已停止"
    await bot.channel.deliver(delivery(bot.turn(), "failed", text=reason))
    card = bot.platform.only_card
    assert (card.flow, card.params["state"]) == ("5", "失败")
    assert card.text == f"half an answer\n\n---\n\n❌ {reason}"


async def test_a_tool_that_cannot_be_shown_does_not_hurt_the_run(bot: Bot) -> None:
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    await bot.platform.until(lambda: bool(bot.platform.cards))
    bot.platform.script("card/streaming", api_refusal(400, "somethingNew"))
    for event in calling("grep_search"):
        sink.emit(event)
    await bot.platform.until(lambda: len(bot.platform.called("card/streaming")) == 1)
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert (bot.platform.only_card.text, bot.platform.only_card.flow) == ("whole", "3")


async def test_a_long_answer_goes_on_below_the_card(bot: Bot) -> None:
    await bot.platform.say("hello")
    bot.channel.watch(bot.turn())
    await bot.channel.deliver(delivery(bot.turn(), answer="长" * 9000))
    card, rest = bot.platform.only_card, bot.platform.chat()
    assert card.flow == "3"
    assert (card.text + "".join(rest)).replace("\n", "") == "长" * 9000


async def test_a_person_from_outside_gets_a_message_instead_of_a_card(bot: Bot) -> None:
    await bot.platform.say("hello", senderStaffId=None)
    bot.channel.watch(bot.turn())
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert not bot.platform.cards
    assert bot.platform.chat() == ["whole"]


async def test_emotions_come_with_the_run_and_go_with_its_end(bot: Bot) -> None:
    await bot.platform.say("one")
    bot.channel.watch(bot.turn())
    await bot.platform.until(lambda: bot.platform.emotions.get("msg1==") == ["🤔思考中"])
    await bot.channel.deliver(delivery(bot.turn(), answer="done"))
    await bot.platform.until(lambda: bot.platform.emotions["msg1=="] == [])
    await bot.platform.say("two")
    bot.channel.watch(bot.turn(2))
    await bot.channel.deliver(delivery(bot.turn(2), "failed", text="reason"))
    await bot.platform.until(lambda: bot.platform.emotions.get("msg2==") == ["❌失败"])


async def test_an_app_without_emotions_works_without_them(bot: Bot) -> None:
    refusal = api_refusal(403, "Forbidden.AccessDenied.AccessTokenPermissionDenied")
    bot.platform.script("emotion/reply", refusal)
    for number in (1, 2):
        await bot.platform.say("hello")
        bot.channel.watch(bot.turn(number))
        await bot.channel.deliver(delivery(bot.turn(number), answer="done"))
        await bot.platform.until(lambda: len(bot.platform.called("emotion/reply")) == 1)
    assert {card.text for card in bot.platform.cards.values()} == {"done"}


async def test_a_text_that_the_platform_does_not_take_is_owned_up_to(plain_bot: Bot) -> None:
    platform = plain_bot.platform
    await platform.say("hello")
    platform.script("sendBySession", oapi(460101, "too long"))
    platform.script("batchSend", api_refusal(400, "invalidParameter.msgParam"))
    await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer="whole"))
    assert platform.chat() == [render_refused(ZH)]


# Stopping.


async def test_the_stop_button_stops_the_run_and_the_card_confirms_it(bot: Bot) -> None:
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    for event in saying("half"):
        sink.emit(event)
    await bot.platform.until(lambda: bool(bot.platform.cards))
    ack = await bot.platform.click("headway-run1")
    assert (ack.code, ack.seconds < 1) == (200, True)
    assert bot.inbox.cancelled == [("run1", "dingtalk:staff01")]
    card = bot.platform.only_card
    assert (card.params["note"], card.params["stoppable"]) == (sentences.stopping(ZH), "false")
    await bot.channel.deliver(delivery(bot.turn(), "cancelled"))
    assert (card.flow, card.params["state"], card.params["note"]) == ("3", "已停止", "")
    assert card.text == "half\n\n---\n\n⏹ 已停止"


async def test_a_press_is_answered_in_time_though_stopping_takes_long(bot: Bot) -> None:
    bot.inbox.hold = asyncio.Event()
    ack = await bot.platform.click("headway-run1")
    assert ack.seconds < 3
    note = ack.data["response"]["cardData"]["cardParamMap"]["note"]
    assert note == sentences.stopping(ZH)
    bot.inbox.hold.set()
    await bot.inbox.until(lambda: bool(bot.inbox.cancelled))


async def test_a_press_after_the_end_changes_nothing_but_the_note(bot: Bot) -> None:
    await bot.platform.say("hello")
    bot.channel.watch(bot.turn())
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    bot.inbox.running.clear()
    await bot.platform.click("headway-run1")
    card = bot.platform.only_card
    assert (card.text, card.flow, card.params["state"]) == ("whole", "3", "已完成")
    assert card.params["note"] == sentences.already_over(ZH)


async def test_a_press_by_somebody_who_is_not_allowed_stops_nothing(platform: FakeDingTalk) -> None:
    async with open_bot(platform, allow=("staff01",)) as bot:
        await platform.say("hello")
        bot.channel.watch(bot.turn())
        await platform.until(lambda: bool(platform.cards))
        await platform.click("headway-run1", user="mallory")
        assert not bot.inbox.cancelled
        assert platform.only_card.params["stoppable"] == "true"


@pytest.mark.parametrize(
    "changes",
    [
        {"outTrackId": "somebody-elses"},
        {"content": json.dumps({"cardPrivateData": {"actionIds": ["like"]}})},
        {"content": "not json"},
    ],
)
async def test_another_press_is_acknowledged_and_left_alone(
    bot: Bot, changes: dict[str, Any]
) -> None:
    ack = await bot.platform.click("headway-run1", **changes)
    assert (ack.code, ack.data) == (200, {"response": "OK"})
    assert not bot.inbox.cancelled


# Telling how a run ended.


async def test_without_a_template_the_answer_is_a_message(plain_bot: Bot) -> None:
    await plain_bot.platform.say("hello")
    sink = plain_bot.channel.watch(plain_bot.turn())
    for event in saying("half"):
        sink.emit(event)
    await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer="whole"))
    assert plain_bot.platform.chat() == ["whole"]
    assert not plain_bot.platform.cards


@pytest.mark.parametrize("group", [False, True])
async def test_an_answer_after_the_webhook_ended_goes_another_way_once(
    plain_bot: Bot, group: bool
) -> None:
    platform = plain_bot.platform
    await platform.say("hello", group=group, sessionWebhookExpiredTime=int(time.time() * 1000))
    await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer="长" * 9000))
    assert not platform.called("sendBySession")
    chat = platform.chat(GROUP_CHAT if group else "cidAb+C/d==")
    assert "".join(chat).replace("\n", "") == "长" * 9000


async def test_a_webhook_that_is_refused_in_the_middle_loses_no_part(plain_bot: Bot) -> None:
    platform = plain_bot.platform
    await platform.say("hello")
    answer = "\n\n".join(character * 5000 for character in "一二三四")
    platform.script("sendBySession", oapi(0), oapi(300001, "session 不存在"))
    await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer=answer))
    assert [part[0] for part in platform.chat()] == ["二", "三", "四"]  # 一 was taken by the script
    assert len(platform.called("sendBySession")) == 2


async def test_an_answer_that_reaches_nobody_is_final(plain_bot: Bot) -> None:
    platform = plain_bot.platform
    await platform.say("hello", senderStaffId=None)
    platform.dead_webhooks.update(platform.webhooks)
    with pytest.raises(DeliveryError) as error:
        await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer="whole"))
    assert not error.value.retryable


async def test_an_answer_that_the_platform_could_not_take_is_tried_again(plain_bot: Bot) -> None:
    platform = plain_bot.platform
    await platform.say("hello")
    platform.script("sendBySession", Refusal(502, {}))
    with pytest.raises(DeliveryError) as error:
        await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer="whole"))
    assert error.value.retryable
    await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer="whole", attempt=2))
    assert platform.chat() == ["whole"]


async def test_a_second_try_sends_only_what_the_first_one_did_not(plain_bot: Bot) -> None:
    platform = plain_bot.platform
    await platform.say("hello")
    answer = "\n\n".join(character * 5000 for character in "一二三")
    held = platform.script("sendBySession", oapi(0), Refusal(502, {}))
    with pytest.raises(DeliveryError):
        await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer=answer))
    assert not held.refusals
    await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer=answer, attempt=2))
    assert [part[0] for part in platform.chat()] == ["二", "三"]


async def test_a_scheduled_answer_finds_its_group_by_id(plain_bot: Bot) -> None:
    plain_bot.platform.groups.add("cidNews")
    chat = ChatAddress("dingtalk", "ding_test", "cidNews")
    turn = Turn("s1", "run9", chat, None, None, "zh-CN")
    await plain_bot.channel.deliver(delivery(turn, answer="news"))
    assert plain_bot.platform.chat("cidNews") == ["news"]


async def test_a_scheduled_answer_finds_a_person_who_wrote_before(plain_bot: Bot) -> None:
    await plain_bot.platform.say("hello")
    chat = ChatAddress("dingtalk", "ding_test", "cidAb+C/d==")
    turn = Turn("s1", "run9", chat, None, None, "zh-CN")
    await plain_bot.channel.deliver(delivery(turn, answer="news"))
    assert plain_bot.platform.chat() == ["news"]


async def test_the_end_is_tried_on_the_card_then_told_and_the_card_ended_after_a_restart(
    platform: FakeDingTalk,
) -> None:
    clock, inbox = Clock(), MemoryInbox()
    async with open_bot(platform, inbox, clock.channels) as bot:
        await platform.say("hello", createAt=None)
        bot.channel.watch(bot.turn())
        await platform.until(lambda: bool(platform.cards))
        outage = platform.script("card/streaming", *[Refusal(503, {})] * 99)
        ending = asyncio.create_task(bot.channel.deliver(delivery(bot.turn(), answer="whole")))
        await move_until(clock, ending.done, step=2)
        error = ending.exception()
        assert isinstance(error, DeliveryError)
        assert error.retryable, "or nobody would end the card"
        assert platform.chat() == ["whole"]
        with pytest.raises(DeliveryError):
            await bot.channel.deliver(delivery(bot.turn(), answer="whole", attempt=2))
        assert not platform.only_card.is_over
    outage.refusals.clear()
    async with open_bot(platform, inbox, clock.channels) as bot:
        turn = bot.turn(is_restarted=True)
        await bot.channel.deliver(delivery(turn, answer="whole", attempt=3))
        assert (platform.only_card.text, platform.only_card.flow) == ("whole", "3")
        calls = len(platform.calls)
        await bot.channel.deliver(delivery(turn, answer="whole", attempt=4))
        assert not [call for call in platform.calls[calls:] if "card" in call.path]
    assert platform.chat() == ["whole"]


async def test_a_card_whose_text_is_refused_ends_without_it_and_the_text_goes_as_a_message(
    bot: Bot,
) -> None:
    platform = bot.platform
    await platform.say("hello")
    bot.channel.watch(bot.turn())
    await platform.until(lambda: bool(platform.cards))
    refusal = api_refusal(400, "invalidParameter.content")
    platform.script("card/streaming", refusal)
    platform.script("/v1.0/card/instances", refusal)
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert platform.only_card.flow == "3"
    assert platform.only_card.params["stoppable"] == "false"
    assert platform.chat() == ["whole"]


# After a crash.


@pytest.mark.parametrize("freezes", [False, True])
async def test_a_card_that_a_crash_left_open_is_ended_once(
    platform: FakeDingTalk, freezes: bool
) -> None:
    platform.freezes_finished_cards = freezes
    inbox = MemoryInbox()
    async with open_bot(platform, inbox) as bot:
        await platform.say("hello")
        sink = bot.channel.watch(bot.turn())
        for event in saying("half"):
            sink.emit(event)
        await platform.until(lambda: bool(platform.cards) and platform.only_card.text == "half")
    assert not platform.only_card.is_over
    async with open_bot(platform, inbox) as bot:
        turn = bot.turn(is_restarted=True)
        await bot.channel.deliver(delivery(turn, answer="whole"))
        assert (platform.only_card.text, platform.only_card.flow) == ("whole", "3")
        assert not platform.chat()
    # Told, but the process died before the application wrote that down.
    inbox.kept["run1"] = Trace("headway-run1").encode()
    async with open_bot(platform, inbox) as bot:
        turn = bot.turn(is_restarted=True)
        await bot.channel.deliver(delivery(turn, answer="whole", attempt=2))
        assert (platform.only_card.text, platform.only_card.flow) == ("whole", "3")
        assert not platform.chat()


async def test_a_run_that_goes_on_after_a_crash_goes_on_on_its_card(platform: FakeDingTalk) -> None:
    inbox = MemoryInbox()
    async with open_bot(platform, inbox) as bot:
        await platform.say("hello")
        bot.channel.watch(bot.turn())
        await platform.until(lambda: bool(platform.cards))
    async with open_bot(platform, inbox) as bot:
        turn = bot.turn(is_restarted=True)
        sink = bot.channel.watch(turn)
        for event in saying("going on"):
            sink.emit(event)
        await platform.until(lambda: platform.only_card.text == "going on")
        await bot.channel.deliver(delivery(turn, answer="whole"))
        assert (platform.only_card.text, platform.only_card.flow) == ("whole", "3")
    assert platform.deliveries == ["headway-run1"]


async def test_a_crash_between_the_note_and_the_card_ends_in_a_message(
    platform: FakeDingTalk,
) -> None:
    inbox = MemoryInbox()
    async with open_bot(platform, inbox) as bot:
        await platform.say("hello")
        inbox.kept["run1"] = json.dumps({"card": "headway-run1", "told": 0})
        await bot.channel.deliver(delivery(bot.turn(is_restarted=True), answer="whole"))
        assert platform.chat() == ["whole"]
        assert not platform.cards


async def test_what_was_told_before_a_crash_is_not_told_again(platform: FakeDingTalk) -> None:
    inbox = MemoryInbox()
    async with open_bot(platform, inbox, card_template_id="") as bot:
        await platform.say("hello")
        await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    async with open_bot(platform, inbox, card_template_id="") as bot:
        turn = bot.turn(is_restarted=True)
        await bot.channel.deliver(delivery(turn, answer="whole", attempt=2))
    assert platform.chat() == ["whole"]


# Health.


async def test_a_bot_opens_though_the_platform_refuses_it(platform: FakeDingTalk) -> None:
    wrong = config(platform, client_secret="wrong")
    async with open_dingtalk(wrong, MemoryInbox()) as channel:
        await platform.until(lambda: len(platform.called("connections/open")) >= 2)
        health = channel.health()
        assert (health.state, health.reason) == ("down", "discovery: authFailed")
        assert "wrong" not in repr(wrong)


async def test_no_text_and_no_secret_reaches_a_log(
    platform: FakeDingTalk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with open_bot(platform, card_template_id="") as bot:
        await platform.say("geheim-1 @Bot")
        await platform.push('{"msgId": "geheim-2"}')
        platform.script("sendBySession", oapi(300001, "geheim-3"))
        await bot.channel.deliver(delivery(bot.turn(), answer="geheim-4"))
        await platform.announce_disconnect(platform.connections[0])
        await platform.connected(2)
    ours = [r.getMessage() for r in caplog.records if r.name.startswith(("channels", "dingtalk"))]
    assert ours
    secrets = ("geheim", "secret-1", "ticket=", "session=s1", "Alice", "staff01", "at-1")
    assert not [line for line in ours for secret in secrets if secret in line]
