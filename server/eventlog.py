"""The ordered events of every session: runs write, each surface reads from a position.

A run's events become AG-UI bytes here, once. Pieces of a text are held for at most
`COALESCE_SECONDS` and joined, since a model sends many small ones and each costs every reader a
frame; the first after a pause and whatever is not a piece go out at once.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

from channels.events import CallArguments, Outcome, RunEvent, RunStarted
from channels.port import RunSink
from server import agui
from server.errors import Locale, user_text
from server.eventring import EventRing

COALESCE_SECONDS = 0.040
FLUSH_CHARS = 4096
"""Pieces are not held past this."""
PIECE_CHARS = 32 * 1024
"""A longer piece is cut, so that every frame stays far below what clients accept."""
_LATE_SECONDS = 0.002
"""Timers come late, and many sessions take a while; pieces are due so much before the window."""
_EARLY_SECONDS = 0.005
"""What is due this soon goes with what is due now: fewer wake-ups for many sessions."""
_FORGET_SECONDS = 3600.0
"""A session nobody wrote or read for so long keeps no events, only its number."""

_Stream = tuple[type[agui.Delta], str]


class EventBus(Protocol):
    """Where the log of a session is; in one process, its memory."""

    def of(self, session_id: str) -> EventRing:
        """The session's log, empty if it is new."""

    def drop(self, session_id: str) -> None:
        """The session was deleted."""

    def kept(self) -> int:
        """How many entries this process keeps."""


class LocalBus:
    """The logs of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._rings: dict[str, EventRing] = {}
        self._clock = clock
        self._swept_at = clock()

    def of(self, session_id: str) -> EventRing:
        """The session's log, empty if it is new."""
        ring = self._rings.get(session_id)
        if ring is None:
            self._sweep()
            ring = self._rings[session_id] = EventRing(self._clock)
        return ring

    def drop(self, session_id: str) -> None:
        """The session was deleted."""
        self._rings.pop(session_id, None)

    def kept(self) -> int:
        """How many entries all logs keep."""
        return sum(ring.kept for ring in self._rings.values())

    def _sweep(self) -> None:
        """Empty the logs of sessions that rest. The rings stay, for a number is given once."""
        now = self._clock()
        if now - self._swept_at < _FORGET_SECONDS / 4:
            return
        self._swept_at = now
        for ring in self._rings.values():
            if ring.is_idle and ring.used_at < now - _FORGET_SECONDS:
                ring.forget()


class EventLogs:
    """The event logs of all sessions."""

    def __init__(self, bus: EventBus | None = None) -> None:
        self.instance = secrets.token_hex(6)
        """Positions count from 1 anew with each instance."""
        self._bus = LocalBus() if bus is None else bus
        self._flushes = _Flushes()
        self._sinks: WeakValueDictionary[str, _Sink] = WeakValueDictionary()

    def of(self, session_id: str) -> EventRing:
        """The session's log, for readers."""
        return self._bus.of(session_id)

    def kept(self) -> int:
        """How many entries this process keeps."""
        return self._bus.kept()

    def sink(self, session_id: str, locale: Locale) -> RunSink:
        """Where the session's runs put their events; *locale* is the session's.

        One for all who ask, since it may hold pieces that come before what another emits.
        """
        return self._sink_of(session_id, locale)

    def let_go(self, session_id: str, locale: Locale) -> None:
        """The run that was written belongs to another process now, so it ends in this log.

        Else whoever comes would be shown the stored messages up to its beginning alone.
        """
        self._sink_of(session_id, locale).let_go()

    def drop(self, session_id: str) -> None:
        """Forget the log of a deleted session."""
        self._sinks.pop(session_id, None)
        self._bus.drop(session_id)

    def _sink_of(self, session_id: str, locale: Locale) -> "_Sink":
        sink = self._sinks.get(session_id)
        if sink is None:
            sink = _Sink(session_id, locale, self._bus.of(session_id), self._flushes)
            self._sinks[session_id] = sink
        return sink


