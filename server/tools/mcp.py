"""The tools of the MCP servers that the settings name.

The SDK is imported when a server is configured, and not before: it takes half a second and 60 MB.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Final, Literal, TextIO

import anyio

from guard import ToolContract
from guard.canonical import decode_result
from guard.volatile import volatile_keys_of
from server.errors import SettingsError, ToolError
from server.settings import McpSettings
from server.tools.base import (
    ACTIONS,
    OUTCOME_UNKNOWN,
    Kind,
    Tool,
    ToolContext,
    ToolResult,
    ToolSpec,
    error_result,
)
from server.tools.mcp_keeper import (
    CONNECT_SECONDS,
    AnswerLost,
    Connect,
    Keeper,
    LineFailed,
    NotTaken,
    RemoteTool,
    Watch,
)

log = logging.getLogger(__name__)

START_SECONDS: Final = 10.0
"""How long the start waits for all servers together; one that is slower joins later."""

NAME_CAP: Final = 64
"""Characters that models admit in the name of a tool."""

SEPARATOR: Final = "__"

DESCRIPTION_CAP: Final = 2_000
"""Characters; every request of a session carries the description."""

OUTPUT_CAP_BYTES: Final = 64_000

STAND_INS_CAP: Final = 128
"""Of one server; models invent names without end, and calls are counted by name."""

_KEYS_CHARACTERS: Final = 200

_UNSAYABLE = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class McpHealth:
    """How one server is."""

    name: str
    state: Literal["up", "degraded"]
    """Degraded: it cannot be reached. The rest works without it."""
    tools: int
    """That it listed last."""
    reason: str
    """Why it is degraded; safe to show."""


def tool_name(server: str, tool: str) -> str:
    """What models call the tool.

    It depends on the two names alone, so a name in an old history never comes to mean another
    tool. One that models cannot say is made plain, and kept apart from others by its hash.
    """
    room = NAME_CAP - len(server) - len(SEPARATOR)
    plain = _UNSAYABLE.sub("_", tool)
    if not tool or plain != tool or len(tool) > room:
        digest = hashlib.sha256(tool.encode(errors="surrogatepass")).hexdigest()[:8]
        plain = f"{plain[: room - len(digest) - 1]}_{digest}"
    return f"{server}{SEPARATOR}{plain}"


def _decoded(content: str) -> object:
    try:
        return decode_result(content)
    except ValueError:
        return None


def contracts_of(settings: Mapping[str, McpSettings]) -> dict[str, ToolContract]:
    """What the settings say of tools, by the name that models know."""
    return {
        tool_name(server, tool): contract.contract()
        for server, one in settings.items()
        for tool, contract in one.contracts.items()
    }


class McpServer:
    """One server: what it offers, and its calls."""

    def __init__(self, name: str, settings: McpSettings, connect: Connect) -> None:
        self.name = name
        self.keeper = Keeper(name, connect, self.learn)
        self._settings = settings
        self.tools: tuple[McpTool, ...] | None = None
        """As listed last; kept when the connection is lost. None before the first time."""
        self._by_name: Mapping[str, McpTool] = {}
        self._awaited: set[str] = set()
        self._kinds: dict[str, Kind] = {
            tool_name(name, tool): kind for tool, kind in settings.kinds.items()
        }
        self._looked_at = {tool_name(name, tool) for tool in settings.contracts}
        """Tools of whose results it is known what counts, or was said that it is not."""

    @property
    def health(self) -> McpHealth:
        """How it is."""
        reason = "" if self.keeper.line is not None else self.keeper.reason
        state: Literal["up", "degraded"] = "degraded" if reason else "up"
        return McpHealth(self.name, state, len(self.tools or ()), reason)

    def find(self, name: str) -> "McpTool | None":
        """The tool of that name; a stand-in as long as nobody knows what the server offers."""
        if self.tools is not None:
            return self._by_name.get(name)
        if len(self._awaited) < STAND_INS_CAP:
            self._awaited.add(name)
        if name not in self._awaited:
            return None
        return McpTool(self, self._spec(name, RemoteTool("", "", {})), None)

    async def call(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolResult:
        """Call the tool that models know by *name*.

        Raises:
            ToolError: The server cannot be reached, or does not offer it; nothing was done.
        """
        try:
            return await self._send(name, arguments, context)
        except NotTaken as refusal:
            if self.keeper.line is not None:
                raise self._unavailable(str(refusal)) from None
        try:  # the connection was found to be over before the server looked at the call
            return await self._send(name, arguments, context)
        except NotTaken as refusal:
            raise self._unavailable(str(refusal)) from None

    async def _send(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolResult:
        line = await self.keeper.reach()
        if line is None:
            raise self._unavailable(self.keeper.reason)
        tool = self._by_name.get(name)
        if tool is None or tool.remote_name is None:
            raise ToolError("unavailable", f"the MCP server {self.name} offers no such tool now")
        try:
            result = await line.call(tool.remote_name, arguments, context.progress)
        except AnswerLost as loss:
            return self._lost(str(loss), tool.spec.kind)
        if name not in self._looked_at and not result.is_error:
            self._look(name, _decoded(result.content))
        return result

    def _unavailable(self, reason: str) -> ToolError:
        words = f"the MCP server {self.name} is not available ({reason}); nothing was done"
        return ToolError("unavailable", words)

    def _lost(self, reason: str, kind: Kind) -> ToolResult:
        words = f"the MCP server {self.name} did not answer ({reason})"
        if kind not in ACTIONS:
            return error_result("unavailable", words)
        words += f"; {OUTCOME_UNKNOWN}"
        return replace(error_result("interrupted", words), is_unsure=True)

    def learn(self, listed: Sequence[RemoteTool]) -> None:
        """Take the list; of two tools with one name the first counts."""
        wanted = self._settings.tools
        by_name: dict[str, McpTool] = {}
        for remote in listed:
            if wanted is None or remote.name in wanted:
                name = tool_name(self.name, remote.name)
                by_name.setdefault(name, McpTool(self, self._spec(name, remote), remote.name))
                if remote.result_schema is not None and remote.result_schema.get("properties"):
                    self._look(name, remote.result_schema)
        self._by_name = by_name
        self.tools = tuple(by_name[name] for name in sorted(by_name))

    def _look(self, name: str, shown: object) -> None:
        """Say once of a tool that its results look new each time, for want of a contract."""
        if name in self._looked_at:
            return
        self._looked_at.add(name)
        keys = volatile_keys_of(shown)
        if keys:
            log.warning(
                "[mcp] results of tool=%s carry %s: to the guard each is new; say in "
                "[mcp.%s.contracts] what counts",
                name,
                ",".join(keys)[:_KEYS_CHARACTERS],
                self.name,
            )

    def _spec(self, name: str, remote: RemoteTool) -> ToolSpec:
        kind = self._kinds.get(name, self._settings.kind)
        return ToolSpec(
            name=name,
            description=_bounded(remote.description),
            # Gateways refuse an object without them.
            parameters={"type": "object", "properties": {}, **remote.schema},
            kind=kind,
            parallel=kind == "read",
            timeout_seconds=self._settings.timeout_seconds,
            output_cap_bytes=OUTPUT_CAP_BYTES,
        )


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of a server."""

    server: McpServer
    spec: ToolSpec
    remote_name: str | None
    """What the server calls it; None for a stand-in."""

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return self.spec.kind

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        return await self.server.call(self.spec.name, arguments, context)


