"""Approvals: the questions that waiting runs put to people, and what they answered."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from channels.events import Interrupt
from server.errors import NotFound
from server.store.codec import from_json, to_json
from server.store.rows import changed
from server.store.tables import ApprovalRow, table_of

_APPROVAL = table_of(ApprovalRow)

ApprovalStatus = Literal["OPEN", "APPROVED", "DENIED", "ANSWERED", "CANCELLED", "EXPIRED"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said to it."""

    edited_arguments: str | None = None
    """JSON to run the call with instead of the model's own arguments."""
    text: str = ""
    """What the model asked for, or a note to it."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A question of a run that waits, or waited."""

    interrupt: Interrupt
    session_id: str
    run_id: str
    status: ApprovalStatus
    created_at: datetime
    answer: Answer | None = None
    answered_by: str | None = None
    answered_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Nobody has answered, and there is time left."""
        return self.status == "OPEN"


@dataclass(frozen=True, slots=True)
class _Request:
    tool_name: str
    message: str
    arguments: str
    options: tuple[str, ...]


async def insert_approvals(
    db: AsyncConnection, session_id: str, run_id: str, asked: Sequence[Interrupt], now: datetime
) -> None:
    """Keep what a run asks, in the transaction of its end."""
    rows = [
        {
            "id": one.id,
            "session_id": session_id,
            "run_id": run_id,
            "tool_call_id": one.call_id,
            "reason": one.reason,
            "request_json": to_json(
                _Request(one.tool_name, one.message, one.arguments, tuple(one.options))
            ),
            "status": "OPEN",
            "created_at": now,
            "expires_at": one.expires_at,
        }
        for one in asked
    ]
    await db.execute(sa.insert(_APPROVAL), rows)


async def load_approval(db: AsyncConnection, approval_id: str) -> Approval:
    """The approval, or `NotFound`."""
    found = await _load(db, sa.select(_APPROVAL).where(_APPROVAL.c.id == approval_id))
    if not found:
        raise NotFound("there is no such question")
    return found[0]


async def approvals_of(db: AsyncConnection, run_id: str) -> list[Approval]:
    """What a run asked, in the order of its calls."""
    query = sa.select(_APPROVAL).where(_APPROVAL.c.run_id == run_id)
    return await _load(db, query.order_by(_APPROVAL.c.created_at, _APPROVAL.c.id))


async def answers_for(
    db: AsyncConnection, session_id: str, run_id: str, call_ids: Collection[str]
) -> list[Approval]:
    """What was answered of what a run asked, and of these calls, whichever run asked it."""
    is_meant = sa.or_(_APPROVAL.c.run_id == run_id, _APPROVAL.c.tool_call_id.in_(call_ids))
    query = sa.select(_APPROVAL).where(
        _APPROVAL.c.session_id == session_id, _APPROVAL.c.status != "OPEN", is_meant
    )
    return await _load(db, query)


async def open_approvals(db: AsyncConnection, session_id: str) -> list[Approval]:
    """What the session waits for, in the order of its calls."""
    query = sa.select(_APPROVAL).where(
        _APPROVAL.c.session_id == session_id, _APPROVAL.c.status == "OPEN"
    )
    return await _load(db, query.order_by(_APPROVAL.c.created_at, _APPROVAL.c.id))


async def overdue_sessions(db: AsyncConnection, now: datetime) -> list[str]:
    """Ids of the sessions with a question whose time is over."""
    query = sa.select(_APPROVAL.c.session_id).distinct()
    query = query.where(_APPROVAL.c.status == "OPEN", _APPROVAL.c.expires_at <= now)
    return list(await db.scalars(query))


async def settle_approval(
    db: AsyncConnection, approval: Approval, status: ApprovalStatus, answer: Answer, by: str | None
) -> Approval:
    """Write the answer to an open question; `answered_at` is the caller's, in *approval*."""
    settled = replace(approval, status=status, answer=answer, answered_by=by)
    statement = sa.update(_APPROVAL).where(
        _APPROVAL.c.id == approval.interrupt.id, _APPROVAL.c.status == "OPEN"
    )
    values = {
        "status": status,
        "answer_json": to_json(answer),
        "answered_by": by,
        "answered_at": approval.answered_at,
    }
    if not await changed(db, statement.values(values)):
        raise NotFound("the question is not open any more")
    return settled


async def _load(db: AsyncConnection, query: sa.Select[Any]) -> list[Approval]:
    return [_decode(row) for row in (await db.execute(query)).mappings()]


def _decode(row: sa.RowMapping) -> Approval:
    request = from_json(row["request_json"], _Request)
    return Approval(
        interrupt=Interrupt(
            id=row["id"],
            call_id=row["tool_call_id"],
            tool_name=request.tool_name,
            reason=row["reason"],
            message=request.message,
            arguments=request.arguments,
            options=request.options,
            expires_at=row["expires_at"],
        ),
        session_id=row["session_id"],
        run_id=row["run_id"],
        status=row["status"],
        created_at=row["created_at"],
        answer=None if row["answer_json"] is None else from_json(row["answer_json"], Answer),
        answered_by=row["answered_by"],
        answered_at=row["answered_at"],
    )
