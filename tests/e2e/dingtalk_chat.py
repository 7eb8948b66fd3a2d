"""A server process with a DingTalk bot, and what the people in its chat see."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.process import ADMIN, Installation, ServerProcess
from tests.fakes.dingtalk import FakeDingTalk, serve_dingtalk
from tests.fakes.dingtalk_world import Card, Look
from tests.fakes.llm import NEVER, Quirks, reply

PRIVATE, GROUP = "cidAb+C/d==", "cidGroup=="
SLOW = reply("一二三四五六七八" * 4, quirks=Quirks(piece_chars=4, hold_at=4, hold=NEVER))
"""A text that breaks off in the middle and goes on for ever."""


@asynccontextmanager
async def open_platform(cut_seconds: float = 1.0) -> AsyncIterator[FakeDingTalk]:
    """A platform that pings often, and on which each card has to end well.

    Args:
        cut_seconds: From the announcement of a disconnect to the cut.
    """
    async with serve_dingtalk(system_ping_seconds=1.0, cut_seconds=cut_seconds) as platform:
        yield platform
    for card in platform.cards.values():
        assert_sound(card.looks)


def assert_sound(looks: list[Look]) -> None:
    """The card has ended, at no instant told two things at once, and never began anew."""
    over = [look.is_over for look in looks]
    assert over == sorted(over), "a card that was over spun again"
    assert over[-1], "the card spins for ever"
    assert not [look for look in looks if look.is_over and look.has_button]
    told = [look for look in looks if look.is_over or look.params["state"] != "进行中"]
    if told[0].params["state"] in ("等待回复", "已答复"):
        assert_asked_and_answered(told)
        return
    assert {(look.text, look.params["state"]) for look in told} == {
        (looks[-1].text, looks[-1].params["state"])
    }


def assert_asked_and_answered(looks: list[Look]) -> None:
    """The question was open until it was answered, and not again."""
    is_open = [look.params["state"] == "等待回复" for look in looks]
    assert is_open == sorted(is_open, reverse=True)
    for look in looks:
        can_answer = "/approve" in look.text or "直接回复" in look.text
        assert can_answer is (look.params["state"] == "等待回复")
        assert can_answer or not look.buttons


def installed(folder: Path, gateway_url: str, platform: FakeDingTalk, **more: str) -> Installation:
    """A server that answers everybody on that platform, on cards unless told otherwise."""
    variables = {
        "DINGTALK_CLIENT_ID": platform.app.client_id,
        "DINGTALK_CLIENT_SECRET": platform.app.client_secret,
        "DINGTALK_CARD_TEMPLATE_ID": next(iter(platform.app.templates)),
        "DINGTALK_API_BASE": platform.url,
        "DINGTALK_OAPI_BASE": platform.url,
        "DINGTALK_ALLOW": "*",
    }
    return Installation(folder, gateway_url, variables | more)


async def showing(platform: FakeDingTalk, words: str) -> Card:
    """The one card, once these words stand on it."""
    await platform.until(lambda: bool(platform.cards) and words in platform.only_card.text, 30)
    return platform.only_card


async def ended(platform: FakeDingTalk) -> Card:
    """The one card, once it spins no more."""
    await platform.until(lambda: bool(platform.cards) and platform.only_card.is_over, 60)
    return platform.only_card


async def cards(platform: FakeDingTalk, count: int) -> list[Card]:
    """The cards, once so many are over."""

    def over() -> list[Card]:
        return [card for card in platform.cards.values() if card.is_over]

    await platform.until(lambda: len(over()) >= count, 60)
    return over()


async def post(server: ServerProcess, path: str, body: object = None) -> Any:
    """The answer to what the admin asks for."""
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with (
        aiohttp.ClientSession(server.url, headers=headers) as http,
        http.post(path, json=body) as response,
    ):
        assert response.ok, await response.text()
        return await response.json()


def card_in(platform: FakeDingTalk, chat_id: str) -> Card:
    """The one card of a chat."""
    (card,) = [card for card in platform.cards.values() if card.chat_id == chat_id]
    return card


async def sessions(server: ServerProcess) -> list[dict[str, Any]]:
    """All sessions, the newest first."""
    _, body = await server.get("/api/sessions", ADMIN)
    found: list[dict[str, Any]] = body["sessions"]
    return found
