"""A run that waits for a person: its card asks, is answered, and says who did."""

import asyncio
import json
from dataclasses import replace

import pytest

from channels import sentences
from channels.errors import DeliveryError
from channels.port import Question
from tests.channels.dingtalk.house import (
    GROUP_CHAT,
    ZH,
    Bot,
    MemoryInbox,
    delivery,
    in_time,
    move_until,
    open_bot,
    said,
    saying,
    started,
)
from tests.channels.questions import asking, may_write, which
from tests.fakes.clock import Clock
from tests.fakes.dingtalk import FakeDingTalk, Refusal, api_refusal
from tests.fakes.dingtalk_world import QPS_REFUSAL

CARD = "headway-run1"
BY_ALICE = "Alice 已同意"


async def ask(bot: Bot, *questions: Question, answer: str = "") -> None:
    """A run that said something and then asks."""
    await bot.platform.say("hello")
    sink = bot.channel.watch(bot.turn())
    for event in (started(), *saying("half")):
        sink.emit(event)
    await bot.channel.deliver(asking(bot.turn(), *questions, answer=answer))


async def test_the_card_of_the_run_becomes_its_question(bot: Bot) -> None:
    await ask(bot, may_write(), answer="我来写。")
    card = bot.platform.only_card
    assert card.text.startswith("我来写。\n\n---\n\n❓ 要执行 write_file 吗？")
    assert '"path": "a.txt"' in card.text
    assert card.text.endswith("发送 /approve 同意，/deny 拒绝。")
    assert (card.flow, card.params["state"], card.params["note"]) == ("3", "等待回复", "")
    assert list(card.look.buttons) == ["同意", "拒绝"]
    assert not card.look.has_button, "there is nothing to stop"
    assert not bot.platform.chat()
    assert bot.platform.emotions["msg1=="] == []


@pytest.mark.parametrize(("button", "decision"), [("同意", "approve"), ("拒绝", "deny")])
async def test_a_press_answers_and_says_so(bot: Bot, button: str, decision: str) -> None:
    await ask(bot, may_write())
    ack = await bot.platform.press(CARD, button)
    assert (ack.code, ack.seconds < 1) == (200, True)
    assert bot.inbox.decided == [("q1", decision, "Alice", "")]
    card = bot.platform.only_card
    assert card.params["note"] == f"Alice: {decision}"
    await bot.channel.deliver(asking(bot.turn(), may_write("q1", BY_ALICE), number=2))
    assert card.text.endswith(f"☑ {BY_ALICE}")
    assert (card.params["state"], card.params["note"]) == ("已答复", "")
    assert (dict(card.look.buttons), card.flow) == ({}, "3")
    assert not bot.platform.chat()


async def test_an_option_answers_with_its_whole_text(bot: Bot) -> None:
    await ask(bot, which("q1", "", "甲", "乙"))
    await bot.platform.press(CARD, "乙")
    assert bot.inbox.decided == [("q1", "approve", "Alice", "乙")]


async def test_the_button_means_its_question_after_a_restart_too(platform: FakeDingTalk) -> None:
    inbox = MemoryInbox()
    async with open_bot(platform, inbox) as bot:
        await ask(bot, may_write())
    async with open_bot(platform, inbox) as bot:
        await platform.press(CARD, "同意")
        assert inbox.decided == [("q1", "approve", "staff01", "")], "nobody's name is known yet"
        turn = bot.turn(is_restarted=True)
        await bot.channel.deliver(asking(turn, may_write("q1", BY_ALICE), number=2))
        assert platform.only_card.text.endswith(f"☑ {BY_ALICE}")
        assert not platform.chat()


async def test_each_question_has_its_own_buttons_until_it_is_answered(bot: Bot) -> None:
    await ask(bot, may_write("q1"), may_write("q2"))
    card = bot.platform.only_card
    await bot.platform.press(CARD, "2. 拒绝")
    two = may_write("q2", "Alice 已拒绝")
    await bot.channel.deliver(asking(bot.turn(), may_write("q1"), two, number=2))
    assert list(card.look.buttons) == ["1. 同意", "1. 拒绝"]
    assert "☑ Alice 已拒绝" in card.text
    assert card.params["state"] == "等待回复"
    one = may_write("q1", "Bob 已同意")
    await bot.channel.deliver(asking(bot.turn(), one, two, number=3))
    assert not card.look.buttons
    assert bot.inbox.decided == [("q2", "deny", "Alice", "")]
    assert card.params["state"] == "已答复"


async def test_the_same_answers_are_told_once(bot: Bot) -> None:
    await ask(bot, may_write())
    again = asking(bot.turn(), may_write("q1", BY_ALICE), number=2)
    await bot.channel.deliver(again)
    calls = len(bot.platform.calls)
    await bot.channel.deliver(again)
    await bot.channel.deliver(asking(bot.turn(), may_write("q1", BY_ALICE)))
    assert len(bot.platform.calls) == calls