class McpServers:
    """All servers; a `ToolSource`."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self.servers = {server.name: server for server in servers}
        self._lists: tuple[object, ...] = ()
        self._offered: tuple[Tool, ...] = ()

    def offered(self) -> Sequence[Tool]:
        """What the servers listed last."""
        lists = tuple(server.tools or () for server in self.servers.values())
        if lists != self._lists:
            self._lists = lists
            self._offered = tuple(tool for tools in lists for tool in tools)
        return self._offered

    def find(self, name: str) -> Tool | None:
        """By the server in its name."""
        server = self.servers.get(name.partition(SEPARATOR)[0])
        return None if server is None else server.find(name)

    def health(self) -> list[McpHealth]:
        """How each is."""
        return [server.health for server in self.servers.values()]


@asynccontextmanager
async def open_mcp(
    settings: Mapping[str, McpSettings],
    environment: Mapping[str, str],
    *,
    start_seconds: float = START_SECONDS,
) -> AsyncIterator[McpServers]:
    """Connect to all servers; one that cannot be reached is tried again for ever.

    Args:
        settings: By the server's name.
        environment: Of this process; what child processes inherit is chosen from it.
        start_seconds: How long to wait for all of them together.
    Raises:
        SettingsError: A server is configured, and the SDK is not installed.

    Leaving closes the connections and ends the child processes, within 7 s.
    """
    servers = [
        McpServer(name, server, _connect(server, environment)) for name, server in settings.items()
    ]
    tasks = [
        asyncio.create_task(server.keeper.run(), name=f"mcp-{server.name}") for server in servers
    ]
    try:
        await _all_tried(servers, start_seconds)
        yield McpServers(servers)
    finally:
        for server in servers:
            server.keeper.stop()
        if tasks:
            await asyncio.wait(tasks)


async def check_mcp(
    settings: McpSettings, environment: Mapping[str, str], errors: TextIO
) -> tuple[str | None, list[str]]:
    """Connect once: what is wrong, or None, and the names of the tools that the server lists.

    Args:
        errors: Gets what a child process says on its error output.
    """
    with anyio.move_on_after(CONNECT_SECONDS):
        try:
            async with _connect(settings, environment, errors)(Watch()) as line:
                return None, [tool.name for tool in await line.list_tools()]
        except LineFailed as error:
            return str(error), []
    return f"no answer within {CONNECT_SECONDS:g} s", []


async def _all_tried(servers: Sequence[McpServer], seconds: float) -> None:
    tried = [asyncio.create_task(server.keeper.tried()) for server in servers]
    if tried:
        _, slow = await asyncio.wait(tried, timeout=seconds)
        for task in slow:
            task.cancel()


def _connect(
    settings: McpSettings, environment: Mapping[str, str], errors: TextIO | None = None
) -> Connect:
    if find_spec("mcp") is None:
        raise SettingsError("HEADWAY_CONFIG [mcp]: needs the package mcp; install headway[mcp]")
    # Only here, since it brings the SDK, which is not installed with every Headway.
    from server.tools.mcp_stream import open_line

    return lambda watch: open_line(settings, environment, watch, errors)


def _bounded(description: str) -> str:
    if len(description) <= DESCRIPTION_CAP:
        return description
    return description[: DESCRIPTION_CAP - 1] + "…"
