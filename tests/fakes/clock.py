"""A clock that stands until it is moved."""

import asyncio
import heapq
from itertools import count

from channels.clock import Clock as ChannelClock

TURNS = 60
"""Turns of the event loop in which all that a moment sets off is done, if nothing real is waited
for: the longest chain of tasks in the code under test has about a dozen."""


class Clock:
    """Seconds, from 1000; the wall clock goes with it unless it jumps."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._wall_ahead = 1_760_000_000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = count()

    def monotonic(self) -> float:
        """The time, as `time.monotonic` would give it."""
        return self._now

    def wall(self) -> float:
        """The time, as `time.time` would give it."""
        return self._now + self._wall_ahead

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake who has slept long enough."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as when the machine was asleep."""
        self._wall_ahead += seconds

    async def sleep(self, seconds: float) -> None:
        """Sleep until the clock was moved so far."""
        if seconds <= 0:
            return await asyncio.sleep(0)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._number), future))
        await future

    async def run_for(self, seconds: float) -> None:
        """Let time pass from sleeper to sleeper; each wakes at its own moment."""
        end = self._now + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.advance(self._sleepers[0][0] - self._now)
            await self._settle()
        self.advance(end - self._now)
        await self._settle()

    @property
    def asleep(self) -> int:
        """How many sleep now."""
        return sum(not future.done() for _, _, future in self._sleepers)

    @property
    def channels(self) -> ChannelClock:
        """This clock as the channels take it."""
        return ChannelClock(self.monotonic, self.wall, self.sleep)

    async def _settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
