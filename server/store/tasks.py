"""Scheduled tasks: what runs when, for whom, and where its answer goes.

A row that cannot be read is given back without its schedule and is never written over as a whole:
`save_task` writes what differs.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args
from zoneinfo import ZoneInfo

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from channels.port import ChatAddress
from server.due import MissedPolicy, Schedule
from server.errors import NotFound
from server.schedule_form import ScheduleForm, find_zone, form_of, schedule_of
from server.store.codec import from_json, to_json
from server.store.rows import changed
from server.store.tables import ScheduledTaskRow, UtcTime, table_of
from server.store.task_runs import drop_waiting_runs

TaskStatus = Literal["ACTIVE", "PAUSED", "DONE", "INVALID"]

_TASK = table_of(ScheduledTaskRow)
_TIMES: Final = frozenset(c.name for c in _TASK.c if isinstance(c.type, UtcTime))
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a stored time that is none."""


@dataclass(frozen=True, slots=True)
class ToSession:
    """Told in a session."""

    session_id: str


@dataclass(frozen=True, slots=True)
class ToChat:
    """Told in a conversation of a platform, whichever session that is bound to by then."""

    chat: ChatAddress


Target = ToSession | ToChat


@dataclass(frozen=True, slots=True)
class ScheduledTask:
    """Something to run at set times."""

    id: str
    owner: str
    title: str
    prompt: str
    schedule: Schedule | None
    """None if the row is damaged."""
    timezone: str
    """IANA name: the clocks that the schedule and the run's session go by."""
    created_at: datetime
    updated_at: datetime
    next_at: datetime | None = None
    """The next due time; None unless `ACTIVE`."""
    missed_policy: MissedPolicy = "skip"
    missed_within_seconds: int | None = None
    target: Target | None = None
    """Where its answers are told, beside its own sessions."""
    held_reason: str | None = None
    """Why nothing is told there any more: the platform refused for good."""
    is_quiet: bool = False
    origin_key: str | None = None
    failure_limit: int = 3
    failures_in_row: int = 0
    status: TaskStatus = "ACTIVE"
    paused_reason: str | None = None
    """Why it was paused by itself; None where a person did it."""
    contract_json: str | None = None
    """The progress contract of its runs."""

    @property
    def zone(self) -> ZoneInfo:
        """The zone of a task that is not damaged."""
        return ZoneInfo(self.timezone)


class _Chat(msgspec.Struct, rename="camel", omit_defaults=True):
    platform: str
    app_id: str
    chat_id: str
    thread_id: str = ""


class _Delivery(msgspec.Struct, rename="camel", omit_defaults=True):
    """The object in `delivery_json`."""

    session: str | None = None
    chat: _Chat | None = None
    held_reason: str | None = None


async def insert_task(db: AsyncConnection, task: ScheduledTask) -> None:
    """Add a task; `Duplicate` if the call that makes it has made it before."""
    await db.execute(sa.insert(_TASK).values(_encode(task)))


async def save_task(db: AsyncConnection, before: ScheduledTask, after: ScheduledTask) -> None:
    """Write what is different in *after*; the rest of the row stays as it is.

    Giving a damaged task a schedule mends it: then all of it is written.
    """
    known = {} if before.schedule is None and after.schedule is not None else _encode(before)
    values = {name: value for name, value in _encode(after).items() if value != known.get(name)}
    if values:
        await db.execute(sa.update(_TASK).where(_TASK.c.id == before.id).values(values))


async def load_task(db: AsyncConnection, task_id: str, *, lock: bool = False) -> ScheduledTask:
    """The task, or `NotFound`.

    Args:
        lock: Keep other writers of this task out until the transaction ends.
    """
    found = await _find(db, _TASK.c.id == task_id, lock=lock)
    if found is None:
        raise NotFound("there is no such task")
    return found


async def find_by_origin(db: AsyncConnection, origin_key: str) -> ScheduledTask | None:
    """The task that the call with this key made."""
    return await _find(db, _TASK.c.origin_key == origin_key)


async def list_tasks(
    db: AsyncConnection, owner: str | None, *, before_id: str | None = None, limit: int
) -> list[ScheduledTask]:
    """Tasks, the newest first.

    Args:
        owner: Whose; None for all.
        before_id: Only older ones than this; for the next page.
    """
    query = sa.select(_TASK.c.id).order_by(_TASK.c.id.desc()).limit(limit)
    if owner is not None:
        query = query.where(_TASK.c.owner == owner)
    if before_id is not None:
        query = query.where(_TASK.c.id < before_id)
    ids = list(await db.scalars(query))
    found = [await _find(db, _TASK.c.id == task_id) for task_id in ids]
    return [task for task in found if task is not None]


async def count_tasks(db: AsyncConnection, owner: str) -> int:
    """How many tasks *owner* has."""
    query = sa.select(sa.func.count()).select_from(_TASK).where(_TASK.c.owner == owner)
    return await db.scalar(query) or 0


async def delete_task(db: AsyncConnection, task_id: str) -> None:
    """Delete the task and what is known of its runs; `NotFound` if there is none.

    Those of its runs that have not begun never will.
    """
    await drop_waiting_runs(db, task_id)
    if not await changed(db, sa.delete(_TASK).where(_TASK.c.id == task_id)):
        raise NotFound("there is no such task")


