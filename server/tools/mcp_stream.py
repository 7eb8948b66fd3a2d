"""The connection to one MCP server, by the SDK."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import version
from typing import Final, TextIO

import anyio
import httpx2
from mcp import Client, JSONRPCRequest, MCPError, types
from mcp.client.session import IncomingMessage, MessageHandlerFnT
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from channels.faults import fault_of
from channels.supervise import Backoff
from server.errors import ToolError
from server.settings import McpSettings
from server.tools.base import ToolResult, error_result
from server.tools.mcp_keeper import AnswerLost, Line, LineFailed, NotTaken, RemoteTool, Watch
from server.tools.mcp_result import has_picture, render
from server.tools.mcp_transport import Http, Post, begin_post, open_transport

log = logging.getLogger(__name__)

PAGES_CAP: Final = 100
"""Of a list of tools; a server that never ends its list would be asked for ever."""

CANCEL_SECONDS: Final = 0.8
"""For telling the server of a cancelled call; a frozen one takes nothing any more."""

CLOSE_SECONDS: Final = 1.0

_LOGGERS: Final = ("mcp", "client", "httpx2", "httpcore2")
"""They write messages as they are, arguments and results in them; what matters is told here."""

_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)

_CLIENT_ERRORS: Final = frozenset(range(400, 500)) - {408}
"""Where the answer has no error of the protocol in it, these say that the call did not begin."""

_STAND_IN: Final = "Server returned an error response"
"""The SDK's error for an answer of HTTP that has none of the protocol in it."""

_ABANDONED: Final = ("Connection closed", "SSE stream")
"""How the SDK's own errors begin when the answer of a call was cut off. Servers use their code for
other things too."""


