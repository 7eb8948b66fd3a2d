"""Stream connections through the SDK; the one file that imports it.

One SDK client is one line: it connects once and ends with its connection, so acknowledgements
leave on the socket on which their frames came, and the supervisor alone decides about the next.
The clients live on an event loop of their own in a thread, because 0.24.3 swallows cancellation,
blocks in places, and must answer pings while the application is busy.
"""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

# The SDK names `websockets.exceptions` without importing it; until something did, the first error
# ends its loop with an AttributeError (0.24.3 and 0.24.4b1).
import websockets.exceptions
from dingtalk_stream import (  # type: ignore[import-untyped]  # it has no types
    CallbackHandler,
    CallbackMessage,
    Credential,
    DingTalkStreamClient,
)

from channels.dingtalk.api import Endpoint
from channels.dingtalk.frames import FAILED, TOPICS, Answer, Handle
from channels.errors import LineError
from channels.gate import Gate
from channels.supervise import Lost

log = logging.getLogger(__name__)

T = TypeVar("T")

SILENCE_SECONDS = 150.0
"""The platform pings every 20 to 60 s; a line that is fed no more goes on answering pings."""
ANNOUNCED_SECONDS = 10.0
"""From the announcement of a disconnect to the end of the TCP connection."""
DRAIN_SECONDS = 1.0
"""What running acknowledgements are given when a line is closed without an announcement."""
CLOSE_SECONDS = 2.0
"""For the close frame of the other side."""
STOP_SECONDS = 5.0


class _Over(BaseException):
    """Ends the SDK's endless loop: everything less it catches, sleeps over and tries again."""


@asynccontextmanager
async def open_stream(
    client_id: str,
    discover: Callable[[], Awaitable[Endpoint]],
    handle: Handle,
    heard: Callable[[], None],
) -> AsyncIterator["Stream"]:
    """A place where lines of one app can be opened.

    Args:
        client_id: Of the app; its secret never reaches the SDK.
        discover: Says where to connect; raises LineError.
        handle: Takes what is pushed.
        heard: Called for each frame, on the SDK's thread.
    """
    thread = _LoopThread(f"dingtalk-{client_id}")
    try:
        yield Stream(client_id, thread, discover, handle, heard)
    finally:
        await thread.stop()


class Stream:
    """Opens lines; made by `open_stream`."""

    def __init__(
        self,
        client_id: str,
        thread: "_LoopThread",
        discover: Callable[[], Awaitable[Endpoint]],
        handle: Handle,
        heard: Callable[[], None],
    ) -> None:
        self._client_id = client_id
        self._thread = thread
        self._discover = discover
        self._handle = handle
        self._heard = heard

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["StreamLine"]:
        """A line that is open; leaving it answers what was heard, then closes.

        Raises:
            LineError: It cannot be had.
        """
        endpoint = await self._discover()
        line = StreamLine()
        gate = self._thread.gate()
        client = _Client(self._client_id, endpoint, self._bridge(), self._heard, line.lose)
        try:
            await gate.run(client.open())
            yield line
        finally:
            with suppress(LineError):  # the end of the thread has closed the connection
                await gate.run(client.end())

    def _bridge(self) -> Handle:
        """The handler as the SDK's thread calls it."""
        application = asyncio.get_running_loop()

        async def handle(topic: str, raw: str) -> Answer:
            work = self._handle(topic, raw)
            try:
                return await asyncio.wrap_future(
                    asyncio.run_coroutine_threadsafe(work, application)
                )
            except (RuntimeError, FutureCancelled):  # the application ends
                work.close()
                return Answer(FAILED, "stopping")

        return handle


class StreamLine:
    """One open connection, as the supervisor sees it; used on the application's loop."""

    silence_seconds = SILENCE_SECONDS

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[Lost] = self._loop.create_future()

    async def wait_lost(self) -> Lost:
        """Wait until the connection ends or is announced to end."""
        return await asyncio.shield(self._lost)

    def lose(self, lost: Lost) -> None:
        """Say that it is of no more use; from any thread, the first word counts."""
        with suppress(RuntimeError):  # the application's loop is closed
            self._loop.call_soon_threadsafe(self._set, lost)

    def _set(self, lost: Lost) -> None:
        if not self._lost.done():
            self._lost.set_result(lost)


