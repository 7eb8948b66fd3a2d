"""The stop button of a card."""

import asyncio
import json
from typing import Any

import pytest

from channels import sentences
from channels.events import OutcomeStatus
from tests.channels.dingtalk.house import ZH, Bot, delivery, move_until, open_bot, saying
from tests.fakes.clock import Clock
from tests.fakes.dingtalk import FakeDingTalk, api_refusal
from tests.fakes.dingtalk_world import QPS_REFUSAL


async def test_the_stop_button_stops_the_run_and_the_card_confirms_it(bot: Bot) -> None:
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    for event in saying("half"):
        sink.emit(event)
    await bot.platform.until(lambda: bool(bot.platform.cards))
    ack = await bot.platform.click("headway-run1")
    assert (ack.code, ack.seconds < 1) == (200, True)
    assert bot.inbox.cancelled == ["run1"]
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


@pytest.mark.parametrize("status", ["finished", "failed", "cancelled", "waiting"])
@pytest.mark.parametrize("can_stream", [True, False])
async def test_no_card_is_over_and_has_a_stop_button(
    bot: Bot, status: OutcomeStatus, can_stream: bool
) -> None:
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    for event in saying("half"):
        sink.emit(event)
    await bot.platform.until(
        lambda: bool(bot.platform.cards) and bot.platform.only_card.text == "half"
    )
    assert bot.platform.only_card.look.has_button
    if not can_stream:
        bot.platform.refuses_streams = api_refusal(400, "somethingNew")
    await bot.channel.deliver(delivery(bot.turn(), status, text="reason", answer="whole"))
    looks = bot.platform.only_card.looks
    last = looks[-1]
    assert last.is_over
    assert not [look for look in looks if look.is_over and look.has_button]
    told = [look for look in looks if look.is_over or look.params["state"] != "进行中"]
    assert {(look.text, look.params["state"]) for look in told} == {
        (last.text, last.params["state"])
    }, "no instant names the end above a text that is not the last one"


async def test_an_end_waits_for_the_removal_of_the_stop_button(platform: FakeDingTalk) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        await platform.say("hello", createAt=None)
        bot.channel.watch(bot.turn())
        await platform.until(lambda: bool(platform.cards))
        platform.script("/v1.0/card/instances", QPS_REFUSAL, QPS_REFUSAL)
        ending = asyncio.create_task(bot.channel.deliver(delivery(bot.turn(), answer="whole")))
        await move_until(clock, ending.done)
        await ending
        looks = platform.only_card.looks
        assert (looks[-1].text, looks[-1].flow) == ("whole", "3")
        assert not [look for look in looks if look.is_over and look.has_button]


async def test_a_stop_button_that_cannot_be_removed_does_not_hold_up_the_end(
    platform: FakeDingTalk,
) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        await platform.say("hello", createAt=None)
        bot.channel.watch(bot.turn())
        await platform.until(lambda: bool(platform.cards))
        platform.script("/v1.0/card/instances", *[QPS_REFUSAL] * 6)
        ending = asyncio.create_task(bot.channel.deliver(delivery(bot.turn(), answer="whole")))
        seconds = await move_until(clock, lambda: platform.only_card.is_over)
        assert seconds < 2 + 4 + 8 + 2
        await move_until(clock, ending.done)
        await ending
        assert not platform.only_card.look.has_button, "tried again after the end"
        assert not platform.chat()
