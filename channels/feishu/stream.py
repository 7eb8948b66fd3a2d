"""The long connection: the one file that knows the SDK, its thread and its loop.

The SDK (`lark_oapi.ws.client`, 1.7.5) takes an event loop when it is imported and uses it ever
after, has no way to stop, waits for handlers on that loop, and ends silently on some refusals. So
it gets a thread with a loop of its own, which all bots share; each connection is a new client that
never reconnects by itself; and the parts of a client that would stand in the way are replaced on
the instance. They are private, which is why the SDK is pinned exactly.
"""

import asyncio
import base64
import json
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from websockets.exceptions import ConnectionClosed, WebSocketException

from channels.errors import LineError
from channels.feishu.api import Discovered
from channels.feishu.fields import Fields
from channels.gate import Gate
from channels.supervise import LineHealth, Lost

logger = logging.getLogger(__name__)

T = TypeVar("T")

_SDK = "lark_oapi"
_CLIENT, _HANDLER = f"{_SDK}.ws.client", f"{_SDK}.event.dispatcher_handler"
_CLOSE_SECONDS = 2.0
"""For the answer to the close frame; without it the platform goes on feeding a dead line."""
_JOIN_SECONDS = 5.0
_QUIET = 100
"""A log level above all that the SDK uses: at INFO it writes the address with its ticket."""


@dataclass(frozen=True, slots=True)
class Ack:
    """What a pushed event is answered."""

    code: Literal[200, 500]
    """500 asks for another push."""
    answer: Fields | None = None
    """Shown to whoever clicked."""


Hear = Callable[[bytes], Coroutine[Any, Any, Ack]]
"""Takes the payload of an event, on the loop of the application."""


class SdkThread:
    """The thread in which the SDK is imported and runs; begun by its first use."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: asyncio.Future[asyncio.AbstractEventLoop] | None = None
        self._sdk: Any = None
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, Gate] = WeakKeyDictionary()

    async def ready(self) -> asyncio.AbstractEventLoop:
        """The loop of the thread, which is begun anew if it has ended.

        Raises:
            LineError: The SDK cannot be imported.

        Cancelling lets the import go on; who asks again waits for the same one.
        """
        if self._started is None or self._thread is None or not self._thread.is_alive():
            self._started = self._start()
        return await asyncio.shield(self._started)

    async def run(self, loop: asyncio.AbstractEventLoop, make: Callable[[Any], Awaitable[T]]) -> T:
        """Run *make* with the SDK's module on *loop*; cancelling cancels it there.

        Raises:
            LineError: The loop has ended.
        """

        async def inside() -> T:
            return await make(self._sdk)

        gate = self._gates.get(loop)
        if gate is None:
            raise LineError("the SDK's thread has ended")
        return await gate.run(inside())

    def _start(self) -> "asyncio.Future[asyncio.AbstractEventLoop]":
        here = asyncio.get_running_loop()
        started: asyncio.Future[asyncio.AbstractEventLoop] = here.create_future()
        loop = self._loop = asyncio.new_event_loop()
        gate = self._gates[loop] = Gate(loop)

        def fail(error: BaseException) -> None:
            started.set_exception(LineError(f"the SDK failed: {type(error).__name__}"))

        def body() -> None:
            asyncio.set_event_loop(loop)
            try:
                self._sdk = _import(loop)
            except BaseException as error:
                here.call_soon_threadsafe(fail, error)
                loop.close()
                raise
            with suppress(RuntimeError):  # the application ended while the SDK was imported
                here.call_soon_threadsafe(started.set_result, loop)
            _run(loop, gate, self._forget)

        self._thread = threading.Thread(target=body, name="feishu-sdk", daemon=True)
        self._thread.start()
        return started

    def _forget(self) -> None:
        """The loop takes nothing more; whoever comes now gets another one."""
        self._started = None

    async def close(self) -> None:
        """End the loop and the thread."""
        thread, loop = self._thread, self._loop
        if thread is None or loop is None:
            return
        with suppress(RuntimeError):  # closed already
            loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join, _JOIN_SECONDS)


def _import(loop: asyncio.AbstractEventLoop) -> Any:
    """Import the SDK here and now: it looks for a loop."""
    sdk: Any = None if _SDK in sys.modules else _import_connection()
    if sdk is None:
        sdk = import_module(_CLIENT)
    sdk.loop = loop  # the module's own is whatever it found or made at import
    return sdk


def _import_connection() -> ModuleType | None:
    """The module of the connection without those of the interfaces, 10 000 that nobody uses here.

    The package imports them all, and so does the event handler that the client imports to name its
    type. So the package is not executed before somebody wants more of it than its connection, and
    in the handler's place stands a name meanwhile.

    None if the SDK is laid out in another way than 1.7.5; then it has to be imported whole.
    """
    if (spec := find_spec(_SDK)) is None or spec.loader is None:
        return None
    package = sys.modules[_SDK] = module_from_spec(spec)
    handler = sys.modules[_HANDLER] = ModuleType(_HANDLER)
    handler.__dict__["EventDispatcherHandler"] = object
    try:
        client = import_module(_CLIENT)
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == _SDK]:
            del sys.modules[name]
        return None
    del sys.modules[_HANDLER]
    execute = partial(spec.loader.exec_module, package)

    def complete(name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        del package.__dict__["__getattr__"]
        execute()
        client.__dict__["EventDispatcherHandler"] = package.EventDispatcherHandler
        return getattr(package, name)

    package.__dict__["__getattr__"] = complete
    return client


def _run(loop: asyncio.AbstractEventLoop, gate: Gate, forget: Callable[[], None]) -> None:
    loop.set_exception_handler(_note)
    try:
        loop.run_forever()
    finally:
        forget()
        gate.end()


def _note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception that nobody waits for: by its type alone, its words may hold a ticket."""
    logger.debug("feishu sdk: %s", type(context.get("exception")).__name__)


