"""Keeps one MCP server connected: start it, notice that it is lost, start it again."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import anyio

from channels.faults import is_told
from channels.supervise import Backoff
from server.tools.base import ToolResult

log = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 60.0
"""For one attempt: a package runner downloads the server at its first start."""

LIST_SECONDS: Final = 30.0

REACH_SECONDS: Final = 5.0
"""How long a call waits for a server that is being started again."""

SETTLE_SECONDS: Final = 0.2
"""Servers tell of a changed list once for each tool."""

STABLE_SECONDS: Final = 60.0
"""A server that was lost earlier counts as one that could not be reached."""


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool as its server lists it."""

    name: str
    description: str
    schema: Mapping[str, object]
    """Of its arguments."""
    result_schema: Mapping[str, object] | None = None
    """Of its results, where the server tells."""


class LineFailed(Exception):
    """The connection cannot be made, or is of no more use; the text is safe to log and to show."""


class NotTaken(Exception):
    """The server refused the call before it looked at it; the text says why, and is safe."""


class AnswerLost(Exception):
    """The call was sent and its answer did not come; the text says why, and is safe."""


class Watch:
    """What a connection tells its keeper, from the task that hears it."""

    def __init__(self) -> None:
        self.lost: str | None = None
        """Why the connection is of no more use."""
        self._is_outdated = False
        self._word = asyncio.Event()

    def lose(self, reason: str) -> None:
        """The connection is of no more use; the first reason counts."""
        if self.lost is None:
            self.lost = reason
        self._word.set()

    def outdate(self) -> None:
        """The list of tools changed."""
        self._is_outdated = True
        self._word.set()

    async def next(self) -> Literal["lost", "outdated"]:
        """Wait for news."""
        while True:
            self._word.clear()
            if self.lost is not None:
                return "lost"
            if self._is_outdated:
                self._is_outdated = False
                return "outdated"
            await self._word.wait()


class Line(Protocol):
    """One connection that is open."""

    async def list_tools(self) -> Sequence[RemoteTool]:
        """All tools; raises LineFailed."""

    async def call(
        self, name: str, arguments: Mapping[str, object], told: Callable[[str], None]
    ) -> ToolResult:
        """Call a tool by its server's name.

        Args:
            told: Called with each line of progress.
        Raises:
            NotTaken, AnswerLost
        Cancelling tells the server and returns within a second.
        """


Connect = Callable[[Watch], AbstractAsyncContextManager[Line]]
"""Entering opens a line, leaving closes it, both in one task; whatever goes wrong is LineFailed."""


class Keeper:
    """The supervisor of one server."""

    def __init__(
        self, name: str, connect: Connect, listed: Callable[[Sequence[RemoteTool]], None]
    ) -> None:
        """Give *listed* the tools each time that the server lists them."""
        self.reason = "connecting"
        """Why there is no line; empty while there is one."""
        self._name = name
        self._connect = connect
        self._listed = listed
        self._backoff = Backoff()
        self._open: tuple[Line, Watch] | None = None
        self._came_up = False
        self._tried = asyncio.Event()
        self._news = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopping = anyio.CancelScope()
        self._failures = 0
        """In a row, with lines that did not last."""

    @property
    def line(self) -> Line | None:
        """The line, if it can be used."""
        if self._open is None or self._open[1].lost is not None:
            return None
        return self._open[0]

    async def run(self) -> None:
        """Hold a line until `stop`, whatever happens to it.

        Ended by `stop`, never by cancelling: a cancellation would cut the closing of the child
        process short and leave it behind.
        """
        with self._stopping:
            while True:
                self._hurry.clear()
                self._came_up = False
                self.reason = await self._hold()
                self._failures += 1
                if is_told(self._failures):
                    log.warning(
                        "[mcp] %s down: %s, failures=%d", self._name, self.reason, self._failures
                    )
                if not self._came_up:
                    self._announce()
                with anyio.move_on_after(self._backoff.seconds(self._failures - 1)):
                    await self._hurry.wait()

    def stop(self) -> None:
        """Close the line and let `run` end."""
        self._stopping.cancel()

    async def tried(self) -> None:
        """Wait until the server was connected for the first time, or could not be."""
        await self._tried.wait()

    async def reach(self) -> Line | None:
        """The line; without one a try at it is made now, and waited for a little."""
        if self.line is None:
            self._hurry.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(REACH_SECONDS):
                    await self._news.wait()
        return self.line

    async def _hold(self) -> str:
        """Open a line and keep it while it is of use; why it is not any more."""
        watch = Watch()
        with anyio.CancelScope(deadline=anyio.current_time() + CONNECT_SECONDS) as attempt:
            try:
                async with self._connect(watch) as line:
                    await self._list(line)
                    attempt.deadline = math.inf
                    await self._serve(line, watch)
            except LineFailed as error:
                return str(error) if watch.lost is None or not self._came_up else watch.lost
        return watch.lost or f"no answer within {CONNECT_SECONDS:g} s"

    async def _serve(self, line: Line, watch: Watch) -> None:
        """Let calls use the line until it is lost."""
        began = time.monotonic()
        self._open, self._came_up, self.reason = (line, watch), True, ""
        if is_told(self._failures):
            log.info("[mcp] %s connected, failures=%d", self._name, self._failures)
        self._announce()
        try:
            while await watch.next() == "outdated":
                await anyio.sleep(SETTLE_SECONDS)
                await self._list(line)
        finally:
            self._open, self.reason = None, watch.lost or "the connection broke"
            if time.monotonic() - began >= STABLE_SECONDS:
                self._failures = 0

    async def _list(self, line: Line) -> None:
        try:
            with anyio.fail_after(LIST_SECONDS):
                self._listed(await line.list_tools())
        except TimeoutError:
            raise LineFailed("its tools were not listed in time") from None

    def _announce(self) -> None:
        self._tried.set()
        self._news.set()
        self._news = asyncio.Event()
