"""The log of one session in memory: numbered AG-UI events, read from any position.

A run of pieces of one text lies in one entry, so a reader who is behind gets the rest of it in
one piece, whether he is slow, late or new; one who keeps up gets each piece as it came.
"""

import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from server.agui import DELTA_TAIL

RETAINED_EVENTS = 2000
RETAINED_SECONDS = 600.0
"""What is newer than this stays, and so do the last `RETAINED_EVENTS`, whichever is more."""
ENTRY_BYTES = 64 * 1024
"""A text goes on in another entry past this, which bounds the frame a late reader gets."""
_TRIM_EVERY_EVENTS = 256


class Logged(NamedTuple):
    """One event as a reader gets it; it stands for the numbers `first` to `seq`."""

    first: int
    seq: int
    body: bytes
    """AG-UI JSON."""


@dataclass(frozen=True, slots=True)
class RunSpan:
    """Where a run's events lie."""

    run_id: str
    first: int
    """Number of its `RUN_STARTED`."""
    history_seq: int
    """Messages stored up to this `seq` are not told by the run's events."""
    last: int | None = None
    """Number of its last event; None while it is being written."""


class Listener(Protocol):
    """Somebody who reads a log as it grows."""

    def wake(self) -> None:
        """There is more to read. Called in the event loop; must be quick and must not raise."""


class _Whole:
    """An event that is never cut."""

    __slots__ = ("at", "body", "first", "seq")

    def __init__(self, seq: int, at: float, body: bytes) -> None:
        self.first = seq
        self.seq = seq
        self.at = at
        self.body = body

    def after(self, cursor: int) -> Logged:
        return Logged(self.seq, self.seq, self.body)


class _Pieces:
    """Pieces of one text that came one after another."""

    __slots__ = ("at", "ends", "first", "head", "inside", "seq")

    def __init__(self, seq: int, at: float, head: bytes, inside: bytes) -> None:
        self.first = seq
        self.seq = seq
        self.at = at
        self.head = head
        self.inside = bytearray(inside)
        self.ends = array("I", (len(inside),))

    def add(self, at: float, inside: bytes) -> None:
        self.seq += 1
        self.at = at
        self.inside += inside
        self.ends.append(len(self.inside))

    def after(self, cursor: int) -> Logged:
        """The pieces with numbers past *cursor*, as one."""
        if cursor < self.first:
            return Logged(self.first, self.seq, b"".join((self.head, self.inside, DELTA_TAIL)))
        rest = self.inside[self.ends[cursor - self.first] :]
        return Logged(cursor + 1, self.seq, b"".join((self.head, rest, DELTA_TAIL)))


class EventRing:
    """The log of one session. The events of the active run stay whole."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.head = 0
        """Number of the last event, 0 before the first."""
        self.active: RunSpan | None = None
        """The run that is being written."""
        self._runs: dict[str, RunSpan] = {}
        self._entries: list[_Whole | _Pieces] = []
        self._listeners: set[Listener] = set()
        self._clock = clock
        self._trim_at = _TRIM_EVERY_EVENTS

    @property
    def oldest(self) -> int:
        """Number of the oldest event that is kept; `head + 1` if there is none."""
        return self._entries[0].first if self._entries else self.head + 1

    @property
    def kept(self) -> int:
        """How many entries it keeps; pieces of one text share one."""
        return len(self._entries)

    @property
    def used_at(self) -> float:
        """When the last event came, by the clock; negative infinity without one."""
        return self._entries[-1].at if self._entries else float("-inf")

    @property
    def is_followed(self) -> bool:
        """Somebody reads as it grows."""
        return bool(self._listeners)

    @property
    def is_idle(self) -> bool:
        """Nobody writes and nobody reads."""
        return self.active is None and not self._listeners

    def covers(self, cursor: int) -> bool:
        """Whether everything past *cursor* can still be read."""
        return self.oldest - 1 <= cursor <= self.head

    def run(self, run_id: str) -> RunSpan | None:
        """Where a run's events lie; None if some of them are not kept, or it is not known."""
        span = self._runs.get(run_id)
        return span if span is not None and span.first >= self.oldest else None

    def begin_run(self, run_id: str, history_seq: int, body: bytes) -> None:
        """Append a `RUN_STARTED`."""
        self.append(body)
        self.active = self._runs[run_id] = RunSpan(run_id, self.head, history_seq)

    def end_run(self, body: bytes) -> None:
        """Append the active run's last event."""
        self.append(body)
        if self.active is not None:
            self._runs[self.active.run_id] = replace(self.active, last=self.head)
            self.active = None

    def append(self, body: bytes) -> None:
        """Append an event; readers hear of it by `wake`."""
        self.head += 1
        self._entries.append(_Whole(self.head, self._clock(), body))
        if self.head >= self._trim_at:
            self._trim()

    def append_piece(self, head: bytes, inside: bytes) -> None:
        """Append a piece of the text that *head* begins; *inside* is escaped."""
        self.head += 1
        last = self._entries[-1] if self._entries else None
        if (
            isinstance(last, _Pieces)
            and last.head == head
            and len(last.inside) + len(inside) <= ENTRY_BYTES
        ):
            last.add(self._clock(), inside)
        else:
            self._entries.append(_Pieces(self.head, self._clock(), head, inside))

    def wake(self) -> None:
        """Tell every reader that there is more."""
        for listener in self._listeners:
            listener.wake()

    def listen(self, listener: Listener) -> None:
        """Wake *listener* from now on; once, however often it asks."""
        self._listeners.add(listener)

    def unlisten(self, listener: Listener) -> None:
        """Wake *listener* no more."""
        self._listeners.discard(listener)

    def read(self, cursor: int, limit_bytes: int) -> Sequence[Logged]:
        """The events past *cursor*, in order.

        Args:
            cursor: Within what `covers` says.
            limit_bytes: Ends after the event that reaches it.
        """
        entries = self._entries
        if not entries or cursor >= self.head:
            return ()
        if entries[-1].first <= cursor + 1:
            return (entries[-1].after(cursor),)
        found: list[Logged] = []
        taken = 0
        for index in range(bisect_right(entries, cursor, key=_seq_of), len(entries)):
            event = entries[index].after(cursor)
            found.append(event)
            taken += len(event.body)
            if taken >= limit_bytes:
                break
        return found

    def forget(self) -> None:
        """Let go of all events; the numbers go on where they were."""
        self._entries.clear()
        self._runs.clear()

    def _trim(self) -> None:
        self._trim_at = self.head + _TRIM_EVERY_EVENTS
        newest = self.head - RETAINED_EVENTS
        if self.active is not None:
            newest = min(newest, self.active.first - 1)
        before = self._clock() - RETAINED_SECONDS
        count = 0
        for entry in self._entries:
            if entry.seq > newest or entry.at >= before:
                break
            count += 1
        del self._entries[:count]
        oldest = self.oldest
        for run_id in [key for key, span in self._runs.items() if span.first < oldest]:
            del self._runs[run_id]


def _seq_of(entry: _Whole | _Pieces) -> int:
    return entry.seq
