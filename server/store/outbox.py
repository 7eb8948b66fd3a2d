"""The outbox: what surfaces have to be told, each by one process and until it worked."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.store.codec import to_json
from server.store.rows import changed
from server.store.tables import OutboxRow, table_of

_OUTBOX = table_of(OutboxRow)
_PENDING = _OUTBOX.c.status == "PENDING"


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """Something that a surface has to be told."""

    id: str
    session_id: str
    run_id: str | None
    surface: str
    kind: str
    payload: Mapping[str, object]
    """Whatever JSON can say."""
    status: str
    attempts: int
    error: str | None
    created_at: datetime
    due_at: datetime


async def insert_outbox(db: AsyncConnection, item: OutboxItem) -> None:
    """Add an item, in the transaction of the fact that it tells of."""
    await db.execute(
        sa.insert(_OUTBOX).values(
            id=item.id,
            session_id=item.session_id,
            run_id=item.run_id,
            surface=item.surface,
            kind=item.kind,
            payload_json=to_json(item.payload),
            status=item.status,
            attempts=item.attempts,
            error=item.error,
            created_at=item.created_at,
            due_at=item.due_at,
        )
    )


async def due_items(
    db: AsyncConnection,
    now: datetime,
    limit: int,
    *,
    but_sessions: Collection[str] = (),
    but_surfaces: Collection[str] = (),
    others_before: datetime | None = None,
    own_surfaces: Collection[str] = (),
) -> list[OutboxItem]:
    """Items that wait and are due, the longest due first; none of the sessions and surfaces named.

    With *others_before*, items of surfaces beyond *own_surfaces* only if they are older than that:
    they are another process's, unless nobody has that surface any more.

    Left out here, and not after the limit, what cannot be told now hides nothing behind it.
    """
    query = sa.select(_OUTBOX).where(
        _PENDING,
        _OUTBOX.c.due_at <= now,
        _OUTBOX.c.session_id.not_in(but_sessions),
        _OUTBOX.c.surface.not_in(but_surfaces),
    )
    if others_before is not None:
        is_own = _OUTBOX.c.surface.in_(own_surfaces)
        query = query.where(sa.or_(is_own, _OUTBOX.c.created_at < others_before))
    rows = await db.execute(query.order_by(_OUTBOX.c.due_at, _OUTBOX.c.id).limit(limit))
    return [_decode(row) for row in rows.mappings()]


async def untried_item(db: AsyncConnection, session_id: str, kind: str) -> OutboxItem | None:
    """An item of that kind that nobody has begun to tell."""
    query = sa.select(_OUTBOX).where(
        _PENDING,
        _OUTBOX.c.session_id == session_id,
        _OUTBOX.c.kind == kind,
        _OUTBOX.c.attempts == 0,
    )
    row = (await db.execute(query.limit(1))).mappings().first()
    return None if row is None else _decode(row)


async def load_item(db: AsyncConnection, item_id: str) -> OutboxItem | None:
    """The item as it stands now; None if its session was deleted."""
    row = (await db.execute(sa.select(_OUTBOX).where(_OUTBOX.c.id == item_id))).mappings().first()
    return None if row is None else _decode(row)


async def set_payload(db: AsyncConnection, item: OutboxItem, payload: Mapping[str, object]) -> bool:
    """Tell something else by an item that is untried; False if a process has taken it since."""
    is_untried = sa.and_(_OUTBOX.c.id == item.id, _PENDING, _OUTBOX.c.attempts == 0)
    statement = sa.update(_OUTBOX).where(is_untried).values(payload_json=to_json(payload))
    return await changed(db, statement) == 1


async def claim_item(
    db: AsyncConnection, item_id: str, attempts_seen: int, next_due_at: datetime
) -> bool:
    """Take an item for one try; False if another process was faster.

    It is due again at *next_due_at*, in case whoever took it dies before saying how it went.
    """
    statement = (
        sa.update(_OUTBOX)
        .where(_OUTBOX.c.id == item_id, _PENDING, _OUTBOX.c.attempts == attempts_seen)
        .values(attempts=attempts_seen + 1, due_at=next_due_at)
    )
    return await changed(db, statement) == 1


async def prolong_claim(
    db: AsyncConnection, item_id: str, attempt: int, next_due_at: datetime
) -> None:
    """The try goes on: let nobody else begin one before *next_due_at*."""
    is_mine = sa.and_(_OUTBOX.c.id == item_id, _PENDING, _OUTBOX.c.attempts == attempt)
    await db.execute(sa.update(_OUTBOX).where(is_mine).values(due_at=next_due_at))


async def postpone(db: AsyncConnection, item_id: str, error: str, due_at: datetime) -> None:
    """A try failed; the next one is due at *due_at*."""
    await _set(db, item_id, error=error, due_at=due_at)


async def release_claims(db: AsyncConnection, now: datetime) -> None:
    """Make everything that waits due now: whoever had taken it is gone."""
    await db.execute(sa.update(_OUTBOX).where(_PENDING).values(due_at=now))


async def prune_outbox(db: AsyncConnection, before: datetime) -> int:
    """Forget what was settled before this time; how many items it was."""
    settled = sa.and_(sa.not_(_PENDING), _OUTBOX.c.created_at < before)
    return await changed(db, sa.delete(_OUTBOX).where(settled))


async def mark_delivered(db: AsyncConnection, item_id: str, now: datetime) -> None:
    """The surface was told."""
    await _set(db, item_id, status="DELIVERED", error=None, delivered_at=now)


async def mark_undeliverable(db: AsyncConnection, item_id: str, error: str, now: datetime) -> None:
    """The surface cannot be told; *error* says why and carries no secret."""
    # No column of its own for the time: what was not delivered stopped being due.
    await _set(db, item_id, status="UNDELIVERABLE", error=error, due_at=now)


async def outbox_depth(db: AsyncConnection) -> int:
    """How many items wait."""
    return await db.scalar(sa.select(sa.func.count()).select_from(_OUTBOX).where(_PENDING)) or 0


async def _set(db: AsyncConnection, item_id: str, **values: object) -> None:
    await db.execute(sa.update(_OUTBOX).where(_OUTBOX.c.id == item_id).values(values))


def _decode(row: sa.RowMapping) -> OutboxItem:
    values: dict[str, Any] = dict(row)
    payload = json.loads(values.pop("payload_json"))
    del values["delivered_at"]
    return OutboxItem(**values, payload=payload)