class _Client(DingTalkStreamClient):  # type: ignore[misc]  # the SDK has no types
    """The SDK's client for the length of one connection; used on its thread's loop only."""

    def __init__(
        self,
        client_id: str,
        endpoint: Endpoint,
        handle: Handle,
        heard: Callable[[], None],
        lose: Callable[[Lost], None],
    ) -> None:
        self._socket: websockets.ClientConnection | None = None
        self._opened = asyncio.Event()
        super().__init__(Credential(client_id, ""), logger=_SILENT)
        self._endpoint: Endpoint | None = endpoint
        self._heard = heard
        self._lose = lose
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_announced = False
        self._is_ending = False
        self._tasks: list[asyncio.Task[None]] = []
        for topic in TOPICS:
            self.register_callback_handler(topic, _Handler(topic, handle))

    @property
    def websocket(self) -> websockets.ClientConnection | None:
        """Where the SDK keeps its connection."""
        return self._socket

    @websocket.setter
    def websocket(self, socket: websockets.ClientConnection | None) -> None:
        self._socket = socket
        if socket is not None:
            self._opened.set()

    def open_connection(self) -> dict[str, str]:
        """Give the SDK the endpoint that was found for it, once: a client is one connection."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is None:
            raise _Over
        return {"endpoint": endpoint.url, "ticket": endpoint.ticket}

    async def open(self) -> None:
        """Connect.

        Raises:
            LineError: The platform does not let us.
        """
        running = asyncio.create_task(self._run(), name="dingtalk-client")
        opened = asyncio.create_task(_wait(self._opened), name="dingtalk-opened")
        self._tasks = [running, opened]
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        if self._socket is None:
            raise LineError("the handshake failed")

    async def end(self) -> None:
        """Let running acknowledgements leave, then close, within `CLOSE_SECONDS` more."""
        seconds = ANNOUNCED_SECONDS if self._is_announced else DRAIN_SECONDS
        self._is_ending = not self._is_announced
        if self._socket is not None:
            await self._drain(self._socket, seconds)
            self._is_ending = True
            await _close(self._socket)
        for task in self._tasks:
            while not task.done():  # the SDK catches a cancellation and sleeps
                task.cancel()
                await asyncio.wait({task}, timeout=0.1)

    async def route_message(self, json_message: Any) -> str:
        """Handle one frame; what this returns tells the SDK whether to close, which it never may.

        At the announcement of a disconnect the SDK would close at once, and lose the
        acknowledgements that are still to come. And it decodes `data` before any handler sees
        it, so that a frame whose data is no JSON would stay unacknowledged.
        """
        self._heard()
        if not isinstance(json_message, dict) or self._is_ending:
            return ""
        headers = json_message.get("headers")
        topic = headers.get("topic") if isinstance(headers, dict) else None
        match json_message.get("type"):
            case "SYSTEM" if topic == self.TAG_DISCONNECT:
                self._is_announced = True
                self._lose(Lost("the platform announced a disconnect", is_open=True))
            case "CALLBACK":
                wrapped = {**json_message, "data": json.dumps({"raw": json_message.get("data")})}
                await self._acknowledge(wrapped)
            case _:
                await super().route_message(json_message)
        return ""

    async def _acknowledge(self, frame: dict[str, Any]) -> None:
        self._running += 1
        self._idle.clear()
        try:
            await super().route_message(frame)
        except websockets.exceptions.ConnectionClosed:
            pass  # the platform may push it again
        finally:
            self._running -= 1
            if self._running == 0:
                self._idle.set()

    async def _run(self) -> None:
        """The SDK's loop, for one connection."""
        watching = asyncio.create_task(self._watch(), name="dingtalk-watch")
        try:
            await self.start()
        except _Over:
            pass
        finally:
            watching.cancel()
            if self._socket is not None:
                self._socket.transport.abort()  # closed already, unless the thread dies
            self._lose(Lost("the connection ended"))

    async def _watch(self) -> None:
        """Tell of the end at once; the SDK sleeps for seconds after it."""
        await self._opened.wait()
        if self._socket is not None:
            await self._socket.wait_closed()
            self._lose(Lost(f"closed with {self._socket.close_code}"))

    async def _drain(self, socket: websockets.ClientConnection, seconds: float) -> None:
        waits = {
            asyncio.create_task(_wait(self._idle)),
            asyncio.create_task(socket.wait_closed()),
        }
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()


class _Handler(CallbackHandler):  # type: ignore[misc]  # the SDK has no types
    """Takes one topic; an exception here would mean no acknowledgement."""

    def __init__(self, topic: str, handle: Handle) -> None:
        self.dingtalk_client: object = None
        self.logger = _SILENT
        self._topic = topic
        self._handle = handle

    async def process(self, message: CallbackMessage) -> tuple[int, object]:
        """Hand the frame's data over and acknowledge by what comes back."""
        raw = message.data.get("raw")
        answer = await self._handle(self._topic, raw if isinstance(raw, str) else "")
        return answer.code, answer.response


class _LoopThread:
    """An event loop in a thread; a daemon, since a stuck SDK must not keep the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()

    def gate(self) -> Gate:
        """The way onto the thread's loop; both are begun anew if something ended them."""
        if not self._thread.is_alive():
            log.error("[dingtalk] the thread has died and is begun anew")
            self._begin()
        return self._gate

    async def stop(self) -> None:
        """End the loop and whatever runs on it."""
        with suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    def _begin(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._gate = Gate(self._loop)
        self._thread = threading.Thread(
            target=_serve, args=(self._loop, self._gate), name=self._name, daemon=True
        )
        self._thread.start()


def _serve(loop: asyncio.AbstractEventLoop, gate: Gate) -> None:
    """Run *loop* until it is stopped, or something in it ends the thread."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        gate.end()


async def _close(socket: websockets.ClientConnection) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await socket.close()
    except TimeoutError:
        socket.transport.abort()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


_SILENT = logging.Logger("dingtalk_stream", logging.CRITICAL + 1)
"""What the SDK logs holds tickets and messages."""
