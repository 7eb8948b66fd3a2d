"""What subagents of one run have explored: each call with its result once, by who made it first."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from server.store.runs import resumed
from server.store.sessions import Session
from server.store.tables import (
    ExplorationRow,
    RunRow,
    SessionRow,
    SubagentExecutionRow,
    table_of,
)

_EXPLORATION = table_of(ExplorationRow)
_EXECUTION = table_of(SubagentExecutionRow)
_RUN = table_of(RunRow)
_SESSION = table_of(SessionRow)

Explored = tuple[str, str]
"""The digests of an action and of its result."""

_ASKING = (
    sa.select(_RUN.c.id, _SESSION.c.id.label("session_id"), _SESSION.c.kind)
    .select_from(_EXECUTION)
    .join(_RUN, _RUN.c.id == _EXECUTION.c.run_id)
    .join(_SESSION, _SESSION.c.id == _RUN.c.session_id)
    .where(_EXECUTION.c.child_session_id == sa.bindparam("child_id"))
)


async def root_run(db: AsyncConnection, child: Session) -> str | None:
    """The run that all of *child*'s generation and those between work for; None if it is gone.

    Of runs that went on with one which waited for a person, it is the first: they are one.
    """
    session_id, kind = child.id, child.kind
    run_id: str | None = None
    while kind == child.kind:
        asking = (await db.execute(_ASKING, {"child_id": session_id})).mappings().first()
        if asking is None:
            break
        run_id, session_id, kind = asking["id"], asking["session_id"], asking["kind"]
    return None if run_id is None else (await resumed(db, run_id))[-1]


async def explore(
    db: AsyncConnection,
    root_run_id: str,
    session_id: str,
    found: Collection[Explored],
    now: datetime,
) -> set[Explored]:
    """Note what this session found; those of *found* that another one had found before."""
    insert: Any = postgresql.insert if db.dialect.name == "postgresql" else sqlite.insert
    rows = [
        {
            "root_run_id": root_run_id,
            "action_digest": action,
            "result_digest": result,
            "session_id": session_id,
            "created_at": now,
        }
        for action, result in sorted(set(found))
    ]
    await db.execute(insert(_EXPLORATION).values(rows).on_conflict_do_nothing())
    query = sa.select(_EXPLORATION.c.action_digest, _EXPLORATION.c.result_digest).where(
        _EXPLORATION.c.root_run_id == root_run_id,
        _EXPLORATION.c.session_id != session_id,
        _EXPLORATION.c.action_digest.in_([action for action, _ in found]),
    )
    others = {(action, result) for action, result in await db.execute(query)}
    return others & set(found)
