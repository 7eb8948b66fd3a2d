"""Ends of runs where the platform refuses or fails: told all the same, and no card stays open."""

import asyncio
from typing import Any

import pytest

from channels.errors import DeliveryError
from channels.feishu.channel import FeishuChannel, FeishuConfig, open_feishu
from tests.channels.feishu.clock import quick
from tests.channels.feishu.inbox import (
    MemoryInbox,
    begin,
    finish,
    speak,
)
from tests.channels.feishu.watching import asked, shown, visible
from tests.fakes.feishu import BOT, FakeFeishu

FAILED = "连续 15 轮没有进展"


async def test_a_card_that_is_refused_for_an_unknown_reason_becomes_one_text(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    odd = {"code": 230099, "msg": "Failed, ext=ErrCode: 999999; ErrMsg: x"}
    feishu.fail("POST", "/cardkit/v1/cards", body=odd)
    feishu.fail("POST", "/reply", body=odd)
    begin(channel, turn)
    await finish(channel, turn, "the full answer")
    [bubble] = visible(feishu)
    assert bubble.kind == "text"
    assert bubble.text == "the full answer\n\n✅ 已完成"


@pytest.mark.parametrize(("status", "code"), [(400, 987654), (200, 230001)])
async def test_a_card_that_cannot_be_posted_is_left_alone(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, status: int, code: int
) -> None:
    turn = await asked(feishu, inbox)
    fault = feishu.fail("POST", "/reply", code, status=status)
    sink = begin(channel, turn)
    await fault.met.wait()
    speak(sink, "the answer")
    await finish(channel, turn, "the answer")
    [bubble] = visible(feishu)
    assert bubble.text == "the answer\n✅ 已完成"
    assert feishu.called("PUT", "/cards/") == []


async def test_a_final_card_that_is_refused_is_told_as_a_message_and_stops_typing(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, _ = await shown(feishu)
    odd = {"code": 230099, "msg": "Failed, ext=ErrCode: 999999; ErrMsg: x"}
    feishu.fail("PUT", "/cardkit/v1/cards/", body=odd)
    await finish(channel, turn, "the answer")
    assert [one.text for one in visible(feishu)] == ["✅ 已完成", "the answer\n✅ 已完成"]
    assert not bubble.is_typing


async def test_tables_that_are_still_too_many_become_code(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, _ = await shown(feishu)
    tables = {"code": 230099, "msg": "ext=ErrCode: 11310; ErrMsg: card table number over limit"}
    feishu.fail("PUT", "/cardkit/v1/cards/", body=tables)
    await finish(channel, turn, "| a | b |\n| --- | --- |\n| 1 | 2 |")
    assert visible(feishu) == [bubble]
    assert "```" in bubble.text


async def test_an_answer_with_many_tables_and_pages_arrives_whole(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    answer = "\n\n".join(
        f"| t{n} | b |\n| --- | --- |\n| 1 | 2 |\n\n" + "字" * 2000 for n in range(20)
    )
    turn = await asked(feishu, inbox)
    sink = begin(channel, turn)
    speak(sink, answer)
    await finish(channel, turn, answer)
    whole = "\n".join(one.text for one in visible(feishu))
    assert len(visible(feishu)) > 3
    assert all(f"t{n} " in whole for n in range(20))
    assert whole.count("字") == 40_000
    assert not [one for one in feishu.calls if one.code]


@pytest.mark.parametrize("code", [230022, 230028])
async def test_an_answer_that_the_audit_refuses_is_told_as_refused(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, code: int
) -> None:
    turn = await asked(feishu, inbox)
    feishu.fail("POST", "/cardkit/v1/cards", code, times=9)
    feishu.fail("POST", "/reply", code)
    begin(channel, turn)
    await finish(channel, turn, "bad words")
    [bubble] = visible(feishu)
    assert "审核" in bubble.text


async def test_without_the_permission_for_cards_the_answer_comes_as_a_message(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().scopes.add("cardkit:card:write")
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    await finish(channel, turn, "the answer")
    assert [one.text for one in visible(feishu)] == ["the answer\n✅ 已完成"]
    assert "cardkit:card:write" in channel.health().reason


async def test_a_run_whose_message_was_recalled_is_told_in_the_chat(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    feishu.chat("oc_1").bubbles[0].is_gone = True
    begin(channel, turn)
    await finish(channel, turn, "the answer")
    [bubble] = visible(feishu)
    assert bubble.text == "the answer\n✅ 已完成"
    assert bubble.parent_id == ""


async def test_a_run_that_fails_while_its_card_is_being_made_is_told_once(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    gate = asyncio.Event()
    making = feishu.fail("POST", "/cardkit/v1/cards", gate=gate)
    begin(channel, turn)
    await making.met.wait()
    telling = asyncio.create_task(finish(channel, turn, status="failed", text=FAILED))
    await asyncio.sleep(0)
    gate.set()
    await telling
    [bubble] = visible(feishu)
    assert bubble.text == f"❌ 任务失败：{FAILED}"
    assert not bubble.is_typing


@pytest.mark.parametrize("code", [230002, 230013, 230018, 230053, 232009])
async def test_a_chat_that_is_closed_is_a_final_failure(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, code: int
) -> None:
    turn = await asked(feishu, inbox)
    feishu.chat("oc_1").closed_with = code
    begin(channel, turn)
    with pytest.raises(DeliveryError) as error:
        await finish(channel, turn, "the answer")
    assert not error.value.retryable


async def test_a_platform_that_is_down_at_the_end_is_tried_again_later(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox, quick()) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        down = feishu.fail("PUT", "/cards/", status=502, body="<html>", times=99)
        bad = feishu.fail("POST", "/messages", status=502, body="<html>", times=99)
        with pytest.raises(DeliveryError) as error:
            await finish(channels[BOT], turn, "the answer")
        assert error.value.retryable
        down.times = bad.times = 0
        await finish(channels[BOT], turn, "the answer", attempt=2)
    assert bubble.text == "the answer\n✅ 已完成"
    assert visible(feishu) == [bubble]


async def test_a_card_that_the_platform_fails_to_write_is_told_as_a_message_and_closed_later(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox, quick()) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        feishu.fail("PUT", "/cards/", 2200, times=8)
        await finish(channels[BOT], turn, "the answer")
        assert visible(feishu)[-1].text == "the answer\n✅ 已完成"
        await feishu.until(lambda: not bubble.is_typing)
    assert [one.text for one in visible(feishu)] == ["✅ 已完成", "the answer\n✅ 已完成"]


async def test_a_card_is_closed_however_long_the_platform_fails_to(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox, quick()) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        feishu.fail("PUT", "/cards/", 2200, times=14)
        await finish(channels[BOT], turn, "the answer")
        await feishu.until(lambda: not bubble.is_typing)
    assert [one.text for one in visible(feishu)] == ["✅ 已完成", "the answer\n✅ 已完成"]


async def test_an_end_of_which_a_part_was_told_is_told_on_from_there(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    answer = "\n\n".join(["一" * 6000, "二" * 6000])
    async with open_feishu([config], inbox, quick()) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        feishu.fail("PUT", "/cards/", 2200, times=6)
        first = feishu.fail("POST", "/reply", gate=asyncio.Event())
        telling = asyncio.create_task(finish(channels[BOT], turn, answer))
        await first.met.wait()
        second = feishu.fail("POST", "/reply", status=502, body="<html>", times=4)
        assert first.gate is not None
        first.gate.set()
        with pytest.raises(DeliveryError):
            await telling
        assert second.times == 0
        await finish(channels[BOT], turn, answer, attempt=2)
        await feishu.until(lambda: not bubble.is_typing)
    whole = "".join(one.text for one in visible(feishu))
    assert whole.count("一") == whole.count("二") == 6000
    assert len(visible(feishu)) == 3


@pytest.mark.parametrize("body", ["<html>", {"code": 230049, "msg": "being sent"}])
async def test_a_card_that_was_shown_though_the_platform_says_otherwise_does_not_stay_open(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig, body: Any
) -> None:
    async with open_feishu([config], inbox, quick()) as channels:
        turn = await asked(feishu, inbox)
        feishu.fail("POST", "/reply", is_late=True, status=504, body=body, times=4)
        sink = begin(channels[BOT], turn)
        bubble, card = await shown(feishu)
        speak(sink, "the answer")
        await finish(channels[BOT], turn, "the answer")
    assert not bubble.is_typing
    assert [one.text for one in visible(feishu)] == ["the answer\n✅ 已完成"] * 2
    assert card.operations == ["replace"]


@pytest.mark.parametrize("code", [230071, 230001])
async def test_a_message_that_takes_no_reply_is_answered_beside_it(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, code: int
) -> None:
    turn = await asked(feishu, inbox)
    feishu.fail("POST", "/reply", code, status=400, times=99)
    begin(channel, turn)
    await finish(channel, turn, "the answer")
    [bubble] = visible(feishu)
    assert bubble.text == "the answer\n\n✅ 已完成"
    assert bubble.parent_id == ""


async def test_a_chat_that_is_closed_leaves_nothing_behind(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    person = feishu.chat("oc_1").bubbles[0]
    await feishu.until(lambda: person.reactions)
    feishu.chat("oc_1").closed_with = 232009
    begin(channel, turn)
    with pytest.raises(DeliveryError):
        await finish(channel, turn, "the answer")
    await feishu.until(lambda: not person.reactions)


async def test_a_delivery_that_was_told_is_not_told_again(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    for attempt in (1, 2, 3):
        await finish(channel, turn, "the answer", attempt=attempt)
    assert len(visible(feishu)) == 1
