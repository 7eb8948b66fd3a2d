"""How a run ended, told once, also after a crash."""

import asyncio
import json
import time

import pytest

from channels.dingtalk.trace import Trace
from channels.errors import DeliveryError
from channels.port import ChatAddress, Turn
from tests.channels.dingtalk.house import (
    GROUP_CHAT,
    Bot,
    MemoryInbox,
    delivery,
    move_until,
    open_bot,
    saying,
)
from tests.fakes.clock import Clock
from tests.fakes.dingtalk import FakeDingTalk, Refusal, oapi


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
    platform.forbidden_words.add("whole")
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert platform.only_card.flow == "3"
    assert platform.only_card.params["stoppable"] == "false"
    assert platform.chat() == ["whole"]


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
