"""What the end of a scheduled run means for its task: state, failures in a row, delivery.

All of it is written in the transaction of the run's outcome. Where an answer is told, and whether
that worked, is kept apart from how the run ended.
"""

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.events import Outcome
from channels.port import ChatAddress
from server import task_sentences as sentences
from server.delivery import insert_delivery
from server.errors import NotFound
from server.outcome import RUN_STATUS
from server.settings import ADMIN
from server.store.chats import bind_free_chat, bound_session
from server.store.ids import new_id
from server.store.runs import Run
from server.store.sessions import Session, delete_session, insert_session, load_session
from server.store.task_runs import (
    TaskRun,
    TaskRunStatus,
    close_task_run,
    find_task_run,
    set_delivery,
    settle_delivery,
)
from server.store.tasks import ScheduledTask, ToChat, ToSession, load_task, save_task

log = logging.getLogger(__name__)

CHAT_KIND: Final = "chat"
"""Of the sessions that chats speak to: their queue goes on after a failure, for nobody looks at a
page."""


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """What the end of a run was for its task."""

    status: TaskRunStatus
    is_paused_now: bool
    """It was one failure too many."""
    told_in: str | None
    """The session that has something new to tell, for `RunSignals.advance`."""


@dataclass(frozen=True, slots=True)
class _End:
    """A scheduled run that ends in this transaction."""

    task: ScheduledTask
    """As the end leaves it."""
    task_run: TaskRun
    run: Run
    session: Session
    outcome: Outcome
    is_paused_now: bool
    now: datetime


async def end_task_run(
    db: AsyncConnection, run: Run, session: Session, outcome: Outcome, answer: str, now: datetime
) -> TaskEnd | None:
    """Write what the end of *run* means for the task that it belongs to; None if to none.

    Args:
        session: Of kind `scheduled`; a person may have talked on in it, which is no task's run.
        answer: What it said last; of one that was stopped, with how far it came.
    """
    resumed = run.input.resumes if run.input is not None else None
    task_run = await find_task_run(db, [run.id] if resumed is None else [run.id, resumed])
    if task_run is None or task_run.status not in ("RUNNING", "WAITING"):
        return None
    before = await load_task(db, task_run.task_id, lock=True)
    after = _counted(before, session, outcome, now)
    await save_task(db, before, after)
    status = RUN_STATUS[outcome.status]
    reason = outcome.text if outcome.status == "failed" else None
    await close_task_run(db, task_run, status, reason, now, run_id=run.id)
    is_paused_now = after.status != before.status
    end = _End(after, task_run, run, session, outcome, is_paused_now, now)
    log.info(
        "[schedule] ended task=%s run=%s status=%s failures=%d",
        after.id,
        run.id,
        status,
        after.failures_in_row,
    )
    return TaskEnd(status, is_paused_now, await _tell(db, end, answer))


async def settle_task_delivery(
    db: AsyncConnection,
    run_id: str | None,
    *,
    is_delivered: bool,
    refused_for_good: str | None = None,
) -> None:
    """Note how the delivery by this run ended, if it was a task's.

    Args:
        refused_for_good: Why nothing can be told there any more, for people: the task stops
            trying, with this as the reason, until somebody resumes it or sends it elsewhere.
    """
    if run_id is None:
        return
    task_id = await settle_delivery(db, run_id, "DELIVERED" if is_delivered else "UNDELIVERABLE")
    if task_id is None or refused_for_good is None:
        return
    task = await load_task(db, task_id, lock=True)
    await save_task(db, task, replace(task, held_reason=refused_for_good))
    log.warning("[schedule] deliveries held task=%s run=%s", task_id, run_id)


def _counted(
    task: ScheduledTask, session: Session, outcome: Outcome, now: datetime
) -> ScheduledTask:
    """The task after this outcome: a stop and a question neither count nor clear."""
    if outcome.status == "finished":
        return replace(task, failures_in_row=0)
    if outcome.status != "failed":
        return task
    count = task.failures_in_row + 1
    counted = replace(task, failures_in_row=count)
    if task.status != "ACTIVE" or count < task.failure_limit:
        return counted
    reason = sentences.paused_reason(session.locale, outcome.text, count)
    log.warning("[schedule] paused task=%s failures=%d code=%s", task.id, count, outcome.code)
    return replace(counted, status="PAUSED", paused_reason=reason, next_at=None, updated_at=now)


