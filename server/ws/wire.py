"""The JSON of the client protocol: frames, params, results, and the objects in them.

Structs are the contract: requests are checked against them, and `schema` publishes them. Unknown
fields and unknown kinds of frame are ignored, so a newer client can speak to an older server.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from pydantic import TypeAdapter

from server.contract import ProgressContract
from server.ws.objects import (
    ApprovalObject,
    ChildObject,
    ErrorObject,
    MessageObject,
    QueueObject,
    RunObject,
    SessionObject,
    SessionStatus,
    Sparse,
    UndeliveredObject,
    UsageObject,
    Wire,
)
from server.ws.objects import message_object as message_object
from server.ws.objects import session_object as session_object

PROTOCOL = 1
SUBPROTOCOL = "agent.v1"

ErrorCode = Literal[
    "bad_request",
    "unauthenticated",
    "forbidden",
    "not_found",
    "busy",
    "queue_full",
    "steer_unavailable",
    "interrupts_pending",
    "approval_already_resolved",
    "approval_expired",
    "resync_required",
    "payload_too_large",
    "rate_limited",
    "unsupported_protocol",
    "unsupported_method",
    "shutting_down",
    "internal",
]
SessionId = Annotated[str, Meta(min_length=1, max_length=128)]
NewSessionId = Annotated[str, Meta(pattern=r"^[0-9A-Za-z_-]{1,64}$")]
ClientId = Annotated[str, Meta(pattern=r"^[!-~]{1,128}$")]
"""An id that the client makes, once for each message."""
Text = Annotated[str, Meta(max_length=1_000_000)]
AgUiEvent = Annotated[Raw, Meta(extra_json_schema={"$ref": "#/$defs/agui.Event"})]


# Params


class Client(Sparse, frozen=True):
    """Who connects."""

    id: str = ""
    version: str = ""
    platform: str = ""
    locale: str = ""


class Auth(Sparse, frozen=True):
    """A credential where no header can carry one."""

    token: str = ""


class Hello(Sparse, frozen=True):
    """The first request."""

    min_protocol: int
    max_protocol: int
    client: Client = Client()
    auth: Auth = Auth()


class CreateSession(Sparse, frozen=True):
    """Make a session, or get the one of this id."""

    session: NewSessionId | None = None
    title: Annotated[str, Meta(max_length=500)] | None = None
    agent: str | None = None
    model: str | None = None
    contract: ProgressContract | None = None
    """Of its runs."""


class Subscribe(Sparse, frozen=True):
    """Follow a session."""

    session: SessionId
    after: Annotated[int, Meta(ge=0)] | Literal["head"] | None = None
    """Number of the last event that is known; `head` for what comes from now on."""
    instance: str | None = None
    """The server's instance that counted `after`."""
    children: bool = False
    """Follow its children too: each from the run under way on, and those born later."""


class Unsubscribe(Sparse, frozen=True):
    """Follow it no more."""

    session: SessionId


class TextInput(Sparse, frozen=True, tag="text"):
    """A piece of text."""

    text: Text


class FileInput(Sparse, frozen=True, tag="file"):
    """A file that was uploaded before."""

    file_id: Annotated[str, Meta(min_length=1, max_length=128)]


Content = Text | Annotated[list[TextInput | FileInput], Meta(max_length=100)]


class StartRun(Sparse, frozen=True):
    """A person's message."""

    session: SessionId
    client_msg_id: ClientId
    content: Content = ""
    when_busy: Literal["queue", "steer", "reject"] = "queue"
    retry_of: str | None = None
    edit_of: str | None = None
    model: str | None = None
    contract: ProgressContract | None = None
    """Of this run alone, instead of the session's. Not for a message that joins a run."""


class SteerRun(Sparse, frozen=True):
    """A message that joins the run."""

    session: SessionId
    run_id: str
    client_msg_id: ClientId
    content: Content


class CancelRun(Sparse, frozen=True):
    """Stop the run."""

    session: SessionId
    run_id: str | None = None
    reason: str | None = None


class RemoveQueued(Sparse, frozen=True):
    """Take a message out of the queue."""

    session: SessionId
    item_id: str


class UpdateQueued(Sparse, frozen=True):
    """Change a message in the queue."""

    session: SessionId
    item_id: str
    content: Content


class ResumeQueue(Sparse, frozen=True):
    """Let a paused queue go on."""

    session: SessionId
    item_id: str | None = None


