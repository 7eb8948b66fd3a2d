"""Runs: the queue of a session, and who may write for a run that is under way."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from channels.port import ChatAddress
from server.errors import Fenced, NotFound
from server.message import FilePart
from server.store.codec import from_json, to_json
from server.store.rows import changed, lock_session
from server.store.tables import RunRow, SessionRow, table_of

_RUN = table_of(RunRow)
_SESSION = table_of(SessionRow)

# Built once, since they are sent in every round: building one costs as much as running it.
_IS_ATTEMPT = sa.and_(
    _RUN.c.id == sa.bindparam("run_id"),
    _RUN.c.attempt == sa.bindparam("of_attempt"),
    _RUN.c.status == "RUNNING",
)
_FENCE = sa.select(_RUN.c.id).where(_IS_ATTEMPT).with_for_update()
_BEGIN_ROUND = sa.update(_RUN).where(_IS_ATTEMPT).values(rounds=sa.bindparam("begun_rounds"))

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""The end of a lease that was given back: over by every clock."""


@dataclass(frozen=True, slots=True)
class QueuedInput:
    """What a run was asked to do; kept after it started."""

    message_id: str | None
    text: str
    files: tuple[FilePart, ...] = ()
    origin: str = ""
    retry_of: str | None = None
    """The message from which to try again."""
    edit_of: str | None = None
    """The message that `text` replaces."""
    model: str | None = None
    chat: ChatAddress | None = None
    """The conversation it came from."""
    reply_to: str | None = None
    """What the platform needs to answer this very message."""
    reach: str | None = None
    """What the platform needs to write to the chat unasked."""
    label: str = ""
    """What sets the run apart in its chat."""
    resumes: str | None = None
    """The waiting run that this one goes on with."""
    is_quiet: bool = False
    """Having nothing to say is a good end."""
    contract: Mapping[str, Any] | None = None
    """The progress contract that the run is judged by."""


@dataclass(frozen=True, slots=True)
class Run:
    """One execution, waiting, under way or over."""

    id: str
    session_id: str
    trigger: str
    status: str
    created_at: datetime
    input: QueuedInput | None = None
    queue_seq: int = 0
    """Order in the queue, smallest first; given by `insert_run`."""
    steer: bool = False
    joined_run_id: str | None = None
    message_id: str | None = None
    card_handle: str | None = None
    outcome_code: str | None = None
    outcome_text: str | None = None
    rounds: int = 0
    attempt: int = 0
    """Rises with each claim; only the process that made the last claim may write."""
    cancel_requested: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    lease_owner: str | None = None
    lease_until: datetime | None = None


async def insert_run(db: AsyncConnection, run: Run, *, front: bool = False) -> Run:
    """Add a run at the end of its session's queue, or at its front; back with its `queue_seq`.

    Raises:
        NotFound: There is no such session.
    """
    await lock_session(db, run.session_id)
    placed = replace(run, queue_seq=await _place(db, run.session_id, front=front))
    await db.execute(sa.insert(_RUN).values(_encode(placed)))
    return placed


async def load_run(db: AsyncConnection, run_id: str) -> Run:
    """The run, or `NotFound`."""
    found = await _load(db, sa.select(_RUN).where(_RUN.c.id == run_id))
    if not found:
        raise NotFound("there is no such run")
    return found[0]


async def resumed(db: AsyncConnection, run_id: str) -> list[str]:
    """The run, and those before it that waited for a person: for who looks on they are one."""
    run_ids: list[str] = []
    next_id: str | None = run_id
    while next_id is not None:
        run_ids.append(next_id)
        asked = (await load_run(db, next_id)).input
        next_id = asked.resumes if asked is not None else None
    return run_ids


async def queued(db: AsyncConnection, session_id: str) -> list[Run]:
    """The session's queue, next first."""
    query = sa.select(_RUN).where(_in_queue(session_id))
    return await _load(db, query.order_by(_RUN.c.queue_seq, _RUN.c.id))


async def running(db: AsyncConnection, session_id: str) -> Run | None:
    """The run that is under way in this session; the schema admits one."""
    query = sa.select(_RUN).where(_RUN.c.session_id == session_id, _RUN.c.status == "RUNNING")
    found = await _load(db, query)
    return found[0] if found else None


async def list_runs(db: AsyncConnection, session_id: str, limit: int) -> list[Run]:
    """The session's latest runs, newest first."""
    query = sa.select(_RUN).where(_RUN.c.session_id == session_id)
    return await _load(db, query.order_by(_RUN.c.created_at.desc(), _RUN.c.id.desc()).limit(limit))


async def sessions_with_queue(db: AsyncConnection) -> list[str]:
    """Ids of the sessions that have a queue, the longest waiting first."""
    query = sa.select(_RUN.c.session_id).where(_RUN.c.status == "QUEUED")
    query = query.group_by(_RUN.c.session_id).order_by(sa.func.min(_RUN.c.created_at))
    return list(await db.scalars(query))


