"""Small things that several aggregates ask of a table."""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.errors import NotFound
from server.store.tables import SessionRow, table_of

_SESSION = table_of(SessionRow)
_LOCK = (
    sa.select(_SESSION.c.id).where(_SESSION.c.id == sa.bindparam("session_id")).with_for_update()
)


async def lock_session(db: AsyncConnection, session_id: str) -> None:
    """Keep other writers of this session out until the transaction ends.

    Raises:
        NotFound: There is no such session. SQLite, which admits one writer and so needs no lock,
            says so only when a row is put into it.
    """
    if db.dialect.name == "sqlite":
        return
    if await db.scalar(_LOCK, {"session_id": session_id}) is None:
        raise NotFound("there is no such session")


async def changed(
    db: AsyncConnection,
    statement: sa.Update | sa.Delete,
    values: Mapping[str, object] | None = None,
) -> int:
    """Run *statement* with *values* for its open parameters; how many rows it met."""
    return (await db.execute(statement, values)).rowcount
