"""Time that goes on by itself: moved forward at will, or faster than the real one."""

import asyncio
import time

from channels.clock import Clock

FACTOR = 20


def quick() -> Clock:
    """A clock that goes twenty times as fast."""
    return Clock(
        lambda: time.monotonic() * FACTOR,
        time.time,
        lambda seconds: asyncio.sleep(seconds / FACTOR),
    )


class MovedClock:
    """The machine's clocks, some seconds ahead."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    def wall(self) -> float:
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Let so much time have passed."""
        self._ahead += seconds

    @property
    def channels(self) -> Clock:
        """As the channels take it; who sleeps, sleeps really."""
        return Clock(self.monotonic, self.wall)
