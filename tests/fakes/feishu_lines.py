"""The long connections of the local Feishu: what it pushes, how often, and what goes wrong."""

import asyncio
import base64
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from aiohttp import WSMsgType, web

from tests.fakes.feishu_frames import CONTROL, DATA, Frame, decode, encode

ACK_SECONDS = 3.0
LADDER_SECONDS = (15.0, 300.0, 3600.0, 21600.0)
"""Between the pushes of an event that was not acknowledged."""

Welcome = Literal["open", "reject", "drop"]


@dataclass
class Push:
    """One event on its way."""

    event: dict[str, Any]
    tries: int = 0
    acks: list[int] = field(default_factory=list)
    """The codes of the acknowledgements that came, late ones too."""
    answer: Any = None
    """What came back in the acknowledgement of a click."""
    ack_seconds: float | None = None
    """From the last push to its acknowledgement."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """It was acknowledged with 200, or the pushing was given up."""

    @property
    def is_acked(self) -> bool:
        """Whether the platform believes that it arrived."""
        return 200 in self.acks


class Connection:
    """One open long connection."""

    def __init__(self, socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        self.socket = socket
        self.transport = transport
        self.is_mute = False
        self.pings = 0
        self.closed = asyncio.Event()
        self.got_close_frame = False
        self._waiting: dict[str, asyncio.Future[Frame]] = {}
        self._late: dict[str, Push] = {}

    def drop(self) -> None:
        """Cut it without a close frame."""
        self.transport.abort()

    async def listen(self, ping_seconds: int) -> None:
        """Answer pings and take acknowledgements until it is closed."""
        async for message in self.socket:
            if self.is_mute:
                continue
            if message.type is WSMsgType.PING:
                await self.socket.pong(message.data)
            elif message.type is WSMsgType.BINARY:
                await self._take(decode(message.data), ping_seconds)
        self.got_close_frame = self.socket.close_code == 1000

    async def _take(self, frame: Frame, ping_seconds: int) -> None:
        if frame.method == CONTROL:
            self.pings += 1
            settings = {
                "ReconnectCount": -1,
                "ReconnectInterval": 1,
                "ReconnectNonce": 1,
                "PingInterval": ping_seconds,
            }
            pong = Frame(CONTROL, {"type": "pong"}, json.dumps(settings).encode())
            await self.socket.send_bytes(encode(pong))
            return
        key = frame.headers["message_id"]
        waiting = self._waiting.pop(key, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(frame)
        elif key in self._late:
            _note(self._late.pop(key), frame)

    async def push(self, push: Push, key: str, parts: int) -> None:
        """Send the event and wait for its acknowledgement."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting[key] = loop.create_future()
        started = loop.time()
        for frame in _frames(push.event, key, parts):
            await self.socket.send_bytes(encode(frame))
        try:
            async with asyncio.timeout(ACK_SECONDS):
                frame = await waiting
        except TimeoutError:
            self._late[key] = push
            return
        push.ack_seconds = loop.time() - started
        _note(push, frame)


def _frames(event: dict[str, Any], key: str, parts: int) -> list[Frame]:
    payload = json.dumps(event, ensure_ascii=False).encode()
    size = -(-len(payload) // parts)
    frames = [
        Frame(
            DATA,
            {
                "type": "event",
                "message_id": key,
                "trace_id": "t1",
                "sum": str(parts),
                "seq": str(number),
            },
            payload[number * size : (number + 1) * size],
        )
        for number in range(parts)
    ]
    random.shuffle(frames)
    return frames


def _note(push: Push, frame: Frame) -> None:
    ack = json.loads(frame.payload)
    push.acks.append(ack["code"])
    if ack.get("data"):
        push.answer = json.loads(base64.b64decode(ack["data"]))


class Lines:
    """All long connections of one app, and what is pushed over them."""

    def __init__(self) -> None:
        self.welcome: Welcome = "open"
        self.ping_seconds = 120
        self.ladder: Sequence[float] = LADDER_SECONDS
        self.parts = 1
        """Into how many frames an event is split."""
        self.accepted = 0
        """Connections that were ever opened."""
        self.live: list[Connection] = []
        self.changed = asyncio.Condition()
        self.pushes: list[Push] = []
        self._keys = count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One connection, from its handshake to its end."""
        if self.welcome == "reject":
            headers = {"handshake-status": "403", "handshake-msg": "forbidden"}
            return web.Response(status=403, headers=headers)
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        assert isinstance(request.transport, asyncio.Transport), "an open request has one"
        connection = Connection(socket, request.transport)
        self.accepted += 1
        if self.welcome == "drop":
            connection.drop()
            return socket
        await self._set(connection, is_live=True)
        try:
            await connection.listen(self.ping_seconds)
        finally:
            await self._set(connection, is_live=False)
            connection.closed.set()
        return socket

    async def _set(self, connection: Connection, *, is_live: bool) -> None:
        async with self.changed:
            if is_live:
                self.live.append(connection)
            else:
                self.live.remove(connection)
            self.changed.notify_all()

    async def until_live(self) -> Connection:
        """Wait for an open connection; the newest."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.live)
            return self.live[-1]

    async def cut(self) -> None:
        """Drop a connection without a close frame, as soon as there is one."""
        connection = await self.until_live()
        connection.drop()
        await connection.closed.wait()

    def push(self, event: dict[str, Any], *, again: bool = True) -> Push:
        """Push an event until it is acknowledged, as often as the ladder has rungs."""
        push = Push(event)
        self.pushes.append(push)
        task = asyncio.create_task(self._keep_pushing(push, again), name="push")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return push

    async def _keep_pushing(self, push: Push, again: bool) -> None:
        try:
            for pause in (0.0, *(self.ladder if again else ())):
                await asyncio.sleep(pause)
                async with self.changed:
                    await self.changed.wait_for(lambda: self.live)
                    connection = random.choice(self.live)
                push.tries += 1
                await connection.push(push, f"f{next(self._keys)}", self.parts)
                if push.is_acked:
                    return
        except ConnectionError:
            return
        finally:
            push.done.set()

    async def close(self) -> None:
        """Drop what is open and push nothing more."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for connection in list(self.live):
            connection.drop()
