"""Writes how a run ended: one transaction holds every fact, and what each surface must be told."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.events import Outcome
from server.message import Usage
from server.outcome import RUN_STATUS
from server.session_state import QueueItem, queue_items
from server.store.engine import Store
from server.store.ids import new_id
from server.store.outbox import OutboxItem, insert_outbox
from server.store.runs import Run, finish_run, has_ended, queued, requeue_front
from server.store.sessions import (
    ExecutionError,
    Session,
    load_session,
    set_queue_paused,
    set_status,
)
from server.store.usage import session_usage


@dataclass(frozen=True, slots=True)
class Written:
    """The session after a run's end, as it was written."""

    session: Session
    queue: tuple[QueueItem, ...]
    usage: Usage


async def write_ending(store: Store, run: Run, outcome: Outcome) -> Written:
    """Write the outcome of *run*, unless this attempt has written one already.

    Raises:
        Fenced: Another process has the run now.
        StoreUnavailable: The store did not say that it was written; asking again is safe.
    """
    async with store.write() as db:
        if not await has_ended(db, run.id, run.attempt):
            await _write(db, run, outcome, datetime.now(UTC))
        session = await load_session(db, run.session_id)
        return Written(
            session=session,
            queue=queue_items(await queued(db, session.id), paused=session.queue_paused),
            usage=await session_usage(db, session.id),
        )


async def _write(db: AsyncConnection, run: Run, outcome: Outcome, now: datetime) -> None:
    status = RUN_STATUS[outcome.status]
    await finish_run(
        db, run.id, run.attempt, status, outcome.code, outcome.text, outcome.rounds, now
    )
    await set_status(db, run.session_id, status, error=_error_of(outcome, now), now=now)
    await _return_steered(db, run.session_id)
    session = await load_session(db, run.session_id)
    is_held = outcome.status in ("failed", "cancelled") and session.kind != "chat"
    if is_held and await queued(db, session.id):
        await set_queue_paused(db, session.id, True)
    await insert_outbox(db, _outbox_item(run, session, outcome, now))


async def _return_steered(db: AsyncConnection, session_id: str) -> None:
    """Messages that came too late to join are next in the queue, in their order."""
    late = [run for run in await queued(db, session_id) if run.steer]
    for run in reversed(late):
        await requeue_front(db, run.id)


def _error_of(outcome: Outcome, now: datetime) -> ExecutionError | None:
    if outcome.status != "failed":
        return None
    return ExecutionError(
        code=outcome.code,
        message=outcome.text,
        retryable=outcome.retryable,
        run_id=outcome.run_id,
        at=now,
    )


def _surface_of(run: Run, session: Session) -> str:
    if run.input is None:
        return session.origin
    return run.input.chat.surface if run.input.chat is not None else run.input.origin


def _outbox_item(run: Run, session: Session, outcome: Outcome, now: datetime) -> OutboxItem:
    """What the surface that the message came by is told; it names the run, not its words."""
    return OutboxItem(
        id=new_id(),
        session_id=session.id,
        run_id=run.id,
        surface=_surface_of(run, session),
        kind="outcome",
        payload={"status": outcome.status, "code": outcome.code},
        status="PENDING",
        attempts=0,
        error=None,
        created_at=now,
        due_at=now,
    )
