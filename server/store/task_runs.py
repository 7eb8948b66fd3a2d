"""What became of each due time of a scheduled task."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.store.rows import changed
from server.store.tables import RunRow, ScheduledTaskRunRow, SessionRow, table_of

TaskRunStatus = Literal["RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED", "SKIPPED"]
DeliveryStatus = Literal["PENDING", "DELIVERED", "UNDELIVERABLE"]

_TASK_RUN = table_of(ScheduledTaskRunRow)
_RUN = table_of(RunRow)
_SESSION = table_of(SessionRow)

_UNDER_WAY = _TASK_RUN.c.status.in_(("RUNNING", "WAITING"))


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One due time, or one manual start, of a scheduled task."""

    task_id: str
    due_at: datetime
    """With the task's id it is the key, so each due time is there once."""
    trigger: Literal["due", "manual"]
    status: TaskRunStatus
    created_at: datetime
    session_id: str | None = None
    """Its own; None if it was skipped, or the session was tidied away."""
    run_id: str | None = None
    """The latest run of it: an answered question goes on in another one."""
    reason: str | None = None
    """Of a failure, for people; of a skipped time `missed`, `overlap` or `waiting`."""
    delivery_run_id: str | None = None
    """The run that tells it where it is delivered."""
    delivery_status: DeliveryStatus | None = None
    """None where nothing is to be told."""
    ended_at: datetime | None = None


async def insert_task_run(db: AsyncConnection, task_run: TaskRun) -> None:
    """Add it; `Duplicate` if the task has one of this time."""
    await db.execute(sa.insert(_TASK_RUN).values(asdict(task_run)))


async def has_task_run(db: AsyncConnection, task_id: str, due_at: datetime) -> bool:
    """Whether something became of this due time already."""
    query = sa.select(_TASK_RUN.c.task_id).where(_is(task_id, due_at))
    return await db.scalar(query) is not None


async def find_task_run(db: AsyncConnection, run_ids: Collection[str]) -> TaskRun | None:
    """The one that any of these runs belongs to."""
    query = sa.select(_TASK_RUN).where(_TASK_RUN.c.run_id.in_(run_ids))
    row = (await db.execute(query.limit(1))).mappings().first()
    return None if row is None else TaskRun(**row)


async def task_runs_under_way(db: AsyncConnection, task_id: str) -> list[TaskRun]:
    """Those that have not ended, as far as their rows know."""
    query = sa.select(_TASK_RUN).where(_TASK_RUN.c.task_id == task_id, _UNDER_WAY)
    return [TaskRun(**row) for row in (await db.execute(query)).mappings()]


async def tasks_under_way(db: AsyncConnection) -> list[str]:
    """Ids of the tasks that have such runs."""
    return list(await db.scalars(sa.select(_TASK_RUN.c.task_id).where(_UNDER_WAY).distinct()))


async def waiting_sessions(db: AsyncConnection) -> list[str]:
    """Ids of the sessions of due times whose run waits for its turn, the longest due first."""
    query = (
        sa.select(_TASK_RUN.c.session_id)
        .join(_RUN, _RUN.c.id == _TASK_RUN.c.run_id)
        .where(_RUN.c.status == "QUEUED", _UNDER_WAY)
        .order_by(_TASK_RUN.c.due_at, _TASK_RUN.c.created_at, _TASK_RUN.c.task_id)
    )
    return list(await db.scalars(query))


async def drop_waiting_runs(db: AsyncConnection, task_id: str) -> None:
    """The runs of a task that still wait for their turn will not begin."""
    its_runs = sa.select(_TASK_RUN.c.run_id).where(_TASK_RUN.c.task_id == task_id, _UNDER_WAY)
    await db.execute(sa.delete(_RUN).where(_RUN.c.status == "QUEUED", _RUN.c.id.in_(its_runs)))


async def is_alive(db: AsyncConnection, session_id: str | None) -> bool:
    """Whether a task's session has something under way, queued, or waiting for an answer."""
    has_run = sa.exists().where(
        _RUN.c.session_id == _SESSION.c.id, _RUN.c.status.in_(("QUEUED", "RUNNING"))
    )
    query = sa.select(_SESSION.c.id).where(
        _SESSION.c.id == session_id, sa.or_(has_run, _SESSION.c.status == "WAITING")
    )
    return await db.scalar(query) is not None


