"""A served application, and the store it stands on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.store.engine import Store, open_store
from tests.server.http.site import Site, open_site


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    """The database that `site` serves."""
    async with open_store(sqlite_url) as opened:
        yield opened


@pytest.fixture
async def site(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    """A server with the users alice, bob and admin."""
    async with open_site(sqlite_url, tmp_path) as opened:
        yield opened
