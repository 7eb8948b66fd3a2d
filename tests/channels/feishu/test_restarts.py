"""Cards of a process that may die at any instant."""

import asyncio

import pytest

from channels.feishu.channel import FeishuChannel, FeishuConfig, open_feishu
from channels.feishu.place import Handle, handle_from
from tests.channels.feishu.inbox import (
    MemoryInbox,
    begin,
    ending,
    finish,
    speak,
)
from tests.channels.feishu.watching import again, asked, shown, visible
from tests.fakes.feishu import BOT, FakeFeishu


async def test_a_card_left_open_by_a_crash_is_closed_by_the_next_life(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        sink = begin(channels[BOT], turn)
        bubble, card = await shown(feishu)
        speak(sink, "half")
        await feishu.until(lambda: "half" in bubble.text)
        await inbox.until(lambda: len(inbox.kept[turn.run_id]) >= 2)
    assert card.is_streaming
    async with open_feishu([config], inbox) as channels:
        await channels[BOT].deliver(ending(again(turn, inbox), "half", status="failed", text="why"))
        await channels[BOT].deliver(ending(again(turn, inbox), "half", status="failed", text="why"))
    assert visible(feishu) == [bubble]
    assert bubble.text == "half\n❌ 任务失败：why"
    assert not card.is_streaming


async def test_a_run_that_goes_on_after_a_restart_goes_on_on_its_card(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        sink = begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        speak(sink, "before")
        await feishu.until(lambda: "before" in bubble.text)
        await inbox.until(lambda: len(inbox.kept[turn.run_id]) >= 2)
    for _ in range(2):
        async with open_feishu([config], inbox) as channels:
            turn = again(turn, inbox)
            speak(begin(channels[BOT], turn), f"life {len(inbox.kept[turn.run_id])}")
            await feishu.until(lambda: "life" in bubble.text)
    async with open_feishu([config], inbox) as channels:
        turn = again(turn, inbox)
        begin(channels[BOT], turn)
        await finish(channels[BOT], turn, "after")
    assert visible(feishu) == [bubble]
    assert bubble.text == "after\n✅ 已完成"
    assert not [one for one in feishu.calls if one.code == 300317]


async def test_a_crash_between_keeping_and_showing_shows_the_card_later(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        showing = feishu.fail("POST", "/reply", gate=asyncio.Event())
        begin(channels[BOT], turn)
        await showing.met.wait()
    assert visible(feishu) == []
    async with open_feishu([config], inbox) as channels:
        await finish(channels[BOT], again(turn, inbox), "the answer")
    [bubble] = visible(feishu)
    assert bubble.text == "the answer\n✅ 已完成"
    assert not bubble.is_typing
    assert showing.gate is not None
    showing.gate.set()


async def test_a_crash_between_showing_and_keeping_shows_no_second_card(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        begin(channels[BOT], turn)
        bubble, _ = await shown(feishu)
        await inbox.until(lambda: len(inbox.kept[turn.run_id]) >= 2)
    first = handle_from(inbox.kept[turn.run_id][0])
    assert first is not None
    assert first.message_id == ""
    async with open_feishu([config], inbox) as channels:
        await finish(channels[BOT], again(turn, inbox, 0), "the answer")
    assert visible(feishu) == [bubble]
    assert bubble.text == "the answer\n✅ 已完成"


async def test_a_card_of_which_nobody_knows_whether_it_was_shown_is_closed_and_told_besides(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    begin(channel, turn)
    bubble, card = await shown(feishu)
    await inbox.until(lambda: len(inbox.kept[turn.run_id]) >= 2)
    feishu.tenant.forget_uuids()  # more than an hour later the platform knows them no more
    other = MemoryInbox(kept=inbox.kept)
    config = FeishuConfig(BOT, f"secret-of-{BOT}", domain=feishu.url, allow=("*",))
    async with open_feishu([config], other) as channels:
        await finish(channels[BOT], again(turn, inbox, 0), "the answer")
    assert [one.text for one in visible(feishu)] == ["the answer\n✅ 已完成"] * 2
    assert not card.is_streaming
    assert bubble in visible(feishu)


async def test_a_place_that_could_not_be_kept_gets_no_card(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    turn = await asked(feishu, inbox)
    inbox.is_unavailable = True
    begin(channel, turn)
    await finish(channel, turn, "the answer")
    [bubble] = visible(feishu)
    assert bubble.text == "the answer\n✅ 已完成"
    assert bubble.card is None


@pytest.mark.parametrize("has_card", [True, False])
async def test_a_reaction_of_an_earlier_life_is_taken_away_and_no_other(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig, has_card: bool
) -> None:
    async with open_feishu([config], inbox) as channels:
        turn = await asked(feishu, inbox)
        person = feishu.chat("oc_1").bubbles[0]
        await feishu.until(lambda: person.reactions)
        if has_card:
            begin(channels[BOT], turn)
            await inbox.until(lambda: turn.run_id in inbox.kept)
            turn = again(turn, inbox)
    of_others = {person.react("ou_bob", "OnIt"), person.react("cli_other", "OnIt")}
    person.reactions = dict(reversed(person.reactions.items()))  # the bot's is the last listed
    async with open_feishu([config], inbox) as channels:
        await finish(channels[BOT], turn, "the answer")
        await feishu.until(lambda: person.reactions.keys() == of_others)
    assert not [one for one in feishu.calls if one.code]


def test_a_handle_of_another_version_is_read_as_far_as_it_goes() -> None:
    assert handle_from('{"card": "c1", "reactions": {}, "new": 1}') == Handle("c1")
