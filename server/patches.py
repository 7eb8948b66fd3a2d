"""Changes of a session as the board has them: the keys of its object with their new values.

The values are the ones that answers have, so a client reads both alike.
"""

from collections.abc import Iterable

from server.message import Usage
from server.session_state import QueueItem, RunState
from server.store.approvals import Approval
from server.store.sessions import ExecutionError, Session, Undelivered
from server.ws.objects import (
    approval_object,
    child_object,
    error_object,
    queue_object,
    run_object,
    undelivered_object,
    usage_object,
)


def status_patch(status: str, error: ExecutionError | None) -> dict[str, object]:
    """The change of a session's status."""
    return {"status": status, "executionError": error_object(error)}


def undelivered_patch(undelivered: Undelivered | None) -> dict[str, object]:
    """That a chat could not be told."""
    return {"undelivered": undelivered_object(undelivered)}


def run_patch(run: RunState | None) -> dict[str, object]:
    """The run that is under way now."""
    return {"run": run_object(run)}


def queue_patch(items: Iterable[QueueItem]) -> dict[str, object]:
    """The queue as it is now."""
    return {"queue": [queue_object(item) for item in items]}


def approvals_patch(approvals: Iterable[Approval]) -> dict[str, object]:
    """What is asked, and what was answered of it."""
    return {"approvals": [approval_object(approval) for approval in approvals]}


def children_patch(children: Iterable[Session]) -> dict[str, object]:
    """The sessions that stand under one."""
    return {"children": [child_object(child) for child in children]}


def usage_patch(usage: Usage) -> dict[str, object]:
    """What the session cost so far."""
    return {"usage": usage_object(usage)}
