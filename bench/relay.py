"""Streaming to many at once, against the bare relay: CPU per delta, and the delay it adds."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from bench.clock import cpu_seconds, percentile
from bench.figure import Figure
from bench.process import Running, end, open_process, open_server, spawn
from bench.upstream import AFTER_PAUSE, SLOTS_PER_SECOND
from bench.watchers import Heard

SESSIONS = 100
TURNS = 5
WARM_SECONDS = 1.0
WINDOW_SECONDS = 3.0
AFTER_SECONDS = 0.5
"""Streams go on a little after the window, so that it holds nothing of their end."""
COALESCE_MS = 40.0
"""What the server may hold a delta back."""

Face = Literal["server", "bare"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One load on one of the two."""

    cpu_us: float
    """Per delta."""
    after_pause_ms: Sequence[float]
    any_ms: Sequence[float]


async def measure(folder: Path) -> list[Figure]:
    """All figures of the relay."""
    async with _open_both(folder) as (upstream, server, bare):
        ours: list[Turn] = []
        bares: list[Turn] = []
        for number in range(TURNS):
            where = folder / f"turn-{number}"
            ours.append(await _turn(where, upstream, server, "server"))
            bares.append(await _turn(where, upstream, bare, "bare"))
    return _figures(ours, bares)


@asynccontextmanager
async def _open_both(folder: Path) -> AsyncIterator[tuple[Running, Running, Running]]:
    slots = int((WARM_SECONDS + WINDOW_SECONDS + AFTER_SECONDS) * SLOTS_PER_SECOND)
    options = ("--sessions", str(SESSIONS), "--slots", str(slots))
    async with (
        open_process(folder / "upstream", "bench.upstream", *options) as upstream,
        open_server(folder / "server", upstream.url) as server,
        open_process(folder / "bare", "bench.bare", "--upstream", upstream.url) as bare,
    ):
        yield upstream, server, bare


async def _turn(folder: Path, upstream: Running, relay: Running, face: Face) -> Turn:
    """Load *relay* once. The CPU time is that of a window amid the streams."""
    await relay.settle()
    options = ("--url", relay.url, "--face", face, "--sessions", str(SESSIONS))
    watchers = await spawn(folder, "bench.watchers", *options)
    try:
        assert watchers.stdout is not None, "opened with a pipe"
        async with asyncio.timeout(60):
            while await upstream.line() != b"go\n":
                pass
            await asyncio.sleep(WARM_SECONDS)
            began_us, spent = time.monotonic_ns() // 1000, cpu_seconds(relay.pid)
            await asyncio.sleep(WINDOW_SECONDS)
            ended_us, spent = time.monotonic_ns() // 1000, cpu_seconds(relay.pid) - spent
            heard: list[Heard] = json.loads(await watchers.stdout.readline())
    finally:
        await end(watchers)
    arrived = [delta for delta in heard if began_us <= delta[2] < ended_us]
    return Turn(
        cpu_us=spent / len(arrived) * 1e6,
        after_pause_ms=[(at - sent) / 1000 for kind, sent, at in arrived if kind == AFTER_PAUSE],
        any_ms=[(at - sent) / 1000 for _, sent, at in arrived],
    )


def _figures(ours: Sequence[Turn], bares: Sequence[Turn]) -> list[Figure]:
    cpu, after_pause, slowest = (
        [median(map(measured, turns)) for turns in (ours, bares)]
        for measured in (_cpu_us, _after_pause_ms, _slowest_ms)
    )
    return [
        Figure(f"relay: CPU per delta, {SESSIONS} streams", cpu[0], "µs", cpu[1], 1.3),
        Figure(
            "relay: delay after a pause, p50", after_pause[0], "ms", after_pause[1], 2.0, "added"
        ),
        Figure(
            "relay: delay of any delta, p99", slowest[0], "ms", slowest[1], COALESCE_MS, "added"
        ),
    ]


def _cpu_us(turn: Turn) -> float:
    return turn.cpu_us


def _after_pause_ms(turn: Turn) -> float:
    return percentile(turn.after_pause_ms, 0.5)


def _slowest_ms(turn: Turn) -> float:
    return percentile(turn.any_ms, 0.99)
