"""The listening socket, and the server that runs an application on it."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from server.errors import SettingsError

MAX_FRAME_BYTES = 1024 * 1024
"""Of one frame from a client; files go by HTTP."""
PING_SECONDS = 20.0
GRACE_SECONDS = 3
"""What open requests get to end by themselves before they are cut: supervisors wait ten at most."""
FAREWELL_SECONDS = 0.5
"""What open sockets get to take the application's last frames before they are cut."""
_LOOK_SECONDS = 0.01
SEND_BUFFER_BYTES = 256 * 1024
"""Bounds what the kernel holds for a peer that stopped reading; its own default is megabytes."""
DEAD_PEER_SECONDS = 30
"""Unacknowledged data older than this ends a connection.

Nothing else does: a close, and the keepalive too, wait behind the data that is not read.
"""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on *host* and *port*, 0 for a free one.

    Raises:
        SettingsError: The address is not of this machine, or taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError:
        raise SettingsError("HEADWAY_HOST: must be an address of this machine") from None
    # With protocol 0 asyncio leaves Nagle's algorithm on for the accepted connections, and the
    # tail of each answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        _bind(listener, address)
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"HEADWAY_HOST, HEADWAY_PORT: cannot listen there ({error.strerror}); "
            "choose another port or end what uses it"
        ) from None
    return listener


def _bind(listener: socket.socket, address: tuple[Any, ...]) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_SECONDS * 1000)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.setblocking(False)
    listener.bind(address)
    listener.listen(1024)


def url_of(listener: socket.socket) -> str:
    """The address under which a browser on this machine reaches *listener*."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Uvicorn that tells when it listens and when it begins to end.

    Connections are ended before the application's lifespan is, so streams that never end by
    themselves have to hear of it first.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_started: Callable[[], None] | None = None,
        on_closing: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_closing = on_closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the application and begin to accept; leaves `started` False if it cannot open."""
        try:
            await super().startup(sockets)
        except SystemExit:  # why was logged; whoever runs us decides about the process
            self.should_exit = True
        if self.started and self._on_started is not None:
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the connections, then the application."""
        if self._on_closing is not None:
            self._on_closing()
            await self._part()
        await super().shutdown(sockets)

    async def _part(self) -> None:
        """Let the application say goodbye to its sockets, then cut those that take nothing.

        uvicorn would close each at once, before what was just said could leave, and then wait for
        peers that are gone.
        """
        for _ in range(round(FAREWELL_SECONDS / _LOOK_SECONDS)):
            if not self._sockets():
                return
            await asyncio.sleep(_LOOK_SECONDS)
        for protocol in self._sockets():
            protocol.transport.abort()

    def _sockets(self) -> list[WebSocketsSansIOProtocol]:
        connections = self.server_state.connections
        return [one for one in connections if isinstance(one, WebSocketsSansIOProtocol)]


def server_for(
    app: ASGIApp,
    *,
    on_started: Callable[[], None] | None = None,
    on_closing: Callable[[], None] | None = None,
    grace_seconds: int = GRACE_SECONDS,
) -> Server:
    """The server that runs *app*; its `serve` takes the listening socket."""
    config = uvicorn.Config(
        app,
        loop="auto",  # uvloop where it is installed
        lifespan="on",
        ws="websockets-sansio",
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=grace_seconds,
        access_log=False,
        log_config=None,
        server_header=False,
    )
    return Server(config, on_started=on_started, on_closing=on_closing)


class Opening:
    """An application that keeps why it could not open, instead of having it logged as one text."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.failure: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on but the reason of a failed start."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_quietly(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed":
                message = {"type": message["type"]}
            await send(message)

        try:
            await self._app(scope, receive, send_quietly)
        except Exception as error:  # noqa: BLE001 - `run` raises it again
            self.failure = error


def run(
    app: ASGIApp,
    listener: socket.socket,
    *,
    on_started: Callable[[], None] | None = None,
    on_closing: Callable[[], None] | None = None,
) -> None:
    """Serve *app* on *listener* until SIGINT or SIGTERM.

    Connections get `GRACE_SECONDS` to end, then the lifespan ends. What kept the application
    from opening or closing is raised.
    """
    opening = Opening(app)
    server = server_for(opening, on_started=on_started, on_closing=on_closing)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))
    if opening.failure is not None:
        raise opening.failure
