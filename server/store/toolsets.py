"""The tools that a session's requests carry: fixed with its first run, so that they stay equal.

Sessions that began with the same tools share one row.
"""

import hashlib
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from server.errors import NotFound
from server.store.rows import changed
from server.store.tables import SessionRow, ToolsetRow, table_of

_SESSION = table_of(SessionRow)
_TOOLSET = table_of(ToolsetRow)

_LOAD = (
    sa.select(_TOOLSET.c.definitions_json)
    .join(_SESSION, _SESSION.c.toolset == _TOOLSET.c.digest)
    .where(_SESSION.c.id == sa.bindparam("session_id"))
)


def toolset_digest(definitions_json: bytes) -> str:
    """The key of these definitions: 64 hex digits."""
    return hashlib.sha256(definitions_json).hexdigest()


async def load_toolset(db: AsyncConnection, session_id: str) -> bytes | None:
    """The definitions that the session is bound to; None before its first run."""
    definitions: str | None = await db.scalar(_LOAD, {"session_id": session_id})
    return None if definitions is None else definitions.encode()


async def bind_toolset(
    db: AsyncConnection, session_id: str, definitions_json: bytes, now: datetime
) -> bytes:
    """Bind the session to these definitions, unless it is bound already; those it is bound to.

    Raises:
        NotFound: There is no such session.
    """
    digest = toolset_digest(definitions_json)
    await db.execute(_insert(db, digest, definitions_json.decode(), now))
    unbound = _SESSION.c.id == session_id, _SESSION.c.toolset.is_(None)
    await db.execute(sa.update(_SESSION).where(*unbound).values(toolset=digest))
    bound = await load_toolset(db, session_id)
    if bound is None:
        raise NotFound("there is no such session")
    return bound


async def prune_toolsets(db: AsyncConnection, before: datetime) -> int:
    """Forget what no session carries any more and none was bound to lately; how many."""
    carried = sa.exists().where(_SESSION.c.toolset == _TOOLSET.c.digest)
    return await changed(db, sa.delete(_TOOLSET).where(_TOOLSET.c.created_at < before, ~carried))


def _insert(db: AsyncConnection, digest: str, definitions: str, now: datetime) -> sa.Insert:
    """Add the row, or touch the one that is there: then nobody prunes it before it is bound."""
    insert: Any = postgresql.insert if db.dialect.name == "postgresql" else sqlite.insert
    row = {"digest": digest, "definitions_json": definitions, "created_at": now}
    statement: sa.Insert = (
        insert(_TOOLSET)
        .values(row)
        .on_conflict_do_update(index_elements=["digest"], set_={"created_at": now})
    )
    return statement
