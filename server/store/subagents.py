"""Subagents: child sessions at work for a run, by the call that asked for them."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.store.tables import RunRow, SubagentExecutionRow, table_of

_EXECUTION = table_of(SubagentExecutionRow)
_ASKING = table_of(RunRow).alias("asking")
_CHILD = table_of(RunRow).alias("child")

_LOADED = sa.select(_EXECUTION, _CHILD.c.rounds, _CHILD.c.outcome_code.label("code")).select_from(
    _EXECUTION.outerjoin(_CHILD, _CHILD.c.id == _EXECUTION.c.id)
)


@dataclass(frozen=True, slots=True)
class SubagentExecution:
    """A child session at work for a run, or done with it."""

    id: str
    """That of the child's run, which is the one that does the task."""
    run_id: str
    """The run that asked for it."""
    tool_call_id: str
    child_session_id: str
    status: str
    """`RUNNING`, `COMPLETED`, `FAILED`, `CANCELLED`."""
    background: bool
    result_text: str | None
    """What it said last, or why it failed; None while it works."""
    created_at: datetime
    ended_at: datetime | None = None
    rounds: int | None = None
    """Begun so far by the child's run; None if that was taken out of the queue."""
    code: str | None = None
    """How the child's run ended."""


async def insert_execution(db: AsyncConnection, execution: SubagentExecution) -> None:
    """Add an execution, apart from what is known of its run; `Duplicate` if its call has one."""
    row = {column.name: getattr(execution, column.name) for column in _EXECUTION.c}
    await db.execute(sa.insert(_EXECUTION).values(row))


async def lock_asking(db: AsyncConnection, run_id: str) -> bool:
    """Keep others from adding to this run's subagents until the transaction ends.

    Returns:
        False if the run is over.
    """
    query = sa.select(_ASKING.c.id).where(_ASKING.c.id == run_id, _ASKING.c.status == "RUNNING")
    return await db.scalar(query.with_for_update()) is not None


async def execution_of_call(
    db: AsyncConnection, run_id: str, tool_call_id: str
) -> SubagentExecution | None:
    """What the call of this run began."""
    is_call = sa.and_(_EXECUTION.c.run_id == run_id, _EXECUTION.c.tool_call_id == tool_call_id)
    found = await _load(db, is_call)
    return found[0] if found else None


async def executions_of_run(db: AsyncConnection, run_id: str) -> list[SubagentExecution]:
    """All that the run asked for, oldest first."""
    return await _load(db, _EXECUTION.c.run_id == run_id)


async def running_executions(db: AsyncConnection, run_id: str) -> list[SubagentExecution]:
    """Those of the run that still work, oldest first."""
    return await _load(db, sa.and_(_EXECUTION.c.run_id == run_id, _is_running()))


async def executions_by_id(
    db: AsyncConnection, session_id: str, ids: Collection[str]
) -> dict[str, SubagentExecution]:
    """Those of *ids* that runs of this session asked for."""
    found = await _load(db, sa.and_(_EXECUTION.c.id.in_(ids), _is_asked_by(session_id)))
    return {execution.id: execution for execution in found}


async def open_executions(db: AsyncConnection, session_id: str) -> list[SubagentExecution]:
    """What the session may not know the end of, oldest first.

    That is what works, and what ended in the background since the session's last run that asked a
    model was over.
    """
    last_end = (
        sa.select(sa.func.max(_ASKING.c.ended_at))
        .where(
            _ASKING.c.session_id == session_id,
            _ASKING.c.status.in_(("COMPLETED", "FAILED", "CANCELLED")),
            _ASKING.c.rounds > 0,
        )
        .scalar_subquery()
    )
    is_news = sa.or_(last_end.is_(None), _EXECUTION.c.ended_at >= last_end)
    is_open = sa.or_(_is_running(), sa.and_(_EXECUTION.c.background, is_news))
    return await _load(db, sa.and_(_is_asked_by(session_id), is_open))


async def end_execution(
    db: AsyncConnection,
    child_session_id: str,
    status: str,
    result_text: str | None,
    now: datetime,
) -> bool:
    """Write how the child's work ended; False if it was over, or is no subagent's."""
    statement = (
        sa.update(_EXECUTION)
        .where(_EXECUTION.c.child_session_id == child_session_id, _is_running())
        .values(status=status, result_text=result_text, ended_at=now)
        .returning(_EXECUTION.c.id)
    )
    return await db.scalar(statement) is not None


def _is_running() -> sa.ColumnElement[bool]:
    return _EXECUTION.c.status == "RUNNING"


def _is_asked_by(session_id: str) -> sa.ColumnElement[bool]:
    runs = sa.select(_ASKING.c.id).where(_ASKING.c.session_id == session_id)
    return _EXECUTION.c.run_id.in_(runs)


async def _load(db: AsyncConnection, holds: sa.ColumnElement[bool]) -> list[SubagentExecution]:
    query: sa.Select[Any] = _LOADED.where(holds)
    rows = await db.execute(query.order_by(_EXECUTION.c.created_at, _EXECUTION.c.id))
    return [SubagentExecution(**row) for row in rows.mappings()]
