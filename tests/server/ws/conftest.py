"""A running application for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.ws.place import Place, open_place


@pytest.fixture
async def place(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Place]:
    """The application with its built-in model."""
    async with open_place(tmp_path, sqlite_url) as opened:
        yield opened
