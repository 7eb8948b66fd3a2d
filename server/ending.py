"""Writes how a run ended: one transaction holds every fact, and what each surface must be told."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.events import Outcome
from server.begin import is_asked
from server.delegate import children_to_stop, end_child
from server.delivery import DELIVER
from server.message import Message, Usage
from server.outcome import RUN_STATUS
from server.session_state import QueueItem, queue_items
from server.store.approvals import Approval, insert_approvals, open_approvals
from server.store.engine import Store
from server.store.ids import new_id
from server.store.messages import append_messages, load_message, message_exists
from server.store.messages import last_words as last_words_of
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
from server.task_ending import TaskEnd, end_task_run, settle_task_delivery

HELD_KINDS: Final = frozenset({"main", "sideline"})
"""Sessions with a page on which a person sees that their queue is held."""


@dataclass(frozen=True, slots=True)
class Written:
    """The session after a run's end, as it was written."""

    session: Session
    queue: tuple[QueueItem, ...]
    usage: Usage
    approvals: tuple[Approval, ...] = ()
    task: TaskEnd | None = None
    """What it was for the task that the run belongs to."""
    stop: tuple[str, ...] = ()
    """Sessions whose run is to be stopped with this one."""
    last_messages: tuple[Message, ...] = ()
    """What the end itself says in the session."""


async def write_ending(
    store: Store, run: Run, outcome: Outcome, last_words: Message | None = None
) -> Written:
    """Write the outcome of *run*, unless this attempt has written one already.

    Args:
        last_words: What the run says at its end by itself, for its history.
    Raises:
        Fenced: Another process has the run now.
        StoreUnavailable: The store did not say that it was written; asking again is safe.
    """
    async with store.write() as db:
        if await has_ended(db, run.id, run.attempt):
            follows = _Follows(last_messages=await _stored(db, last_words))
        else:
            follows = await _write(db, run, outcome, last_words, datetime.now(UTC))
        session = await load_session(db, run.session_id)
        return Written(
            session=session,
            queue=queue_items(await queued(db, session.id), paused=session.queue_paused),
            usage=await session_usage(db, session.id),
            approvals=tuple(await open_approvals(db, session.id)),
            task=follows.task,
            stop=follows.stop,
            last_messages=follows.last_messages,
        )


@dataclass(frozen=True, slots=True)
class _Follows:
    """What an end brings about; a crash that swallows it is made up for by looks at the store."""

    task: TaskEnd | None = None
    stop: tuple[str, ...] = ()
    last_messages: tuple[Message, ...] = ()


async def _stored(db: AsyncConnection, message: Message | None) -> tuple[Message, ...]:
    """What an earlier try wrote of *message*, whose commit was not acknowledged."""
    if message is None or not await message_exists(db, message.id):
        return ()
    return ((await load_message(db, message.id))[1],)


async def _write(
    db: AsyncConnection, run: Run, outcome: Outcome, last_words: Message | None, now: datetime
) -> _Follows:
    status = RUN_STATUS[outcome.status]
    await finish_run(
        db, run.id, run.attempt, status, outcome.code, outcome.text, outcome.rounds, now
    )
    if run.trigger != DELIVER or outcome.status == "failed":
        await set_status(db, run.session_id, status, error=_error_of(outcome, now), now=now)
    await _return_steered(db, run.session_id)
    session = await load_session(db, run.session_id)
    is_held = outcome.status in ("failed", "cancelled") and session.kind in HELD_KINDS
    if is_held and is_asked(await queued(db, session.id)):
        await set_queue_paused(db, session.id, True)
    if outcome.interrupts:
        await insert_approvals(db, session.id, run.id, outcome.interrupts, now)
    if not await owe_chat(db, run, outcome.status, outcome.code, now) and run.trigger == DELIVER:
        # Whoever looks at the session sees it there: nobody has to be told.
        await settle_task_delivery(db, run.id, is_delivered=outcome.status == "finished")
    return await _follow(db, run, session, outcome, last_words, now)


async def _follow(
    db: AsyncConnection,
    run: Run,
    session: Session,
    outcome: Outcome,
    last_words: Message | None,
    now: datetime,
) -> _Follows:
    """What others have to do with the end: who asked for the run, and who works for it."""
    said = [last_words] if last_words is not None else []
    last_messages = await append_messages(db, session.id, said)
    task: TaskEnd | None = None
    stop: list[str] = []
    if session.kind == "subagent":
        failure = await end_child(db, run, session, outcome, now)
        last_messages += await append_messages(db, session.id, [failure] if failure else [])
    if session.kind == "scheduled":
        answer = await last_words_of(db, run.id)
        task = await end_task_run(db, run, session, outcome, answer, now)
    if outcome.status in ("failed", "cancelled"):
        stop = await children_to_stop(db, run.id, now)
    return _Follows(task, tuple(stop), tuple(last_messages))


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


async def owe_chat(db: AsyncConnection, run: Run, status: str, code: str, now: datetime) -> bool:
    """Owe the chat that *run* came by the news of it; False if it came by none.

    The item names the run, not its words. Pages and clients watch the session itself.
    """
    chat = run.input.chat if run.input is not None else None
    if chat is None:
        return False
    item = OutboxItem(
        id=new_id(),
        session_id=run.session_id,
        run_id=run.id,
        surface=chat.surface,
        kind="outcome",
        payload={"status": status, "code": code},
        status="PENDING",
        attempts=0,
        error=None,
        created_at=now,
        due_at=now,
    )
    await insert_outbox(db, item)
    return True
