"""A local Feishu, an application in memory, and a bot between them."""

from collections.abc import AsyncIterator

import pytest

from channels.feishu.channel import FeishuChannel, FeishuConfig, open_feishu
from tests.channels.feishu.inbox import MemoryInbox
from tests.fakes.feishu import BOT, SECRET, FakeFeishu, serve_feishu


@pytest.fixture
async def feishu() -> AsyncIterator[FakeFeishu]:
    """The platform."""
    async with serve_feishu() as served:
        yield served


@pytest.fixture
def inbox() -> MemoryInbox:
    """The application."""
    return MemoryInbox()


@pytest.fixture
def config(feishu: FakeFeishu) -> FeishuConfig:
    """A bot that answers everybody."""
    return FeishuConfig(BOT, SECRET, domain=feishu.url, allow=("*",))


@pytest.fixture
async def channel(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> AsyncIterator[FeishuChannel]:
    """The bot, connected."""
    async with open_feishu([config], inbox) as channels:
        await feishu.app().lines.until_live()
        yield channels[BOT]
