"""Connections: one writer and several readers on SQLite, one pool on PostgreSQL."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from server.errors import StoreRefused, StoreUnavailable
from server.store.faults import reraise
from server.store.finish import finish
from server.store.sqlite import sqlite_engine
from server.store.tables import SessionRow, table_of
from server.store.url import Dialect, parse_url

_READERS = 4
"""Connections that read SQLite at the same time; each has a thread."""

_CONNECTIONS = 20
"""Most connections of one process to PostgreSQL, whose own limit is 100 by default."""

_POOL_WAIT_SECONDS = 30.0
"""How long a transaction waits for a free connection."""

_BUSY_SECONDS = 5.0
"""How long a statement waits for another process's lock."""

_SPARE_BYTES = 16 * 1024 * 1024
"""Below this much free disk the store calls itself full: four times SQLite's usual WAL."""

_TOUCH = sa.text("UPDATE alembic_version SET version_num = version_num")
"""Writes one page and changes nothing: neither a quota nor a dying disk shows in its free space."""


@dataclass(frozen=True, slots=True)
class Store:
    """An open database."""

    dialect: Dialect
    _reader: AsyncEngine
    _writer: AsyncEngine
    _folder: Path | None
    """Where SQLite's files stand."""

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads; statements see one state of the database on SQLite.

        Raises:
            StoreUnavailable: Locked, full or gone.
        """
        async with _translated(), _connected(self._reader, keep=False) as db:
            yield db

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """One transaction: kept when the block ends well, undone when it raises.

        On SQLite writers wait for each other in the order in which they came.

        Raises:
            Duplicate: A row with this key is there already; nothing of the block was kept.
            NotFound: The row that a new one belongs to is gone.
            StoreUnavailable: Locked, full or gone.

        A cancel inside the block undoes it. A cancel that comes while the block's end is being
        written waits for that, then goes on.
        """
        async with _translated(), _connected(self._writer, keep=True) as db:
            yield db

    async def check(self) -> str | None:
        """What is wrong with the store and how to mend it, or None."""
        try:
            async with self.write() as db:
                await db.execute(sa.select(table_of(SessionRow).c.id).limit(1))
                is_readonly = await self._is_readonly(db)
                if self.dialect == "sqlite":
                    await db.execute(_TOUCH)
        except (StoreUnavailable, StoreRefused) as error:
            return str(error)
        if is_readonly:
            return "the database is a read-only replica; name the primary"
        return await self._find_shortage()

    async def _is_readonly(self, db: AsyncConnection) -> bool:
        if self.dialect == "sqlite":
            return False  # a write transaction could be begun
        return bool(await db.scalar(sa.text("SHOW transaction_read_only")) == "on")

    async def _find_shortage(self) -> str | None:
        if self._folder is None:
            return None
        try:
            free_bytes = (await asyncio.to_thread(shutil.disk_usage, self._folder)).free
        except OSError as error:
            return f"the folder of the database cannot be looked at: {error.strerror}"
        if free_bytes >= _SPARE_BYTES:
            return None
        return f"the disk of the database has only {free_bytes >> 20} MiB left; free some space"


@asynccontextmanager
async def open_store(
    url: str, *, busy_seconds: float = _BUSY_SECONDS, pool_wait_seconds: float = _POOL_WAIT_SECONDS
) -> AsyncIterator[Store]:
    """Open the database at *url*; it is connected to when first needed, and again after a loss.

    Args:
        url: `sqlite:///path`, `postgresql://…`, or the same with the driver named.
        busy_seconds: How long a statement waits for another process's lock.
        pool_wait_seconds: How long a transaction waits for a free connection.
    Raises:
        SettingsError: *url* has another form.
    """
    # Its debug lines would show every statement with its values.
    logging.getLogger("aiosqlite").setLevel(logging.INFO)
    dialect, parsed = parse_url(url)
    async with AsyncExitStack() as opened:
        if dialect == "sqlite":
            store = _sqlite_store(parsed, busy_seconds, pool_wait_seconds)
        else:
            store = _postgresql_store(parsed, busy_seconds, pool_wait_seconds)
        for engine in {store._reader, store._writer}:
            opened.push_async_callback(_close, engine)
        yield store


def _sqlite_store(url: sa.URL, busy_seconds: float, pool_wait_seconds: float) -> Store:
    writer = sqlite_engine(
        url,
        # A deferred BEGIN whose snapshot has grown old fails at its first write at once,
        # whatever the time-out is.
        begin="BEGIN IMMEDIATE",
        pragmas=("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"),
        busy_seconds=busy_seconds,
        pool_wait_seconds=pool_wait_seconds,
    )
    reader = sqlite_engine(
        url,
        begin="BEGIN",
        pragmas=("query_only=ON",),
        connections=_READERS,
        busy_seconds=busy_seconds,
        pool_wait_seconds=pool_wait_seconds,
    )
    return Store("sqlite", reader, writer, Path(url.database or "").absolute().parent)


def _postgresql_store(url: sa.URL, busy_seconds: float, pool_wait_seconds: float) -> Store:
    engine = create_async_engine(
        url,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        pool_size=_CONNECTIONS // 2,
        max_overflow=_CONNECTIONS - _CONNECTIONS // 2,
        pool_timeout=pool_wait_seconds,
        pool_pre_ping=True,  # a server that was restarted is met by a fresh connection
        connect_args={
            "application_name": "headway",
            "connect_timeout": 10,
            # A host that vanished is noticed in seconds, not in the hours of TCP's defaults;
            # the end of a transaction cannot be cancelled, so it must not hang.
            "keepalives_idle": 30,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 15_000,
            "options": f"-c lock_timeout={round(busy_seconds * 1000)} -c timezone=UTC",
        },
    )
    return Store("postgresql", engine.execution_options(postgresql_readonly=True), engine, None)


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        reraise(error)


@asynccontextmanager
async def _connected(engine: AsyncEngine, *, keep: bool) -> AsyncIterator[AsyncConnection]:
    """A connection whose first statement begins a transaction.

    Its end is one step: to *keep* what a block did that ended well, and to let go.
    """
    db = await engine.connect()
    end: Callable[[sa.Connection], None] = sa.Connection.close
    try:
        yield db
        if keep:
            end = _commit_and_close
    finally:
        await finish(db.run_sync(end))


def _commit_and_close(db: sa.Connection) -> None:
    try:
        db.commit()
    finally:
        db.close()


async def _close(engine: AsyncEngine) -> None:
    await finish(engine.dispose())
