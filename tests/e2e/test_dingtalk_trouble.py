"""A DingTalk bot of the running server while its platform makes trouble, watched from the chat."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.dingtalk_chat import (
    GROUP,
    PRIVATE,
    assert_sound,
    card_in,
    ended,
    installed,
    open_platform,
    sessions,
    showing,
)
from tests.e2e.process import open_server
from tests.fakes.dingtalk import FakeDingTalk, Refusal, api_refusal
from tests.fakes.dingtalk_world import BAD_TOKEN, Card
from tests.fakes.llm import Quirks, ScriptedReply, reply, serve_gateway
from tests.house import is_title

LONG = "".join(f"这是第{number:04d}句话。" for number in range(300))
"""7 500 bytes: it fits on one card."""
HUGE = "\n".join(f"这是第{number:04d}句话。" for number in range(1200))
"""31 200 bytes: a card and a message."""


def paced(text: str = LONG) -> ScriptedReply:
    """The text in 300 pieces, within 6 s or a little more."""
    return reply(text, quirks=Quirks(piece_chars=len(text) // 300, pace_seconds=0.02))


def held(until: asyncio.Event, text: str = LONG) -> ScriptedReply:
    """The text, whose second part comes when the event does."""
    return reply(text, quirks=Quirks(piece_chars=len(text) // 20, hold_at=15, hold=until))


def texts(card: Card) -> list[str]:
    """What stood on the card after the words that only say that it is thinking."""
    return [text for text in card.seen if "思考中" not in text]


async def test_long_answer_grows_on_one_card_and_ends_whole(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([paced()], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        await platform.say("写一篇长文")
        card = await ended(platform)
        assert (card.text, card.flow, card.params["state"]) == (LONG, "3", "已完成")
        assert len(texts(card)) >= 8, "it grew under the reader's eyes"
        assert all(LONG.startswith(text) for text in texts(card))
        assert texts(card) == sorted(texts(card), key=len)
        assert len(platform.cards) == len(platform.deliveries) == 1
        assert not platform.chat()
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_answer_too_long_for_its_card_goes_on_visibly_and_ends_whole(tmp_path: Path) -> None:
    more = asyncio.Event()
    async with (
        open_platform() as platform,
        serve_gateway([held(more, HUGE)], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)),
    ):
        await platform.connected()
        await platform.say("写一本书")
        card = await showing(platform, "回答仍在继续，已写 9,")
        more.set()
        await ended(platform)
        await platform.until(lambda: bool(platform.chat()))
        assert "\n".join([card.text, *platform.chat()]).split() == HUGE.split()
        assert len(platform.cards) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        api_refusal(400, "param.stream.closed"),
        api_refusal(403, "Forbidden.AccessDenied.AccessTokenPermissionDenied"),
    ],
)
async def test_card_whose_stream_the_platform_closes_in_mid_answer_goes_on_and_ends_whole(
    tmp_path: Path, refusal: Refusal
) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([paced()], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        await platform.say("写一篇长文")
        card = await showing(platform, "第0020句")
        platform.refuses_streams = refusal
        before = len(texts(card))
        await ended(platform)
        assert (card.text, card.flow, card.params["state"]) == (LONG, "3", "已完成")
        assert len(texts(card)) >= before + 4, "it did not stand still until the end"
        assert all(LONG.startswith(text) for text in texts(card))
        assert len(platform.cards) == 1
        assert not platform.chat()
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_throttling_in_mid_run_delays_the_card_and_loses_nothing(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([paced()], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        await platform.say("写一篇长文")
        card = await showing(platform, "第0020句")
        usual, platform.calls_per_second = platform.calls_per_second, 0
        await gateway.requests[0].answered.wait()
        await platform.until(lambda: len(throttled(platform)) >= 3)
        assert not card.is_over
        platform.calls_per_second = usual
        await ended(platform)
        assert (card.text, card.flow, card.params["state"]) == (LONG, "3", "已完成")
        assert len(platform.cards) == len(platform.deliveries) == 1
        assert not platform.chat()
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_card_that_throttling_delays_is_made_once(tmp_path: Path) -> None:
    more = asyncio.Event()
    async with (
        open_platform() as platform,
        serve_gateway([held(more)], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)),
    ):
        await platform.connected()
        usual, platform.calls_per_second = platform.calls_per_second, 0
        await platform.say("写一篇长文")
        await platform.until(lambda: len(platform.called("createAndDeliver")) >= 2)
        platform.calls_per_second = usual
        await showing(platform, "第0100句")
        more.set()
        assert (await ended(platform)).text == LONG
        assert len(platform.deliveries) == 1
        assert not platform.chat()


async def test_token_that_ends_in_mid_run_is_renewed_once_for_all_cards(tmp_path: Path) -> None:
    more = asyncio.Event()
    async with (
        open_platform() as platform,
        serve_gateway([held(more), held(more)], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        await platform.say("写一篇长文")
        await platform.say("也写一篇", group=True)
        await platform.until(lambda: len(shown_in_both(platform, "第0100句")) == 2)
        assert len(platform.called("accessToken")) == 1
        hold = platform.script("card/instances").hold = asyncio.Event()
        more.set()
        await platform.until(lambda: len(waiting(platform, "card/instances")) == 2)
        platform.expire_tokens()
        hold.set()
        await platform.until(lambda: len(shown_in_both(platform, LONG)) == 2)
        await platform.until(lambda: all(card.is_over for card in platform.cards.values()))
        assert [card.flow for card in platform.cards.values()] == ["3", "3"]
        assert len(platform.called("accessToken")) == 2
        assert len([call for call in platform.calls if call.answer == BAD_TOKEN.body]) == 2
        assert not platform.chats
        assert {session["status"] for session in await sessions(server)} == {"COMPLETED"}


@pytest.mark.parametrize(("is_group", "way"), [(False, "batchSend"), (True, "groupMessages/send")])
async def test_webhook_that_ends_in_mid_run_is_replaced_by_the_robot(
    tmp_path: Path, is_group: bool, way: str
) -> None:
    more = asyncio.Event()
    async with (
        open_platform() as platform,
        serve_gateway([held(more)], title=is_title) as gateway,
        open_server(
            installed(tmp_path, gateway.url, platform, DINGTALK_CARD_TEMPLATE_ID="")
        ) as server,
    ):
        await platform.connected()
        await platform.say("写一篇长文", group=is_group)
        await gateway.wait_for_requests(1)
        platform.dead_webhooks.update(platform.webhooks)
        more.set()
        chat_id = GROUP if is_group else PRIVATE
        await platform.until(lambda: bool(platform.chat(chat_id)))
        await platform.until(lambda: platform.emotions == {"msg1==": []})
        assert platform.chat(chat_id) == [LONG]
        assert len(platform.called("sendBySession")) == 1, "it was tried, and answered 300001"
        assert len(platform.called(way)) == 1
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_line_cut_in_mid_run_disturbs_neither_the_run_nor_the_next_message(
    tmp_path: Path,
) -> None:
    more = asyncio.Event()
    async with (
        open_platform() as platform,
        serve_gateway([held(more), reply("第二个回答")], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)) as server,
    ):
        first = await platform.connected()
        message = platform.message("写一篇长文")
        await platform.push(message)
        card = await showing(platform, "第0100句")
        platform.cut(first)
        await platform.until(first.gone.is_set)
        more.set()
        await ended(platform)
        assert (card.text, card.flow) == (LONG, "3")
        await platform.connected(2)
        assert (await platform.push(message)).code == 200, "as the platform may"
        await platform.say("还在吗")
        await platform.until(lambda: len(platform.cards) == 2)
        second = list(platform.cards.values())[1]
        await platform.until(lambda: second.is_over)
        assert second.text == "第二个回答"
        assert len(platform.deliveries) == len(gateway.requests) == 2
        assert not platform.chat()
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_announced_disconnect_in_mid_run_loses_no_message(tmp_path: Path) -> None:
    more = asyncio.Event()
    async with (
        open_platform(cut_seconds=10.0) as platform,
        serve_gateway([held(more), reply("第二个回答")], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)),
    ):
        first = await platform.connected()
        await platform.say("写一篇长文")
        card = await showing(platform, "第0100句")
        await platform.announce_disconnect(first)
        second = await platform.connected(2)
        assert not first.gone.is_set(), "the new line is opened before the old one is closed"
        ack = await platform.say("还在吗")
        assert (ack.code, ack.connection) == (200, second.number)
        await platform.until(lambda: any("排队" in text for text in platform.chat()))
        more.set()
        await platform.until(lambda: len(platform.cards) == 2)
        await platform.until(lambda: all(card.is_over for card in platform.cards.values()))
        assert [card.text for card in platform.cards.values()] == [LONG, "第二个回答"]
        assert_sound(card.looks)
        assert len(platform.deliveries) == 2
        assert len(platform.chat()) == 1, "nothing but its place in the queue"
        await platform.until(first.gone.is_set)
        assert platform.opened == 2


def throttled(platform: FakeDingTalk) -> list[object]:
    """Calls for cards that the platform refused for their number."""
    return [call for call in platform.calls if "/card/" in call.path and call.status == 403]


def waiting(platform: FakeDingTalk, path: str) -> list[object]:
    """Calls that are not answered yet."""
    return [call for call in platform.called(path) if call.status == 0]


def shown_in_both(platform: FakeDingTalk, words: str) -> list[Card]:
    """Those of the cards in the private chat and in the group that show these words."""
    if len(platform.cards) < 2:
        return []
    cards = [card_in(platform, chat_id) for chat_id in (PRIVATE, GROUP)]
    return [card for card in cards if words in card.text]
