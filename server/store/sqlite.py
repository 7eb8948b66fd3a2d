"""Connections to a SQLite file: how they begin a transaction, and how they let go."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from typing import Any

import aiosqlite
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from server.store.finish import finish


class _Cursor:
    """What SQLAlchemy needs of a cursor, with one trip to the thread per statement.

    The driver's own makes four, to open, to run, to read and to close, and a trip costs more than
    most statements do. A cancel between two of them would leave a statement half read; SQLite
    keeps a closed connection, and its write lock, for as long as there is one.
    Source: sqlite.org/c3ref/close.html, `sqlite3_close_v2`.
    """

    def __init__(self, connection: "_Connection") -> None:
        self._connection = connection
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.arraysize = 1

    async def __aenter__(self) -> "_Cursor":
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        await self._connection.call(self._run, sql, parameters, many=False)

    async def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        await self._connection.call(self._run, sql, parameters, many=True)

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def close(self) -> None:
        self._rows = []

    def _run(self, sql: str, parameters: Sequence[Any], *, many: bool) -> None:
        """The whole life of the statement; runs in the connection's thread."""
        with closing(self._connection._conn.cursor()) as cursor:
            self._connection.begin_in(cursor)
            run = cursor.executemany if many else cursor.execute
            run(sql, parameters)
            self._rows = cursor.fetchall()  # before the count, which RETURNING rows add up to
            self.description = cursor.description
            self.rowcount = cursor.rowcount
            self.lastrowid = cursor.lastrowid


class _Connection(aiosqlite.Connection):
    """A connection and its thread.

    A transaction is begun together with its first statement: that saves it a trip.
    """

    _due = ""
    """What begins the transaction, until it has."""

    def begin(self, statement: str) -> None:
        """Let the next statement begin a transaction."""
        self._due = statement

    def begin_in(self, cursor: sqlite3.Cursor) -> None:
        """Begin what is due; if that fails it stays due. Runs in the thread."""
        if self._due:
            cursor.execute(self._due)
            self._due = ""

    def cursor(self) -> _Cursor:  # type: ignore[override]  # narrower: only what is called
        return _Cursor(self)

    async def call(self, work: Callable[..., None], *args: object, many: bool) -> None:
        """Do *work* in the thread."""
        await self._execute(work, *args, many=many)  # type: ignore[no-untyped-call]

    async def commit(self) -> None:
        """Keep what was done; without a trip to the thread if that is nothing."""
        self._due = ""
        if self.in_transaction:
            await super().commit()

    async def rollback(self) -> None:
        """Undo what is open; without a trip to the thread if nothing is, as after each commit."""
        self._due = ""
        if self.in_transaction:
            await super().rollback()


def sqlite_engine(
    url: sa.URL,
    *,
    begin: str,
    pragmas: Sequence[str],
    connections: int = 1,
    busy_seconds: float = 5.0,
    pool_wait_seconds: float = 30.0,
) -> AsyncEngine:
    """An engine whose transactions begin with the statement *begin*.

    Args:
        pragmas: Set on each new connection, outside any transaction.
        connections: At most so many at a time; each has a thread.
        busy_seconds: How long a statement waits for another connection's lock.
        pool_wait_seconds: How long a transaction waits for a free connection.
    """
    engine = create_async_engine(
        url,
        hide_parameters=True,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=pool_wait_seconds,
        async_creator=_connector(str(url.database), pragmas, busy_seconds),
    )

    def note_begin(connection: sa.Connection) -> None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, _Connection), "made by the connector above"
        driver.begin(begin)

    sa.event.listen(engine.sync_engine, "begin", note_begin)
    return engine


def _connector(
    path: str, pragmas: Sequence[str], busy_seconds: float
) -> Callable[[], Awaitable[aiosqlite.Connection]]:
    def open_file() -> sqlite3.Connection:
        return sqlite3.connect(
            path,
            timeout=busy_seconds,
            # The driver would begin a transaction only before a write, so that a read which the
            # write relies on would stand outside of it.
            isolation_level=None,
        )

    async def connect() -> aiosqlite.Connection:
        connection = _Connection(open_file, iter_chunk_size=64)
        connection._thread.daemon = True  # as SQLAlchemy does where it connects by itself
        try:
            await connection
            for pragma in pragmas:
                await connection.cursor().execute(f"PRAGMA {pragma}")
        except BaseException:
            await finish(_discard(connection))
            raise
        return connection

    return connect


async def _discard(connection: aiosqlite.Connection) -> None:
    """Close, and wait for the thread: it must not speak to an event loop that has ended."""
    await connection.close()
    await asyncio.to_thread(connection._thread.join)
