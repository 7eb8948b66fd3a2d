"""What carries the messages of one MCP server: a child process or HTTP, watched for their end."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from types import TracebackType
from typing import Any, Final, Self, TextIO

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client

from server.settings import McpSettings
from server.tools.mcp_keeper import Watch
from server.tools.shell import child_environment

MESSAGE_CAP_BYTES: Final = 32 * 1024 * 1024
"""Of one answer as a server-sent event; pictures come in one."""

SESSION_HEADER: Final = "mcp-session-id"

NOT_TAKEN: Final = frozenset({401, 403, 405, 429})
"""Answers of HTTP that say of a request that nobody looked into it."""

_TIMEOUT: Final = httpx2.Timeout(10.0, read=None)
"""Answers may take as long as the call may."""


class Post:
    """The HTTP request of one call."""

    refused = ""
    """Why the server did not take it; empty as long as it may have."""
    status = 0
    """Of its answer."""


_post: ContextVar[Post | None] = ContextVar("mcp_post", default=None)
"""Of the call at hand: the SDK sends each message in the context of whoever wrote it."""


def begin_post() -> Post:
    """The record of the request that this task is going to send."""
    post = Post()
    _post.set(post)
    return post


def _note(request: httpx2.Request, status: int, refused: str) -> None:
    """Keep what became of a call's own request, which is the first one but for redirects.

    Others follow it in its context: they take its stream up again, or answer what the server asks
    meanwhile. A call that was taken must not pass for one that was not, or it is made twice.
    """
    post = _post.get()
    if post is None or request.method != "POST":
        return
    if not post.refused and (post.status == 0 or 300 <= post.status < 400):
        post.status, post.refused = status, refused


class Http(httpx2.AsyncClient):
    """An HTTP client that sees what the server did not take: the SDK tells no such thing."""

    def __init__(self, watch: Watch, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers, timeout=_TIMEOUT)
        self._watch = watch
        self.refused_status = 0
        """Of the last answer; 0 if it was a good one."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            _note(request, 0, "cannot be reached")
            raise
        status = response.status_code
        self.refused_status = status if status >= 400 else 0
        if status == 404 and SESSION_HEADER in request.headers:
            self._watch.lose("the session ended")
            _note(request, status, "the session ended")
        else:
            _note(request, status, f"answered HTTP {status}" if status in NOT_TAKEN else "")
        return response


class _Reading:
    """The messages of a server, watched for their end: the SDK tells only pending calls of it.

    They pass as they are, so their type is left to the SDK.
    """

    def __init__(self, stream: Any, watch: Watch) -> None:
        self._stream = stream
        self._watch = watch

    @property
    def last_context(self) -> Context | None:
        """Of the SDK's own streams."""
        context: Context | None = getattr(self._stream, "last_context", None)
        return context

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._watch.lose("it ended the connection")
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def open_transport(
    settings: McpSettings,
    environment: Mapping[str, str],
    watch: Watch,
    errors: TextIO | None,
) -> AsyncIterator[tuple[Transport, Http | None]]:
    """The server's transport, not entered yet, and the client of one that is spoken to by HTTP.

    Args:
        environment: What a child process sees of it is chosen by `child_environment`.
        errors: Where the child's error output goes; nowhere without it, for it may hold anything.
    """
    if settings.url is None:
        with _nowhere() as nowhere:
            parameters = _parameters(settings, environment)
            yield _watched(stdio_client(parameters, errors or nowhere), watch), None
        return
    headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
    url = settings.url.get_secret_value()
    async with Http(watch, headers) as http:
        transport = streamable_http_client(
            url, http_client=http, max_sse_event_size=MESSAGE_CAP_BYTES
        )
        yield _watched(transport, watch), http


@contextmanager
def _nowhere() -> Iterator[TextIO]:
    with open(os.devnull, "w", encoding="utf-8") as errors:
        yield errors


def _parameters(settings: McpSettings, environment: Mapping[str, str]) -> StdioServerParameters:
    assert settings.command is not None, "the settings have either a command or a url"
    given = {name: value.get_secret_value() for name, value in settings.env.items()}
    return StdioServerParameters(
        command=settings.command,
        args=[argument.get_secret_value() for argument in settings.args],
        env={**child_environment(environment), **given},
        encoding_error_handler="replace",
    )


@asynccontextmanager
async def _watched(transport: Transport, watch: Watch) -> AsyncIterator[tuple[Any, Any]]:
    async with transport as (reading, writing):
        yield _Reading(reading, watch), writing
