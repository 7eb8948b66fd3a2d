"""A page to look at."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.e2e.browser import Open, Site, open_browser, open_site
from tests.fakes.llm import Script


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser of all tests that run on the session's loop."""
    async with open_browser() as opened:
        yield opened


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path, sqlite_url: str) -> Open:
    """Opens a site on a fresh database."""

    def opened(script: Script, **variables: str) -> AbstractAsyncContextManager[Site]:
        return open_site(browser, tmp_path, sqlite_url, script, **variables)

    return opened
