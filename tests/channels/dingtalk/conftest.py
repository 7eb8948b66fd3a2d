"""A platform and bots on it."""

from collections.abc import AsyncIterator

import pytest

from tests.channels.dingtalk.house import Bot, open_bot
from tests.fakes.dingtalk import FakeDingTalk, serve_dingtalk


@pytest.fixture
async def platform() -> AsyncIterator[FakeDingTalk]:
    """A platform that pings nobody of itself."""
    async with serve_dingtalk(system_ping_seconds=None) as running:
        yield running


@pytest.fixture
async def bot(platform: FakeDingTalk) -> AsyncIterator[Bot]:
    """A bot with cards that everyone may talk to."""
    async with open_bot(platform) as opened:
        yield opened


@pytest.fixture
async def plain_bot(platform: FakeDingTalk) -> AsyncIterator[Bot]:
    """A bot without cards."""
    async with open_bot(platform, card_template_id="") as opened:
        yield opened
