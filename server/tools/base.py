"""What a tool is, and the registry that runs one by name."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar, runtime_checkable

from channels.events import RunEvent
from channels.faults import fault_of
from guard import ToolContract
from server.errors import Locale, ToolError
from server.message import clean_text
from server.tools.arguments import parse_arguments
from server.tools.cut import cut_result, size_bytes

_log = logging.getLogger(__name__)

T = TypeVar("T")

Kind = Literal["read", "write", "send", "wait"]
"""What a call does to the world: reads may be repeated after a crash, writes and sends never."""

ACTIONS: Final[frozenset[Kind]] = frozenset({"write", "send"})
"""Kinds of calls whose beginning is stored, since they must not be repeated blindly."""

LOOKUP_SECONDS: Final = 10.0
"""How long a tool may look for what became of a call; then it counts as unknown."""

_NOT_DONE: Final = "it was not done and may be repeated"
OUTCOME_UNKNOWN: Final = "outcome unknown, verify before repeating"
"""What the model reads of a call that may have had its effect."""

INTERRUPTED_RESULT: Final = f'{{"error":"interrupted","message":"{OUTCOME_UNKNOWN}"}}'
"""The result of a call of which nothing more is known; the guard compares it."""

Consent = Literal["by_kind", "always", "is_question"]
"""When a person is asked first: as the settings say of the kind, each time, or the call itself is
a question to him, whose answer is its result."""


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
    is_unsure: bool = False
    """Whether the call had its effect is unknown, and the text says so."""
    whole: str | None = None
    """The text before it was cut, for what is read from it; None where nothing was cut."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What one call may know of the run it belongs to."""

    session_id: str
    run_id: str
    call_id: str
    """Unique in the session; with its id it is the call's idempotency key."""
    workspace: Path
    """Absolute and resolved; no tool leaves it."""
    locale: Locale
    progress: Callable[[str], None]
    """Shows a line of progress to whoever watches; cheap, never blocks, may be dropped."""
    emit: Callable[[RunEvent], None]
    """Tells an event of the run to whoever watches; cheap, never blocks."""


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
    consent: Consent = "by_kind"
    contract: ToolContract | None = None
    """What of its calls and results matters to the guard; without one all of it does."""


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


@runtime_checkable
class Verifiable(Protocol):
    """A tool that can tell what became of a call whose result was lost with its process.

    Without it a call that began is `unknown` afterwards, and the model is told to look.
    """

    async def mark(self, arguments: Mapping[str, object], context: ToolContext) -> str:
        """What `lookup` will need, taken before the call begins; stored with it, a few KB at most.

        Raises:
            ToolError: As `run` would.
        """

    async def lookup(
        self, arguments: Mapping[str, object], mark: str, context: ToolContext
    ) -> "Found":
        """What became of the call with this `context.call_id`; changes nothing.

        Args:
            mark: What `mark` gave; empty for a call that waits, which has none.
        """


@dataclass(frozen=True, slots=True)
class Unknown:
    """The call began, and how it ended cannot be told."""

    detail: str
    """What can be told all the same, for the model: where to look."""


Found = ToolResult | Unknown | Literal["not_done", "unknown"]
"""Its result, if it was done; `not_done`, on evidence for it, if it may be run now."""


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


class ToolSource(Protocol):
    """Tools that come and go while the process lives."""

    def offered(self) -> Sequence[Tool]:
        """Those there are now, in the same value until they change."""

    def find(self, name: str) -> Tool | None:
        """The tool of that name, or a stand-in for one that may come back."""


