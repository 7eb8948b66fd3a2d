"""Runs migrations on SQLite and PostgreSQL; alembic executes this file.

The address comes from `server.store.migrate`, or from `alembic -x url=…` when a revision is made.
"""

import sqlite3
from typing import Literal

import sqlalchemy as sa
from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy.pool import NullPool
from sqlmodel import SQLModel
from sqlmodel.sql.sqltypes import AutoString

from server.store.tables import UtcTime
from server.store.url import sync_url

_LOCK = 7_163_401_211
"""Key of the advisory lock: of several processes that start at once, one migrates."""

_PRAGMAS = ("journal_mode=WAL", "foreign_keys=OFF")
"""A table that batch mode drops and renames would take the rows that refer to it along; inside a
transaction the pragma would do nothing."""


def _migrate(url: str) -> None:
    """Migrate without an event loop: each statement's way through one costs more than it does."""
    engine = sa.create_engine(sync_url(url), poolclass=NullPool, hide_parameters=True)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _prepare)
        sa.event.listen(engine, "begin", _begin)
    with engine.connect() as connection:
        _run(connection)


def _prepare(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # the driver would begin by itself, and only before a write
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _run(connection: sa.Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=SQLModel.metadata,
        render_as_batch=True,
        compare_type=True,
        transactional_ddl=True,
        render_item=_render_item,
    )
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        context.run_migrations()
        if connection.dialect.name == "sqlite":
            _check_foreign_keys(connection)


def _check_foreign_keys(connection: sa.Connection) -> None:
    """Refuse, and so undo, a migration that left rows without what they refer to."""
    orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if orphans:
        tables = ", ".join(sorted({orphan[0] for orphan in orphans}))
        raise RuntimeError(f"rows would refer to nothing in: {tables}")


def _render_item(kind: str, item: object, _: AutogenContext) -> str | Literal[False]:
    """Spell our column types as SQLAlchemy's: a revision must not change with the code."""
    if kind == "type" and isinstance(item, UtcTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and isinstance(item, AutoString):
        return "sa.String()"
    return False


def _url() -> str:
    given = context.config.attributes.get("url") or context.get_x_argument(True).get("url")
    if not isinstance(given, str):
        raise SystemExit("name the database: alembic -x url=sqlite:///headway.db …")
    return given


if context.is_offline_mode():
    raise SystemExit("migrations look at the database, so there is no SQL to print without one")
_migrate(_url())