async def list_task_runs(
    db: AsyncConnection, task_id: str, *, before: datetime | None = None, limit: int
) -> list[TaskRun]:
    """The task's due times, the latest first; only those before this time."""
    query = sa.select(_TASK_RUN).where(_TASK_RUN.c.task_id == task_id)
    if before is not None:
        query = query.where(_TASK_RUN.c.due_at < before)
    rows = await db.execute(query.order_by(_TASK_RUN.c.due_at.desc()).limit(limit))
    return [TaskRun(**row) for row in rows.mappings()]


async def last_task_runs(db: AsyncConnection, task_ids: Collection[str]) -> dict[str, TaskRun]:
    """The latest of each task that has any."""
    newest = (
        sa.select(_TASK_RUN.c.task_id, sa.func.max(_TASK_RUN.c.due_at).label("due_at"))
        .where(_TASK_RUN.c.task_id.in_(task_ids))
        .group_by(_TASK_RUN.c.task_id)
        .subquery()
    )
    query = sa.select(_TASK_RUN).join(
        newest,
        sa.and_(newest.c.task_id == _TASK_RUN.c.task_id, newest.c.due_at == _TASK_RUN.c.due_at),
    )
    rows = await db.execute(query)
    return {row["task_id"]: TaskRun(**row) for row in rows.mappings()}


async def close_task_run(
    db: AsyncConnection,
    task_run: TaskRun,
    status: TaskRunStatus,
    reason: str | None,
    now: datetime,
    *,
    run_id: str | None,
) -> None:
    """Write how it ended, or that it waits for an answer, and by which run."""
    await _set(
        db,
        task_run,
        status=status,
        reason=reason,
        run_id=run_id,
        ended_at=None if status == "WAITING" else now,
    )


async def set_delivery(
    db: AsyncConnection, task_run: TaskRun, run_id: str | None, status: DeliveryStatus
) -> None:
    """By which run it is told where it is delivered, and how that stands."""
    await _set(db, task_run, delivery_run_id=run_id, delivery_status=status)


async def settle_delivery(db: AsyncConnection, run_id: str, status: DeliveryStatus) -> str | None:
    """The delivery by this run came to its end; the id of its task, None if it is none's."""
    statement = (
        sa.update(_TASK_RUN)
        .where(_TASK_RUN.c.delivery_run_id == run_id)
        .values(delivery_status=status)
        .returning(_TASK_RUN.c.task_id)
    )
    task_id: str | None = await db.scalar(statement)
    return task_id


async def settle_lost_deliveries(db: AsyncConnection) -> int:
    """Those whose run was dropped, with its session or from its queue, are not told any more."""
    statement = sa.update(_TASK_RUN).where(
        _TASK_RUN.c.delivery_status == "PENDING",
        _TASK_RUN.c.delivery_run_id.not_in(sa.select(_RUN.c.id)),
    )
    return await changed(db, statement.values(delivery_status="UNDELIVERABLE"))


async def spent_sessions(db: AsyncConnection, task_id: str, keep: int) -> list[str]:
    """Ids of the sessions of a task's ended runs but for the newest *keep* of them."""
    query = sa.select(_TASK_RUN.c.session_id).where(
        _TASK_RUN.c.task_id == task_id, sa.not_(_UNDER_WAY), _TASK_RUN.c.session_id.is_not(None)
    )
    return list(await db.scalars(query.order_by(_TASK_RUN.c.due_at.desc()).offset(keep)))


async def forget_session(db: AsyncConnection, task_id: str, session_id: str) -> None:
    """The session of an ended run is gone; what became of the run stays known."""
    is_of = sa.and_(_TASK_RUN.c.task_id == task_id, _TASK_RUN.c.session_id == session_id)
    await db.execute(sa.update(_TASK_RUN).where(is_of).values(session_id=None))


async def prune_task_runs(db: AsyncConnection, task_id: str, keep: int) -> None:
    """Forget what became of all but the newest *keep* due times of a task."""
    newest = sa.select(_TASK_RUN.c.due_at).where(_TASK_RUN.c.task_id == task_id)
    oldest_kept = await db.scalar(
        newest.order_by(_TASK_RUN.c.due_at.desc()).offset(keep - 1).limit(1)
    )
    if oldest_kept is not None:
        is_older = sa.and_(_TASK_RUN.c.task_id == task_id, _TASK_RUN.c.due_at < oldest_kept)
        await db.execute(sa.delete(_TASK_RUN).where(is_older, sa.not_(_UNDER_WAY)))


async def _set(db: AsyncConnection, task_run: TaskRun, **values: object) -> None:
    is_it = _is(task_run.task_id, task_run.due_at)
    await db.execute(sa.update(_TASK_RUN).where(is_it).values(values))


def _is(task_id: str, due_at: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(_TASK_RUN.c.task_id == task_id, _TASK_RUN.c.due_at == due_at)