async def test_the_mark_of_the_run_that_goes_on_is_left_alone(bot: Bot) -> None:
    await ask(bot, may_write())
    going_on = replace(bot.turn(), run_id="run2")
    bot.channel.watch(going_on).emit(started("run2"))
    await bot.platform.until(lambda: bot.platform.emotions["msg1=="] == ["🤔思考中"])
    await bot.channel.deliver(asking(bot.turn(), may_write("q1", BY_ALICE), number=2))
    assert bot.platform.emotions["msg1=="] == ["🤔思考中"]
    await bot.channel.deliver(delivery(going_on, answer="done"))
    assert bot.platform.emotions["msg1=="] == []
    texts = {card_id: card.text for card_id, card in bot.platform.cards.items()}
    assert texts["headway-run2"] == "done"
    assert texts[CARD].endswith(f"☑ {BY_ALICE}")


async def test_what_was_answered_before_it_was_asked_is_told_with_its_answer(bot: Bot) -> None:
    await ask(bot, may_write("q1", BY_ALICE))
    card = bot.platform.only_card
    assert card.text.endswith(f"☑ {BY_ALICE}")
    assert not [look for look in card.looks if look.buttons]
    calls = len(bot.platform.calls)
    await bot.channel.deliver(asking(bot.turn(), may_write("q1", BY_ALICE), number=2))
    assert len(bot.platform.calls) == calls


async def test_whoever_comes_second_is_told_who_was_first(bot: Bot) -> None:
    await ask(bot, may_write())
    sent = bot.platform.only_card.look.buttons["拒绝"]
    await bot.channel.deliver(asking(bot.turn(), may_write("q1", BY_ALICE), number=2))
    await bot.platform.click(CARD, "bob", action=sent["actionId"], params=sent["params"])
    assert bot.inbox.decided == [("q1", "deny", "bob", "")], "the application says who was first"
    card = bot.platform.only_card
    assert card.params["note"] == "bob: deny"
    assert card.text.endswith(f"☑ {BY_ALICE}")


async def test_a_press_by_somebody_who_is_not_allowed_decides_nothing(
    platform: FakeDingTalk,
) -> None:
    async with open_bot(platform, allow=("staff01",)) as bot:
        await ask(bot, may_write())
        await platform.press(CARD, "同意", user="mallory")
        assert not bot.inbox.decided
        card = platform.only_card
        assert card.params["note"] == sentences.not_allowed(ZH, "mallory")
        assert list(card.look.buttons) == ["同意", "拒绝"]


async def test_a_press_is_answered_in_time_though_deciding_takes_long(bot: Bot) -> None:
    await ask(bot, may_write())
    bot.inbox.hold = asyncio.Event()
    ack = await bot.platform.press(CARD, "同意")
    assert ack.seconds < 3
    assert bot.platform.only_card.params["note"] == sentences.taken(ZH)
    bot.inbox.hold.set()
    await bot.inbox.until(lambda: bool(bot.inbox.decided))


async def test_a_press_that_cannot_be_kept_or_will_not_be_taken_says_so(bot: Bot) -> None:
    await ask(bot, may_write())
    bot.inbox.is_down = True
    await bot.platform.press(CARD, "同意")
    card = bot.platform.only_card
    assert card.params["note"] == sentences.not_received(ZH)
    bot.inbox.is_down, bot.inbox.refuses = False, "这条消息无法处理。"
    await bot.platform.press(CARD, "同意")
    assert card.params["note"] == "这条消息无法处理。"
    assert list(card.look.buttons) == ["同意", "拒绝"]


async def test_a_press_that_names_no_question_is_left_alone(bot: Bot) -> None:
    await ask(bot, may_write())
    ack = await bot.platform.click(CARD, action="approve")
    assert (ack.code, ack.data) == (200, {"response": "OK"})
    assert not bot.inbox.decided


async def test_a_template_without_the_group_of_buttons_shows_the_question_and_the_words(
    platform: FakeDingTalk,
) -> None:
    variables = frozenset({"content", "state", "note", "stoppable", "flowStatus"})
    platform.app.templates["template.schema"] = variables
    async with open_bot(platform) as bot:
        await ask(bot, may_write())
        assert platform.only_card.text.endswith("发送 /approve 同意，/deny 拒绝。")
        await bot.channel.deliver(asking(bot.turn(), may_write("q1", BY_ALICE), number=2))
        assert platform.only_card.text.endswith(f"☑ {BY_ALICE}")


@pytest.mark.parametrize("group", [False, True])
async def test_without_cards_question_and_answer_are_messages(plain_bot: Bot, group: bool) -> None:
    platform = plain_bot.platform
    await platform.say("hello", group=group)
    turn = plain_bot.turn()
    await plain_bot.channel.deliver(asking(turn, may_write(), answer="我来写。"))
    again = asking(turn, may_write("q1", BY_ALICE), number=2)
    await plain_bot.channel.deliver(again)
    await plain_bot.channel.deliver(again)
    question, verdict = platform.chat(GROUP_CHAT if group else "cidAb+C/d==")
    assert question.startswith("我来写。\n\n---\n\n❓ 要执行 write_file 吗？")
    assert ("在群里请 @ 我" in question) is group
    assert verdict.startswith(f"❓ 要执行 write_file 吗？\n\n☑ {BY_ALICE}")