async def idle_queues(db: AsyncConnection, passing: Collection[str], answering: str) -> list[str]:
    """Ids of the sessions whose queue could go on: not held, nor behind a run or a question.

    Args:
        passing: Triggers that a hold does not stop.
        answering: Trigger of what goes on with the answer to a question.
    """
    busy = sa.select(_RUN.c.session_id).where(_RUN.c.status == "RUNNING")
    query = (
        sa.select(_RUN.c.session_id)
        .distinct()
        .join(_SESSION, _SESSION.c.id == _RUN.c.session_id)
        .where(
            _RUN.c.status == "QUEUED",
            sa.or_(sa.not_(_SESSION.c.queue_paused), _RUN.c.trigger.in_(passing)),
            sa.or_(_SESSION.c.status != "WAITING", _RUN.c.trigger == answering),
            _RUN.c.session_id.not_in(busy),
        )
    )
    return list(await db.scalars(query))


async def awaits_message(db: AsyncConnection, message_id: str) -> bool:
    """Whether a queued run of any session will bring a message with this id."""
    query = sa.select(_RUN.c.id).where(_RUN.c.status == "QUEUED", _RUN.c.message_id == message_id)
    return await db.scalar(query.limit(1)) is not None


async def start_run(
    db: AsyncConnection, run_id: str, owner: str, lease_until: datetime, now: datetime
) -> int | None:
    """Take a run out of the queue for *owner*: its attempt, or None if another was faster.

    `Duplicate` at the transaction's end if the session has a run under way already.
    """
    statement = (
        sa.update(_RUN)
        .where(_RUN.c.id == run_id, _RUN.c.status == "QUEUED")
        .values(
            status="RUNNING",
            attempt=_RUN.c.attempt + 1,
            lease_owner=owner,
            lease_until=lease_until,
            started_at=now,
        )
        .returning(_RUN.c.attempt)
    )
    attempt: int | None = await db.scalar(statement)
    return attempt


async def claim_expired(
    db: AsyncConnection,
    owner: str,
    lease_until: datetime,
    now: datetime,
    *,
    any_owner: bool,
    held: Collection[str] = (),
) -> list[Run]:
    """Take over the runs that nobody executes, oldest first.

    Args:
        any_owner: Also those of others whose lease is not over; for a process that is known to
            be alone.
        held: What *owner* executes. Its other runs began without its knowledge, when the answer
            to a commit was lost; they are taken when their lease is over.
    """
    is_free = sa.or_(_RUN.c.lease_until.is_(None), _RUN.c.lease_until < now)
    if any_owner:
        is_free = sa.or_(is_free, _RUN.c.lease_owner.is_distinct_from(owner))
    statement = (
        sa.update(_RUN)
        .where(_RUN.c.status == "RUNNING", is_free, _RUN.c.id.not_in(held))
        .values(attempt=_RUN.c.attempt + 1, lease_owner=owner, lease_until=lease_until)
        .returning(_RUN)
    )
    rows = await db.execute(statement)
    claimed = [_decode(row) for row in rows.mappings()]
    return sorted(claimed, key=lambda run: (run.created_at, run.id))


async def renew_leases(
    db: AsyncConnection, owner: str, run_ids: Collection[str], lease_until: datetime
) -> set[str]:
    """Lengthen the leases of *owner*; the ids that are still his."""
    statement = (
        sa.update(_RUN)
        .where(_RUN.c.id.in_(run_ids), _held_by(owner))
        .values(lease_until=lease_until)
        .returning(_RUN.c.id)
    )
    return set(await db.scalars(statement))


async def release_leases(db: AsyncConnection, owner: str) -> None:
    """Give back all leases of *owner*, so that another process need not wait for their end."""
    await db.execute(sa.update(_RUN).where(_held_by(owner)).values(lease_until=_LONG_AGO))


async def fence(db: AsyncConnection, run_id: str, attempt: int) -> None:
    """Make sure that the rest of this transaction may write for the run.

    Raises:
        Fenced: It is over, or was claimed by another process.

    The row stays locked, so a claim waits for the transaction's end and cannot come between.
    """
    if await db.scalar(_FENCE, {"run_id": run_id, "of_attempt": attempt}) is None:
        raise Fenced(run_id)


async def finish_run(
    db: AsyncConnection,
    run_id: str,
    attempt: int,
    status: str,
    code: str,
    text: str | None,
    rounds: int,
    now: datetime,
) -> None:
    """Write how the run ended and give its lease back.

    Raises:
        Fenced: It is over, or was claimed by another process.
    """
    statement = (
        sa.update(_RUN)
        .where(_IS_ATTEMPT)
        .values(
            status=status,
            outcome_code=code,
            outcome_text=text,
            rounds=rounds,
            ended_at=now,
            lease_owner=None,
            lease_until=None,
        )
    )
    if not await changed(db, statement, {"run_id": run_id, "of_attempt": attempt}):
        raise Fenced(run_id)


