"""What nobody asked for just now: a task's result, a message of another session."""

import asyncio
from dataclasses import replace

import pytest

from channels.dingtalk.decode import Address, encode_address
from channels.errors import DeliveryError
from channels.port import ChatAddress, Turn
from tests.channels.dingtalk.house import (
    GROUP_CHAT,
    PRIVATE_CHAT,
    Bot,
    MemoryInbox,
    delivery,
    in_time,
    move_until,
    open_bot,
    saying,
    started,
)
from tests.fakes.clock import Clock
from tests.fakes.dingtalk import FakeDingTalk, Refusal, api_refusal
from tests.fakes.dingtalk_world import QPS_REFUSAL

REACH = {
    PRIVATE_CHAT: Address(PRIVATE_CHAT, False, "staff01", "ding_test", "http://gone/", 1, "m1"),
    GROUP_CHAT: Address(GROUP_CHAT, True, "staff01", "ding_test", "http://gone/", 1, "m1"),
}
"""The chats' newest messages, of days ago."""
CHATS = pytest.mark.parametrize("chat_id", [PRIVATE_CHAT, GROUP_CHAT])


def unasked(chat_id: str, label: str = "每日简报", run_id: str = "run9") -> Turn:
    """A run that tells a text and answers nobody."""
    chat = ChatAddress("dingtalk", "ding_test", chat_id)
    reach = encode_address(REACH[chat_id])
    return Turn("s1", run_id, chat, None, None, "zh-CN", label=label, reach=reach)


def settle(platform: FakeDingTalk) -> None:
    """The bot knows both chats since long ago."""
    platform.people["staff01"] = PRIVATE_CHAT
    platform.groups.add(GROUP_CHAT)


@CHATS
async def test_it_is_a_card_that_is_over_at_once(bot: Bot, chat_id: str) -> None:
    settle(bot.platform)
    turn = unasked(chat_id)
    sink = bot.channel.watch(turn)
    for event in (started("run9"), *saying("晴")):
        sink.emit(event)
    await bot.channel.deliver(delivery(turn, answer="晴，20 度。"))
    card = bot.platform.only_card
    assert (card.chat_id, card.text) == (chat_id, "**每日简报**\n\n晴，20 度。")
    (look,) = card.looks
    assert (look.flow, look.has_button, look.params["state"]) == ("3", False, "通知")
    assert not bot.platform.chats
    assert not bot.platform.emotions


@CHATS
async def test_without_cards_it_is_a_message_that_mentions_nobody(
    plain_bot: Bot, chat_id: str
) -> None:
    settle(plain_bot.platform)
    await plain_bot.channel.deliver(delivery(unasked(chat_id), answer="晴，20 度。"))
    assert plain_bot.platform.chat(chat_id) == ["**每日简报**\n\n晴，20 度。"]
    assert not plain_bot.platform.called("sendBySession"), "its address is of no use any more"
    assert not plain_bot.platform.emotions


async def test_the_newest_message_since_the_start_shows_the_way(plain_bot: Bot) -> None:
    await plain_bot.platform.say("hello", group=True)
    await plain_bot.channel.deliver(delivery(unasked(GROUP_CHAT), answer="晴"))
    (call,) = plain_bot.platform.called("sendBySession")
    assert call.body["markdown"] == {"title": "每日简报", "text": "**每日简报**\n\n晴"}
    assert "at" not in call.body, "it answers nobody"
    assert not plain_bot.platform.called("emotion/reply")


@CHATS
async def test_what_is_too_long_for_a_card_goes_on_below_it(bot: Bot, chat_id: str) -> None:
    settle(bot.platform)
    await bot.channel.deliver(delivery(unasked(chat_id, label=""), answer="长" * 9000))
    card, rest = bot.platform.only_card, bot.platform.chat(chat_id)
    assert len(card.looks) == 1
    assert (card.text + "".join(rest)).replace("\n", "") == "长" * 9000


