"""What every way in shares: a message decoded at the edge, where it is submitted, and the way back.

The application implements `Inbox`, a platform implements `Surface`; neither sees more of the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from channels.events import Interrupt, OutcomeStatus, RunEvent

QUEUE_MAX = 20
"""Messages that may wait in one session; more would hardly still be meant when their turn comes."""

WhenBusy = Literal["queue", "steer", "reject"]
SubmittedState = Literal["started", "queued", "steered"]
Command = Literal["new", "stop", "status", "compact", "approve", "deny", "help"]
"""`/side` is none of them: it brings a message, `Inbound.is_sideline`."""
Decision = Literal["approve", "deny", "cancel"]
"""May it be done; no, go on without; no, and stop."""
Locale = Literal["zh-CN", "en"]


@dataclass(frozen=True, slots=True)
class InboundFile:
    """A file that is in the file store already."""

    file_id: str


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that the platform still holds; its run fetches it before anything else."""

    locator: str
    """What the surface needs to fetch it; nobody else reads it. It is stored, so no secrets."""
    name: str
    media_type: str
    """As far as the platform tells; `application/octet-stream` otherwise."""


@dataclass(frozen=True, slots=True)
class ChatAddress:
    """A conversation on a platform; binds to one session at a time."""

    platform: str
    app_id: str
    chat_id: str
    thread_id: str = ""
    """Of a topic; an ordinary reply is none."""

    @property
    def surface(self) -> str:
        """The name of the surface that serves it, of which there is one for each app."""
        return f"{self.platform}:{self.app_id}"


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
    sender: str = ""
    """Who wrote it, by name, as far as the platform tells; others are shown it."""
    message_id: str | None = None
    """Id the user message shall have; made where absent."""
    reply_to: str | None = None
    """What the surface needs to answer this very message; stored with the run."""
    files: Sequence[InboundFile] = ()
    remote_files: Sequence[RemoteFile] = ()
    when_busy: WhenBusy = "queue"
    is_sideline: bool = False
    """A side question: it gets a session of its own that begins with the history of this one."""
    from_message: str | None = None
    """Of a side question: the message up to which it sees the history; the last one if absent."""
    retry_of: str | None = None
    """Id of the user message to run again; `text` is ignored."""
    edit_of: str | None = None
    """Id of the user message that this one replaces."""
    model: str | None = None
    contract: Mapping[str, object] | None = None
    """The progress contract of its run, which only the application reads."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of an inbound message; the same keys get the same answer again."""

    session_id: str
    run_id: str
    state: SubmittedState
    position: int | None = None
    """Place in the queue, from 1, when queued."""
    duplicate: bool = False


class RunSink(Protocol):
    """Where a run puts its events; every surface reads from behind it."""

    def emit(self, event: RunEvent) -> None:
        """Take *event*; never blocks, never raises."""


class Inbox(Protocol):
    """Where a platform brings what it heard."""

    async def submit(self, inbound: Inbound) -> Submitted:
        """Store *inbound* and start, queue or steer its run; returns after the commit.

        Raises:
            InboxUnavailable: Nothing was kept; the platform should push the message again.
            InboxRefused: Nothing was kept and nothing will be; its text is for the person.
        """

    async def command(
        self,
        chat: ChatAddress,
        command: Command,
        keys: Sequence[str],
        sender: str,
        reply_to: str | None = None,
    ) -> str:
        """Do what a chat command says; the text to answer.

        *reply_to* as in `Inbound`, for a command that has a run of its own.

        Keys that were seen before do nothing again and give an empty text. Raises as `submit`.
        """

    async def note_late(self, chat: ChatAddress, keys: Sequence[str], reply_to: str) -> bool:
        """Keep that a message came too late to be run; returns after the commit.

        Its chat is told by `Surface.deliver` soon, once for all that came together.

        Args:
            reply_to: As in `Inbound`; the notice is told by `Turn.reach`.
        Returns:
            False if a message with any of *keys* was kept before.
        Raises:
            InboxUnavailable: Nothing was kept.
        """

    async def is_ready(self) -> bool:
        """Whether a message would be kept now."""

    async def cancel_run(self, run_id: str) -> bool:
        """Ask a run to stop; False if it is over or none."""

    async def decide(self, interrupt_id: str, decision: Decision, by: str, text: str = "") -> str:
        """Answer a question that a run waits for; the first answer counts.

        Args:
            by: Who pressed the button, by name.
            text: What he wrote, where the model asked for something.
        Returns:
            One line for him: what he did, or who was first.
        Raises as `submit`.
        """

    async def keep(self, run_id: str, handle: str) -> None:
        """Remember what the surface needs to find its card of this run after a crash.

        Raises:
            InboxUnavailable: Not kept.
        """


