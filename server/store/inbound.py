"""Idempotency keys of the edges, so that a message sent twice is answered with the same run."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from channels.port import SubmittedState
from server.store.rows import changed
from server.store.tables import InboundEventRow, table_of

_EVENT = table_of(InboundEventRow)


@dataclass(frozen=True, slots=True)
class InboundEvent:
    """A key that came in, and what became of it."""

    key: str
    session_id: str
    run_id: str
    state: SubmittedState
    """What the edge was told."""
    position: int | None
    """Place in the queue, from 1, when it was told."""
    created_at: datetime


async def find_inbound(db: AsyncConnection, keys: Collection[str]) -> InboundEvent | None:
    """The oldest event that came with one of *keys*."""
    query = sa.select(_EVENT).where(_EVENT.c.key.in_(keys)).order_by(_EVENT.c.created_at)
    row = (await db.execute(query.limit(1))).mappings().first()
    return None if row is None else InboundEvent(**row)


async def insert_inbound(
    db: AsyncConnection,
    keys: Collection[str],
    session_id: str,
    run_id: str,
    state: SubmittedState,
    position: int | None,
    now: datetime,
) -> None:
    """Keep *keys*; `Duplicate` at the transaction's end if one of them came before."""
    facts = {
        "session_id": session_id,
        "run_id": run_id,
        "state": state,
        "position": position,
        "created_at": now,
    }
    rows = [{"key": key, **facts} for key in dict.fromkeys(keys)]
    if rows:
        await db.execute(sa.insert(_EVENT), rows)


async def prune_inbound(db: AsyncConnection, before: datetime) -> int:
    """Forget the keys that came before this time; how many they were."""
    return await changed(db, sa.delete(_EVENT).where(_EVENT.c.created_at < before))
