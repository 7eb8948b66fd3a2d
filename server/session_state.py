"""What a session looks like now: its row, the run under way, the queue, what it cost."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from server.message import Usage
from server.store.approvals import Approval, approvals_of, open_approvals
from server.store.runs import Run, queued, running
from server.store.sessions import ExecutionError, Session, Undelivered, children_of
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


def status_patch(status: str, error: ExecutionError | None) -> dict[str, object]:
    """The change of a session's status, ready for the board."""
    return {"status": status, "executionError": error_object(error)}


def undelivered_patch(undelivered: Undelivered | None) -> dict[str, object]:
    """That a chat could not be told, ready for the board."""
    if undelivered is None:
        return {"undelivered": None}
    return {
        "undelivered": {
            "surface": undelivered.surface,
            "reason": undelivered.reason,
            "runId": undelivered.run_id,
            "at": undelivered.at.isoformat(),
        }
    }


def run_patch(run: RunState | None) -> dict[str, object]:
    """The run that is under way now, ready for the board."""
    shown = None if run is None else {"id": run.id, "cancelling": run.cancelling}
    return {"run": shown}


def queue_patch(items: Iterable[QueueItem]) -> dict[str, object]:
    """The queue as it is now, ready for the board."""
    return {
        "queue": [
            {
                "itemId": item.item_id,
                "text": item.text,
                "position": item.position,
                "paused": item.paused,
                "steer": item.steer,
            }
            for item in items
        ]
    }


def approvals_patch(approvals: Iterable[Approval]) -> dict[str, object]:
    """What is asked, and what was answered of it, ready for the board."""
    return {"approvals": [_approval_entry(approval) for approval in approvals]}


def _approval_entry(approval: Approval) -> dict[str, object]:
    asked = approval.interrupt
    entry: dict[str, object] = {
        "id": asked.id,
        "runId": approval.run_id,
        "toolCallId": asked.call_id,
        "toolName": asked.tool_name,
        "reason": asked.reason,
        "message": asked.message,
        "status": approval.status,
        "createdAt": approval.created_at.isoformat(),
        "arguments": asked.arguments,
        "options": list(asked.options),
    }
    if asked.expires_at is not None:
        entry["expiresAt"] = asked.expires_at.isoformat()
    if approval.answered_by is not None:
        entry["answeredBy"] = approval.answered_by
    if approval.answered_at is not None:
        entry["answeredAt"] = approval.answered_at.isoformat()
    return entry


def children_patch(children: Iterable[Session]) -> dict[str, object]:
    """The sessions that stand under one, ready for the board."""
    return {
        "children": [
            {
                "id": child.id,
                "kind": child.kind,
                "title": child.title,
                "status": child.status,
                "updatedAt": child.updated_at.isoformat(),
            }
            for child in children
        ]
    }


def usage_patch(usage: Usage) -> dict[str, object]:
    """What the session cost so far, ready for the board."""
    return {
        "usage": {
            "promptTokens": usage.prompt_tokens,
            "cachedTokens": usage.cached_tokens,
            "completionTokens": usage.completion_tokens,
        }
    }


def error_object(error: ExecutionError | None) -> dict[str, object] | None:
    """Why the last run failed, as clients read it."""
    if error is None:
        return None
    return {
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
        "runId": error.run_id,
        "at": error.at.isoformat(),
    }
