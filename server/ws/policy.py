"""What a socket may do and how long, and how many may come from one address."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from channels.port import QUEUE_MAX


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of a socket."""

    hello_seconds: float = 10.0
    hello_bytes: int = 64 * 1024
    """Of the first frame: nobody is known yet."""
    frame_bytes: int = 1024 * 1024
    """Of any later frame. The server cuts off above it; here it is only told."""
    ping_seconds: float = 20.0
    """A socket that was silent for so long is sent a ping, so that its page knows it lives."""
    dead_seconds: float = 60.0
    """A client that heard nothing for so long should connect again."""
    send_seconds: float = 30.0
    """A peer that takes nothing for so long is let go; it resumes by its position."""
    queue_max: int = QUEUE_MAX
    waiting_per_address: int = 256
    """Sockets without their hello. Each costs about 30 KB for `hello_seconds`."""
    sockets_per_address: int = 8192
    """Behind a proxy all clients share one address."""
    requests_at_once: int = 64
    requests_per_second: float = 100.0
    requests_burst: int = 500
    subscriptions: int = 256
    page_messages: int = 50
    page_bytes: int = 512 * 1024
    """Of the history in one answer; older messages are fetched page by page."""


class Addresses:
    """Counts the sockets of each address."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._open: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()

    def has_room(self, address: str) -> bool:
        """Whether one more may come from *address*."""
        return (
            self._waiting[address] < self._policy.waiting_per_address
            and self._open[address] < self._policy.sockets_per_address
        )

    def opened(self, address: str) -> AbstractContextManager[None]:
        """Count a socket for as long as the context lasts."""
        return _counted(self._open, address)

    def waiting(self, address: str) -> AbstractContextManager[None]:
        """Count a socket without its hello for as long as the context lasts."""
        return _counted(self._waiting, address)


@contextmanager
def _counted(counter: Counter[str], address: str) -> Iterator[None]:
    counter[address] += 1
    try:
        yield
    finally:
        counter[address] -= 1
        if not counter[address]:
            del counter[address]


class Bucket:
    """How many requests a connection may still send: so many a second, saved up to a burst."""

    __slots__ = ("_at", "_burst", "_clock", "_left", "_per_second")

    def __init__(
        self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._clock = clock
        self._at = clock()

    def take(self) -> bool:
        """Take one; False if there is none left."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
