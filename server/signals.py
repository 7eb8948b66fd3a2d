"""What parts of the application ask of the runs, and hear of them, without knowing who they are.

Everything asked here stands in the store already, so a signal that a crash swallows is made up for
by the next look at the store.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Ask:
    """Something to do for a session."""

    what: Literal["advance", "cancel"]
    session_id: str
    run_id: str | None = None
    """With `cancel`: only if it is this one that runs."""


class RunSignals:
    """Signals of one process."""

    def __init__(self) -> None:
        self._asks: asyncio.Queue[Ask] = asyncio.Queue()  # as many as sessions are waited for
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._told: list[Callable[[], None]] = []

    def advance(self, session_id: str) -> None:
        """The session has something queued that should begin when it can."""
        self._asks.put_nowait(Ask("advance", session_id))

    def cancel(self, session_id: str, run_id: str | None = None) -> None:
        """What the session runs should stop; with *run_id*, only if it is that run."""
        self._asks.put_nowait(Ask("cancel", session_id, run_id))

    async def next(self) -> Ask:
        """The next thing that was asked, for the one who does it."""
        return await self._asks.get()

    def ended(self, run_id: str) -> None:
        """The run's outcome is stored."""
        for told in self._told:
            told()
        for event in self._waiting.get(run_id, ()):
            event.set()

    def tell_of_ends(self, told: Callable[[], None]) -> None:
        """Call *told*, which must be quick, whenever a run of this process ends."""
        self._told.append(told)

    async def until_ended(self, run_id: str, seconds: float) -> None:
        """Wait until the run ends in this process, at most *seconds*; the store tells the truth."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(run_id, set())
        waiting.add(event)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            waiting.remove(event)
            if not waiting:
                del self._waiting[run_id]
