"""Keeping a line alive: against a scripted far end on a clock, and once against a real socket."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect as open_socket
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from channels.clock import Clock as ChannelClock
from channels.errors import LineError
from channels.supervise import Backoff, Line, LineHealth, Lost, keep_alive
from tests.fakes.clock import Clock

LOGGER = "channels.supervise"


@dataclass(eq=False)
class FakeLine:
    """One connection to the scripted far end."""

    far: "FarEnd"
    silence_seconds: float = 150.0
    lost: "asyncio.Future[Lost]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    async def wait_lost(self) -> Lost:
        return await asyncio.shield(self.lost)


@dataclass(eq=False)
class FarEnd:
    """A platform that does with each connection what the test says."""

    clock: Clock
    opening: Callable[[], Awaitable[None]] | None = None
    """What happens before a line is open; may raise or never end."""
    opened: Callable[[FakeLine], None] = lambda line: None
    closing: Callable[[], Awaitable[None]] | None = None
    opened_at: list[float] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)
    live: list[FakeLine] = field(default_factory=list)
    most_live: int = 0
    health: LineHealth = field(init=False)

    def __post_init__(self) -> None:
        self.health = LineHealth(self.clock.channels)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Line]:
        self.asked_at.append(self.clock.monotonic())
        if self.opening is not None:
            await self.opening()
        line = FakeLine(self)
        self.live.append(line)
        self.most_live = max(self.most_live, len(self.live))
        self.opened_at.append(self.clock.monotonic())
        self.opened(line)
        try:
            yield line
        finally:
            if self.closing is not None:
                await self.closing()
            self.live.remove(line)

    def lose(self, reason: str = "closed 1006", *, is_open: bool = False) -> None:
        """End the newest line."""
        self.live[-1].lost.set_result(Lost(reason, is_open))

    @asynccontextmanager
    async def kept(self, jitter: float = 0.5, open_seconds: float = 15.0) -> AsyncIterator[None]:
        """Keep a line to this far end for as long as the block runs."""
        backoff = Backoff(random=lambda: jitter)
        work = keep_alive(
            self.connect,
            name="test",
            health=self.health,
            backoff=backoff,
            clock=self.clock.channels,
            open_seconds=open_seconds,
            close_seconds=0.05,
        )
        task = asyncio.create_task(work)
        try:
            await self.clock.run_for(0)
            yield
        finally:
            task.cancel()
            async with asyncio.timeout(5):
                await asyncio.wait({task})
            assert task.cancelled()


def how(health: LineHealth) -> str:
    """Its state, asked anew."""
    return health.state


async def test_a_line_that_was_lost_is_opened_again() -> None:
    far = FarEnd(Clock())
    async with far.kept():
        assert (far.health.state, far.health.reason) == ("up", "")
        await far.clock.run_for(100)
        far.lose()
        await far.clock.run_for(0)
        assert (far.health.state, far.health.reason) == ("down", "closed 1006")
        await far.clock.run_for(1)
        assert far.health.state == "up"
    assert far.opened_at == [1000.0, 1100.5]
    assert far.health.reconnects == 1
    assert far.most_live == 1
    assert far.live == []


async def test_a_far_end_that_refuses_is_asked_for_ever_and_health_says_why() -> None:
    async def refuse() -> None:
        raise LineError("code 10014: wrong secret")

    far = FarEnd(Clock(), opening=refuse)
    async with far.kept():
        await far.clock.run_for(600)
        assert (far.health.state, far.health.reason) == ("down", "code 10014: wrong secret")
        far.opening = None
        await far.clock.run_for(60)
        assert far.health.state == "up"
    pauses = [b - a for a, b in zip(far.asked_at, far.asked_at[1:], strict=False)]
    assert pauses[:3] == [1.125, 3.375, 10.125]
    assert max(pauses) <= 60
    assert far.health.reconnects == 0


@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
async def test_a_far_end_that_drops_every_line_is_not_stormed(
    jitter: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    clock = Clock()
    dropped: list[asyncio.Task[None]] = []

    async def drop(line: FakeLine) -> None:
        await clock.sleep(0.1)
        line.lost.set_result(Lost("closed 1006"))

    far = FarEnd(clock, opened=lambda line: dropped.append(asyncio.create_task(drop(line))))
    async with far.kept(jitter):
        await clock.run_for(300)
        assert len(far.opened_at) <= 10
        await clock.run_for(300)
        assert len(far.opened_at) >= 12
    assert len(caplog.records) <= 10
    assert far.most_live == 1


async def test_a_silent_line_is_degraded_then_replaced() -> None:
    far = FarEnd(Clock())
    async with far.kept():
        await far.clock.run_for(60)
        far.health.heard()
        await far.clock.run_for(124)
        assert how(far.health) == "up"
        await far.clock.run_for(10)
        assert how(far.health) == "degraded"
        assert far.health.last_frame_seconds == 134
        await far.clock.run_for(17)
        assert 1210 <= far.opened_at[1] <= 1211
        await far.clock.run_for(120)
        assert far.health.state == "up"
    assert len(far.opened_at) == 2


async def test_an_idle_line_that_answers_pings_is_never_dropped() -> None:
    far = FarEnd(Clock())
    async with far.kept():
        for _ in range(60):
            await far.clock.run_for(120)
            far.health.heard()
            assert far.health.state == "up"
    assert len(far.opened_at) == 1


async def test_a_frame_makes_a_degraded_line_good_again() -> None:
    far = FarEnd(Clock())
    async with far.kept():
        await far.clock.run_for(130)
        assert far.health.state == "degraded"
        far.health.heard()
        assert (far.health.state, far.health.reason) == ("up", "")
        await far.clock.run_for(120)
    assert len(far.opened_at) == 1


async def test_a_line_is_replaced_at_once_when_the_machine_wakes_up() -> None:
    far = FarEnd(Clock())
    async with far.kept():
        await far.clock.run_for(7)
        far.clock.jump(300)
        await far.clock.run_for(5)
    assert far.opened_at == [1000.0, 1010.0]


async def test_an_announced_end_opens_the_next_line_before_the_old_one_closes() -> None:
    far = FarEnd(Clock())
    async with far.kept():
        for _ in range(3):
            await far.clock.run_for(100)
            far.lose("the platform moves it", is_open=True)
            await far.clock.run_for(0)
            assert far.health.state == "up"
            assert len(far.live) == 1
    assert far.opened_at == [1000.0, 1100.0, 1200.0, 1300.0]
    assert far.most_live == 2


async def test_an_announced_end_right_after_opening_pauses_but_stays_within_three_seconds() -> None:
    far = FarEnd(Clock())
    async with far.kept(jitter=0.999):
        far.lose("the platform moves it", is_open=True)
        await far.clock.run_for(0)
        assert far.health.state == "degraded"
        assert len(far.live) == 1
        await far.clock.run_for(3)
        assert len(far.live) == 1
    assert len(far.opened_at) == 2
    assert far.opened_at[1] <= 1003
    assert far.most_live == 2


async def test_discovery_that_never_answers_is_given_up_and_tried_again() -> None:
    hanging, most_hanging = 0, 0

    async def hang() -> None:
        nonlocal hanging, most_hanging
        hanging += 1
        most_hanging = max(most_hanging, hanging)
        try:
            await asyncio.Event().wait()
        finally:
            hanging -= 1

    far = FarEnd(Clock(), opening=hang)
    async with far.kept(open_seconds=0.02):
        async with asyncio.timeout(5):
            while len(far.asked_at) < 3:
                await far.clock.run_for(1)
    assert (hanging, most_hanging) == (0, 1)
    assert far.health.reason == "no answer in time"
    assert far.health.state == "down"


async def test_an_unforeseen_error_is_survived_and_its_words_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ticket = "".join(("hid", "den"))  # not whole in the source, which a traceback quotes

    async def break_down() -> None:
        raise OSError(f"wss://h/ws?ticket={ticket}")

    far = FarEnd(Clock(), opening=break_down)
    async with far.kept():
        await far.clock.run_for(2)
        far.opening = None
        await far.clock.run_for(5)
        assert far.health.state == "up"
    assert "unexpected OSError" in caplog.text
    assert "break_down" in caplog.text
    assert ticket not in caplog.text


async def test_a_line_whose_listening_breaks_is_lost() -> None:
    far = FarEnd(Clock())
    async with far.kept():
        far.live[-1].lost.set_exception(RuntimeError("the thread died"))
        await far.clock.run_for(2)
        assert far.health.state == "up"
    assert len(far.opened_at) == 2


async def test_a_close_that_hangs_does_not_hold_up_the_end() -> None:
    async def swallow() -> None:
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    far = FarEnd(Clock(), closing=swallow)
    began = asyncio.get_running_loop().time()
    async with far.kept():
        assert len(far.live) == 1
    assert asyncio.get_running_loop().time() - began < 4.5
    assert far.live == []


async def test_stopping_while_it_pauses_ends_at_once() -> None:
    async def refuse() -> None:
        raise LineError("no")

    far = FarEnd(Clock(), opening=refuse)
    async with far.kept():
        await far.clock.run_for(30)
    assert far.health.attempts == len(far.asked_at) == 4


async def test_equal_failures_are_logged_less_and_less(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse() -> None:
        raise LineError("HTTP 503")

    far = FarEnd(Clock(), opening=refuse)
    async with far.kept():
        await far.clock.run_for(3600)
    assert far.health.attempts > 60
    assert 5 <= len(caplog.records) <= 8


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_never_above_the_most(failures: int, jitter: float) -> None:
    assert 0 <= Backoff(random=lambda: jitter).seconds(failures) <= 60


@dataclass(eq=False)
class Socket:
    """A real WebSocket as a line."""

    connection: AsyncIterator[str | bytes]
    health: LineHealth
    silence_seconds: float = 60.0

    async def wait_lost(self) -> Lost:
        try:
            async for _ in self.connection:
                self.health.heard()
        except ConnectionClosed:
            return Lost("broken")
        return Lost("closed")


async def test_a_real_socket_that_is_cut_comes_back_and_hears_again() -> None:
    connections: asyncio.Queue[ServerConnection] = asyncio.Queue()
    health = LineHealth()

    async def welcome(connection: ServerConnection) -> None:
        await connections.put(connection)
        await connection.wait_closed()

    async with serve(welcome, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]

        @asynccontextmanager
        async def connect() -> AsyncIterator[Line]:
            async with open_socket(f"ws://127.0.0.1:{port}", proxy=None) as connection:
                yield Socket(aiter(connection), health)

        backoff = Backoff(first_seconds=0.01)
        clock = ChannelClock()
        work = keep_alive(connect, name="real", health=health, backoff=backoff, clock=clock)
        task = asyncio.create_task(work)
        async with asyncio.timeout(20):
            for _ in range(3):
                connection = await connections.get()
                await connection.send("hello")
                connection.transport.abort()
            last = await connections.get()
        assert health.reconnects >= 2
        task.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait({task})
            await last.wait_closed()
        assert last.close_code == 1000
