"""A running server with three users and a database to fill beforehand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
from sqlalchemy.ext.asyncio import AsyncConnection

from server.app import create_app
from server.settings import load_settings
from server.store.sessions import Session, insert_session
from tests.serve import serve

ALICE = {"Authorization": "Bearer alice-token"}
BOB = {"Authorization": "Bearer bob-token"}
ADMIN = {"Authorization": "Bearer root-token"}
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Site:
    """Where the server is, and a client of it."""

    url: str
    http: aiohttp.ClientSession
    data_dir: Path


@asynccontextmanager
async def open_site(url: str, data_dir: Path, **variables: str) -> AsyncIterator[Site]:
    """Serve the application on the database at *url*."""
    environ = {
        "HEADWAY_DATA_DIR": str(data_dir),
        "HEADWAY_DATABASE_URL": url,
        "HEADWAY_TOKENS": "alice=alice-token,bob=bob-token,root-token",
        "HEADWAY_LOCALE": "en",
    }
    environ |= {f"HEADWAY_{name}": value for name, value in variables.items()}
    app = create_app(load_settings(environ), {})
    async with serve(app) as address, aiohttp.ClientSession(address) as http:
        yield Site(address, http, data_dir)


async def add_session(
    db: AsyncConnection, session_id: str, owner: str, *, minute: int = 0, title: str | None = None
) -> None:
    """A session that was last changed *minute* minutes after `EPOCH`."""
    at = EPOCH + timedelta(minutes=minute)
    await insert_session(
        db,
        Session(
            id=session_id,
            kind="main",
            title=title,
            status="IDLE",
            parent_session_id=None,
            owner=owner,
            origin="web",
            model=None,
            locale="en",
            timezone="UTC",
            external_id=None,
            queue_paused=False,
            execution_error=None,
            created_at=at,
            updated_at=at,
        ),
    )