@dataclass(frozen=True, slots=True)
class Turn:
    """A run that a chat began, for the surface that shows it there."""

    session_id: str
    run_id: str
    chat: ChatAddress
    reply_to: str | None
    handle: str | None
    """What `Inbox.keep` got for this run before; present only after a restart."""
    locale: Locale
    label: str = ""
    """For the head of its card, where it is no ordinary answer: a side question, a task."""
    reach: str | None = None
    """With no `reply_to`: that of the chat's newest message, where its id alone is not enough."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a waiting run asks, as its card shows it."""

    interrupt: Interrupt
    verdict: str = ""
    """Who answered and how, in one line; empty while it is open and has buttons."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a run ended, to be told in its chat: exactly once, whatever dies in between."""

    id: str
    """The same in each try: a platform's own idempotency key is made of it."""
    attempt: int
    """From 1; above it an earlier try may have been half done."""
    turn: Turn
    status: OutcomeStatus
    code: str
    text: str
    """The reason, for people; empty when finished."""
    answer: str
    """The run's last words; may be empty."""
    questions: Sequence[Question] = ()
    """Of a waiting run. Told again, under another id, when they are answered."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file as the platform gave it."""

    data: bytes
    name: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Health:
    """How a channel is, for `/readyz` and the metrics."""

    platform: str
    app_id: str
    state: Literal["up", "degraded", "down"]
    reason: str = ""
    last_frame_seconds: float | None = None
    """Age of the last frame of the long connection; None before the first."""
    reconnects: int = 0
    duplicates: int = 0
    """Messages that were pushed again and recognised."""
    stale: int = 0
    """Messages that came too late to be run."""
    throttle_waits: int = 0
    acks: int = 0
    ack_seconds_max: float = 0.0
    """The slowest acknowledgement so far."""


@dataclass(frozen=True, slots=True)
class Check:
    """One look at what a bot needs, for the operator."""

    subject: str
    is_good: bool
    text: str
    """What was found; if it is not good, what to click or to set."""


class Surface(Protocol):
    """A platform as the application sees it."""

    def watch(self, turn: Turn) -> RunSink:
        """Show the run in its chat while it goes; how it ended comes by `deliver` alone.

        `RunSink.emit` gets every event of the run, the outcome too. Cheap: work is put into tasks
        of the channel. After a restart the same turn comes again, with its handle.
        """

    async def deliver(self, delivery: Delivery) -> None:
        """Tell how the run ended, on its card or as a message.

        Raises:
            DeliveryError: Not told; retryable or not.

        May be asked again for the same delivery after a crash; telling twice is avoided by the
        delivery's id where the platform knows such a thing.
        """

    def forget(self, turn: Turn) -> None:
        """Nothing more comes of the run: it was dropped before it began, or is told no more."""

    async def say(self, turn: Turn, text: str) -> None:
        """Show one line beside the run's card; best effort, never raises."""

    async def fetch(self, file: RemoteFile) -> Fetched:
        """Download a file.

        Raises:
            FetchError: It cannot be had; its text is for the person.
        """

    def health(self) -> Health:
        """How the channel is now."""
