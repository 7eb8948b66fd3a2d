"""AG-UI over HTTP: `POST /agui`, its capabilities, and the events of a session as a stream.

`POST /agui` runs the last user message of what the client sends. History is the server's: what
else a client sends of it is ignored. A client that leaves is only a reader less, unless it asked
for its run to end then, which is the one way an AG-UI client has to stop a run.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec
import pydantic
from ag_ui.core import RunAgentInput, TextPart, UserMessage
from ag_ui.core.capabilities import (
    AgentCapabilities,
    HumanInTheLoopCapabilities,
    IdentityCapabilities,
    ReasoningCapabilities,
    StateCapabilities,
    ToolsCapabilities,
    TransportCapabilities,
)
from starlette.requests import Request
from starlette.responses import Response

from channels.port import Inbound, InboundFile
from server import agui
from server.agui_resume import mistake_stream, take_answers
from server.approvals import Resumed
from server.auth import User
from server.contract import contract_json, parse_contract
from server.errors import BadRequest, Conflict, NotFound
from server.eventring import EventRing, RunSpan
from server.message import Message
from server.rest import session_of, signed_in
from server.sse import KEEP_ALIVE, event_stream, follow, render_event
from server.state import State
from server.store.messages import load_message, load_page
from server.store.runs import load_run
from server.store.sessions import Session, find_by_external_id, load_session

SNAPSHOT_MESSAGES = 1000
_FILE_URL = agui.file_url("")
_CONTRACT_PATH = "forwardedProps.contract"


async def post_agui(request: Request[State]) -> Response:
    """Run the last user message, or go on with the answers to what waits; stream the run's events.

    A busy thread is answered 409 before any stream starts.
    """
    user = signed_in(request)
    asked = _asked(await request.body())
    contract = _contract(asked)
    session = await _thread(request.state, user, asked.thread_id)
    ring = request.state["logs"].of(session.id)
    cursor = ring.head
    if asked.resume:
        resumed = await take_answers(request.state, session, asked, user)
        if not isinstance(resumed, Resumed):
            return event_stream(mistake_stream(resumed, session))
        run_id, is_repeat = resumed.run_id, resumed.is_repeat
    else:
        inbound = await _inbound(request.state, session, asked, contract)
        submitted = await request.state["inbox"].submit(inbound)
        run_id, is_repeat = submitted.run_id, submitted.duplicate
    if is_repeat:
        cursor = await _beginning(request.state, ring, run_id, cursor)
    stream = _RunStream(request.state, ring, session.id, run_id)
    return event_stream(stream.chunks(cursor, cancel=_cancels(asked)))


async def _beginning(state: State, ring: EventRing, run_id: str, head: int) -> int:
    """The position before the run's first event; *head* where that is still to come.

    Raises:
        Conflict: It is over, and its events are not kept.
    """
    async with state["store"].read() as db:
        run = await load_run(db, run_id)
    span = ring.run(run_id)  # after the store: what is over there began in the log before
    if span is not None:
        return span.first - 1
    if run.ended_at is not None:
        raise Conflict("resync_required")
    return head


class _RunStream:
    """The events of one run, for one AG-UI client."""

    def __init__(self, state: State, ring: EventRing, session_id: str, run_id: str) -> None:
        self._state = state
        self._ring = ring
        self._session_id = session_id
        self._run_id = run_id

    async def chunks(self, cursor: int, *, cancel: bool) -> AsyncIterator[bytes]:
        """The stream's bytes; *cancel* stops the run if the client leaves before its end."""
        has_ended = False
        try:
            async for event in follow(self._ring, cursor, self._state["closing"]):
                if event is None:
                    yield KEEP_ALIVE
                    continue
                span = self._ring.run(self._run_id)
                if span is None or event.seq < span.first:
                    continue
                has_ended = event.seq == span.last
                yield render_event(event, self._state["logs"].instance)
                if has_ended:
                    return
                if agui.is_discarded(event.body):
                    yield b"data: %s\n\n" % await self._snapshot(span, event.seq)
        finally:
            if cancel and not has_ended and not self._state["closing"].is_set():
                self._state["signals"].cancel(self._session_id, self._run_id)

    async def _snapshot(self, span: RunSpan, seq: int) -> bytes:
        """All messages that were told up to the event *seq*.

        AG-UI has no event that takes a message back; a snapshot without it does. Stored messages
        that are told later are left out, or their text would be added to what they have already.
        """
        told = _told(self._ring, span, seq)
        async with self._state["store"].read() as db:
            page = await load_page(db, self._session_id, before_seq=None, limit=SNAPSHOT_MESSAGES)
        messages = [
            agui.stored_message(message)
            for message in page
            if not message.synthetic and _is_told(message, span, told)
        ]
        return agui.messages_snapshot(messages, agui.epoch_ms())


def _is_told(message: Message, span: RunSpan, told: set[str]) -> bool:
    if message.seq <= span.history_seq or message.id in told:
        return True
    return any(call.id in told for call in message.tool_calls)


class _Named(msgspec.Struct, rename="camel"):
    """Whatever in an event names a message or a call."""

    message_id: str = ""
    tool_call_id: str = ""
    input: "_Input | None" = None


class _Input(msgspec.Struct):
    messages: list["_Id"] = []


class _Id(msgspec.Struct):
    id: str


_named = msgspec.json.Decoder(_Named)


def _told(ring: EventRing, span: RunSpan, seq: int) -> set[str]:
    """Ids of the messages and calls in the run's events up to *seq*."""
    told: set[str] = set()
    for event in ring.read(span.first - 1, 2**62):
        if event.first > seq:
            break
        named = _named.decode(event.body)
        told |= {named.message_id, named.tool_call_id}
        if named.input is not None:
            told |= {message.id for message in named.input.messages}
    return told