class _Sink:
    """Writes the events of a session's runs into its log."""

    __slots__ = (
        "__weakref__",
        "_flushed_at",
        "_flushes",
        "_locale",
        "_pending",
        "_pending_chars",
        "_ring",
        "_session_id",
        "due_at",
    )

    def __init__(
        self, session_id: str, locale: Locale, ring: EventRing, flushes: "_Flushes"
    ) -> None:
        self.due_at = 0.0
        self._session_id = session_id
        self._locale: Locale = locale
        self._ring = ring
        self._flushes = flushes
        self._flushed_at = 0.0
        self._pending: dict[_Stream, list[agui.Delta]] = {}
        self._pending_chars = 0

    def emit(self, event: RunEvent) -> None:
        """Append *event*, or hold it for a moment if it is a piece; never blocks."""
        if isinstance(event, agui.DELTA_KINDS):
            self._emit_delta(event)
        else:
            self._append_pending()
            self._append(event)
            self._ring.wake()

    def flush(self) -> None:
        """Append what is held."""
        if self._pending:
            self._append_pending()
            self._ring.wake()

    def let_go(self) -> None:
        """End the run that is being written, if one is."""
        self._append_pending()
        self._close_left_over()
        self._ring.wake()

    def _emit_delta(self, event: agui.Delta) -> None:
        if not event.delta:
            return
        if not self._pending:
            now = time.monotonic()
            self.due_at = self._flushed_at + COALESCE_SECONDS - _LATE_SECONDS
            if self.due_at > now:
                self._flushes.add(self)
        self._hold(event)
        if self._pending_chars >= FLUSH_CHARS or self.due_at <= time.monotonic():
            self.flush()

    def _hold(self, event: agui.Delta) -> None:
        stream = (type(event), _id_of(event))
        held = self._pending.get(stream)
        if held is None:
            self._pending[stream] = [event]
        else:
            held.append(event)
        self._pending_chars += len(event.delta)

    def _append_pending(self) -> None:
        if not self._pending:
            return
        for deltas in self._pending.values():
            head = agui.delta_head(deltas[0])
            text = "".join([delta.delta for delta in deltas])
            for start in range(0, len(text), PIECE_CHARS):
                self._ring.append_piece(head, agui.escape(text[start : start + PIECE_CHARS]))
        self._pending.clear()
        self._pending_chars = 0
        self._flushed_at = time.monotonic()

    def _append(self, event: RunEvent) -> None:
        bodies = agui.render(event, self._session_id, agui.epoch_ms())
        match event:
            case RunStarted():
                self._close_left_over()
                self._ring.begin_run(event.run_id, event.history_seq, bodies[0])
            case Outcome():
                self._ring.end_run(bodies[0])
            case _:
                for body in bodies:
                    self._ring.append(body)

    def _close_left_over(self) -> None:
        """End a run that this process had to let go without an outcome; one may be open only."""
        left = self._ring.active
        if left is not None:
            text = user_text("run_moved", self._locale)
            lost = Outcome(left.run_id, "failed", "server_restart", text)
            self._ring.end_run(agui.render(lost, self._session_id, agui.epoch_ms())[0])


class _Flushes:
    """Flushes sinks when their time has come, with one timer for all of them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, _Sink]] = deque()
        """Times and sinks in the order they came. Nobody waits longer than those before him."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, sink: _Sink) -> None:
        """Flush *sink* at its `due_at`."""
        self._waiting.append((sink.due_at, sink))
        if self._timer is None:
            self._arm(sink.due_at)

    def _arm(self, due_at: float) -> None:
        delay = max(0.0, due_at - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._flush_due)

    def _flush_due(self) -> None:
        self._timer = None
        until = time.monotonic() + _EARLY_SECONDS
        while self._waiting and self._waiting[0][0] <= until:
            sink = self._waiting.popleft()[1]
            if sink.due_at <= until:  # else it was flushed meanwhile, and waits again further on
                sink.flush()
        if self._waiting:
            self._arm(self._waiting[0][0])


def _id_of(event: agui.Delta) -> str:
    # Not a match: this runs once for each piece that a model sends.
    return event.call_id if isinstance(event, CallArguments) else event.message_id