class _SdkLine:
    """One connection of the SDK's."""

    def __init__(self, client: Client, watch: Watch) -> None:
        self._client = client
        self._watch = watch
        self._calls: set[asyncio.Task[ToolResult]] = set()

    async def list_tools(self) -> Sequence[RemoteTool]:
        """Page by page."""
        found: list[RemoteTool] = []
        cursor: str | None = None
        for _ in range(PAGES_CAP):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self._client.session.list_tools(params=params)
            found += (
                RemoteTool(
                    tool.name,
                    tool.description or tool.title or "",
                    tool.input_schema,
                    tool.output_schema,
                )
                for tool in page.tools
            )
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise LineFailed("its list of tools has no end")

    async def call(
        self, name: str, arguments: Mapping[str, object], told: Callable[[str], None]
    ) -> ToolResult:
        """In a task of its own, which a frozen server may hold up for longer than a stop may."""
        if self._watch.lost is not None:
            raise NotTaken(self._watch.lost)
        call = asyncio.create_task(self._ask(name, arguments, told), name=f"mcp-call-{name}")
        self._calls.add(call)
        call.add_done_callback(self._forget)
        try:
            await asyncio.wait({call})
        except asyncio.CancelledError:
            call.cancel()
            await asyncio.wait({call}, timeout=CANCEL_SECONDS)
            raise
        if call.cancelled():  # from inside: must not pass for a cancellation of ours
            raise AnswerLost("the connection broke")
        return call.result()

    async def end(self) -> None:
        """Wait for the calls, which end when the session does."""
        if self._calls:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(self._calls, timeout=CLOSE_SECONDS)

    def _forget(self, call: asyncio.Task[ToolResult]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # of a call that nobody waits for any more

    async def _ask(
        self, name: str, arguments: Mapping[str, object], told: Callable[[str], None]
    ) -> ToolResult:
        post = begin_post()
        params = {"name": name, "arguments": dict(arguments)}
        try:  # as the SDK does it, in a task of its own that would take the connection along
            JSONRPCRequest(jsonrpc="2.0", id=0, method="", params=params).model_dump_json()
        except ValueError:
            raise ToolError("bad_arguments", "the arguments are nested too deep") from None
        request = types.CallToolRequest(params=types.CallToolRequestParams.model_validate(params))
        # Not the SDK's `call_tool`: that throws away the result of a call which was made, when it
        # does not fit the schema that the server declared.
        try:
            answer = await self._client.session.send_request(
                request, _ANSWER, progress_callback=_progress(told)
            )
        except MCPError as error:
            return self._refusal(error, post)
        except ValidationError:
            raise AnswerLost("answered in a form that cannot be read") from None
        if isinstance(answer, types.InputRequiredResult):
            words = "the tool asks for something in return, which cannot be given here"
            return error_result("unsupported", words)
        return await asyncio.to_thread(render, answer) if has_picture(answer) else render(answer)

    def _refusal(self, error: MCPError, post: Post) -> ToolResult:
        """The error that the server answered with; raises what became of the call otherwise."""
        if post.refused:
            raise NotTaken(post.refused)
        if error.message == _STAND_IN:
            words = f"answered HTTP {post.status}"
            raise NotTaken(words) if post.status in _CLIENT_ERRORS else AnswerLost(words)
        is_ours = error.message.startswith(_ABANDONED)
        if error.code == types.CONNECTION_CLOSED and (self._watch.lost is not None or is_ours):
            raise AnswerLost(self._watch.lost or "the connection broke")
        code = "bad_arguments" if error.code == types.INVALID_PARAMS else "failed"
        return error_result(code, error.message)


@asynccontextmanager
async def open_line(
    settings: McpSettings,
    environment: Mapping[str, str],
    watch: Watch,
    errors: TextIO | None = None,
) -> AsyncIterator[Line]:
    """Connect to the server; see `Connect`.

    Args:
        environment: What a child process sees of it is chosen by `child_environment`.
        errors: Where the child's error output goes; nowhere without it, for it may hold anything.
    """
    http: Http | None = None
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        async with AsyncExitStack() as opened:
            transport, http = await opened.enter_async_context(
                open_transport(settings, environment, watch, errors)
            )
            client = Client(
                transport,
                cache=None,
                client_info=types.Implementation(name="headway", version=version("headway")),
                message_handler=_ear(watch),
            )
            line = _SdkLine(client, watch)
            opened.push_async_callback(line.end)
            await opened.enter_async_context(client)
            listening = await opened.enter_async_context(anyio.create_task_group())
            listening.start_soon(_listen, client, watch)
            yield line
            listening.cancel_scope.cancel()
    except Exception as error:  # noqa: BLE001 - one of a server's; it must come back
        raise LineFailed(_reason(error, http)) from None


def _ear(watch: Watch) -> MessageHandlerFnT:
    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            watch.outdate()

    return hear


async def _listen(client: Client, watch: Watch) -> None:
    """Hold the stream by which newer servers tell of changes; older ones tell without it."""
    tools = client.server_capabilities.tools
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (
        tools and tools.list_changed
    ):
        return
    backoff = Backoff()
    failures = 0
    while True:
        with suppress(SubscriptionLost, MCPError):
            async with client.listen(tools_list_changed=True) as changes:
                failures = 0
                watch.outdate()  # what changed before is told by nobody
                async for _ in changes:
                    pass  # the client's message handler heard of it
        failures += 1
        await anyio.sleep(backoff.seconds(failures))


def _progress(told: Callable[[str], None]) -> ProgressFnT:
    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told(message or (f"{progress:g}" if total is None else f"{progress:g}/{total:g}"))

    return tell


def _reason(error: Exception, http: Http | None) -> str:
    """Why there is no line, in words that hold nothing of the server's own."""
    leaves = list(_leaves(error))
    for leaf in leaves:
        if isinstance(leaf, LineFailed):
            return str(leaf)
    if http is not None and http.refused_status:
        return f"answered HTTP {http.refused_status}"
    match leaves[0]:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return "cannot be reached"
        case httpx2.HTTPError():
            return "the connection broke"
        case FileNotFoundError():
            return "its command is not there"
        case PermissionError():
            return "its command may not be run"
        case OSError():
            return "its command cannot be started"
        case MCPError(code=types.CONNECTION_CLOSED):
            return "ended before it was ready"
        case MCPError(code=code):
            return f"refused, code {code}"
        case ValidationError():
            return "answers in a form that cannot be read"
        case leaf:
            log.error("[mcp] a connection broke in an unforeseen way %s", fault_of(leaf))
            return f"unexpected {type(leaf).__name__}"


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
