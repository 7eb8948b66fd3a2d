"""The redelivery window: which messages of a platform this process has taken already."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

WINDOW_SECONDS = 12 * 3600.0
"""Longer than the 7.1 h within which Feishu pushes a message again."""

KEYS_MAX = 100_000
"""About 20 MB; the oldest go first. The application keeps keys too, so none runs twice for it."""


@dataclass(slots=True, eq=False)
class _Claim:
    """One message under all its keys, and whether the application has it yet."""

    keys: tuple[str, ...]
    until: float
    kept: bool = False
    waiting: list[asyncio.Future[bool]] = field(default_factory=list)

    def settle(self, kept: bool) -> None:
        self.kept = kept
        for future in self.waiting:
            if not future.done():
                future.set_result(kept)
        self.waiting.clear()


class Window:
    """Keys that were claimed within the last *seconds*; used from one event loop only.

    `claim` before the first await; then `keep` when the application has the message, or `release`
    when it could not take it. A second push in between asks `kept` before it is acknowledged:
    otherwise it would be answered "taken" and the first one's failure would lose the message.
    """

    def __init__(
        self,
        seconds: float = WINDOW_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        *,
        most: int = KEYS_MAX,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._most = most
        self._claims: OrderedDict[str, _Claim] = OrderedDict()

    def __len__(self) -> int:
        return len(self._claims)

    def claim(self, keys: Sequence[str]) -> bool:
        """Take all *keys* at once; False, and none taken, if one of them is known."""
        now = self._clock()
        self._forget(now)
        if any(key in self._claims for key in keys):
            return False
        claim = _Claim(tuple(keys), now + self._seconds)
        self._claims.update(dict.fromkeys(keys, claim))
        while len(self._claims) > self._most:
            self._drop(next(iter(self._claims.values())))
        return True

    def keep(self, keys: Sequence[str]) -> None:
        """Say that the application has the message of *keys*."""
        for key in keys:
            if key in self._claims:
                self._claims[key].settle(True)

    def release(self, keys: Sequence[str]) -> None:
        """Give *keys* back: their message was not taken and shall come again.

        Only for who claimed them: it frees the message's other keys no less.
        """
        for key in keys:
            if key in self._claims:
                self._drop(self._claims[key])

    async def kept(self, keys: Sequence[str]) -> bool:
        """Wait until the message of *keys* was kept or released; True if kept.

        A key that nobody has claimed counts as released. Cancelling changes nothing.
        """
        claims = [claim for key in keys if (claim := self._claims.get(key))]
        if not claims:
            return False
        if any(claim.kept for claim in claims):
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        claims[0].waiting.append(future)
        return await future

    def _forget(self, now: float) -> None:
        """Drop what is over; claims stand in the order of their ends."""
        while self._claims and (oldest := next(iter(self._claims.values()))).until <= now:
            self._drop(oldest)

    def _drop(self, claim: _Claim) -> None:
        if not claim.kept:
            claim.settle(False)
        for key in claim.keys:
            self._claims.pop(key, None)
