"""Writing to one card: its numbers, its keys, its limits, and how often it is rendered."""

import asyncio
import time

import aiohttp
import pytest

from channels.clock import Clock
from channels.errors import DeliveryError
from channels.feishu import card
from channels.feishu.api import FeishuApi
from channels.feishu.call import chat_budgets
from channels.feishu.card import Face, Stop
from channels.feishu.codes import Meaning, Refused
from channels.feishu.config import FeishuConfig
from channels.feishu.writer import CardWriter
from tests.fakes.feishu import BOT, SECRET, FakeFeishu, serve_feishu
from tests.fakes.feishu_chats import STREAM_SECONDS

FACTOR = 200
"""How much faster time goes where minutes have to pass."""


async def test_a_rate_limit_that_one_card_meets_holds_back_the_others(
    feishu: FakeFeishu, api: FeishuApi
) -> None:
    cards = [await api.create_card(card.plain_card(one)) for one in ("a", "b")]
    limit = {"x-ogw-ratelimit-reset": "1"}
    feishu.fail("PUT", "/cards/", 99991400, status=429, headers=limit)
    with pytest.raises(DeliveryError):
        await api.replace_card(cards[0], card.plain_card("c"), 1)
    began = time.monotonic()
    await api.card_turn(cards[1])
    assert time.monotonic() - began > 0.9


async def test_a_number_that_comes_again_with_another_text_is_not_taken_for_done(
    feishu: FakeFeishu, api: FeishuApi
) -> None:
    card_id = await api.create_card(card.plain_card("a"))
    await api.replace_card(card_id, card.plain_card("b"), 1)
    for words, meaning in (("b", Meaning.DONE), ("c", Meaning.SEQUENCE)):
        with pytest.raises(Refused) as refused:
            await api.replace_card(card_id, card.plain_card(words), 1)
        assert refused.value.meaning is meaning


async def test_a_card_types_on_though_nothing_new_comes_for_long(
    http: aiohttp.ClientSession,
) -> None:
    def seconds() -> float:
        return time.monotonic() * FACTOR

    clock = Clock(seconds, time.time, lambda pause: asyncio.sleep(pause / FACTOR))
    async with serve_feishu(seconds) as feishu:
        config = FeishuConfig(BOT, SECRET, domain=feishu.url)
        api = FeishuApi(http, config, chat_budgets(clock), clock)
        face, stop = Face("waiting"), Stop("run1", "oc_1")
        shown = card.live(face, stop, "en")
        card_id = await api.create_card(shown)
        writer = CardWriter(api, card_id, lambda: face, lambda _: shown, face, clock=clock)
        entity = feishu.tenant.cards[card_id]
        began = seconds()
        await feishu.until(lambda: seconds() - began > 2 * STREAM_SECONDS)
        assert entity.is_streaming
        assert entity.operations == ["replace", "replace"]
        await writer.stop()


async def test_a_card_is_rendered_when_it_is_written_and_not_for_each_token(
    feishu: FakeFeishu, api: FeishuApi
) -> None:
    stop = Stop("run1", "oc_1")
    card_id = await api.create_card(card.live(Face(""), stop, "en"))
    said: list[str] = []
    looks: list[int] = []

    def look() -> Face:
        looks.append(len(said))
        return Face("", "".join(said))

    writer = CardWriter(api, card_id, look, lambda face: card.live(face, stop, "en"), Face(""))
    for number in range(5000):
        said.append(f"{number} ")
        writer.touch()
    await feishu.until(lambda: feishu.tenant.cards[card_id].texts)
    await writer.stop()
    assert feishu.tenant.cards[card_id].texts == ["".join(said)]
    assert len(looks) < 10
