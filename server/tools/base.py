"""What a tool is, and the registry that runs one by name."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from server.errors import Locale, ToolError
from server.log import fault_of
from server.message import clean_text
from server.tools.arguments import parse_arguments
from server.tools.cut import cut_result, size_bytes

_log = logging.getLogger(__name__)

Kind = Literal["read", "write", "send", "wait"]
"""What a call does to the world: reads may be repeated after a crash, writes and sends never."""


@dataclass(frozen=True, slots=True)
class ToolPicture:
    """A picture that goes to the model beside the text of a result."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave back."""

    content: str
    """The text the model sees, cut to the tool's cap."""
    picture: ToolPicture | None = None
    is_error: bool = False
    truncated: bool = False
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What one call may know of the run it belongs to."""

    session_id: str
    run_id: str
    call_id: str
    workspace: Path
    """Absolute and resolved; no tool leaves it."""
    locale: Locale
    progress: Callable[[str], None]
    """Shows a line of progress to whoever watches; cheap, never blocks, may be dropped."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the model and the loop know of a tool before any call."""

    name: str
    description: str
    parameters: Mapping[str, object]
    """JSON Schema of the arguments object."""
    kind: Kind
    parallel: bool
    """Whether calls of one reply may run at the same time as others that may."""
    timeout_seconds: float
    """After this the call is stopped and answered with an error; a wait tool has its own."""
    output_cap_bytes: int
    """Results above it are cut in the middle, naming the hash of the whole."""


class Tool(Protocol):
    """One tool of the agent."""

    @property
    def spec(self) -> ToolSpec:
        """Fixed for the life of the process, so that the prompt stays byte-stable."""

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        """The kind of one call; `shell` waits or writes depending on its action."""

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        """Do it.

        Raises:
            ToolError: Something the model should read and can act upon.

        Cancelling ends everything the call started within a second.
        """


def json_result(fields: Mapping[str, object], *, picture: ToolPicture | None = None) -> ToolResult:
    """A result whose fields matter; the keys keep the order they are given in."""
    return ToolResult(
        json.dumps(fields, ensure_ascii=False),
        picture=picture,
        truncated=fields.get("truncated") is True,
    )


def error_result(code: str, message: str) -> ToolResult:
    """`{"error": code, "message": …}`, the one form that every failed call has."""
    content = json.dumps({"error": code, "message": message}, ensure_ascii=False)
    return ToolResult(content, is_error=True)


class Registry:
    """The tools of a run, by name."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Raises ValueError when two tools have the same name."""
        ordered = sorted(tools, key=lambda tool: tool.spec.name)
        self._tools = {tool.spec.name: tool for tool in ordered}
        if len(self._tools) != len(ordered):
            raise ValueError("two tools have the same name")
        self._definitions = _encode([_definition(tool.spec) for tool in ordered])

    def definitions_json(self) -> bytes:
        """The OpenAI tools array, sorted by name; the same tools give the same bytes always."""
        return self._definitions

    def spec(self, name: str) -> ToolSpec | None:
        """None for a name the model made up."""
        tool = self._tools.get(name)
        return None if tool is None else tool.spec

    def kind_of(self, name: str, arguments_json: str) -> Kind:
        """The kind of one call; a made-up name is a `read`, for such a call touches nothing."""
        tool = self._tools.get(name)
        if tool is None:
            return "read"
        try:
            return tool.kind_of(parse_arguments(arguments_json))
        except ToolError:
            return tool.spec.kind

    async def dispatch(self, name: str, arguments_json: str, context: ToolContext) -> ToolResult:
        """Run one call to its result; whatever goes wrong becomes a result too.

        Cancelling passes through to the tool, which ends what it started.
        """
        tool = self._tools.get(name)
        if tool is None:
            return error_result("bad_arguments", self._unknown(name))
        result = await _run(tool, arguments_json, context)
        return await _tidy(result, tool.spec.output_cap_bytes)

    def _unknown(self, name: str) -> str:
        known = ", ".join(self._tools) or "none"
        return f"there is no tool named {clean_text(name)[:80]!r}; the tools are: {known}"


async def _run(tool: Tool, arguments_json: str, context: ToolContext) -> ToolResult:
    seconds = tool.spec.timeout_seconds
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await tool.run(parse_arguments(arguments_json), context)
    except ToolError as error:
        return error_result(error.code, str(error))
    except Exception as error:  # noqa: BLE001 - a broken tool must not end the run
        if limit.expired():
            return error_result("timeout", f"stopped after {seconds:g} seconds without a result")
        _log.error("tool failed tool=%s %s", tool.spec.name, fault_of(error))
        return error_result("internal", f"{tool.spec.name} failed inside; this is not your fault")


async def _tidy(result: ToolResult, cap_bytes: int) -> ToolResult:
    """Clean the text and keep it below the cap; long ones in a thread, for they take a while."""
    content = clean_text(result.content)
    if size_bytes(content) <= cap_bytes:
        return result if content is result.content else replace(result, content=content)
    content = await asyncio.to_thread(cut_result, content, cap_bytes)
    return replace(result, content=content, truncated=True)


def _definition(spec: ToolSpec) -> Mapping[str, object]:
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
    }
    return {"type": "function", "function": function}


def _encode(definitions: list[Mapping[str, object]]) -> bytes:
    """Keys are sorted: a server that lists a schema's keys in another order changes nothing."""
    text = json.dumps(definitions, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return clean_text(text).encode()
