"""Requests to the model, and the tokens they cost."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.message import Usage
from server.store.tables import LlmCallRow, table_of

_CALL = table_of(LlmCallRow)

_INSERT = sa.insert(_CALL)

_TOTALS = tuple(
    sa.func.coalesce(sa.func.sum(column), 0).label(column.name)
    for column in (_CALL.c.prompt_tokens, _CALL.c.cached_tokens, _CALL.c.completion_tokens)
)


@dataclass(frozen=True, slots=True)
class LlmCall:
    """One request to the model, failed ones too."""

    id: str
    session_id: str
    run_id: str | None
    purpose: str
    model: str
    usage: Usage
    first_token_ms: int | None
    """Milliseconds to the first delta; None if none came."""
    total_ms: int
    error: str | None
    """The code of the error that ended it."""
    created_at: datetime


async def insert_llm_call(db: AsyncConnection, call: LlmCall) -> None:
    """Add a request."""
    row = {name: value for name, value in asdict(call).items() if name != "usage"}
    await db.execute(_INSERT, {**row, **asdict(call.usage)})


async def session_usage(db: AsyncConnection, session_id: str) -> Usage:
    """All tokens of a session."""
    return (await usage_of(db, [session_id]))[session_id]


async def run_usage(db: AsyncConnection, run_id: str) -> Usage:
    """All tokens of a run."""
    row = (await db.execute(sa.select(*_TOTALS).where(_CALL.c.run_id == run_id))).one()
    return Usage(*map(int, row))


async def usage_of(db: AsyncConnection, session_ids: Collection[str]) -> dict[str, Usage]:
    """All tokens of each of these sessions; nothing spent counts as zeros."""
    query = sa.select(_CALL.c.session_id, *_TOTALS).where(_CALL.c.session_id.in_(session_ids))
    rows = await db.execute(query.group_by(_CALL.c.session_id))
    spent = {session_id: Usage(*map(int, totals)) for session_id, *totals in rows}
    return {session_id: spent.get(session_id, Usage()) for session_id in session_ids}


async def usage_by_model(db: AsyncConnection, session_id: str) -> dict[str, Usage]:
    """The tokens of a session, by the model that was asked."""
    query = sa.select(_CALL.c.model, *_TOTALS).where(_CALL.c.session_id == session_id)
    rows = await db.execute(query.group_by(_CALL.c.model).order_by(_CALL.c.model))
    return {model: Usage(*map(int, totals)) for model, *totals in rows}