async def has_ended(db: AsyncConnection, run_id: str, attempt: int) -> bool:
    """Whether the run's end was written by whoever made this attempt."""
    query = sa.select(_RUN.c.id).where(
        _RUN.c.id == run_id, _RUN.c.attempt == attempt, _RUN.c.status != "RUNNING"
    )
    return await db.scalar(query) is not None


async def begin_round(db: AsyncConnection, run_id: str, attempt: int, rounds: int) -> None:
    """Fence as `fence` does, and write how many rounds have begun, in one statement.

    Raises:
        Fenced: It is over, or was claimed by another process.
    """
    values = {"run_id": run_id, "of_attempt": attempt, "begun_rounds": rounds}
    if not await changed(db, _BEGIN_ROUND, values):
        raise Fenced(run_id)


async def cancels_requested(db: AsyncConnection, owner: str) -> set[str]:
    """Runs of *owner* that somebody, maybe in another process, asked to cancel."""
    query = sa.select(_RUN.c.id).where(_held_by(owner), _RUN.c.cancel_requested)
    return set(await db.scalars(query))


async def keep_handle(db: AsyncConnection, run_id: str, handle: str) -> None:
    """Remember the card that shows the run."""
    await db.execute(sa.update(_RUN).where(_RUN.c.id == run_id).values(card_handle=handle))


async def request_cancel(db: AsyncConnection, run_id: str) -> None:
    """Ask whichever process has the run to cancel it."""
    await db.execute(sa.update(_RUN).where(_RUN.c.id == run_id).values(cancel_requested=True))


async def join_run(db: AsyncConnection, run_id: str, into_run_id: str, now: datetime) -> bool:
    """Let a queued run end as part of *into_run_id*; False if it was not queued any more."""
    statement = (
        sa.update(_RUN)
        .where(_RUN.c.id == run_id, _RUN.c.status == "QUEUED")
        .values(status="JOINED", joined_run_id=into_run_id, ended_at=now)
    )
    return await changed(db, statement) == 1


async def requeue_front(db: AsyncConnection, run_id: str) -> None:
    """Make a queued run the next one of its session, as a run of its own."""
    run = await load_run(db, run_id)
    await lock_session(db, run.session_id)
    first = await _place(db, run.session_id, front=True)
    statement = sa.update(_RUN).where(_RUN.c.id == run_id, _RUN.c.status == "QUEUED")
    await db.execute(statement.values(steer=False, queue_seq=first))


async def update_queued_text(db: AsyncConnection, run_id: str, text: str) -> bool:
    """Change what a queued run will say; False if it was not queued any more."""
    still_queued = sa.and_(_RUN.c.id == run_id, _RUN.c.status == "QUEUED")
    input_json = await db.scalar(sa.select(_RUN.c.input_json).where(still_queued).with_for_update())
    if input_json is None:
        return False
    changed_input = replace(from_json(input_json, QueuedInput), text=text)
    await db.execute(sa.update(_RUN).where(still_queued).values(input_json=to_json(changed_input)))
    return True


async def delete_queued(db: AsyncConnection, run_id: str) -> bool:
    """Take a run out of the queue; False if it was not queued any more."""
    still_queued = sa.and_(_RUN.c.id == run_id, _RUN.c.status == "QUEUED")
    return await changed(db, sa.delete(_RUN).where(still_queued)) == 1


async def delete_queue(db: AsyncConnection, session_id: str, *, but: Collection[str] = ()) -> int:
    """Empty the session's queue, except of runs with these triggers; how many were dropped."""
    dropped = sa.and_(_in_queue(session_id), _RUN.c.trigger.not_in(but))
    return await changed(db, sa.delete(_RUN).where(dropped))


async def _place(db: AsyncConnection, session_id: str, *, front: bool) -> int:
    """The place before or after all that wait; the caller has locked the session."""
    edge = sa.func.min(_RUN.c.queue_seq) if front else sa.func.max(_RUN.c.queue_seq)
    taken: int | None = await db.scalar(sa.select(edge).where(_in_queue(session_id)))
    return (taken or 0) + (-1 if front else 1)


def _in_queue(session_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(_RUN.c.session_id == session_id, _RUN.c.status == "QUEUED")


def _held_by(owner: str) -> sa.ColumnElement[bool]:
    return sa.and_(_RUN.c.lease_owner == owner, _RUN.c.status == "RUNNING")


async def _load(db: AsyncConnection, query: sa.Select[Any]) -> list[Run]:
    return [_decode(row) for row in (await db.execute(query)).mappings()]


def _encode(run: Run) -> dict[str, object]:
    row = {
        column.name: getattr(run, column.name) for column in _RUN.c if column.name != "input_json"
    }
    row["input_json"] = None if run.input is None else to_json(run.input)
    return row


def _decode(row: sa.RowMapping) -> Run:
    values: dict[str, Any] = dict(row)
    input_json = values.pop("input_json")
    return Run(**values, input=None if input_json is None else from_json(input_json, QueuedInput))
