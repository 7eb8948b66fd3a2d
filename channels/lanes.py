"""One message of a chat after the other, in the order in which they were written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from channels.clock import Clock

LATE_SECONDS: Final = 5.0
"""A message that took longer to arrive belongs to a backlog, which comes in any order."""
GATHER_SECONDS: Final = 0.25
"""Waited for the rest of a backlog before its oldest message is taken."""


@dataclass(slots=True, eq=False)
class _Place:
    """One message in a lane."""

    written_at: float
    called: "asyncio.Future[None]"


@dataclass(slots=True)
class _Lane:
    """The messages of one chat; there is none for a chat in which nothing waits."""

    ahead: _Place
    """Whoever has the turn, or sees to it that the first turn is given."""
    waiting: list[_Place] = field(default_factory=list)


class Lanes:
    """A lane for each chat; different chats do not wait for each other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lanes: dict[str, _Lane] = {}

    @asynccontextmanager
    async def turn(self, chat_id: str, written_at: float | None) -> AsyncIterator[None]:
        """Wait until all that was written earlier in the chat, and is here, is through.

        Args:
            written_at: In seconds since 1970; None for what does not say.

        Cancelling gives up the place, nothing else.
        """
        now = self._clock.wall()
        place = _Place(written_at or now, asyncio.get_running_loop().create_future())
        lane = self._lanes.setdefault(chat_id, _Lane(place))
        lane.waiting.append(place)
        try:
            if lane.ahead is place:
                if now - place.written_at > LATE_SECONDS:
                    await self._clock.sleep(GATHER_SECONDS)
                self._call(chat_id, lane)
            await place.called
            yield
        finally:
            if place in lane.waiting:
                lane.waiting.remove(place)
            if lane.ahead is place:
                self._call(chat_id, lane)

    def _call(self, chat_id: str, lane: _Lane) -> None:
        """Give the turn to the earliest; of equals to who came first."""
        if not lane.waiting:
            del self._lanes[chat_id]
            return
        lane.ahead = min(lane.waiting, key=lambda place: place.written_at)
        lane.waiting.remove(lane.ahead)
        lane.ahead.called.set_result(None)
