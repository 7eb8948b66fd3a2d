"""A run that waits for a person: its card asks, is answered, and says who did."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from channels import sentences
from channels.errors import DeliveryError
from channels.feishu.channel import FeishuChannel, FeishuConfig, open_feishu
from channels.port import Question, Turn
from tests.channels.feishu.clock import quick
from tests.channels.feishu.inbox import MemoryInbox, begin, finish
from tests.channels.feishu.watching import again, asked, shown, stream, visible, written
from tests.channels.questions import asking, may_write, which
from tests.fakes.feishu import BOT, FakeFeishu
from tests.fakes.feishu_chats import Bubble

BY_ALICE = "Alice 已同意"
ODD = {"code": 230099, "msg": "Failed, ext=ErrCode: 999999; ErrMsg: x"}


async def ask(
    feishu: FakeFeishu,
    inbox: MemoryInbox,
    channel: FeishuChannel,
    *questions: Question,
    answer: str = "",
) -> tuple[Turn, Bubble]:
    """A run says something and then asks; its run and the bubble of its card."""
    feishu.names["ou_alice"] = "Alice"
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    stream(sink, "half")
    bubble, _ = await shown(feishu)
    await written(feishu, bubble, "half")
    await channel.deliver(asking(turn, *questions, answer=answer))
    return turn, bubble


async def test_the_card_of_the_run_becomes_its_question(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    _, bubble = await ask(feishu, inbox, channel, may_write(), answer="我来写。")
    assert bubble.text.startswith("我来写。\n❓ 要执行 write_file 吗？")
    assert '"path": "a.txt"' in bubble.text
    assert bubble.text.endswith("发送 /approve 同意，/deny 拒绝。\n⏸ 等待你的回复")
    assert list(bubble.labelled) == ["同意", "拒绝"], "there is nothing to stop"
    assert not bubble.is_typing
    assert visible(feishu) == [bubble]
    person = feishu.chat("oc_1").bubbles[0]
    await feishu.until(lambda: not person.reactions)


@pytest.mark.parametrize(("button", "decision"), [("同意", "approve"), ("拒绝", "deny")])
async def test_a_press_answers_and_says_so(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, button: str, decision: str
) -> None:
    turn, bubble = await ask(feishu, inbox, channel, may_write())
    push = feishu.press(bubble, button)
    await push.done.wait()
    assert push.answer == {"toast": {"type": "info", "content": f"Alice: {decision}"}}
    assert push.ack_seconds is not None
    assert push.ack_seconds < 1
    assert inbox.decided == [("q1", decision, "Alice", "")]
    told = asking(again(turn, inbox), may_write("q1", BY_ALICE), number=2)
    await channel.deliver(told)
    assert bubble.text.endswith(f"☑ {BY_ALICE}\n☑ 已答复")
    assert bubble.buttons == []
    assert visible(feishu) == [bubble]


async def test_an_option_answers_with_its_whole_text(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    _, bubble = await ask(feishu, inbox, channel, which("q1", "", "甲", "乙\n组"))
    await feishu.press(bubble, "乙 组").done.wait()
    assert inbox.decided == [("q1", "approve", "Alice", "乙\n组")]


async def test_the_field_of_the_card_takes_any_answer(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    _, bubble = await ask(feishu, inbox, channel, which("q1", "", "甲"))
    push = feishu.fill_in(bubble, "丙群", sender="ou_bob")
    await push.done.wait()
    assert inbox.decided == [("q1", "approve", "ou_bob", "丙群")]
    assert push.answer["toast"]["content"] == "ou_bob: approve"


async def test_each_question_has_its_own_buttons_until_it_is_answered(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn, bubble = await ask(feishu, inbox, channel, may_write("q1"), may_write("q2"))
    assert [value["question"] for value in bubble.buttons] == ["q1", "q1", "q2", "q2"]
    await feishu.click(bubble, bubble.buttons[3]).done.wait()
    assert inbox.decided == [("q2", "deny", "Alice", "")]
    two = may_write("q2", "Alice 已拒绝")
    await channel.deliver(asking(again(turn, inbox), may_write("q1"), two, number=2))
    assert {value["question"] for value in bubble.buttons} == {"q1"}
    assert "☑ Alice 已拒绝" in bubble.text
    assert bubble.text.endswith("⏸ 等待你的回复")
    one = may_write("q1", "Bob 已同意")
    await channel.deliver(asking(again(turn, inbox), one, two, number=3))
    assert not bubble.buttons
    assert bubble.text.endswith("☑ 已答复")


async def test_the_same_answers_are_told_once(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn, _ = await ask(feishu, inbox, channel, may_write())
    told = asking(again(turn, inbox), may_write("q1", BY_ALICE), number=2)
    await channel.deliver(told)
    writes = len(feishu.called("PUT", "/cards/"))
    await channel.deliver(told)
    assert len(feishu.called("PUT", "/cards/")) == writes


async def test_the_button_means_its_question_after_a_restart_too(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn, bubble = await ask(feishu, inbox, channels[BOT], may_write())
    async with open_feishu([config], inbox) as channels:
        push = feishu.press(bubble, "同意")
        await push.done.wait()
        assert inbox.decided == [("q1", "approve", "Alice", "")]
        told = asking(again(turn, inbox), may_write("q1", BY_ALICE), number=2)
        await channels[BOT].deliver(told)
    assert bubble.text.endswith(f"☑ {BY_ALICE}\n☑ 已答复")
    assert visible(feishu) == [bubble]
    assert not [one for one in feishu.calls if one.code == 300317]


async def test_the_run_that_goes_on_has_a_card_and_a_reaction_of_its_own(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn, bubble = await ask(feishu, inbox, channel, which())
    await feishu.say("oc_1", "丙群").done.wait()
    going_on = await inbox.turn(2)
    begin(channel, going_on)
    await feishu.until(lambda: len(visible(feishu)) == 2)
    person = next(one for one in feishu.chat("oc_1").bubbles if one.text == "丙群")
    await feishu.until(lambda: person.reactions)
    await channel.deliver(asking(again(turn, inbox), which("q1", "Alice 已回答"), number=2))
    assert person.reactions, "that one is still at work"
    await finish(channel, going_on, "done")
    await feishu.until(lambda: not person.reactions)
    assert "☑ Alice 已回答" in bubble.text
    assert visible(feishu)[-1].text == "done\n✅ 已完成"
    assert visible(feishu)[-1].parent_id == person.message_id


@pytest.mark.parametrize(
    "change", [{"chat": "oc_other"}, {"do": "else"}, {"question": ""}, {"do": ["approve"]}]
)
async def test_a_press_that_is_not_the_button_of_this_chat_decides_nothing(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, change: dict[str, Any]
) -> None:
    _, bubble = await ask(feishu, inbox, channel, may_write())
    push = feishu.click(bubble, {**bubble.buttons[0], **change})
    await push.done.wait()
    assert push.acks == [200]
    assert inbox.decided == []


async def test_a_press_by_somebody_who_is_not_allowed_decides_nothing(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    config = replace(config, allow=("ou_alice",))
    async with open_feishu([config], inbox) as channels:
        _, bubble = await ask(feishu, inbox, channels[BOT], may_write())
        push = feishu.press(bubble, "同意", sender="ou_mallory")
        await push.done.wait()
    assert push.answer["toast"]["type"] == "warning"
    assert "ou_mallory" in push.answer["toast"]["content"]
    assert inbox.decided == []
    assert list(bubble.labelled) == ["同意", "拒绝"]


async def test_a_press_is_answered_in_time_though_deciding_takes_long(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    _, bubble = await ask(feishu, inbox, channel, may_write())
    inbox.gate = asyncio.Event()
    push = feishu.press(bubble, "同意")
    await push.done.wait()
    assert push.ack_seconds is not None
    assert push.ack_seconds < 3
    assert push.answer["toast"]["content"] == sentences.taken("zh-CN")
    inbox.gate.set()
    await inbox.until(lambda: inbox.decided)


async def test_a_press_that_cannot_be_kept_or_will_not_be_taken_says_so(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    _, bubble = await ask(feishu, inbox, channel, may_write())
    inbox.is_unavailable = True
    push = feishu.press(bubble, "同意")
    await push.done.wait()
    told = {"type": "warning", "content": sentences.not_received("zh-CN")}
    assert push.answer == {"toast": told}
    inbox.is_unavailable, inbox.refuses_with = False, "这条消息无法处理。"
    push = feishu.press(bubble, "同意")
    await push.done.wait()
    assert push.answer == {"toast": {"type": "warning", "content": "这条消息无法处理。"}}
    assert inbox.decided == []


async def test_a_press_that_is_pushed_twice_decides_once(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    _, bubble = await ask(feishu, inbox, channel, may_write())
    event = feishu.click_event(bubble, bubble.buttons[0])
    for _ in range(2):
        push = feishu.send(event, again=False)
        await push.done.wait()
        assert push.answer["toast"]["type"] == "info"
    assert len(inbox.decided) == 1


async def test_a_card_that_a_press_holds_is_written_when_it_is_answered(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn, bubble = await ask(feishu, inbox, channel, may_write())
    assert bubble.card is not None
    inbox.gate = asyncio.Event()
    push = feishu.press(bubble, "同意")
    await feishu.until(lambda: bubble.card is not None and bubble.card.locked)
    told = asking(again(turn, inbox), may_write("q1", BY_ALICE), number=2)
    telling = asyncio.create_task(channel.deliver(told))
    await feishu.until(lambda: any(one.code == 200810 for one in feishu.calls))
    inbox.gate.set()
    await push.done.wait()
    await telling
    assert bubble.text.endswith(f"☑ {BY_ALICE}\n☑ 已答复")


# Where no card can show it


async def test_without_cards_question_and_answer_are_messages(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().scopes.add("cardkit:card:write")
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    await channel.deliver(asking(turn, may_write(), answer="我来写。"))
    told = asking(turn, may_write("q1", BY_ALICE), number=2)
    await channel.deliver(told)
    question, verdict = visible(feishu)
    assert question.text.startswith("我来写。\n❓ 要执行 write_file 吗？")
    assert question.text.endswith("发送 /approve 同意，/deny 拒绝。\n⏸ 等待你的回复")
    assert question.buttons == [], "nobody could take them away"
    assert verdict.text == f"❓ 要执行 write_file 吗？\n\n☑ {BY_ALICE}"


async def test_a_verdict_is_told_once_over_a_restart_and_whoever_asks_for_it(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    feishu.app().scopes.add("cardkit:card:write")
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        await channels[BOT].deliver(asking(turn, may_write()))
    for _ in range(2):
        async with open_feishu([config], inbox) as channels:
            for number in (1, 2):
                told = asking(turn, may_write("q1", BY_ALICE), number=number)
                await channels[BOT].deliver(told)
    assert len(visible(feishu)) == 2


@pytest.mark.parametrize("label", ["", "每日简报"])
async def test_a_question_that_is_refused_on_cards_is_a_text(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, label: str
) -> None:
    turn = replace(await asked(feishu, inbox), label=label)
    begin(channel, turn)
    bubble, _ = await shown(feishu)
    feishu.fail("PUT", "/cardkit/v1/cards/", body=ODD)
    feishu.fail("POST", "/reply", body=ODD)
    await channel.deliver(asking(turn, which("q1", "", "甲")))
    _, text = visible(feishu)
    assert text.kind == "text"
    assert text.text.startswith(f"{label}\n\n❓ 哪个群？" if label else "❓ 哪个群？")
    assert "直接回复即可作答" in text.text
    assert not bubble.is_typing
    assert bubble.buttons == [], "what nobody can read there, nobody agrees to there"


async def test_an_answer_that_its_card_cannot_show_is_a_message(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn, bubble = await ask(feishu, inbox, channel, may_write())
    feishu.fail("PUT", "/cardkit/v1/cards/", 200750, times=2)
    told = asking(again(turn, inbox), may_write("q1", BY_ALICE), number=2)
    await channel.deliver(told)
    await channel.deliver(told)
    assert [one.text for one in visible(feishu)] == [
        bubble.text,
        f"❓ 要执行 write_file 吗？\n\n☑ {BY_ALICE}",
    ]


async def test_what_is_still_asked_comes_back_to_a_card_that_could_not_be_written(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox, quick()) as channels:
        questions = may_write("q1"), may_write("q2")
        turn, bubble = await ask(feishu, inbox, channels[BOT], *questions, answer="我来写。")
        feishu.fail("PUT", "/cards/", 2200, times=8)
        one = may_write("q1", BY_ALICE)
        told = asking(again(turn, inbox), one, questions[1], number=2, answer="我来写。")
        await channels[BOT].deliver(told)
        assert visible(feishu)[-1].text == f"❓ 1. 要执行 write_file 吗？\n\n☑ {BY_ALICE}"
        await feishu.until(lambda: f"☑ {BY_ALICE}" in bubble.text)
    assert bubble.text.startswith("我来写。\n")
    assert {value["question"] for value in bubble.buttons} == {"q2"}


async def test_an_answer_waits_for_a_platform_that_is_down(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox, quick()) as channels:
        turn, bubble = await ask(feishu, inbox, channels[BOT], may_write())
        down = feishu.fail("PUT", "/cards/", status=502, body="<html>", times=99)
        bad = feishu.fail("POST", "/messages", status=502, body="<html>", times=99)
        told = asking(again(turn, inbox), may_write("q1", BY_ALICE), number=2)
        with pytest.raises(DeliveryError) as error:
            await channels[BOT].deliver(told)
        assert error.value.retryable
        down.times = bad.times = 0
        await channels[BOT].deliver(replace(told, attempt=2))
    assert bubble.text.endswith(f"☑ {BY_ALICE}\n☑ 已答复")
    assert visible(feishu) == [bubble]


async def test_neither_what_is_asked_nor_who_answers_reaches_a_log(
    feishu: FakeFeishu,
    inbox: MemoryInbox,
    channel: FeishuChannel,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    arguments = json.dumps({"path": "geheim-1"})
    turn, bubble = await ask(feishu, inbox, channel, may_write(arguments=arguments))
    await feishu.press(bubble, "同意").done.wait()
    inbox.refuses_with = "geheim-2"
    await feishu.press(bubble, "同意").done.wait()
    feishu.fail("PUT", "/cardkit/v1/cards/", body=ODD, times=2)
    await channel.deliver(asking(again(turn, inbox), may_write("q1", BY_ALICE), number=2))
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("channels")]
    assert ours
    assert not [line for line in ours for word in ("geheim", "lice") if word in line]
