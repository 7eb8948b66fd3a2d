"""Keeps a long connection alive: open it, notice that it is lost, open it again."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Literal, Never, Protocol

from channels.clock import SYSTEM, Clock
from channels.errors import LineError
from channels.faults import fault_of, is_told

log = logging.getLogger(__name__)

OPEN_SECONDS: Final = 15.0
"""For discovery and handshake together."""
CLOSE_SECONDS: Final = 3.0
"""For the close frame; a peer that vanished answers none, and a stop must end within 5 s."""
LINGER_SECONDS: Final = 10.0
"""DingTalk cuts a line so long after it announced that."""
STABLE_SECONDS: Final = 60.0
"""A line that was lost earlier counts as an attempt that failed."""
TICK_SECONDS: Final = 5.0
JUMP_SECONDS: Final = 30.0
"""More than any stall of ours: the machine slept."""
DEGRADED_SHARE: Final = 5 / 6
"""Of the longest healthy silence: 125 s of 150 s, so a pong every 120 s is no trouble."""
JITTER: Final = 0.25
GROWTH: Final = 3.0
"""With 1 s and 60 s: at most 10 attempts in the first 5 minutes, whatever the jitter."""

LineState = Literal["up", "degraded", "down"]


@dataclass(frozen=True, slots=True)
class Lost:
    """Why a line is of no more use; `reason` is safe for health and log."""

    reason: str
    is_open: bool = False
    """The far end will close it soon: what was heard may still be answered on it, and the next
    line is opened first."""


AWOKE: Final = Lost("the clock jumped: the machine was asleep")


class Line(Protocol):
    """One connection that is open."""

    @property
    def silence_seconds(self) -> float:
        """The longest pause between frames of a healthy line; beyond it the line is lost."""

    async def wait_lost(self) -> Lost:
        """Wait until the line is of no more use; cancelling changes nothing."""


Connect = Callable[[], AbstractAsyncContextManager[Line]]
"""Entering opens a line, leaving closes it, both in one task; a refusal is a LineError."""


class LineHealth:
    """How the connection is, for `health()`; written by the supervisor, `heard` by the line."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self.state: LineState = "down"
        self.reason = "connecting"
        self.last_frame_at: float | None = None
        """On the monotonic clock; None before the first."""
        self.attempts = 0
        self.reconnects = 0
        """Lines that were opened after the first."""
        self._clock = clock

    def heard(self) -> None:
        """A frame came, of whatever kind; may be called from any thread."""
        self.last_frame_at = self._clock.monotonic()
        if self.state == "degraded":
            self.set("up")

    def set(self, state: LineState, reason: str = "") -> None:
        """Say how the line is; only the supervisor does, and an adapter that knows better."""
        self.state, self.reason = state, reason

    @property
    def last_frame_seconds(self) -> float | None:
        """Age of the last frame."""
        if self.last_frame_at is None:
            return None
        return max(0.0, self._clock.monotonic() - self.last_frame_at)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts: growing and jittered upwards.

    Jitter from zero would be gentler with many clients, but lets one that is dropped at once come
    back too often.
    """

    first_seconds: float = 1.0
    most_seconds: float = 60.0
    random: Callable[[], float] = random.random

    def seconds(self, failures: int) -> float:
        """The pause after *failures* in a row; after none a short one that only spreads."""
        if failures == 0:
            return self.first_seconds * self.random()
        growth = GROWTH ** min(failures - 1, 32)
        base = min(self.first_seconds * growth, self.most_seconds / (1 + JITTER))
        return base * (1 + JITTER * self.random())


async def keep_alive(
    connect: Connect,
    *,
    name: str,
    health: LineHealth,
    backoff: Backoff | None = None,
    clock: Clock = SYSTEM,
    open_seconds: float = OPEN_SECONDS,
    close_seconds: float = CLOSE_SECONDS,
) -> Never:
    """Hold one line open until cancelled, whatever happens to it.

    Args:
        connect: Opens a line; tried again for ever, also after a refusal that looks final, since
            a secret can be mended in the platform's console.
        name: Names the line in logs; no secret.

    Cancelling closes what is open, within `close_seconds` and 1 s more.
    """
    patience = (open_seconds, close_seconds)
    keeper = _Keeper(connect, name, health, backoff or Backoff(), clock, patience)
    try:
        await keeper.run()
    finally:
        await keeper.close()


class _Held:
    """A line in a task of its own: a context must be left by the task that entered it."""

    def __init__(self, connect: Connect, name: str) -> None:
        self._connect = connect
        self._line: Line | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self.task = asyncio.create_task(self._hold(), name=f"line-{name}")

    async def _hold(self) -> None:
        async with self._connect() as line:
            self._line = line
            self._opened.set_result(None)
            await self._leave.wait()

    async def opened(self) -> Line:
        """The line once it is open; raises what opening raised."""
        await asyncio.wait({self.task, self._opened}, return_when=asyncio.FIRST_COMPLETED)
        if self._line is not None:
            return self._line
        if self.task.cancelled():  # from inside: must not pass for a cancellation of ours
            raise LineError("opening was cancelled")
        self.task.result()
        raise LineError("opening ended without a line")

    async def end(self, seconds: float) -> bool:
        """Close the line, by force after *seconds*; False if even that did not end it."""
        self._leave.set()
        await asyncio.wait({self.task}, timeout=seconds)
        for _ in range(2):  # dingtalk-stream swallows the first cancellation
            if not self.task.done():
                self.task.cancel()
                await asyncio.wait({self.task}, timeout=0.5)
        return self.task.done()


class _Keeper:
    """The supervisor of one line."""

    def __init__(
        self,
        connect: Connect,
        name: str,
        health: LineHealth,
        backoff: Backoff,
        clock: Clock,
        patience: tuple[float, float],
    ) -> None:
        self._connect = connect
        self._name = name
        self._health = health
        self._backoff = backoff
        self._clock = clock
        self._open_seconds, self._close_seconds = patience
        self._held: set[_Held] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._short_lived = 0
        self._was_up = False
        self._told = ""

    async def run(self) -> Never:
        """Open, listen, pause, for ever."""
        leaving: _Held | None = None
        while True:
            held, line = await self._open()
            if leaving is not None:  # only now: the next line is there, or cannot be had
                self._close_later(leaving)
                leaving = None
            pause = None
            if line is not None:
                lost = await self._listen(held, line)
                if lost.is_open:
                    leaving, pause = held, 0.0
                else:
                    await self._end(held, self._close_seconds)
                    pause = 0.0 if lost is AWOKE else None
            if pause is None or self._failures:
                pause = self._backoff.seconds(self._failures)
            await self._clock.sleep(pause)

    async def close(self) -> None:
        """Close all lines at once."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*(self._end(held, self._close_seconds) for held in list(self._held)))

    async def _open(self) -> tuple[_Held, Line | None]:
        self._health.attempts += 1
        held = _Held(self._connect, self._name)
        self._held.add(held)
        try:
            async with asyncio.timeout(self._open_seconds):
                line = await held.opened()
        except LineError as error:
            self._fail(error.reason)
        except TimeoutError:
            self._fail("no answer in time")
        except Exception as error:  # noqa: BLE001  # one of an SDK's; the line must come back
            self._fail(f"unexpected {type(error).__name__}", error)
        else:
            self._up()
            return held, line
        await self._end(held, 0)
        return held, None

    def _up(self) -> None:
        self._health.reconnects += self._was_up
        self._health.set("up")
        if is_told(self._short_lived):
            log.info("[%s] connected, attempt=%d", self._name, self._health.attempts)
        self._was_up = True

    def _fail(self, reason: str, error: Exception | None = None) -> None:
        """Count a failure and say so, but not each time the same."""
        self._failures += 1
        self._health.set("down", reason)
        if reason != self._told or is_told(self._failures):
            fault = f" {fault_of(error)}" if error is not None else ""
            log.warning("[%s] down: %s, failures=%d%s", self._name, reason, self._failures, fault)
        self._told = reason

    async def _listen(self, held: _Held, line: Line) -> Lost:
        """Wait until *line* is lost and judge how it was."""
        began = self._clock.monotonic()
        lost = await self._lost(held, line, began)
        if lost is AWOKE or self._clock.monotonic() - began >= STABLE_SECONDS:
            self._failures = self._short_lived = 0
            self._told = ""
            log.info("[%s] lost: %s", self._name, lost.reason)
        else:
            self._short_lived += 1
            self._fail(lost.reason)
        self._health.set("degraded" if lost.is_open else "down", lost.reason)
        return lost

    async def _lost(self, held: _Held, line: Line, began: float) -> Lost:
        asked = asyncio.create_task(self._ask(line), name=f"lost-{self._name}")
        watched = asyncio.create_task(self._watch(line, began), name=f"watch-{self._name}")
        try:
            await asyncio.wait({asked, watched, held.task}, return_when=asyncio.FIRST_COMPLETED)
            for task in (asked, watched):
                if task.done():
                    return task.result()
            return Lost("its task ended")
        finally:
            asked.cancel()
            watched.cancel()
            await asyncio.wait({asked, watched}, timeout=1)

    async def _ask(self, line: Line) -> Lost:
        try:
            return await line.wait_lost()
        except Exception as error:  # noqa: BLE001 - an SDK's; the line must come back
            log.warning("[%s] listening broke %s", self._name, fault_of(error))
            return Lost(f"unexpected {type(error).__name__}")

    async def _watch(self, line: Line, began: float) -> Lost:
        """Wait until the line is silent for too long, or the machine woke up."""
        while True:
            limit = line.silence_seconds
            silent = self._clock.monotonic() - max(began, self._health.last_frame_at or began)
            if silent >= limit:
                return Lost(f"silent for {silent:.0f} s")
            if silent >= limit * DEGRADED_SHARE:
                self._health.set("degraded", f"silent for {silent:.0f} s")
            pause = min(TICK_SECONDS, limit - silent)
            wall = self._clock.wall()
            await self._clock.sleep(pause)
            if self._clock.wall() - wall - pause > JUMP_SECONDS:
                return AWOKE

    def _close_later(self, held: _Held) -> None:
        task = asyncio.create_task(self._end(held, LINGER_SECONDS), name=f"close-{self._name}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _end(self, held: _Held, seconds: float) -> None:
        if not await held.end(seconds):
            log.error("[%s] a line cannot be closed; it may swallow messages", self._name)
        elif not held.task.cancelled() and (error := held.task.exception()):
            log.debug("[%s] closing ended with %s", self._name, type(error).__name__)
        self._held.discard(held)