class StartSideline(Sparse, frozen=True):
    """A side question: answered beside the session, from its history up to a message."""

    session: SessionId
    """The one that the question is about."""
    client_msg_id: ClientId
    content: Content
    from_message: str | None = None
    """The last message that is seen; the newest if absent."""


class RespondApproval(Sparse, frozen=True):
    """Answer what a waiting run asked."""

    session: SessionId
    interrupt_id: str
    decision: Literal["approve", "deny", "cancel"]
    edited_args: Mapping[str, Any] | None = None
    """With `approve`: run the call with these arguments instead."""
    payload: Any = None
    """With `approve` of a question: the answer, a text or what the question's schema says."""
    note: Annotated[str, Meta(max_length=4_000)] = ""
    """Told to the model."""


# Results


class ServerObject(Wire, frozen=True):
    """Which server it is; positions count anew with each instance."""

    version: str
    instance: str


class PolicyObject(Wire, frozen=True):
    """What the client may rely on."""

    ping_sec: float
    dead_sec: float
    max_frame_bytes: int
    coalesce_ms: int
    queue_max: int
    replay_events: int


class Capabilities(Wire, frozen=True):
    """What this server and user can do."""

    queue: bool = True
    steer: bool = True
    resume: bool = True
    files: bool = True
    approvals: bool = True
    sideline: bool = True
    all_sessions: bool = False
    """The user sees the sessions of all."""


class HelloResult(Wire, frozen=True):
    """The connection is open."""

    protocol: int
    agui: str
    server: ServerObject
    user: str
    policy: PolicyObject
    capabilities: Capabilities


class SubscribeResult(Wire, frozen=True, omit_defaults=True):
    """Where the session stands; frames from `replay_from` follow."""

    session: str
    instance: str
    head: int
    replay_from: int
    mode: Literal["replay", "snapshot"]
    status: SessionStatus
    queue: list[QueueObject]
    approvals: list[ApprovalObject]
    children: list[ChildObject]
    usage: UsageObject
    title: str | UnsetType = UNSET
    run: RunObject | UnsetType = UNSET
    execution_error: ErrorObject | UnsetType = UNSET
    undelivered: UndeliveredObject | UnsetType = UNSET
    messages: list[MessageObject] | UnsetType = UNSET
    """With `snapshot`: the last page before what the frames tell."""
    has_more: bool = False
    """With `snapshot`: older messages are had by REST."""
    kind: str = "main"
    parent: str | UnsetType = UNSET
    """The session that this one stands under."""


class QueuedResult(Wire, frozen=True):
    """It waits for its turn."""

    item_id: str
    position: int


class ItemResult(Wire, frozen=True):
    """The server has it."""

    item_id: str


class StartResult(Wire, frozen=True, omit_defaults=True):
    """What became of a message: one of the three."""

    run_id: str | UnsetType = UNSET
    queued: QueuedResult | UnsetType = UNSET
    steered: ItemResult | UnsetType = UNSET


class CancelResult(Wire, frozen=True):
    """Whether there was something to stop; its last event follows."""

    state: Literal["cancelling", "not_running"]


class SidelineResult(Wire, frozen=True):
    """The side question's own session, and its run."""

    session: str
    run_id: str


class RespondResult(Wire, frozen=True, omit_defaults=True):
    """The answer counts. The run goes on when all that was asked is answered."""

    interrupt_id: str
    status: Literal["APPROVED", "DENIED", "ANSWERED", "CANCELLED"]
    run_id: str | UnsetType = UNSET
    """The run that goes on, if it does."""


class Done(Wire, frozen=True):
    """Nothing more to say."""


# Frames


class Request(Sparse, frozen=True, tag_field="type", tag="req"):
    """Client to server: do this."""

    id: Annotated[str, Meta(min_length=1, max_length=128)]
    method: str
    params: Mapping[str, Any] = msgspec.field(default_factory=dict)


class ErrorBody(Wire, frozen=True, omit_defaults=True):
    """Why a request was not done."""

    code: ErrorCode
    message: str
    """In the client's language, and may be shown; that of `bad_request` is for its developer, in
    English, unless it is about a task."""
    retryable: bool
    retry_after_ms: int | UnsetType = UNSET
    details: dict[str, str] | UnsetType = UNSET


class Result(Wire, frozen=True, tag_field="type", tag="res"):
    """Server to client: it was done."""

    id: str
    ok: Literal[True]
    result: Annotated[Any, Meta(extra_json_schema={"type": "object"})]


class Failure(Wire, frozen=True, tag_field="type", tag="res"):
    """Server to client: it was not done. `id` is empty where the request had none."""

    id: str
    ok: Literal[False]
    error: ErrorBody


