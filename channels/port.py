"""What every way in shares: a message decoded at the edge, and where it is submitted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from channels.events import RunEvent

QUEUE_MAX = 20
"""Messages that may wait in one session; more would hardly still be meant when their turn comes."""

WhenBusy = Literal["queue", "steer", "reject"]
SubmittedState = Literal["started", "queued", "steered"]


@dataclass(frozen=True, slots=True)
class InboundFile:
    """A file that is in the file store already."""

    file_id: str


@dataclass(frozen=True, slots=True)
class ChatAddress:
    """A conversation on a platform; binds to one session at a time."""

    platform: str
    app_id: str
    chat_id: str
    thread_id: str = ""


@dataclass(frozen=True, slots=True)
class Inbound:
    """One message of a person, whatever way it came."""

    origin: str
    """The surface: `web`, `agui`, `feishu`, `dingtalk`, `schedule`, …"""
    text: str
    keys: Sequence[str]
    """Idempotency keys of the edge: any of them seen before means the same message."""
    session_id: str | None = None
    chat: ChatAddress | None = None
    """Finds or makes the session where `session_id` is absent."""
    owner: str | None = None
    """User the session belongs to if it is made now."""
    message_id: str | None = None
    """Id the user message shall have; made where absent."""
    files: Sequence[InboundFile] = ()
    when_busy: WhenBusy = "queue"
    retry_of: str | None = None
    """Id of the user message to run again; `text` is ignored."""
    edit_of: str | None = None
    """Id of the user message that this one replaces."""
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of an inbound message; the same keys get the same answer again."""

    session_id: str
    run_id: str
    state: SubmittedState
    position: int | None = None
    """Place in the queue, from 1, when queued."""
    duplicate: bool = False


class Inbox(Protocol):
    """Where every edge brings what it heard."""

    async def submit(self, inbound: Inbound) -> Submitted:
        """Store *inbound* and start, queue or steer its run; returns after the commit.

        Raises whatever the application raises for an unknown session, a full queue, a busy
        session under `reject`, or a store that does not answer; nothing was kept then.
        """

    async def cancel(self, session_id: str, run_id: str | None, by: str) -> bool:
        """Ask the session's run to stop; False if there is none (or another than *run_id*)."""


class RunSink(Protocol):
    """Where a run puts its events; every surface reads from behind it."""

    def emit(self, event: RunEvent) -> None:
        """Append *event* to the session's log; never blocks."""