async def test_a_card_whose_answer_was_lost_is_found_and_told_once(bot: Bot) -> None:
    settle(bot.platform)
    bot.platform.script("createAndDeliver").drops = 1
    turn = unasked(GROUP_CHAT)
    with pytest.raises(DeliveryError) as error:
        await bot.channel.deliver(delivery(turn, answer="晴"))
    assert error.value.retryable
    await bot.channel.deliver(delivery(turn, answer="晴", attempt=2))
    assert bot.platform.only_card.text == "**每日简报**\n\n晴"
    assert bot.platform.deliveries == ["headway-run9"]
    assert not bot.platform.chats


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("freezes", [True, False])
async def test_a_crash_in_the_middle_tells_it_once(
    platform: FakeDingTalk, is_there: bool, freezes: bool
) -> None:
    settle(platform)
    platform.freezes_finished_cards = freezes
    inbox, turn = MemoryInbox(), unasked(GROUP_CHAT)
    async with open_bot(platform, inbox) as bot:
        if not is_there:
            platform.script("createAndDeliver", Refusal(502, {}))
        else:
            platform.script("createAndDeliver").drops = 1
        with pytest.raises(DeliveryError):
            await bot.channel.deliver(delivery(turn, answer="晴"))
    async with open_bot(platform, inbox) as bot:
        again = replace(turn, handle=inbox.kept["run9"])
        for attempt in (2, 3):
            await bot.channel.deliver(delivery(again, answer="晴", attempt=attempt))
            again = replace(turn, handle=inbox.kept["run9"])
    told = [card.text for card in platform.cards.values()] + platform.chat(GROUP_CHAT)
    assert told == ["**每日简报**\n\n晴"]
    assert len(platform.deliveries) == is_there


async def test_trouble_after_a_lost_answer_does_not_tell_it_twice(platform: FakeDingTalk) -> None:
    settle(platform)
    clock, turn = Clock(), unasked(GROUP_CHAT)
    async with open_bot(platform, clock=clock.channels) as bot:
        platform.script("createAndDeliver").drops = 1
        outage = platform.script("/v1.0/card/instances", *[Refusal(503, {})] * 99)
        streams = platform.script("card/streaming", *[Refusal(503, {})] * 99)
        for attempt in (1, 2):
            told = delivery(turn, answer="晴", attempt=attempt)
            telling = asyncio.create_task(bot.channel.deliver(told))
            await move_until(clock, telling.done, step=2)
            assert isinstance(telling.exception(), DeliveryError)
        outage.refusals.clear()
        streams.refusals.clear()
        await bot.channel.deliver(delivery(turn, answer="晴", attempt=3))
        assert platform.only_card.is_over
        assert not platform.chats


async def test_a_throttled_card_is_made_by_a_later_try(platform: FakeDingTalk) -> None:
    settle(platform)
    clock, turn = Clock(), unasked(GROUP_CHAT)
    async with open_bot(platform, clock=clock.channels) as bot:
        trouble = platform.script("createAndDeliver", *[QPS_REFUSAL] * 99)
        telling = asyncio.create_task(bot.channel.deliver(delivery(turn, answer="晴")))
        await move_until(clock, telling.done, step=2)
        assert isinstance(telling.exception(), DeliveryError)
        trouble.refusals.clear()
        await in_time(clock, bot.channel.deliver(delivery(turn, answer="晴", attempt=2)))
        assert platform.only_card.text == "**每日简报**\n\n晴"
        assert not platform.chats


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_card_that_cannot_be_made_is_a_message(bot: Bot, is_refused: bool) -> None:
    settle(bot.platform)
    if is_refused:
        bot.platform.script("createAndDeliver", api_refusal(400, "param.templateUnpublished"))
    else:
        bot.platform.forbidden_words.add("晴")
    await bot.channel.deliver(delivery(unasked(GROUP_CHAT), answer="晴"))
    assert bot.platform.chat(GROUP_CHAT) == ["**每日简报**\n\n晴"]
    assert not bot.platform.cards


async def test_nothing_is_shown_that_a_crash_would_forget(bot: Bot) -> None:
    settle(bot.platform)
    bot.inbox.is_down = True
    turn = unasked(GROUP_CHAT)
    with pytest.raises(DeliveryError) as error:
        await bot.channel.deliver(delivery(turn, answer="晴"))
    assert error.value.retryable
    assert not bot.platform.cards
    bot.inbox.is_down = False
    await bot.channel.deliver(delivery(turn, answer="晴", attempt=2))
    assert bot.platform.only_card.text == "**每日简报**\n\n晴"


async def test_a_label_stands_at_the_head_in_every_state(bot: Bot) -> None:
    await bot.platform.say("/side 到哪一步了？")
    turn = replace(bot.turn(), label="旁路提问")
    sink = bot.channel.watch(turn)
    for event in (started(), *saying("第三步")):
        sink.emit(event)
    card = bot.platform
    await card.until(lambda: bool(card.cards) and "第三步" in card.only_card.text)
    await bot.channel.deliver(delivery(turn, "failed", text="模型限流", answer="第三步"))
    heads = {text.split("\n")[0] for text in card.only_card.seen}
    assert heads == {"**旁路提问**"}
