"""Time as the channels see it, in one value, so that whoever opens a channel owns it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Clock:
    """The machine's clocks, unless told otherwise."""

    monotonic: Callable[[], float] = time.monotonic
    """Seconds; stands still while the machine sleeps."""
    wall: Callable[[], float] = time.time
    """Seconds since 1970; jumps when the machine wakes up or its time is set."""
    sleep: Sleep = asyncio.sleep


SYSTEM = Clock()
