"""What a session looks like now: its row, the run under way, the queue, what it cost."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from server.message import Usage
from server.store.approvals import Approval, approvals_of, open_approvals
from server.store.runs import Run, queued, running
from server.store.sessions import Session, children_of
from server.store.usage import session_usage


@dataclass(frozen=True, slots=True)
class RunState:
    """The run under way."""

    id: str
    cancelling: bool
    rounds: int


@dataclass(frozen=True, slots=True)
class QueueItem:
    """A message that waits for its run."""

    item_id: str
    text: str
    position: int
    """From 1."""
    paused: bool
    steer: bool
    """It joins the run under way at its next round."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """Everything about a session that is state and not history."""

    session: Session
    run: RunState | None
    queue: tuple[QueueItem, ...]
    usage: Usage
    approvals: tuple[Approval, ...] = ()
    """What the session waits for, or what the run under way goes on from."""
    children: tuple[Session, ...] = ()
    """Its side questions and subagents, newest first, as many as are shown."""


async def load_state(db: AsyncConnection, session: Session) -> SessionState:
    """The state of *session* as this transaction sees it."""
    active = await running(db, session.id)
    return SessionState(
        session=session,
        run=_run_state(active),
        queue=queue_items(await queued(db, session.id), paused=session.queue_paused),
        usage=await session_usage(db, session.id),
        approvals=tuple(await _approvals(db, session, active)),
        children=tuple(await children_of(db, session.id)),
    )


async def _approvals(db: AsyncConnection, session: Session, active: Run | None) -> list[Approval]:
    if active is not None and active.input is not None and active.input.resumes is not None:
        return await approvals_of(db, active.input.resumes)
    if session.status != "WAITING":
        return []
    waiting = await open_approvals(db, session.id)
    return await approvals_of(db, waiting[0].run_id) if waiting else []


def queue_items(waiting: Iterable[Run], *, paused: bool) -> tuple[QueueItem, ...]:
    """The queue as a person sees it."""
    return tuple(
        QueueItem(
            item_id=run.id,
            text=run.input.text if run.input is not None else "",
            position=position,
            paused=paused,
            steer=run.steer,
        )
        for position, run in enumerate(waiting, start=1)
    )


def _run_state(run: Run | None) -> RunState | None:
    return None if run is None else RunState(run.id, run.cancel_requested, run.rounds)
