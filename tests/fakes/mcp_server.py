"""A small real MCP server, run as a process over stdio or streamable HTTP on 127.0.0.1.

    python -m tests.fakes.mcp_server FOLDER                  # stdio
    python -m tests.fakes.mcp_server FOLDER --port 8900      # http://127.0.0.1:8900/mcp

It writes what happens to it into `FOLDER/journal`, a line each, and reads the names of further
tools from `FOLDER/tools`. With `--legacy` it speaks only the protocol of 2025, with sessions.
"""

import argparse
import asyncio
import base64
import io
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp.types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from PIL import Image
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.forkserver import MCP_FORKS
from tests.waiting import until

Context = ServerRequestContext[Any, Any]
Handler = Callable[[Context, Mapping[str, Any]], Awaitable[types.CallToolResult]]

ANYTHING: Mapping[str, Any] = {"type": "object", "properties": {}}


def text(*parts: str, is_error: bool = False) -> types.CallToolResult:
    """A result of text blocks."""
    blocks: list[types.ContentBlock] = [types.TextContent(text=part) for part in parts]
    return types.CallToolResult(content=blocks, is_error=is_error)


def picture(colour: str) -> bytes:
    """A small PNG of one colour."""
    out = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(out, "PNG")
    return out.getvalue()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


class Program:
    """The tools and what they did."""

    def __init__(self, folder: Path, bus: InMemorySubscriptionBus) -> None:
        self._folder = folder
        self._bus = bus
        self.note(f"start {os.getpid()}")

    def note(self, line: str) -> None:
        """Tell the test what happened."""
        with (self._folder / "journal").open("a", encoding="utf-8") as journal:
            journal.write(line + "\n")

    async def list_tools(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """One page for the fixed tools, a second one for those of the file."""
        if params is None or params.cursor is None:
            return types.ListToolsResult(tools=[*_FIXED], next_cursor="further")
        named = self._folder / "tools"
        names = named.read_text("utf-8").split() if named.exists() else []
        return types.ListToolsResult(tools=[_tool(name, f"Says {name}.") for name in names])

    async def call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Run the method of the tool's name; a tool of the file says its own name."""
        self.note(f"call {params.name}")
        handler: Handler | None = getattr(self, f"_{params.name}", None)
        if handler is None:
            return text(params.name)
        return await handler(context, params.arguments or {})

    async def _add(self, _: Context, given: Mapping[str, Any]) -> types.CallToolResult:
        total = {"sum": given["a"] + given["b"]}
        return types.CallToolResult(
            content=[types.TextContent(text=json.dumps(total))], structured_content=total
        )

    async def _say(self, _: Context, given: Mapping[str, Any]) -> types.CallToolResult:
        return text(given["text"])

    async def _fail(self, _: Context, given: Mapping[str, Any]) -> types.CallToolResult:
        return text(given.get("why", "no such thing"), is_error=True)

    async def _refuse(self, _: Context, given: Mapping[str, Any]) -> types.CallToolResult:
        raise MCPError(int(given["code"]), "that cannot be")

    async def _paint(self, _: Context, given: Mapping[str, Any]) -> types.CallToolResult:
        data = _base64(picture(given["colour"]))
        return types.CallToolResult(
            content=[
                types.TextContent(text=f"all {given['colour']}"),
                types.ImageContent(data=data, mime_type=given.get("media_type", "image/png")),
            ]
        )

    async def _scrawl(self, _: Context, __: Mapping[str, Any]) -> types.CallToolResult:
        broken = _base64(b"\x89PNG nothing of the kind")
        return types.CallToolResult(
            content=[types.ImageContent(data=broken, mime_type="image/png")]
        )

    async def _show(self, _: Context, __: Mapping[str, Any]) -> types.CallToolResult:
        return types.CallToolResult(
            content=[
                types.TextContent(text="three things"),
                types.ResourceLink(name="notes", uri="file:///notes.txt", description="My notes"),
                types.EmbeddedResource(
                    resource=types.TextResourceContents(uri="file:///a.txt", text="inside a")
                ),
                types.EmbeddedResource(
                    resource=types.BlobResourceContents(
                        uri="file:///b.bin", blob=_base64(b"12345"), mime_type="application/x-b"
                    )
                ),
                types.AudioContent(data=_base64(b"123456"), mime_type="audio/wav"),
            ]
        )

    async def _nothing(self, _: Context, __: Mapping[str, Any]) -> types.CallToolResult:
        return types.CallToolResult(content=[])

    async def _misfit(self, _: Context, __: Mapping[str, Any]) -> types.CallToolResult:
        return types.CallToolResult(
            content=[types.TextContent(text="not what was declared")],
            structured_content={"n": "a text"},
        )

    async def _steps(self, context: Context, given: Mapping[str, Any]) -> types.CallToolResult:
        for step in range(1, int(given["n"]) + 1):
            await context.session.report_progress(step, float(given["n"]), f"step {step}")
        return text("all steps done")

    async def _environment(self, _: Context, given: Mapping[str, Any]) -> types.CallToolResult:
        return text(os.environ.get(given["name"], "(not set)"))

    async def _hang(self, _: Context, __: Mapping[str, Any]) -> types.CallToolResult:
        self.note("hang began")
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.note("hang cancelled")
            raise
        raise AssertionError("it sleeps for ever")

    async def _freeze(self, _: Context, __: Mapping[str, Any]) -> types.CallToolResult:
        """Read nothing and answer nothing any more, and outlive everything but a kill."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.note("frozen")
        signal.pause()
        raise AssertionError("no signal ends the pause")

    async def _crash(self, _: Context, given: Mapping[str, Any]) -> types.CallToolResult:
        self.note("crash began")
        await anyio.sleep(given.get("after_seconds", 0))
        os._exit(3)

    async def _write(self, _: Context, given: Mapping[str, Any]) -> types.CallToolResult:
        self.note(f"written {given['line']}")
        return text("written")

    async def _grow(self, context: Context, given: Mapping[str, Any]) -> types.CallToolResult:
        with (self._folder / "tools").open("a", encoding="utf-8") as named:
            named.write(given["name"] + "\n")
        await self._bus.publish(ToolsListChanged())
        if context.protocol_version < "2026":
            await context.session.send_tool_list_changed()
        return text(f"has {given['name']} now")


def _tool(name: str, description: str, *required: str, **more: Any) -> types.Tool:
    schema = {"type": "object", "properties": {field: {} for field in required}}
    return types.Tool(
        name=name, description=description, input_schema={**schema, "required": [*required]}, **more
    )


_FIXED: Sequence[types.Tool] = (
    types.Tool(
        name="add",
        description="Adds two numbers.",
        input_schema={
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        output_schema={"type": "object", "properties": {"sum": {"type": "integer"}}},
    ),
    _tool("say", "Says it.", "text"),
    _tool("fail", "Fails. " + "Why it does is a long story. " * 200),
    _tool("refuse", "Answers with an error of the protocol.", "code"),
    _tool("paint", "Paints.", "colour"),
    _tool("scrawl", "Sends a broken picture."),
    _tool("show", "Shows things of all kinds."),
    _tool("nothing", "Has no output."),
    _tool(
        "misfit",
        "Does not keep to its schema.",
        output_schema={
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
        },
    ),
    _tool("steps", "Takes its time.", "n"),
    _tool("environment", "Reads a variable.", "name"),
    _tool("hang", "Never ends."),
    _tool("freeze", "Never ends, and ends everything else."),
    _tool("crash", "Ends the server."),
    _tool("write", "Writes a line.", "line"),
    _tool("grow", "Adds a tool.", "name"),
    _tool("files.read/all", "Has a name that models cannot say."),
    types.Tool(name="bare", input_schema={"type": "object"}),
)


class Events(EventStore):
    """Lets clients take up a stream where it broke; forgets everything with the process."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        position = int(last_event_id)
        if position >= len(self._events):
            return None
        stream_id = self._events[position][0]
        for number, (of, message) in enumerate(self._events[position + 1 :], position + 1):
            if of == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


@dataclass(frozen=True, slots=True)
class Guarded:
    """Admits requests with the right token, and none of the newer protocol where told so.

    With a number in the folder's file `status` it answers calls with that status, as proxies do.
    """

    app: ASGIApp
    folder: Path
    token: str | None
    is_legacy: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            await _refuse(send, 401)
        elif self.is_legacy and headers.get("mcp-method") == "server/discover":
            await _refuse(send, 400)
        elif headers.get("mcp-method") == "tools/call" and (self.folder / "status").exists():
            await _refuse(send, int((self.folder / "status").read_text()))
        else:
            await self.app(scope, receive, send)


async def _refuse(send: Send, status: int) -> None:
    start: Message = {"type": "http.response.start", "status": status, "headers": []}
    await send(start)
    await send({"type": "http.response.body", "body": b"no"})


def build(folder: Path) -> Server[Any]:
    """The server without its transport."""
    bus = InMemorySubscriptionBus()
    program = Program(folder, bus)
    return Server(
        "fake",
        version="1",
        on_list_tools=program.list_tools,
        on_call_tool=program.call,
        on_subscriptions_listen=ListenHandler(bus),
    )


async def serve_stdio(server: Server[Any], *, is_legacy: bool) -> None:
    """Until standard input ends."""
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (reading, writing):
        if is_legacy:
            await serve_loop(server, reading, writing, lifespan_state={}, init_options=options)
        else:
            await server.run(reading, writing, options)


async def serve_http(given: argparse.Namespace, server: Server[Any]) -> None:
    """Until a signal comes."""
    events = Events() if given.resumable else None
    app = Guarded(
        server.streamable_http_app(event_store=events), given.folder, given.token, given.legacy
    )
    config = uvicorn.Config(
        app, "127.0.0.1", given.port, log_level="warning", timeout_graceful_shutdown=1
    )
    await uvicorn.Server(config).serve()


def journal_of(folder: Path) -> list[str]:
    """What happened to the servers of this folder, the oldest first."""
    path = folder / "journal"
    return path.read_text("utf-8").splitlines() if path.exists() else []


async def journalled(folder: Path, line: str, times: int = 1) -> None:
    """Wait until *line* stands so often in the journal."""

    async def stands() -> bool:
        return journal_of(folder).count(line) >= times

    await until(stands)


def command_of(folder: Path, *options: str) -> dict[str, Any]:
    """The settings of a server that is spoken to over stdio."""
    command, *arguments = MCP_FORKS.command("mcp_server", str(folder), *options)
    return {"command": command, "args": arguments}


def unforked_command_of(folder: Path) -> dict[str, Any]:
    """The same with nothing between who starts it and its process."""
    return {"command": sys.executable, "args": ["-m", "tests.fakes.mcp_server", str(folder)]}


def free_port() -> int:
    """A port that nobody listens on, for a server that has to come back to the same one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@asynccontextmanager
async def running(folder: Path, port: int, *options: str) -> AsyncIterator[None]:
    """The server as a process on *port*, once it can be reached; leaving kills it."""
    arguments = ("mcp_server", str(folder), "--port", str(port), *options)
    with (folder / "errors").open("ab") as errors:
        process = await MCP_FORKS.spawn(arguments, os.environ, folder, errors)

    async def answers() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until(answers, 30)
        yield
    finally:
        process.kill()
        await process.wait()


def main() -> None:
    """Run it as a process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--token")
    parser.add_argument("--legacy", action="store_true")
    parser.add_argument("--resumable", action="store_true")
    parser.add_argument("--wait-for", type=Path, help="begins to serve when this file is there")
    given = parser.parse_args()
    asyncio.run(_main(given))


async def _main(given: argparse.Namespace) -> None:
    gate: Path | None = given.wait_for

    async def is_open() -> bool:
        return gate is None or gate.exists()  # noqa: ASYNC240 - nothing else runs here

    await until(is_open, 60)
    server = build(given.folder)
    print(f"fake server up, token {given.token}", file=sys.stderr)
    if given.port is None:
        await serve_stdio(server, is_legacy=given.legacy)
    else:
        await serve_http(given, server)


if __name__ == "__main__":
    main()
