"""The objects in frames and REST answers: a session, a message, and what they consist of.

`*_object` functions make them from the application's values.
"""

from datetime import UTC, datetime
from typing import Literal, cast

from msgspec import UNSET, Struct, UnsetType

from server.agui import file_url
from server.contract import ProgressContract, read_contract
from server.message import FilePart, Message, TextPart, Usage
from server.session_state import QueueItem, RunState, SessionState
from server.store.approvals import Approval
from server.store.sessions import ExecutionError, Session, Undelivered

SessionStatus = Literal["IDLE", "QUEUED", "RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED"]


class Wire(Struct, frozen=True, rename="camel"):
    """Base of what is always sent whole."""


class Sparse(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of what leaves out the fields that say nothing."""


class UsageObject(Wire, frozen=True):
    """Tokens, added up."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class ErrorObject(Wire, frozen=True):
    """Why a session's last run failed."""

    code: str
    message: str
    retryable: bool
    run_id: str
    at: datetime


class UndeliveredObject(Wire, frozen=True):
    """That the end of a run could not be told in the chat that began it."""

    surface: str
    reason: str
    run_id: str
    at: datetime


class RunObject(Wire, frozen=True):
    """The run that a session has now."""

    id: str
    cancelling: bool
    rounds: int


class QueueObject(Wire, frozen=True):
    """A message that waits."""

    item_id: str
    text: str
    position: int
    paused: bool
    steer: bool


class ApprovalObject(Wire, frozen=True, omit_defaults=True):
    """A question that a waiting run put to a person, or put before and got answered."""

    id: str
    run_id: str
    tool_call_id: str
    tool_name: str
    reason: Literal["tool_call", "input_required"]
    message: str
    status: Literal["OPEN", "APPROVED", "DENIED", "ANSWERED", "CANCELLED", "EXPIRED"]
    created_at: datetime
    arguments: str = ""
    options: list[str] = []
    expires_at: datetime | UnsetType = UNSET
    answered_by: str | UnsetType = UNSET
    answered_at: datetime | UnsetType = UNSET


class ChildObject(Wire, frozen=True):
    """A session that stands under another: a side question, a subagent."""

    id: str
    kind: str
    title: str | None
    status: SessionStatus
    updated_at: datetime


class SessionObject(Wire, frozen=True):
    """A session, in REST and as the answer to `session.create`."""

    id: str
    kind: str
    title: str | None
    status: SessionStatus
    execution_error: ErrorObject | None
    undelivered: UndeliveredObject | None
    parent: str | None
    run: RunObject | None
    usage: UsageObject
    owner: str
    origin: str
    model: str | None
    contract: ProgressContract | None
    """Of its later runs."""
    created_at: datetime
    updated_at: datetime


class TextObject(Wire, frozen=True, tag="text"):
    """A piece of text in a message."""

    text: str


class FileObject(Wire, frozen=True, tag="file"):
    """A file that goes with a message."""

    file_id: str
    name: str
    media_type: str
    size_bytes: int
    url: str


class FunctionObject(Wire, frozen=True):
    """What a call asked for."""

    name: str
    arguments: str
    """As the model wrote them; it may not be JSON."""


class CallObject(Wire, frozen=True):
    """One call of an assistant message, in AG-UI's shape."""

    id: str
    function: FunctionObject
    type: Literal["function"] = "function"


class PictureObject(Wire, frozen=True):
    """The picture that came with a tool's result."""

    file_id: str
    media_type: str
    url: str


class MessageObject(Sparse, frozen=True):
    """A stored message: AG-UI's shape, and beside it what a page shows."""

    id: str
    seq: int
    role: Literal["user", "assistant", "tool"]
    content: str | list[TextObject | FileObject]
    created_at: datetime
    run_id: str | UnsetType = UNSET
    tool_calls: list[CallObject] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    picture: PictureObject | UnsetType = UNSET
    usage: UsageObject | UnsetType = UNSET
    is_error: bool = False
    synthetic: bool = False
    """No person wrote it: a summary, a note of the harness."""
    summary: bool = False
    """It stands for the messages before it."""
    duration_ms: int = 0


def usage_object(usage: Usage) -> UsageObject:
    """*usage* as clients see it."""
    return UsageObject(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)


def error_object(error: ExecutionError | None) -> ErrorObject | None:
    """*error* as clients see it."""
    if error is None:
        return None
    at = error.at.astimezone(UTC)
    return ErrorObject(error.code, error.message, error.retryable, error.run_id, at)


def run_object(run: RunState | None) -> RunObject | None:
    """*run* as clients see it."""
    return None if run is None else RunObject(run.id, run.cancelling, run.rounds)


def queue_object(item: QueueItem) -> QueueObject:
    """*item* as clients see it."""
    return QueueObject(item.item_id, item.text, item.position, item.paused, item.steer)


def approval_object(approval: Approval) -> ApprovalObject:
    """*approval* as clients see it."""
    asked = approval.interrupt
    return ApprovalObject(
        id=asked.id,
        run_id=approval.run_id,
        tool_call_id=asked.call_id,
        tool_name=asked.tool_name,
        reason=asked.reason,
        message=asked.message,
        status=approval.status,
        created_at=approval.created_at,
        arguments=asked.arguments,
        options=list(asked.options),
        expires_at=asked.expires_at or UNSET,
        answered_by=approval.answered_by or UNSET,
        answered_at=approval.answered_at or UNSET,
    )


def child_object(child: Session) -> ChildObject:
    """*child* as clients see it with its parent."""
    status = status_of(child.status)
    return ChildObject(child.id, child.kind, child.title, status, child.updated_at)


def session_object(state: SessionState) -> SessionObject:
    """*state* as clients see it."""
    session = state.session
    return SessionObject(
        id=session.id,
        kind=session.kind,
        title=session.title,
        status=status_of(session.status),
        execution_error=error_object(session.execution_error),
        undelivered=undelivered_object(session.undelivered),
        parent=session.parent_session_id,
        run=run_object(state.run),
        usage=usage_object(state.usage),
        owner=session.owner,
        origin=session.origin,
        model=session.model,
        contract=read_contract(session.contract_json),
        created_at=session.created_at,
        updated_at=session.updated_at,
    )


def undelivered_object(found: Undelivered | None) -> UndeliveredObject | None:
    """What could not be told, as clients see it."""
    if found is None:
        return None
    return UndeliveredObject(found.surface, found.reason, found.run_id, found.at.astimezone(UTC))


def status_of(status: str) -> SessionStatus:
    """*status*, which the store keeps as text, as one of the known ones."""
    return cast(SessionStatus, status)  # the application writes no others


def message_object(message: Message) -> MessageObject:
    """*message* as clients see it."""
    picture, evidence, usage = message.picture, message.evidence, message.usage
    return MessageObject(
        id=message.id,
        seq=message.seq,
        role=message.role,
        content=_content_object(message),
        created_at=message.created_at,
        run_id=message.run_id or UNSET,
        tool_calls=[
            CallObject(call.id, FunctionObject(call.name, call.arguments))
            for call in message.tool_calls
        ]
        or UNSET,
        tool_call_id=message.tool_call_id or UNSET,
        reasoning=message.reasoning or UNSET,
        picture=UNSET
        if picture is None
        else PictureObject(picture.file_id, picture.media_type, file_url(picture.file_id)),
        usage=UNSET if usage is None else usage_object(usage),
        is_error=message.is_error,
        synthetic=message.synthetic,
        summary=message.summary_of is not None,
        duration_ms=message.model_ms if evidence is None else evidence.elapsed_ms,
    )


def _content_object(message: Message) -> str | list[TextObject | FileObject]:
    if isinstance(message.content, str):
        return message.content
    return [_part_object(part) for part in message.content]


def _part_object(part: TextPart | FilePart) -> TextObject | FileObject:
    if isinstance(part, TextPart):
        return TextObject(part.text)
    return FileObject(
        part.file_id, part.name, part.media_type, part.size_bytes, file_url(part.file_id)
    )
