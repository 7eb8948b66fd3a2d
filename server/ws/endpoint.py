"""`/ws`: who may connect, the hello, and then requests until either side ends it.

Per connection there is one task that reads and one that sends, and a short-lived one while
requests are being done. Whatever ends one of them ends the others.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from channels.faults import fault_of
from server.agui import PROTOCOL_VERSION
from server.auth import User
from server.errors import BadRequest, Locale, ServerError
from server.eventlog import COALESCE_SECONDS
from server.eventring import RETAINED_EVENTS
from server.state import State
from server.ws import wire
from server.ws.connection import NOT_AUTHENTICATED, Connection
from server.ws.decode import Call, NotJson, decode_frame, decode_params, id_of
from server.ws.faults import Refused, error_body
from server.ws.lanes import Lanes
from server.ws.methods import METHODS, Caller, Method
from server.ws.objects import Sparse, Wire
from server.ws.policy import Addresses, Bucket, Policy
from server.ws.subscribe import subscribe

logger = logging.getLogger(__name__)

NOT_JSON = (4400, "not JSON")
WRONG_FIRST_FRAME = (4400, "the first frame must be hello")
FORBIDDEN = (4403, "forbidden")
HELLO_TIMEOUT = (4408, "no hello in time")
WRONG_PROTOCOL = (4426, "protocol not supported")
TOO_MANY = (4429, "too many connections")
TOO_BIG = (1009, "frame too big")

_CLOSE_SECONDS = 5.0
"""A close waits behind what the peer did not take; past this it is left to the transport."""
_METHODS: dict[str, Method] = {**METHODS, "session.subscribe": subscribe}


class Closed(ServerError):
    """The server ends a connection before its hello was accepted."""

    def __init__(self, why: tuple[int, str], failure: wire.Failure | None = None) -> None:
        super().__init__(why[1])
        self.why = why
        self.failure = failure


class Greeting(NamedTuple):
    """An accepted hello."""

    call: Call
    user: User
    locale: Locale


class Sockets:
    """Serves every socket of the process."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = Policy() if policy is None else policy
        self._addresses = Addresses(self._policy)

    def routes(self) -> Sequence[BaseRoute]:
        """The socket and the published contract."""
        return [WebSocketRoute("/ws", self.serve), Route("/schema/ws.json", get_schema)]

    async def serve(self, websocket: WebSocket[State]) -> None:
        """One socket from its handshake to its end."""
        if (refused := _refused(websocket)) is not None:
            await _deny(websocket, *refused)
            return
        address = websocket.client.host if websocket.client is not None else ""
        has_room = self._addresses.has_room(address)
        with self._addresses.opened(address):
            await websocket.accept(_subprotocol(websocket))
            if not has_room:
                await _close(websocket, *TOO_MANY)
                return
            with suppress(WebSocketDisconnect):
                await self._greet(websocket, address)

    async def _greet(self, websocket: WebSocket[State], address: str) -> None:
        try:
            with self._addresses.waiting(address):
                greeting = await self._hello(websocket)
        except Closed as closed:
            if closed.failure is not None:
                await websocket.send_text(wire.encode(closed.failure))
            await _close(websocket, *closed.why)
            return
        await self._converse(websocket, greeting)

    async def _hello(self, websocket: WebSocket[State]) -> Greeting:
        """Read the first frame and decide.

        Raises:
            Closed: It does not get in.
            WebSocketDisconnect: The peer left.
        """
        if websocket.scope["subprotocols"] and _subprotocol(websocket) is None:
            raise Closed(WRONG_PROTOCOL)
        try:
            async with asyncio.timeout(self._policy.hello_seconds):
                text = await _receive(websocket)
        except TimeoutError:
            raise Closed(HELLO_TIMEOUT) from None
        if text is None:
            raise Closed(NOT_JSON)
        if len(text.encode()) > self._policy.hello_bytes:
            raise Closed(TOO_BIG)
        call, hello = _first_frame(text)
        locale = _locale(hello, websocket.state["settings"].locale)
        if not hello.min_protocol <= wire.PROTOCOL <= hello.max_protocol:
            raise Closed(WRONG_PROTOCOL, _failure(call.id, Refused("unsupported_protocol"), locale))
        user = _user(websocket, hello)
        if user is None:
            raise Closed(NOT_AUTHENTICATED, _failure(call.id, Refused("unauthenticated"), locale))
        return Greeting(call, user, locale)

    async def _converse(self, websocket: WebSocket[State], greeting: Greeting) -> None:
        state = websocket.state
        connection = Connection(websocket, greeting.user, greeting.locale, self._policy)
        connection.send(wire.Result(greeting.call.id, True, self._welcome(state, greeting.user)))
        state["board"].join(connection)
        state["metrics"].socket_opened()
        if state["closing"].is_set():
            connection.going_away()
        left = state["users"].login_seconds_left(websocket.headers, websocket.cookies)
        loop = asyncio.get_running_loop()
        over = None if left is None else loop.call_later(left, connection.login_over)
        try:
            await self._run(websocket, connection)
        finally:
            if over is not None:
                over.cancel()
            for session_id in list(connection.subscriptions):
                state["board"].unwatch(session_id, connection)
                connection.unfollow(session_id)
            state["board"].leave(connection)
            state["metrics"].socket_closed()

    async def _run(self, websocket: WebSocket[State], connection: Connection) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                sender = group.create_task(connection.run_sender(), name="ws-sender")
                talk = Talk(Caller(connection, websocket.state, self._policy), group)
                await talk.read(websocket)
                if not connection.is_closing:
                    sender.cancel()
        except* TimeoutError:
            # No close frame: it would wait behind what the peer does not take.
            logger.info("a socket was let go: its peer takes nothing")

    def _welcome(self, state: State, user: User) -> wire.HelloResult:
        policy = self._policy
        return wire.HelloResult(
            protocol=wire.PROTOCOL,
            agui=PROTOCOL_VERSION,
            server=wire.ServerObject(version("headway"), state["logs"].instance),
            user=user.name,
            policy=wire.PolicyObject(
                ping_sec=policy.ping_seconds,
                dead_sec=policy.dead_seconds,
                max_frame_bytes=policy.frame_bytes,
                coalesce_ms=round(COALESCE_SECONDS * 1000),
                queue_max=policy.queue_max,
                replay_events=RETAINED_EVENTS,
            ),
            capabilities=wire.Capabilities(all_sessions=user.is_admin),
        )