async def test_a_verdict_is_told_once_over_a_restart_without_cards(platform: FakeDingTalk) -> None:
    inbox = MemoryInbox()
    async with open_bot(platform, inbox, card_template_id="") as bot:
        await platform.say("hello")
        await bot.channel.deliver(asking(bot.turn(), may_write()))
    for _ in range(2):
        async with open_bot(platform, inbox, card_template_id="") as bot:
            turn = bot.turn(is_restarted=True)
            await bot.channel.deliver(asking(turn, may_write()))
            await bot.channel.deliver(asking(turn, may_write("q1", BY_ALICE), number=2))
    assert len(platform.chat()) == 2


async def test_an_answer_that_its_card_cannot_show_is_a_message(bot: Bot) -> None:
    await ask(bot, may_write())
    platform = bot.platform
    platform.script("/v1.0/card/instances", api_refusal(400, "somethingNew"))
    again = asking(bot.turn(), may_write("q1", BY_ALICE), number=2)
    await bot.channel.deliver(again)
    await bot.channel.deliver(again)
    assert platform.chat() == [f"❓ 要执行 write_file 吗？\n\n☑ {BY_ALICE}"]


async def test_an_answer_waits_for_a_platform_in_trouble(platform: FakeDingTalk) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        await platform.say("hello", createAt=None)
        bot.channel.watch(bot.turn())
        await bot.channel.deliver(asking(bot.turn(), may_write()))
        trouble = platform.script("/v1.0/card/instances", *[QPS_REFUSAL] * 99)
        again = asking(bot.turn(), may_write("q1", BY_ALICE), number=2)
        telling = asyncio.create_task(bot.channel.deliver(again))
        await move_until(clock, telling.done, step=2)
        error = telling.exception()
        assert isinstance(error, DeliveryError)
        assert error.retryable
        trouble.refusals.clear()
        await in_time(clock, bot.channel.deliver(again))
        assert platform.only_card.text.endswith(f"☑ {BY_ALICE}")
        assert not platform.chat()


async def test_a_question_whose_card_cannot_be_ended_is_a_message_that_is_not_lost(
    platform: FakeDingTalk,
) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        await platform.say("hello", createAt=None)
        bot.channel.watch(bot.turn())
        await platform.until(lambda: bool(platform.cards))
        outage = platform.script("card/streaming", *[Refusal(503, {})] * 99)
        telling = asyncio.create_task(bot.channel.deliver(asking(bot.turn(), may_write())))
        await move_until(clock, telling.done, step=2)
        assert isinstance(telling.exception(), DeliveryError)
        (message,) = platform.chat()
        assert "/approve" in message
        outage.refusals.clear()
        answered = asking(bot.turn(), may_write("q1", BY_ALICE), number=2)
        await bot.channel.deliver(answered)
        card = platform.only_card
        assert card.is_over
        assert card.text.endswith(f"☑ {BY_ALICE}")
        assert not card.look.buttons
        assert len(platform.chat()) == 1


async def test_a_question_that_its_card_may_not_show_has_no_buttons_there(bot: Bot) -> None:
    await bot.platform.say("hello")
    bot.channel.watch(bot.turn())
    await bot.platform.until(lambda: bool(bot.platform.cards))
    bot.platform.forbidden_words.add("write_file")
    await bot.channel.deliver(asking(bot.turn(), may_write()))
    card = bot.platform.only_card
    assert (card.is_over, dict(card.look.buttons)) == (True, {})
    assert "❓" in (await said(bot.platform))[0]


async def test_a_card_that_takes_no_more_texts_still_shows_who_answered(bot: Bot) -> None:
    bot.platform.freezes_finished_cards = True
    await ask(bot, may_write())
    await bot.channel.deliver(asking(bot.turn(), may_write("q1", BY_ALICE), number=2))
    assert bot.platform.only_card.text.endswith(f"☑ {BY_ALICE}")
    assert not bot.platform.chat()


async def test_a_long_text_before_a_question_leaves_room_for_it(bot: Bot) -> None:
    arguments = json.dumps({"content": "长" * 9000}, ensure_ascii=False)
    await ask(bot, may_write(arguments=arguments), answer="先说几句。" * 3000)
    card = bot.platform.only_card
    assert card.text.startswith("先说几句。先说几句。")
    assert card.text.endswith("发送 /approve 同意，/deny 拒绝。")
    assert not bot.platform.chat()


async def test_neither_what_is_asked_nor_who_answers_reaches_a_log(
    bot: Bot, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await ask(bot, may_write(arguments='{"path": "geheim-1"}'))
    await bot.platform.press(CARD, "同意")
    bot.platform.script("/v1.0/card/instances", api_refusal(400, "somethingNew"))
    await bot.channel.deliver(asking(bot.turn(), may_write("q1", BY_ALICE), number=2))
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("channels")]
    assert ours
    assert not [line for line in ours for word in ("geheim", "Alice", "staff01") if word in line]
