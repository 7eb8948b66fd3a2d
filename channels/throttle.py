"""Send budgets: how often a platform may be called, learnt beforehand and by its refusals."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from channels.clock import Sleep

BUDGETS_MAX = 1000
"""Chats or cards whose budgets are remembered; an idle one is as good as a new one."""


class Budget:
    """At most *burst* turns in any `burst / per_second` seconds, first come, first served.

    So with 5 per second and a burst of 5 no second ever sees a sixth call, wherever it begins: a
    bucket that refills meanwhile would let up to twice the burst through.
    """

    def __init__(
        self,
        per_second: float,
        burst: int = 1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._window_seconds = burst / per_second
        self._clock = clock
        self._sleep = sleep
        self._turns: deque[float] = deque(maxlen=burst)
        self._burst = burst
        self._closed_until = clock()
        self._line = asyncio.Lock()
        self.waits = 0
        """Turns that could not be had at once."""

    async def take(self) -> None:
        """Wait for a turn and use it; cancelling gives up the place in the line, nothing else."""
        waited = self._line.locked()
        async with self._line:
            while (seconds := self._seconds_to_wait()) > 0:
                waited = True
                await self._sleep(seconds)
            self._turns.append(self._clock())
            self.waits += waited

    def pause(self, seconds: float) -> None:
        """Let nobody take a turn for *seconds*: the platform said so. A longer pause stands."""
        self._closed_until = max(self._closed_until, self._clock() + seconds)

    @property
    def is_idle(self) -> bool:
        """Nobody waits, no pause stands, and all turns are free."""
        is_used = bool(self._turns) and self._clock() - self._turns[-1] < self._window_seconds
        return not (is_used or self._line.locked() or self._clock() < self._closed_until)

    def _seconds_to_wait(self) -> float:
        now = self._clock()
        free_at = self._closed_until
        if len(self._turns) == self._burst:
            free_at = max(free_at, self._turns[0] + self._window_seconds)
        return free_at - now


class Budgets:
    """A budget for each key (a chat, a card), made by *make* when first asked for."""

    def __init__(self, make: Callable[[], Budget], most: int = BUDGETS_MAX) -> None:
        self._make = make
        self._most = most
        self._budgets: OrderedDict[str, Budget] = OrderedDict()
        self._forgotten_waits = 0

    def __len__(self) -> int:
        return len(self._budgets)

    @property
    def waits(self) -> int:
        """Turns that could not be had at once, over all keys."""
        return self._forgotten_waits + sum(budget.waits for budget in self._budgets.values())

    def of(self, key: str) -> Budget:
        """The budget of *key*; ask anew for each turn, since an idle one may be forgotten."""
        budget = self._budgets.get(key)
        if budget is None:
            self._make_room()
            budget = self._budgets[key] = self._make()
        self._budgets.move_to_end(key)
        return budget

    def _make_room(self) -> None:
        """Forget idle budgets, the longest unused first; those in use stay, however many."""
        if len(self._budgets) < self._most:
            return
        idle = [key for key, budget in self._budgets.items() if budget.is_idle]
        for key in idle[: len(self._budgets) - self._most + 1]:
            self._forgotten_waits += self._budgets.pop(key).waits