class Talk:
    """The requests of one connection."""

    __slots__ = ("_bucket", "_caller", "_connection", "_lanes")

    def __init__(self, caller: Caller, group: asyncio.TaskGroup) -> None:
        policy = caller.policy
        self._caller = caller
        self._connection = caller.connection
        self._bucket = Bucket(policy.requests_per_second, policy.requests_burst)
        self._lanes = Lanes(group, self._do, policy.requests_at_once)

    async def read(self, websocket: WebSocket[State]) -> None:
        """Take frames until the peer leaves or the server has had enough of it."""
        while not self._connection.is_closing:
            await self._connection.room()
            try:
                text = await _receive(websocket)
            except WebSocketDisconnect:
                return
            if text is None:
                self._connection.close(*NOT_JSON)
            else:
                self._take(text)

    def _take(self, text: str) -> None:
        connection = self._connection
        try:
            frame = decode_frame(text)
        except NotJson:
            connection.close(*NOT_JSON)
        except BadRequest as error:
            connection.send(_failure(id_of(text), error, connection.locale))
        else:
            match frame:
                case wire.Ping():
                    connection.send(wire.Pong(frame.t))
                case Call():
                    self._start(frame)
                case wire.Pong() | None:
                    pass

    def _start(self, call: Call) -> None:
        try:
            params = self._checked(call)
            key = getattr(params, "session", None) or ""
            if not (self._bucket.take() and self._lanes.put(key, call, params)):
                raise Refused("rate_limited")
        except ServerError as error:
            self._fail(call, error)

    def _checked(self, call: Call) -> Sparse:
        if call.method == "hello":
            raise BadRequest("hello comes once, as the first frame", "method")
        if call.method not in _METHODS:
            raise Refused("unsupported_method")
        if self._caller.state["closing"].is_set():
            raise Refused("shutting_down")
        return decode_params(call)

    async def _do(self, call: Call, params: Sparse) -> None:
        try:
            result: Wire = await _METHODS[call.method](self._caller, params)
        except ServerError as error:
            self._fail(call, error)
        except Exception as error:  # noqa: BLE001 - it must not take the others' socket with it
            logger.error("[ws] %s failed %s", call.method, fault_of(error))
            self._fail(call, error)
        else:
            self._connection.send(wire.Result(call.id, True, result))

    def _fail(self, call: Call, error: Exception) -> None:
        self._connection.send(_failure(call.id, error, self._connection.locale))


