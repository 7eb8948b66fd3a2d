"""A local Feishu, an application in memory, and a bot between them."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from channels.feishu.api import FeishuApi
from channels.feishu.call import chat_budgets
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


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """What calls go through."""
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def api(http: aiohttp.ClientSession, config: FeishuConfig) -> FeishuApi:
    """The bot's calls, without the bot."""
    return FeishuApi(http, config, chat_budgets())
