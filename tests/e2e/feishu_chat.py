"""A server process with a Feishu bot, and what the people in its chat see."""

import asyncio
from pathlib import Path
from typing import Any

from tests.e2e.process import ADMIN, Installation, ServerProcess
from tests.fakes.feishu import BOT, SECRET, FakeFeishu
from tests.fakes.feishu_chats import Bubble

CHAT = "oc_p2p"
DONE = "✅ 已完成"


def installed(folder: Path, gateway_url: str, feishu: FakeFeishu, **more: str) -> Installation:
    """A server that answers everybody on that platform."""
    variables = {
        "FEISHU_APP_ID": BOT,
        "FEISHU_APP_SECRET": SECRET,
        "FEISHU_DOMAIN": feishu.url,
        "FEISHU_ALLOW": "*",
    }
    return Installation(folder, gateway_url, variables | more)


async def connected(feishu: FakeFeishu, count: int = 1) -> None:
    """Wait until so many long connections were opened, and one is there."""
    lines = feishu.app().lines
    async with asyncio.timeout(60), lines.changed:  # the SDK takes seconds to import
        await lines.changed.wait_for(lambda: lines.accepted >= count and lines.live)


def visible(feishu: FakeFeishu, chat_id: str = CHAT) -> list[Bubble]:
    """What the bot wrote into the chat, as it stands there now."""
    return feishu.chat(chat_id).visible()


def cards(feishu: FakeFeishu, chat_id: str = CHAT) -> list[Bubble]:
    """Those of them that are progress cards."""
    return [bubble for bubble in visible(feishu, chat_id) if bubble.card is not None]


async def card_with(feishu: FakeFeishu, words: str, chat_id: str = CHAT) -> Bubble:
    """The chat's first card, once these words stand on it."""
    await feishu.until(lambda: cards(feishu, chat_id) and words in cards(feishu, chat_id)[0].text)
    return cards(feishu, chat_id)[0]


async def only_card(feishu: FakeFeishu, chat_id: str = CHAT) -> Bubble:
    """The one card of the chat, once it is there and types no more."""
    await feishu.until(lambda: cards(feishu, chat_id) and not cards(feishu, chat_id)[0].is_typing)
    [card] = cards(feishu, chat_id)
    return card


async def ended(feishu: FakeFeishu, count: int, chat_id: str = CHAT) -> list[Bubble]:
    """The cards of the chat, once there are so many and none types any more."""

    def are_over() -> bool:
        found = cards(feishu, chat_id)
        return len(found) == count and not any(card.is_typing for card in found)

    await feishu.until(are_over)
    return cards(feishu, chat_id)


async def sessions(server: ServerProcess) -> list[dict[str, Any]]:
    """All sessions, the newest first."""
    _, body = await server.get("/api/sessions", ADMIN)
    found: list[dict[str, Any]] = body["sessions"]
    return found