class FeishuLine:
    """One open connection."""

    def __init__(self, client: Any, lost: asyncio.Future[str], grace_seconds: float) -> None:
        self._client = client
        self._lost = lost
        self._grace_seconds = grace_seconds

    @property
    def silence_seconds(self) -> float:
        """The platform answers every ping."""
        return float(self._client._ping_interval) + self._grace_seconds

    async def wait_lost(self) -> Lost:
        """Wait until the far end closes, or reading breaks."""
        return Lost(await asyncio.shield(self._lost))


@asynccontextmanager
async def open_line(
    thread: SdkThread,
    found: Discovered,
    hear: Hear,
    health: LineHealth,
    grace_seconds: float,
) -> AsyncIterator[FeishuLine]:
    """Connect to what discovery found for this one connection; leaving closes it.

    Raises:
        LineError: The handshake was refused, or nobody is there.
    """
    here = asyncio.get_running_loop()
    lost: asyncio.Future[str] = here.create_future()

    def lose(reason: str) -> None:
        if not lost.done():
            lost.set_result(reason)

    async def build(sdk: Any) -> _Ear:
        return _Ear(sdk, _client(sdk, found), hear, health, here, lose)

    loop = await thread.ready()
    ear = await thread.run(loop, build)
    try:
        await thread.run(loop, lambda _: ear.connect())
        yield FeishuLine(ear.client, lost, grace_seconds)
    finally:
        with suppress(LineError):  # the end of the thread has closed the connection
            await thread.run(loop, lambda _: ear.close())


def _client(sdk: Any, found: Discovered) -> Any:
    """A client that goes to what was *found*, without a discovery or a secret of its own."""
    client = sdk.Client("", "", auto_reconnect=False)
    sdk.logger.setLevel(_QUIET)
    client._get_conn_url = lambda: found.url
    client._ping_interval = found.ping_seconds
    client._configure = lambda settings: _set_ping(client, settings.PingInterval)
    return client