class Registry:
    """The tools of all runs, by name."""

    def __init__(self, tools: Iterable[Tool], source: ToolSource | None = None) -> None:
        """Raises ValueError when two tools have the same name."""
        ordered = list(tools)
        self._tools = {tool.spec.name: tool for tool in ordered}
        if len(self._tools) != len(ordered):
            raise ValueError("two tools have the same name")
        self._source = source
        self._encoded_of: Sequence[Tool] = self._offered()
        self._definitions = self._encode()

    def definitions_json(self) -> bytes:
        """The OpenAI tools array, sorted by name; the same tools give the same bytes always."""
        if self._offered() is not self._encoded_of:
            self._encoded_of = self._offered()
            self._definitions = self._encode()
        return self._definitions

    def spec(self, name: str) -> ToolSpec | None:
        """None for a name the model made up."""
        tool = self._find(name)
        return None if tool is None else tool.spec

    def kind_of(self, name: str, arguments_json: str) -> Kind:
        """The kind of one call; a made-up name is a `read`, for such a call touches nothing."""
        tool = self._find(name)
        if tool is None:
            return "read"
        try:
            return tool.kind_of(parse_arguments(arguments_json))
        except ToolError:
            return tool.spec.kind

    def contracts(self) -> Mapping[str, ToolContract]:
        """What our own tools declare, by name."""
        specs = (tool.spec for tool in self._tools.values())
        return {spec.name: spec.contract for spec in specs if spec.contract is not None}

    async def mark(self, name: str, arguments_json: str, context: ToolContext) -> str:
        """What is stored of a call before it begins; empty where its tool looks nothing up.

        Raises:
            ToolError: It cannot begin, and nothing was done.
        """
        tool = self._find(name)
        if tool is None or not isinstance(tool, Verifiable):
            return ""
        try:
            return await _run(tool, tool.mark(parse_arguments(arguments_json), context))
        except _NoResult as failure:
            raise ToolError(failure.code, f"{failure}; {_NOT_DONE}") from None

    async def dispatch(
        self, name: str, arguments_json: str, context: ToolContext, mark: str = ""
    ) -> ToolResult:
        """Run one call to its result; whatever goes wrong becomes a result too.

        Cancelling passes through to the tool, which ends what it started.

        Args:
            mark: What `mark` gave for this call.
        """
        tool = self._find(name)
        if tool is None:
            return error_result("bad_arguments", self._unknown(name))
        try:
            result = await _run(tool, tool.run(parse_arguments(arguments_json), context))
        except ToolError as error:
            result = error_result(error.code, str(error))
        except _NoResult as failure:
            result = await self._recover(name, arguments_json, mark, failure, context)
        return await _tidy(result, tool.spec.output_cap_bytes)

    async def lookup(
        self, name: str, arguments_json: str, mark: str, context: ToolContext
    ) -> Found:
        """What became of a call that began; what cannot be found out is unknown."""
        tool = self._find(name)
        if tool is None or not isinstance(tool, Verifiable):
            return "unknown"
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                found = await tool.lookup(parse_arguments(arguments_json), mark, context)
        except (ToolError, TimeoutError):
            return "unknown"
        except Exception as error:  # noqa: BLE001 - a broken tool must not end the run
            _log.error("tool cannot look up tool=%s %s", name, fault_of(error))
            return "unknown"
        if isinstance(found, ToolResult):
            return await _tidy(found, tool.spec.output_cap_bytes)
        return found

    async def _recover(
        self, name: str, arguments_json: str, mark: str, failure: "_NoResult", context: ToolContext
    ) -> ToolResult:
        """The result of a call that has none: that of what it did, or what is known of it."""
        if self.kind_of(name, arguments_json) not in ACTIONS:
            return error_result(failure.code, str(failure))
        match await self.lookup(name, arguments_json, mark, context):
            case ToolResult() as result:
                return result
            case "not_done":
                return error_result(failure.code, f"{failure}; {_NOT_DONE}")
            case Unknown(detail):
                words = f"{failure}; {OUTCOME_UNKNOWN}: {detail}"
            case "unknown":
                words = f"{failure}; {OUTCOME_UNKNOWN}"
        return replace(error_result(failure.code, words), is_unsure=True)

    def _find(self, name: str) -> Tool | None:
        tool = self._tools.get(name)
        if tool is None and self._source is not None:
            return self._source.find(name)
        return tool

    def _offered(self) -> Sequence[Tool]:
        return () if self._source is None else self._source.offered()

    def _specs(self) -> list[ToolSpec]:
        specs = (tool.spec for tool in (*self._tools.values(), *self._offered()))
        return sorted(specs, key=lambda spec: spec.name)

    def _encode(self) -> bytes:
        return _encode([_definition(spec) for spec in self._specs()])

    def _unknown(self, name: str) -> str:
        known = ", ".join(spec.name for spec in self._specs()) or "none"
        return f"there is no tool named {clean_text(name)[:80]!r}; the tools are: {known}"


class _NoResult(Exception):
    """A tool took too long or broke, and gave nothing back."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def _run(tool: Tool, work: Coroutine[Any, Any, T]) -> T:
    """Await *work* of the tool for as long as it may take.

    Raises:
        ToolError: As *work* does.
        _NoResult: It took too long, or broke.
    """
    seconds = tool.spec.timeout_seconds
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except ToolError:
        raise
    except Exception as error:  # noqa: BLE001 - a broken tool must not end the run
        if limit.expired():
            words = f"stopped after {seconds:g} seconds without a result"
            raise _NoResult("timeout", words) from None
        name = tool.spec.name
        _log.error("tool failed tool=%s %s", name, fault_of(error))
        raise _NoResult("internal", f"{name} failed inside; this is not your fault") from None


async def _tidy(result: ToolResult, cap_bytes: int) -> ToolResult:
    """Clean the text and keep it below the cap; long ones in a thread, for they take a while."""
    content = clean_text(result.content)
    if size_bytes(content) <= cap_bytes:
        return result if content is result.content else replace(result, content=content)
    cut = await asyncio.to_thread(cut_result, content, cap_bytes)
    return replace(result, content=cut, truncated=True, whole=content)


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
