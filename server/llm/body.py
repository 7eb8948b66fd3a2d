"""Reads the body of an answer, within limits of time and size."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp

from server.errors import LLMTimeout
from server.llm.reducer import Reducer
from server.llm.sse import DataLines

DRAIN_SECONDS = 0.1
"""How long the end of a body may follow `[DONE]` for its connection to be used again."""
ENDING_SECONDS = 5.0
"""How long a stream may stay open after the finish reason; usage follows it, and `[DONE]` may."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what."""

    first_byte_until: float
    """By the clock of the event loop."""
    between_chunks_seconds: float
    silent_seconds: float
    """How long keep-alive comments alone count as life."""


async def read_lines(
    response: aiohttp.ClientResponse, reducer: Reducer, patience: Patience
) -> AsyncGenerator[list[bytes], None]:
    """The data lines of an event stream, those of one read together.

    Ends with the stream, or once *reducer*, which the caller feeds, has seen its end.

    Raises:
        LLMTimeout: Nothing, or nothing but comments, came for too long.
        aiohttp.ClientError: The connection broke before the reply was whole.
    """
    lines = DataLines()
    now = asyncio.get_running_loop().time
    silent_until = patience.first_byte_until + patience.silent_seconds
    wait_until = patience.first_byte_until
    with _watch(response.close, patience.between_chunks_seconds) as silence:
        while received := await _read(response, reducer, silence, wait_until):
            found = lines.feed(received)
            if found:
                yield found
                if reducer.is_done:
                    await _drain(response)
                    return
                silent_until = now() + patience.silent_seconds
            wait_until = min(now() + patience.between_chunks_seconds, silent_until)
            if reducer.is_whole:
                wait_until = min(wait_until, now() + ENDING_SECONDS)
    if found := lines.finish():
        yield found


async def read_up_to(response: aiohttp.ClientResponse, size_bytes: int) -> bytes:
    """The body, or its first *size_bytes*."""
    pieces: list[bytes] = []
    left = size_bytes
    while left > 0 and (piece := await response.content.read(left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


class _Silence:
    """Calls *close* once the wait announced by `wait_until` is over.

    `asyncio.timeout` would start and stop a timer for each read. Here one timer looks now and
    then whether the deadline that the reads keep moving has come.
    """

    def __init__(self, close: Callable[[], None], look_every_seconds: float) -> None:
        self.is_over = False
        """Whether *close* was called."""
        self._close = close
        self._look_every_seconds = look_every_seconds
        self._loop = asyncio.get_running_loop()
        self._deadline = math.inf
        self._timer = self._loop.call_later(look_every_seconds, self._look)

    def wait_until(self, deadline: float) -> None:
        """Something is awaited now, until *deadline* of the loop's clock at most."""
        self._deadline = deadline
        if deadline < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._look)

    def pause(self) -> None:
        """Nothing is awaited: whoever reads the answer may take his time."""
        self._deadline = math.inf

    def end(self) -> None:
        """Watch no longer."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._deadline:
            self.is_over = True
            self._close()
            return
        look_at = min(self._deadline, now + self._look_every_seconds)
        self._timer = self._loop.call_at(look_at, self._look)


@contextmanager
def _watch(close: Callable[[], None], look_every_seconds: float) -> Iterator[_Silence]:
    silence = _Silence(close, look_every_seconds)
    try:
        yield silence
    finally:
        silence.end()


async def _read(
    response: aiohttp.ClientResponse, reducer: Reducer, silence: _Silence, wait_until: float
) -> bytes:
    """What has come; nothing at the end, or when the reply is whole and no more will come."""
    silence.wait_until(wait_until)
    try:
        return await response.content.readany()
    except aiohttp.ClientError:
        if reducer.is_whole:
            return b""
        if silence.is_over:
            raise LLMTimeout("the gateway fell silent") from None
        raise
    finally:
        silence.pause()


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read up to the end of the body, so that its connection goes back to the pool."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while await response.content.readany():
                pass
    except (TimeoutError, aiohttp.ClientError):
        pass  # the caller closes it