async def _tell(db: AsyncConnection, end: _End, answer: str) -> str | None:
    """Queue what there is to tell where the task wants it; the id of that session."""
    text = _text(end, answer)
    if text is None:
        return None
    told_in = await _deliver(db, end, text) if end.task.target is not None else None
    if told_in is None and end.is_paused_now:
        told_in = await _tell_owner(db, end)
    return told_in


def _text(end: _End, answer: str) -> str | None:
    """What is told; None if nothing is."""
    locale, title, outcome = end.session.locale, end.task.title, end.outcome
    match outcome.status:
        case "finished":
            if answer.strip():
                return answer
            return None if end.task.is_quiet else sentences.no_content(locale, title)
        case "waiting":
            questions = [one.message for one in outcome.interrupts]
            return sentences.waiting(locale, title, questions, end.session.id)
        case "cancelled":
            return None
        case "failed":
            parts = [sentences.failed(locale, title, outcome.text), answer]
            parts += [_paused_text(end)] if end.is_paused_now else []
            return "\n\n".join(filter(None, parts))


def _paused_text(end: _End) -> str:
    return sentences.paused(end.session.locale, end.task.title, end.task.failures_in_row)


async def _deliver(db: AsyncConnection, end: _End, text: str) -> str | None:
    """Queue *text* where the task's answers go; the id of that session, None if it cannot be."""
    try:
        if end.task.held_reason is None:
            target = await _target(db, end)
            key = f"task:{end.task.id}:{end.run.id}"
            run_id = await insert_delivery(db, target, text, key, label=end.task.title)
            await set_delivery(db, end.task_run, run_id, "PENDING")
            return target.id
    except NotFound:
        log.warning("[schedule] nowhere to tell task=%s run=%s", end.task.id, end.run.id)
    await set_delivery(db, end.task_run, None, "UNDELIVERABLE")
    return None


async def _tell_owner(db: AsyncConnection, end: _End) -> str:
    """Say in a session made for it that the task is paused, where its owner will see it."""
    title = sentences.paused_title(end.session.locale, end.task.title)
    session = await _make_session(db, end, "main", "web", end.task.owner, title)
    text = f"{_paused_text(end)}\n\n{end.outcome.text}"
    await insert_delivery(db, session, text, f"task-paused:{end.task.id}:{end.run.id}")
    return session.id


async def _target(db: AsyncConnection, end: _End) -> Session:
    """The session where it is told; `NotFound` if that is gone, or not the owner's."""
    match end.task.target:
        case ToSession(session_id):
            session = await load_session(db, session_id)
            if end.task.owner not in (session.owner, ADMIN):
                raise NotFound("the session is somebody else's")
            return session
        case ToChat(chat):
            return await _chat_session(db, end, chat)
        case None:
            raise NotFound("the task tells nobody")


async def _chat_session(db: AsyncConnection, end: _End, chat: ChatAddress) -> Session:
    """The session that the chat speaks to, made where there is none."""
    known = await bound_session(db, chat)
    if known is not None:
        return await load_session(db, known)
    session = await _make_session(db, end, CHAT_KIND, chat.platform, chat.surface, None)
    bound = await bind_free_chat(db, chat, session.id, end.now)
    if bound == session.id:
        return session
    await delete_session(db, session.id, end.now)
    return await load_session(db, bound)


async def _make_session(
    db: AsyncConnection, end: _End, kind: str, origin: str, owner: str, title: str | None
) -> Session:
    session = Session(
        id=new_id(),
        kind=kind,
        title=title,
        status="IDLE",
        parent_session_id=None,
        owner=owner,
        origin=origin,
        model=None,
        locale=end.session.locale,
        timezone=end.session.timezone,
        external_id=None,
        queue_paused=False,
        execution_error=None,
        created_at=end.now,
        updated_at=end.now,
    )
    await insert_session(db, session)
    return session