def _set_ping(client: Any, seconds: object) -> None:
    """The platform may change the interval with each pong; nothing else it says is used."""
    if isinstance(seconds, int) and seconds >= 1:
        client._ping_interval = seconds


class _Ear:
    """What listens on one connection; its methods run in the SDK's thread."""

    def __init__(
        self,
        sdk: Any,
        client: Any,
        hear: Hear,
        health: LineHealth,
        home: asyncio.AbstractEventLoop,
        lose: Callable[[str], None],
    ) -> None:
        self.client = client
        self._hear = hear
        self._health = health
        self._home = home
        self._lose = lose
        self._tasks: set[asyncio.Task[Any]] = set()
        self._errors = (OSError, WebSocketException, sdk.ClientException, sdk.ServerException)
        self._receive = client._receive_message_loop
        self._handle = client._handle_message
        client._receive_message_loop = self.receive
        client._handle_message = self.handle
        client._handle_data_frame = self.answer

    async def connect(self) -> None:
        """Shake hands; then pings go out by themselves."""
        try:
            await self.client._connect()
        except self._errors as error:
            raise LineError(_reason(error)) from None
        self._keep(asyncio.create_task(self.client._ping_loop(), name="feishu-ping"))

    async def receive(self) -> None:
        """Read until the connection is over."""
        reason = "closed"
        try:
            await self._receive()
        except self._errors as error:
            reason = _reason(error)
        except asyncio.CancelledError:  # the loop ends, and with it nobody would close the socket
            reason = "the SDK's thread has ended"
            self.client._conn.transport.abort()
            raise
        finally:
            with suppress(RuntimeError):  # the application's loop is closed
                self._home.call_soon_threadsafe(self._lose, reason)

    async def handle(self, message: bytes) -> None:
        """Take one frame of whatever kind."""
        task = asyncio.current_task()
        assert task is not None, "the SDK makes a task for each frame"
        self._keep(task)  # it keeps none itself
        self._health.heard()
        await self._handle(message)

    async def answer(self, frame: Any) -> None:
        """Bring an event to the application and acknowledge it when it is kept there.

        The SDK's own would call a handler on this loop and wait: all bots and all pings with it.
        """
        headers = {header.key: header.value for header in frame.headers}
        payload: bytes | None = frame.payload
        total = int(headers.get("sum") or 1)
        if total > 1:
            number = int(headers["seq"])
            payload = self.client._combine(headers["message_id"], total, number, payload)
        if payload is None:
            return
        started = time.monotonic()
        ack = await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(self._hear(payload), self._home)
        )
        taken = frame.headers.add()
        taken.key, taken.value = "biz_rt", str(int((time.monotonic() - started) * 1000))
        frame.payload = _ack_bytes(ack)
        await self.client._write_message(frame.SerializeToString())

    async def close(self) -> None:
        """Say goodbye; a line cut without a close frame goes on being fed for minutes."""
        connection = self.client._conn
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.client._disconnect()
        except TimeoutError:
            if connection is not None:
                connection.transport.abort()
        self.client._cache._cron.cancel()  # would run for ever
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _ack_bytes(ack: Ack) -> bytes:
    body: dict[str, object] = {"code": ack.code}
    if ack.answer is not None:
        answer = json.dumps(ack.answer, ensure_ascii=False).encode()
        body["data"] = base64.b64encode(answer).decode()
    return json.dumps(body).encode()


def _reason(error: Exception) -> str:
    """What may be said of an error of the SDK or of the socket: type and number."""
    if isinstance(error, ConnectionClosed):
        code = error.rcvd.code if error.rcvd else None
    else:
        code = getattr(error, "code", None)
    return f"{type(error).__name__}{f' {code}' if isinstance(code, int) else ''}"
