"""The gateway of the local DingTalk: stream connections that are opened, fed, silenced and cut."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.fakes.dingtalk_world import App, Call, Refusal, World, api_refusal

TOPIC_MESSAGE = "/v1.0/im/bot/messages/get"
TOPIC_CLICK = "/v1.0/card/instances/callback"
TICKET_SECONDS = 90.0
WAIT_SECONDS = 20.0
"""For anything a test waits for."""


@dataclass(frozen=True, slots=True)
class Ack:
    """What a client answered to a frame."""

    code: int
    data: Any
    seconds: float
    connection: int
    """Which connection it came on."""


@dataclass(slots=True)
class Faults:
    """What is wrong with the stream now."""

    refuse: Refusal | None = None
    """Discovery is answered so."""
    hang: bool = False
    """Discovery is not answered at all."""
    drops_discovery: bool = False
    """The connection on which discovery is asked is cut."""
    drop_after_seconds: float | None = None
    """A connection is accepted and then cut without a close frame."""
    close_after_seconds: float | None = None
    """A connection is accepted and then closed in order."""
    zombie: bool = False
    """Pings are answered, nothing is pushed, no system frames come."""


@dataclass(eq=False, slots=True)
class Connection:
    """One stream connection."""

    number: int
    app: App
    topics: frozenset[str]
    socket: web.WebSocketResponse
    transport: asyncio.Transport
    is_fed: bool = True
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Gateway(World):
    """The platform's memory with the connections on which it pushes."""

    def __init__(
        self, system_ping_seconds: float | None, cut_seconds: float, clock: Callable[[], float]
    ) -> None:
        super().__init__(clock)
        self.url = ""
        """Base of both faces, the new and the old."""
        self.app = self.add_app("ding_test", "secret-1")
        self.calls: list[Call] = []
        """All requests with their answers, in the order they came."""
        self.faults = Faults()
        self.connections: list[Connection] = []
        self.opened = 0
        """Connections that were ever opened."""
        self.frames: list[tuple[int, Any]] = []
        """All that clients sent on the stream, with the number of the connection."""
        self._tickets: dict[str, tuple[App, frozenset[str], float]] = {}
        self._acks: dict[str, tuple[asyncio.Future[Ack], float]] = {}
        self._changed = asyncio.Condition()
        self._frame_number = 0
        self._system_ping_seconds = system_ping_seconds
        self._cut_seconds = cut_seconds
        self._tasks: set[asyncio.Task[None]] = set()

    def add_app(self, client_id: str, client_secret: str) -> App:
        """Another bot on the platform."""
        app = self.apps[client_id] = App(client_id, client_secret)
        return app

    async def until(self, holds: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        """Wait until *holds*; looked at after every change here."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(holds)

    async def connected(self, count: int = 1) -> Connection:
        """Wait until *count* connections were ever opened; the newest."""
        await self.until(lambda: self.opened >= count and bool(self.connections))
        return self.connections[-1]

    async def push(self, data: Any, topic: str = TOPIC_MESSAGE, app: App | None = None) -> Ack:
        """Push *data* once on a random connection of the app; again means a new frame."""
        return await (await self.push_only(data, topic, app))

    async def push_only(
        self, data: Any, topic: str = TOPIC_MESSAGE, app: App | None = None
    ) -> Awaitable[Ack]:
        """Push *data*; what is given can be awaited for the acknowledgement."""
        app = app or self.app
        fed = [c for c in self.connections if c.is_fed and c.app is app and topic in c.topics]
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        return await self.send_frame(random.choice(fed), "CALLBACK", topic, text)

    async def ping(self, connection: Connection) -> Ack:
        """A system ping, as it comes every half a minute."""
        return await (
            await self.send_frame(connection, "SYSTEM", "ping", json.dumps({"opaque": "o1"}))
        )

    async def announce_disconnect(self, connection: Connection) -> None:
        """Say that the connection ends; nothing more is pushed on it, and it is cut later."""
        connection.is_fed = False
        data = json.dumps({"reason": "persistent connection is timeout"})
        await self.send_frame(connection, "SYSTEM", "disconnect", data)
        self._start(self._cut_later(connection))

    async def send_frame(
        self, connection: Connection, kind: str, topic: str, data: str
    ) -> asyncio.Future[Ack]:
        """Send one frame."""
        self._frame_number += 1
        frame_id = f"sm_{self._frame_number}"
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ack] = loop.create_future()
        self._acks[frame_id] = (future, loop.time())
        headers = {
            "appId": "a1",
            "connectionId": f"c{connection.number}",
            "contentType": "application/json",
            "messageId": frame_id,
            "time": str(int(time.time() * 1000)),
            "topic": topic,
        }
        frame = {"specVersion": "1.0", "type": kind, "headers": headers, "data": data}
        await connection.socket.send_str(json.dumps(frame, ensure_ascii=False))
        return future

    def cut(self, connection: Connection) -> None:
        """End the TCP connection without a close frame."""
        connection.transport.abort()

    async def close(self) -> None:
        """End what is still open."""
        for connection in list(self.connections):
            self.cut(connection)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def gateway_routes(self) -> list[web.RouteDef]:
        """Where a connection is asked for and opened."""
        return [
            web.post("/v1.0/gateway/connections/open", self._discover),
            web.get("/connect", self._connect),
        ]

    async def _discover(self, request: web.Request) -> web.Response:
        body = await request.json()
        loop = asyncio.get_running_loop()
        self.calls.append(Call("POST", request.path, body, loop.time()))
        await self._change()
        if self.faults.hang:
            await asyncio.Event().wait()
        if self.faults.drops_discovery and request.transport is not None:
            request.transport.abort()
        app = self.apps.get(body["clientId"])
        refused = self.faults.refuse
        if refused is None and (app is None or app.client_secret != body["clientSecret"]):
            refused = api_refusal(401, "authFailed")
        if refused is not None or app is None:
            assert refused is not None, "an unknown app is refused"
            return web.json_response(refused.body, status=refused.status)
        ticket = f"t{len(self.calls)}+/="
        topics = frozenset(sub["topic"] for sub in body["subscriptions"])
        self._tickets[ticket] = (app, topics, loop.time() + TICKET_SECONDS)
        endpoint = self.url.replace("http", "ws", 1) + "/connect"
        return web.json_response({"endpoint": endpoint, "ticket": ticket})

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        app, topics, until = self._tickets.pop(request.query["ticket"])  # good for one connection
        assert until > asyncio.get_running_loop().time(), "the ticket is too old"
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        assert isinstance(request.transport, asyncio.Transport), "a TCP connection"
        self.opened += 1
        connection = Connection(self.opened, app, topics, socket, request.transport)
        connection.is_fed = not self.faults.zombie
        self.connections.append(connection)
        await self._change()
        self._start(self._misbehave(connection))
        try:
            async for message in socket:
                if message.type == WSMsgType.TEXT:
                    await self._heard(connection, json.loads(message.data))
        finally:
            connection.gone.set()
            self.connections.remove(connection)
            await self._change()
        return socket

    async def _heard(self, connection: Connection, frame: Any) -> None:
        self.frames.append((connection.number, frame))
        frame_id = frame["headers"]["messageId"]
        if frame_id in self._acks:
            future, sent_at = self._acks.pop(frame_id)
            seconds = asyncio.get_running_loop().time() - sent_at
            data = json.loads(frame["data"])
            future.set_result(Ack(frame["code"], data, seconds, connection.number))
        await self._change()

    async def _misbehave(self, connection: Connection) -> None:
        faults = self.faults
        if faults.drop_after_seconds is not None:
            await asyncio.sleep(faults.drop_after_seconds)
            self.cut(connection)
        elif faults.close_after_seconds is not None:
            await asyncio.sleep(faults.close_after_seconds)
            await connection.socket.close()
        elif self._system_ping_seconds is not None and not faults.zombie:
            with suppress(ConnectionError):
                while not connection.gone.is_set():
                    await self.ping_only(connection)
                    await asyncio.sleep(self._system_ping_seconds)

    async def ping_only(self, connection: Connection) -> None:
        """A system ping whose answer nobody waits for."""
        await self.send_frame(connection, "SYSTEM", "ping", json.dumps({"opaque": "o2"}))

    async def _cut_later(self, connection: Connection) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._cut_seconds):
                await connection.gone.wait()
        self.cut(connection)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work, name="fake dingtalk")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change(self) -> None:
        async with self._changed:
            self._changed.notify_all()