class Event(Wire, frozen=True, tag_field="type", tag="event", omit_defaults=True):
    """Server to client: an AG-UI event, or several joined that `first` to `seq` number."""

    session: str
    seq: int
    event: AgUiEvent
    first: int | UnsetType = UNSET


class SessionUpdate(Wire, frozen=True, tag_field="type", tag="session.update"):
    """Server to client: these keys are different now; null clears one."""

    session: str
    rev: int
    patch: Mapping[str, Any]


class SessionsChanged(Wire, frozen=True, tag_field="type", tag="sessions.changed"):
    """Server to client: the list of sessions is out of date."""

    rev: int
    ids: Sequence[str]


class Notice(Wire, frozen=True, tag_field="type", tag="notice"):
    """Server to client: something to know."""

    code: Literal["server_restart", "auth_expired"]
    message: str
    retry_after_ms: int
    """When to connect again; 0 if only a login helps."""


class Ping(Wire, frozen=True, tag_field="type", tag="ping"):
    """Either way: are you there?"""

    t: int | float


class Pong(Wire, frozen=True, tag_field="type", tag="pong"):
    """Either way: here, with the ping's time."""

    t: int | float


ServerFrame = SessionUpdate | SessionsChanged | Notice | Ping | Pong
"""What is encoded as it stands; `Result` and `Failure` share a tag, an `Event` is spliced."""

_encoder = msgspec.json.Encoder()


def encode(frame: Result | Failure | ServerFrame) -> str:
    """The text of *frame*."""
    return _encoder.encode(frame).decode()


def event_head(session_id: str) -> bytes:
    """An event frame of the session up to its number."""
    return b'{"type":"event","session":%s,"seq":' % _encoder.encode(session_id)


def event_text(head: bytes, first: int, seq: int, event: bytes) -> str:
    """An event frame: *head* is from `event_head`, *event* stays as it is."""
    if first == seq:
        return (b'%s%d,"event":%s}' % (head, seq, event)).decode()
    return (b'%s%d,"first":%d,"event":%s}' % (head, seq, first, event)).decode()


# What is published

REQUESTS: Mapping[str, tuple[type[Sparse], type[Wire]]] = {
    "hello": (Hello, HelloResult),
    "session.create": (CreateSession, SessionObject),
    "session.subscribe": (Subscribe, SubscribeResult),
    "session.unsubscribe": (Unsubscribe, Done),
    "run.start": (StartRun, StartResult),
    "run.steer": (SteerRun, ItemResult),
    "run.cancel": (CancelRun, CancelResult),
    "queue.remove": (RemoveQueued, Done),
    "queue.update": (UpdateQueued, Done),
    "queue.resume": (ResumeQueue, Done),
    "approval.respond": (RespondApproval, RespondResult),
    "sideline.start": (StartSideline, SidelineResult),
}
"""Every method with its params and its result."""
_SERVER_FRAMES = (Result, Failure, Event, SessionUpdate, SessionsChanged, Notice, Ping, Pong)
_CLIENT_FRAMES = (Request, Ping, Pong)
_OTHERS = (MessageObject, SessionObject)


@cache
def schema() -> dict[str, Any]:
    """The contract as JSON Schema 2020-12; AG-UI's own types under names with `agui.`."""
    pairs = [kind for pair in REQUESTS.values() for kind in pair]
    kinds = list(dict.fromkeys([*_SERVER_FRAMES, *_CLIENT_FRAMES, *_OTHERS, *pairs]))
    references, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    by_kind = dict(zip(kinds, references, strict=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headway client protocol",
        "protocol": PROTOCOL,
        "subprotocol": SUBPROTOCOL,
        "server": {"anyOf": [by_kind[kind] for kind in _SERVER_FRAMES]},
        "client": {"anyOf": [by_kind[kind] for kind in _CLIENT_FRAMES]},
        "methods": {
            name: {"params": by_kind[params], "result": by_kind[result]}
            for name, (params, result) in REQUESTS.items()
        },
        "$defs": {**definitions, **_agui_definitions()},
    }


def _agui_definitions() -> dict[str, Any]:
    from ag_ui.core import Event as AnyAgUiEvent  # not above: see `agui_routes`

    adapter: TypeAdapter[Any] = TypeAdapter(AnyAgUiEvent)
    events = adapter.json_schema(ref_template="#/$defs/agui.{model}")
    definitions = events.pop("$defs")
    return {"agui.Event": events} | {f"agui.{name}": value for name, value in definitions.items()}