async def get_schema(request: Request[State]) -> Response:
    """The contract as JSON Schema."""
    return JSONResponse(wire.schema(), headers={"Cache-Control": "no-cache"})


def _refused(websocket: WebSocket[State]) -> tuple[int, str] | None:
    """Status and reason of a handshake that is not accepted."""
    if websocket.state["closing"].is_set():
        return 503, "the server is restarting"
    reason = websocket.state["origins"].check(websocket.headers)
    return None if reason is None else (403, reason)


async def _deny(websocket: WebSocket[State], status: int, reason: str) -> None:
    """Refuse the handshake with an HTTP answer, where the server can give one."""
    if "websocket.http.response" in websocket.scope.get("extensions", {}):
        code = "forbidden" if status == 403 else "shutting_down"
        body = {"error": {"code": code, "message": reason}}
        await websocket.send_denial_response(JSONResponse(body, status))
    else:
        await websocket.accept()
        await _close(websocket, *(FORBIDDEN if status == 403 else (1012, reason)))


def _subprotocol(websocket: WebSocket[State]) -> str | None:
    return wire.SUBPROTOCOL if wire.SUBPROTOCOL in websocket.scope["subprotocols"] else None


async def _receive(websocket: WebSocket[State]) -> str | None:
    """The next frame's text, None for a binary one; `WebSocketDisconnect` when the peer left."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1006))
    text: str | None = message.get("text")
    return text


async def _close(websocket: WebSocket[State], code: int, reason: str) -> None:
    with suppress(TimeoutError, WebSocketDisconnect):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await websocket.close(code, reason)


def _first_frame(text: str) -> tuple[Call, wire.Hello]:
    try:
        call = decode_frame(text)
        if not (isinstance(call, Call) and call.method == "hello"):
            raise Closed(WRONG_FIRST_FRAME)
        params = decode_params(call)
    except NotJson:
        raise Closed(NOT_JSON) from None
    except BadRequest as error:
        raise Closed(WRONG_FIRST_FRAME, _failure(id_of(text), error, "zh-CN")) from None
    assert isinstance(params, wire.Hello), "the table says so"
    return call, params


def _user(websocket: WebSocket[State], hello: wire.Hello) -> User | None:
    """Who connects: by a header, the login cookie, or the token in the hello, in this order."""
    users = websocket.state["users"]
    user: User | None = users.from_headers(websocket.headers, websocket.cookies)
    if user is None and hello.auth.token:
        user = users.by_token(hello.auth.token)
    return user


def _locale(hello: wire.Hello, default: Locale) -> Locale:
    """The language of texts on this socket: the client's if there are texts in it."""
    language = hello.client.locale.lower()
    if language.startswith("en"):
        return "en"
    return "zh-CN" if language.startswith("zh") else default


def _failure(request_id: str, error: Exception, locale: Locale) -> wire.Failure:
    return wire.Failure(request_id, False, error_body(error, locale))
