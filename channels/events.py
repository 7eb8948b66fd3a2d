"""The closed union of run events that every surface renders.

A run is `RunStarted`, then rounds, then exactly one `Outcome`. Ids of texts, reasonings and calls
are unique in the session. Closing events always come before the event that needs them closed, so
a surface never repairs the sequence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

OutcomeStatus = Literal["finished", "waiting", "failed", "cancelled"]
InterruptReason = Literal["tool_call", "input_required"]
"""May this be done; or: the model asks a person for something."""


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file that goes with a person's message."""

    file_id: str
    name: str
    media_type: str


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins, or goes on after a restart under the same id."""

    run_id: str
    message_id: str | None
    """The user message that began it."""
    text: str
    files: Sequence[AttachedFile] = ()
    history_seq: int = 0
    """Messages stored up to this `seq` are history; the run's events repeat nothing of them."""
    attempt: int = 1
    parent_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """The model is about to be asked."""

    number: int
    """From 1."""


@dataclass(frozen=True, slots=True)
class RoundFinished:
    """The round is stored."""

    number: int


@dataclass(frozen=True, slots=True)
class TextStarted:
    """The model begins to speak."""

    message_id: str


@dataclass(frozen=True, slots=True)
class TextAdded:
    """More of an open text."""

    message_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class TextFinished:
    """The text is whole."""

    message_id: str


@dataclass(frozen=True, slots=True)
class ReasoningStarted:
    """The model begins to think."""

    message_id: str


@dataclass(frozen=True, slots=True)
class ReasoningAdded:
    """More of an open thought."""

    message_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class ReasoningFinished:
    """The thought is whole."""

    message_id: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model begins to ask for a tool."""

    call_id: str
    tool_name: str
    message_id: str
    """The assistant message that asks."""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of an open call's arguments."""

    call_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The call is whole; its tool has not run yet."""

    call_id: str


@dataclass(frozen=True, slots=True)
class CallProgress:
    """A line of progress from inside a long call; the last one wins."""

    call_id: str
    tool_name: str
    text: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call gave back, as the model sees it."""

    message_id: str
    call_id: str
    tool_name: str
    content: str
    is_error: bool = False
    duration_ms: int = 0
    truncated: bool = False
    exit_code: int | None = None
    picture_file_id: str | None = None
    picture_media_type: str | None = None


@dataclass(frozen=True, slots=True)
class SubagentStarted:
    """A call waits for a run of another session, which has its own log."""

    run_id: str
    """The child's run."""
    session_id: str
    """The child."""
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class SubagentFinished:
    """The child's run ended well."""

    run_id: str


@dataclass(frozen=True, slots=True)
class SubagentFailed:
    """The child's run failed or was stopped; the run that waited goes on."""

    run_id: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class UserJoined:
    """A steered message became part of the run, at the boundary where the model sees it."""

    message_id: str
    text: str
    files: Sequence[AttachedFile] = ()


@dataclass(frozen=True, slots=True)
class Compaction:
    """The history is being made shorter, or has been."""

    activity_id: str
    state: Literal["started", "finished", "failed"]
    dropped_messages: int = 0


@dataclass(frozen=True, slots=True)
class Discarded:
    """A model attempt broke off; what was shown of it is withdrawn. Its parts are closed."""

    message_ids: Sequence[str]
    call_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A question to a person, without whose answer the session does not go on."""

    id: str
    call_id: str
    """The call that waits for it."""
    tool_name: str
    reason: InterruptReason
    message: str
    """The question, for people."""
    arguments: str = ""
    """What the call was to do, as the model wrote it: shown to who decides, and nowhere else."""
    options: Sequence[str] = ()
    """Answers that the model suggests."""
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended; always the last event, and only after it was stored."""

    run_id: str
    status: OutcomeStatus
    code: str
    """`completed`, `cancelled`, `no_progress_loop`, …"""
    text: str = ""
    """What a person is told; empty when finished."""
    retryable: bool = False
    rounds: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""
    metadata: Mapping[str, str | int] = field(default_factory=dict)
    interrupts: Sequence[Interrupt] = ()
    """What a waiting run waits for."""


RunEvent = (
    RunStarted
    | RoundStarted
    | RoundFinished
    | TextStarted
    | TextAdded
    | TextFinished
    | ReasoningStarted
    | ReasoningAdded
    | ReasoningFinished
    | CallStarted
    | CallArguments
    | CallFinished
    | CallProgress
    | CallResult
    | SubagentStarted
    | SubagentFinished
    | SubagentFailed
    | UserJoined
    | Compaction
    | Discarded
    | Outcome
)