async def due_task_ids(
    db: AsyncConnection, now: datetime, limit: int, *, but: Collection[str] = ()
) -> list[str]:
    """Ids of active tasks that are due, the longest due first; none of those in *but*.

    Ids alone, so that a row that cannot be read stands in nobody's way.
    """
    query = sa.select(_TASK.c.id).where(
        _TASK.c.status == "ACTIVE", _TASK.c.next_at <= now, _TASK.c.id.not_in(but)
    )
    return list(await db.scalars(query.order_by(_TASK.c.next_at, _TASK.c.id).limit(limit)))


async def next_due_at(db: AsyncConnection, now: datetime) -> datetime | None:
    """When the next active task is due, after now; None if none is or it cannot be read."""
    query = sa.select(_TASK.c.next_at).where(_TASK.c.status == "ACTIVE", _TASK.c.next_at > now)
    try:
        found: datetime | None = await db.scalar(query.order_by(_TASK.c.next_at).limit(1))
    except ValueError:
        return None
    return found


async def active_task_ids(db: AsyncConnection) -> list[str]:
    """Ids of all active tasks."""
    return list(await db.scalars(sa.select(_TASK.c.id).where(_TASK.c.status == "ACTIVE")))


async def claim_due(
    db: AsyncConnection, task: ScheduledTask, next_at: datetime | None, now: datetime
) -> bool:
    """Take the due time of *task* as it was read and set the next one; False if somebody else has.

    A task without a next time is done.
    """
    status: TaskStatus = "DONE" if next_at is None else "ACTIVE"
    statement = (
        sa.update(_TASK)
        .where(
            _TASK.c.id == task.id, _TASK.c.next_at == task.next_at, _TASK.c.status == task.status
        )
        .values(next_at=next_at, status=status, updated_at=now)
    )
    return await changed(db, statement) == 1


async def set_next_at(db: AsyncConnection, task: ScheduledTask, next_at: datetime) -> None:
    """Correct the next due time of *task*, unless somebody has changed it since it was read."""
    is_same = _TASK.c.next_at.is_not_distinct_from(task.next_at)
    statement = sa.update(_TASK).where(_TASK.c.id == task.id, _TASK.c.status == "ACTIVE", is_same)
    await db.execute(statement.values(next_at=next_at))


async def mark_invalid(db: AsyncConnection, task_id: str) -> None:
    """The row is damaged: it is left as it is, but no longer active."""
    await db.execute(sa.update(_TASK).where(_TASK.c.id == task_id).values(status="INVALID"))


async def _find(
    db: AsyncConnection, where: sa.ColumnElement[bool], *, lock: bool = False
) -> ScheduledTask | None:
    query = sa.select(_TASK).where(where)
    try:
        row = (await db.execute(query.with_for_update() if lock else query)).mappings().first()
    except ValueError:  # a time that is none, which SQLite keeps like any text
        words = sa.select(*[column for column in _TASK.c if column.name not in _TIMES])
        row = (await db.execute(words.where(where))).mappings().first()
    return None if row is None else _decode(row)


def _encode(task: ScheduledTask) -> dict[str, object]:
    form = "" if task.schedule is None else to_json(form_of(task.schedule))
    return {
        "id": task.id,
        "owner": task.owner,
        "title": task.title,
        "prompt": task.prompt,
        "schedule_json": form,
        "timezone": task.timezone,
        "missed_policy": task.missed_policy,
        "missed_within_seconds": task.missed_within_seconds,
        "delivery_json": to_json(_delivery(task)),
        "is_quiet": task.is_quiet,
        "origin_key": task.origin_key,
        "failure_limit": task.failure_limit,
        "failures_in_row": task.failures_in_row,
        "status": task.status,
        "paused_reason": task.paused_reason,
        "contract_json": task.contract_json,
        "next_at": task.next_at,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
    }


def _delivery(task: ScheduledTask) -> _Delivery:
    match task.target:
        case ToSession(session_id):
            return _Delivery(session=session_id, held_reason=task.held_reason)
        case ToChat(chat):
            address = _Chat(chat.platform, chat.app_id, chat.chat_id, chat.thread_id)
            return _Delivery(chat=address, held_reason=task.held_reason)
        case None:
            return _Delivery()


def _decode(row: sa.RowMapping) -> ScheduledTask:
    values: dict[str, Any] = dict(row)
    is_whole = values.keys() >= _TIMES
    values |= {name: _NO_TIME for name in ("created_at", "updated_at") if name not in values}
    schedule_json, delivery_json = values.pop("schedule_json"), values.pop("delivery_json")
    schedule = _schedule_in(schedule_json) if is_whole and _is_sound(values) else None
    try:
        delivery = from_json(delivery_json, _Delivery)
    except (ValueError, msgspec.ValidationError):
        delivery, schedule = _Delivery(), None
    return ScheduledTask(
        **values,
        schedule=schedule,
        target=_target(delivery),
        held_reason=delivery.held_reason,
    )


def _schedule_in(schedule_json: str) -> Schedule | None:
    try:
        return schedule_of(from_json(schedule_json, _FORM))
    except (ValueError, msgspec.ValidationError):
        return None


_FORM: Any = ScheduleForm
"""A union is no class to mypy; msgspec takes both."""


def _is_sound(values: dict[str, Any]) -> bool:
    is_known = values["missed_policy"] in get_args(MissedPolicy)
    return is_known and find_zone(values["timezone"]) is not None


def _target(delivery: _Delivery) -> Target | None:
    if delivery.session is not None:
        return ToSession(delivery.session)
    if delivery.chat is not None:
        chat = delivery.chat
        return ToChat(ChatAddress(chat.platform, chat.app_id, chat.chat_id, chat.thread_id))
    return None
