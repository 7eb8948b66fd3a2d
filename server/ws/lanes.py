"""Does the requests of one connection: those of a session in order, others side by side.

So a client may send `run.start` and `run.cancel` without waiting in between and they mean what
they say, while a slow answer about one session holds up no other.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from server.ws.decode import Call
from server.ws.objects import Sparse


class Lanes:
    """The requests that are being done."""

    __slots__ = ("_count", "_do", "_group", "_lanes", "_most")

    def __init__(
        self, group: asyncio.TaskGroup, do: Callable[[Call, Sparse], Awaitable[None]], most: int
    ) -> None:
        self._group = group
        self._do = do
        self._most = most
        self._count = 0
        self._lanes: dict[str, deque[tuple[Call, Sparse]]] = {}

    def put(self, key: str, call: Call, params: Sparse) -> bool:
        """Do *call* after all of the same *key*; False if there are too many."""
        if self._count >= self._most:
            return False
        self._count += 1
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = deque([(call, params)])
            self._group.create_task(self._work(key), name="ws-requests")
        else:
            lane.append((call, params))
        return True

    async def _work(self, key: str) -> None:
        lane = self._lanes[key]
        while lane:
            await self._do(*lane.popleft())
            self._count -= 1
        del self._lanes[key]
