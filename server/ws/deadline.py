"""A time limit for each of many short steps, with one timer for all of them."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Deadline:
    """The limit of the step that is under way; see `open_deadline`."""

    __slots__ = ("_block", "_loop", "_seconds", "_timer", "_until")

    def __init__(self, block: asyncio.Timeout, seconds: float) -> None:
        self._block = block
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._until = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """A step begins."""
        self._until = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(self._until, self._look)

    def done(self) -> None:
        """The step is done."""
        self._until = math.inf

    def close(self) -> None:
        """There are no more steps."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """End the block if the step is late, else come again when it would be."""
        self._timer = None
        if self._until <= self._loop.time():
            self._block.reschedule(self._until)
        elif self._until < math.inf:
            self._timer = self._loop.call_at(self._until, self._look)


@asynccontextmanager
async def open_deadline(seconds: float) -> AsyncIterator[Deadline]:
    """A block in which each step may take *seconds*.

    `asyncio.timeout` around each step would start and stop a timer for each frame that is sent.
    Here a timer that is running is left to run; when it fires it looks whether a step is late.

    Raises:
        TimeoutError: A step took longer.
    """
    async with asyncio.timeout(None) as block:
        deadline = Deadline(block, seconds)
        try:
            yield deadline
        finally:
            deadline.close()