async def get_events(request: Request[State]) -> Response:
    """A session's events past a position, or from the run under way on, as a stream.

    The position is `Last-Event-ID` or `after`: `<instance>-<seq>`, a number, or `head`.
    """
    session = await session_of(request, request.path_params["session_id"])
    logs = request.state["logs"]
    ring = logs.of(session.id)
    cursor = _position(request, ring, logs.instance)
    return event_stream(_all_events(ring, cursor, logs.instance, request.state["closing"]))


async def _all_events(
    ring: EventRing, cursor: int, instance: str, closing: asyncio.Event
) -> AsyncIterator[bytes]:
    async for event in follow(ring, cursor, closing):
        yield KEEP_ALIVE if event is None else render_event(event, instance)


def _position(request: Request[State], ring: EventRing, instance: str) -> int:
    # The header is newer: a browser that connects again repeats the query of its first time.
    text = request.headers.get("last-event-id") or request.query_params.get("after")
    if text is None:
        return ring.head if ring.active is None else ring.active.first - 1
    if text == "head":
        return ring.head
    counted_by, _, number = text.rpartition("-")
    if not (number.isascii() and number.isdecimal() and len(number) <= 18):
        raise BadRequest("must be <instance>-<seq>, a number, or head", "after")
    if counted_by not in ("", instance) or not ring.covers(int(number)):
        raise Conflict("resync_required")
    return int(number)


async def get_capabilities(request: Request[State]) -> Response:
    """What AG-UI clients may expect."""
    signed_in(request)
    body = _capabilities().model_dump_json(by_alias=True)
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


def _capabilities() -> AgentCapabilities:
    return AgentCapabilities(
        identity=IdentityCapabilities(name="Headway", type="headway", version=version("headway")),
        transport=TransportCapabilities(
            streaming=True, websocket=True, http_binary=False, resumable=True
        ),
        tools=ToolsCapabilities(supported=True, parallel_calls=True, client_provided=False),
        state=StateCapabilities(snapshots=False, deltas=False, persistent_state=True),
        reasoning=ReasoningCapabilities(supported=True, streaming=True, encrypted=False),
        human_in_the_loop=HumanInTheLoopCapabilities(
            supported=True, approvals=True, interventions=True, interrupts=True
        ),
    )


def _asked(body: bytes) -> RunAgentInput:
    try:
        return RunAgentInput.model_validate_json(body)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(str(step) for step in first["loc"])
        raise BadRequest(first["msg"], path or None) from None


def _cancels(asked: RunAgentInput) -> bool:
    props = asked.forwarded_props
    return isinstance(props, dict) and props.get("cancelOnDisconnect") is True


async def _thread(state: State, user: User, thread_id: str) -> Session:
    """The session of a thread: the client's own name for one, a session's id, or a new one."""
    if not 0 < len(thread_id) <= 200 or not thread_id.isprintable():
        raise BadRequest("must be a text of 1 to 200 characters", "threadId")
    async with state["store"].read() as db:
        session = await find_by_external_id(db, thread_id, user.name)
        if session is None:
            try:
                session = await load_session(db, thread_id)
            except NotFound:
                session = None
    if session is not None and user.may_see(session.owner):
        return session
    created: Session = await state["inbox"].create_session(
        user.name, origin="agui", external_id=thread_id
    )
    return created


def _contract(asked: RunAgentInput) -> Mapping[str, object] | None:
    """The progress contract that the run is to have instead of its session's."""
    props = asked.forwarded_props
    given = props.get("contract") if isinstance(props, dict) else None
    return None if given is None else contract_json(parse_contract(given, _CONTRACT_PATH))


async def _inbound(
    state: State, session: Session, asked: RunAgentInput, contract: Mapping[str, object] | None
) -> Inbound:
    """The last user message. One that ran before is run again: that is what its sender means."""
    message = _last_user_message(asked)
    text, file_ids = _parts(message)
    retry_of = await _known_message(state, session.id, message.id)
    return Inbound(
        origin="agui",
        text=text,
        keys=(f"agui:{session.id}:{asked.run_id}",),
        session_id=session.id,
        message_id=None if retry_of else message.id,
        files=[InboundFile(file_id) for file_id in file_ids],
        when_busy="reject",
        retry_of=retry_of,
        contract=contract,
    )


def _last_user_message(asked: RunAgentInput) -> UserMessage:
    last = next((m for m in reversed(asked.messages) if isinstance(m, UserMessage)), None)
    if last is None:
        raise BadRequest("must hold a user message", "messages")
    if not 0 < len(last.id) <= 128 or not last.id.isprintable():
        raise BadRequest("must be a text of 1 to 128 characters", "messages.id")
    return last


async def _known_message(state: State, session_id: str, message_id: str) -> str | None:
    """The id under which the session has this message already, None if it is new."""
    async with state["store"].read() as db:
        for known in (message_id, f"{session_id}-{message_id}"):
            try:
                found_in, message = await load_message(db, known)
            except NotFound:
                continue
            if found_in == session_id and message.role == "user":
                return known
    return None


def _parts(message: UserMessage) -> tuple[str, Sequence[str]]:
    """The words of a message, and the ids of the files in it."""
    if isinstance(message.content, str):
        return message.content, ()
    texts = [part.text for part in message.content if isinstance(part, TextPart)]
    others = [part for part in message.content if not isinstance(part, TextPart)]
    return "\n".join(texts), [_file_id(part) for part in others]


def _file_id(part: Any) -> str:
    """The file that a media part names; all kinds of parts have a source."""
    source = part.source
    if source.type != "url" or not source.value.startswith(_FILE_URL):
        raise BadRequest("upload files by POST /api/files and name their url", "messages.content")
    return str(source.value).removeprefix(_FILE_URL)
