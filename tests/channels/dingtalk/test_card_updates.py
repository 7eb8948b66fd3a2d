"""A run on its card, from the first text to the end, on real sockets."""

import asyncio
import time
from functools import partial

import pytest

from channels.dingtalk.card import render_refused
from channels.dingtalk.turns import UNMARK_SECONDS
from channels.errors import DeliveryError
from channels.events import Outcome, RunStarted, TextAdded, TextStarted
from tests.channels.dingtalk.house import (
    GROUP_CHAT,
    TEMPLATE,
    ZH,
    Bot,
    called,
    calling,
    delivery,
    in_time,
    move_until,
    open_bot,
    saying,
    started,
)
from tests.fakes.clock import Clock
from tests.fakes.dingtalk import FakeDingTalk, Refusal, api_refusal, oapi
from tests.fakes.dingtalk_world import BAD_TOKEN, QPS_REFUSAL


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
    bot.platform.script("/v1.0/card/instances", *[BAD_TOKEN] * 4)
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
    bot.platform.app.templates[TEMPLATE] = frozenset({"msgContent", "state", "stoppable"})
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    for event in saying("half"):
        sink.emit(event)
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert bot.platform.chat() == ["whole"]
    card = bot.platform.only_card
    assert (card.text, card.flow, card.params["state"]) == ("", "3", "已完成")


@pytest.mark.parametrize(
    "refusal",
    [
        api_refusal(400, "somethingNew"),
        api_refusal(403, "Forbidden.AccessDenied.AccessTokenPermissionDenied"),
    ],
)
async def test_a_card_whose_stream_the_platform_closes_goes_on_by_its_variables(
    bot: Bot, refusal: Refusal
) -> None:
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    for event in saying("one"):
        sink.emit(event)
    await bot.platform.until(
        lambda: bool(bot.platform.cards) and bot.platform.only_card.text == "one"
    )
    bot.platform.refuses_streams = refusal
    for event in saying("one, two", "a10"):
        sink.emit(event)
    await bot.platform.until(lambda: bot.platform.only_card.text == "one, two")
    for event in saying("one, two, three", "a11"):
        sink.emit(event)
    await bot.platform.until(lambda: bot.platform.only_card.text == "one, two, three")
    assert bot.platform.only_card.flow == "2"
    await bot.channel.deliver(delivery(bot.turn(), answer="whole"))
    assert (bot.platform.only_card.text, bot.platform.only_card.flow) == ("whole", "3")
    refused = [call for call in bot.platform.called("card/streaming") if call.status != 200]
    assert len(refused) == 2, "one in mid-answer, one at the end"
    assert not bot.platform.chat()


async def test_an_answer_of_twelve_minutes_grows_to_its_end_though_its_stream_is_closed(
    platform: FakeDingTalk,
) -> None:
    clock = Clock()
    pieces = [f"minute {minute} " for minute in range(12)]
    whole = "".join(pieces)
    async with open_bot(platform, clock=clock.channels) as bot:
        await platform.say("hello", createAt=None)
        sink = bot.channel.watch(bot.turn())
        sink.emit(TextStarted("a9"))
        for minute, piece in enumerate(pieces):
            if minute == 10:
                platform.refuses_streams = api_refusal(400, "param.stream.closed")
            sink.emit(TextAdded("a9", piece))
            shown = partial(shows, platform, "".join(pieces[: minute + 1]))
            clock.advance(max(0.0, 60 - await move_until(clock, shown)))
        await in_time(clock, bot.channel.deliver(delivery(bot.turn(), answer=whole)))
        card = platform.only_card
        assert (card.text, card.flow, card.params["state"]) == (whole.strip(), "3", "已完成")
        assert all(whole.startswith(text) for text in card.seen[1:])
        assert not platform.chat()


def shows(platform: FakeDingTalk, text: str) -> bool:
    """There is a card, and this stands on it."""
    return bool(platform.cards) and platform.only_card.text.strip() == text.strip()


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
    bot.channel.watch(bot.turn()).emit(started())
    await bot.platform.until(lambda: bot.platform.emotions.get("msg1==") == ["🤔思考中"])
    await bot.channel.deliver(delivery(bot.turn(), answer="done"))
    assert bot.platform.emotions["msg1=="] == [], "before the end counts as told"
    await bot.platform.say("two")
    bot.channel.watch(bot.turn(2)).emit(started("run2"))
    await bot.channel.deliver(delivery(bot.turn(2), "failed", text="reason"))
    assert bot.platform.emotions["msg2=="] == ["❌失败"]


async def test_an_emotion_of_before_a_restart_is_not_put_there_twice(plain_bot: Bot) -> None:
    await plain_bot.platform.say("hello")
    plain_bot.channel.watch(plain_bot.turn()).emit(RunStarted("run1", "m1", "hello", attempt=2))
    await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer="done"))
    assert not plain_bot.platform.called("emotion/reply")
    assert len(plain_bot.platform.called("emotion/recall")) == 1


async def test_emotions_that_are_not_answered_hold_up_the_end_for_a_moment_only(bot: Bot) -> None:
    hold = bot.platform.script("emotion/recall").hold = asyncio.Event()
    await bot.platform.say("hello")
    async with asyncio.timeout(2 * UNMARK_SECONDS):
        await bot.channel.deliver(delivery(bot.turn(), answer="done"))
    assert bot.platform.chat() == ["done"]
    hold.set()


async def test_an_app_without_emotions_works_without_them(bot: Bot) -> None:
    refusal = api_refusal(403, "Forbidden.AccessDenied.AccessTokenPermissionDenied")
    bot.platform.script("emotion/reply", refusal)
    for number in (1, 2):
        await bot.platform.say("hello")
        bot.channel.watch(bot.turn(number)).emit(started(f"run{number}"))
        await bot.channel.deliver(delivery(bot.turn(number), answer="done"))
        await bot.platform.until(lambda: len(bot.platform.called("emotion/reply")) == 1)
    assert {card.text for card in bot.platform.cards.values()} == {"done"}


async def test_a_message_that_was_withdrawn_costs_the_others_no_emotion(bot: Bot) -> None:
    bot.platform.script("emotion/reply", api_refusal(400, "invalidParameter.openMsgId"))
    for number in (1, 2):
        await bot.platform.say("hello")
        bot.channel.watch(bot.turn(number)).emit(started(f"run{number}"))
    await bot.platform.until(lambda: bot.platform.emotions == {"msg2==": ["🤔思考中"]})
    for number in (1, 2):
        await bot.channel.deliver(delivery(bot.turn(number), answer="done"))
    assert {card.text for card in bot.platform.cards.values()} == {"done"}
    assert bot.platform.emotions["msg2=="] == []


async def test_a_text_that_the_platform_does_not_take_is_owned_up_to(plain_bot: Bot) -> None:
    platform = plain_bot.platform
    await platform.say("hello")
    platform.script("sendBySession", oapi(460101, "too long"))
    platform.script("batchSend", api_refusal(400, "invalidParameter.msgParam"))
    await plain_bot.channel.deliver(delivery(plain_bot.turn(), answer="whole"))
    assert platform.chat() == [render_refused(ZH)]
