"""The stream connection: the real SDK against a platform that does what platforms do."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from channels.clock import SYSTEM
from channels.clock import Clock as ChannelClock
from channels.dingtalk.api import open_api
from channels.dingtalk.frames import OK, Answer
from channels.dingtalk.stream import open_stream
from channels.supervise import LineHealth, keep_alive
from tests.channels.dingtalk.house import (
    MemoryInbox,
    config,
    move_until,
    open_bot,
    up,
)
from tests.fakes.clock import Clock
from tests.fakes.dingtalk import FakeDingTalk, api_refusal, serve_dingtalk
from tests.waiting import until


@dataclass
class Heard:
    """What reached the handler."""

    frames: list[tuple[str, str]] = field(default_factory=list)
    hold: asyncio.Event | None = None
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, topic: str, raw: str) -> Answer:
        """Take a frame; wait where the test wants it."""
        self.frames.append((topic, raw))
        self.came.set()
        if self.hold is not None:
            await self.hold.wait()
        return Answer(OK, {"took": raw})


@asynccontextmanager
async def listening(
    platform: FakeDingTalk,
    clock: ChannelClock = SYSTEM,
    heard: Heard | None = None,
    call_seconds: float = 10.0,
    on_frame: Callable[[], None] = lambda: None,
) -> AsyncIterator[tuple[LineHealth, Heard]]:
    """A supervised connection."""
    heard = heard or Heard()
    health = LineHealth(clock)

    def hear() -> None:
        health.heard()
        on_frame()

    credentials = config(platform).credentials
    async with (
        open_api(credentials, clock, call_seconds) as api,
        open_stream("ding_test", api.discover, heard.handle, hear) as stream,
    ):
        keeping = asyncio.create_task(
            keep_alive(stream.connect, name="t", health=health, clock=clock)
        )
        try:
            yield health, heard
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})


@pytest.fixture
def clock() -> Clock:
    """Time that the test moves."""
    return Clock()


async def test_a_message_is_handed_over_and_acknowledged_with_the_answer(
    platform: FakeDingTalk,
) -> None:
    async with listening(platform) as (health, heard):
        await platform.connected()
        ack = await platform.push('{"msgId":"m1"}')
        assert (ack.code, ack.data) == (200, {"response": {"took": '{"msgId":"m1"}'}})
        assert heard.frames == [("/v1.0/im/bot/messages/get", '{"msgId":"m1"}')]
        await up(lambda: health.state)
        assert health.last_frame_seconds is not None


async def test_a_frame_whose_data_is_no_json_is_acknowledged_too(platform: FakeDingTalk) -> None:
    async with listening(platform) as (_, heard):
        await platform.connected()
        assert (await platform.push("not json")).code == 200
        assert heard.frames[0][1] == "not json"


async def test_a_system_ping_gets_its_own_data_back(platform: FakeDingTalk) -> None:
    async with listening(platform):
        ack = await platform.ping(await platform.connected())
        assert (ack.code, ack.data) == (200, {"opaque": "o1"})


async def test_a_slow_frame_holds_up_no_other(platform: FakeDingTalk) -> None:
    heard = Heard(hold=asyncio.Event())
    async with listening(platform, heard=heard):
        connection = await platform.connected()
        slow = await platform.push_only("1")
        assert (await platform.ping(connection)).seconds < 1
        assert heard.hold is not None
        heard.hold.set()
        assert (await slow).code == 200


async def test_an_announced_disconnect_opens_the_next_line_before_the_old_one_ends(
    platform: FakeDingTalk,
) -> None:
    heard = Heard(hold=asyncio.Event())
    async with listening(platform, heard=heard) as (health, _):
        old = await platform.connected()
        running = await platform.push_only("held")
        await heard.came.wait()
        began = time.monotonic()
        await platform.announce_disconnect(old)
        new = await platform.connected(2)
        assert time.monotonic() - began < 3
        assert new is not old
        assert not old.gone.is_set()
        assert heard.hold is not None
        heard.hold.set()
        ack = await running
        assert ack.connection == old.number  # on the socket on which it came
        assert (await platform.push("after")).connection == new.number
        async with asyncio.timeout(10):
            await old.gone.wait()
        await up(lambda: health.state)
        assert health.reconnects == 1


async def test_three_announced_disconnects_lose_nothing(
    platform: FakeDingTalk, clock: Clock
) -> None:
    async with listening(platform, clock.channels) as (health, heard):
        for number in range(1, 4):
            await platform.announce_disconnect(await platform.connected(number))
            await move_until(clock, lambda: health.reconnects == number)  # noqa: B023  # at once
            assert (await platform.push(str(number))).code == 200
            clock.advance(61)  # in truth twelve hours
        assert [raw for _, raw in heard.frames] == ["1", "2", "3"]


async def test_an_announced_line_that_cannot_drain_is_closed_after_ten_seconds() -> None:
    heard = Heard(hold=asyncio.Event())
    async with serve_dingtalk(system_ping_seconds=None, cut_seconds=0.5) as platform:
        async with listening(platform, heard=heard):
            old = await platform.connected()
            await platform.push_only("held")
            await platform.announce_disconnect(old)
            await platform.connected(2)
            async with asyncio.timeout(3):
                await old.gone.wait()
            assert heard.hold is not None
            heard.hold.set()  # its acknowledgement finds no socket, and breaks nothing
            assert (await platform.push("after")).code == 200


async def test_a_line_that_drops_is_built_again(platform: FakeDingTalk, clock: Clock) -> None:
    async with listening(platform, clock.channels) as (health, _):
        first = await platform.connected()
        platform.cut(first)
        seconds = await move_until(
            clock, lambda: platform.opened > 1 and health.state == "up", step=0.1
        )
        assert seconds < 3
        assert (await platform.push("1")).code == 200


# The thread is to die loudly.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_thread_that_dies_is_begun_anew(platform: FakeDingTalk) -> None:
    threads: set[threading.Thread] = set()

    def die_once() -> None:
        threads.add(threading.current_thread())
        if len(threads) == 1:
            raise SystemExit

    async with listening(platform, on_frame=die_once) as (health, heard):
        connection = await platform.connected()
        await up(lambda: health.state)
        await platform.push_only("lost with its thread")
        await platform.connected(2)
        assert connection not in platform.connections, "it would swallow messages"
        await up(lambda: health.state)
        assert (await platform.push("again")).code == 200
        assert [raw for _, raw in heard.frames] == ["again"]
    assert not any(thread.is_alive() for thread in threads)


async def test_a_refused_discovery_is_tried_again_and_its_reason_told(
    platform: FakeDingTalk, clock: Clock
) -> None:
    platform.faults.refuse = api_refusal(503, "ServiceUnavailable")
    async with listening(platform, clock.channels) as (health, _):
        await move_until(clock, lambda: health.attempts >= 5, step=5)
        assert (health.state, health.reason) == ("down", "discovery: ServiceUnavailable")
        platform.faults.refuse = None
        seconds = await move_until(clock, lambda: health.state == "up")
        assert seconds <= 70


@pytest.mark.parametrize("fault", ["drop_after_seconds", "close_after_seconds"])
async def test_a_platform_that_drops_every_line_is_not_stormed(
    platform: FakeDingTalk, clock: Clock, fault: str
) -> None:
    setattr(platform.faults, fault, 0.01)
    ends_at = clock.monotonic() + 300
    async with listening(platform, clock.channels) as (health, _):
        await move_until(clock, lambda: clock.monotonic() >= ends_at, step=1)
        assert 4 <= health.attempts <= 10
        platform.faults.drop_after_seconds = platform.faults.close_after_seconds = None
        opened = platform.opened
        await move_until(clock, lambda: platform.opened > opened and health.state == "up")
        assert (await platform.push("1")).code == 200


async def test_a_zombie_is_replaced_after_silence_and_a_quiet_line_is_not(
    platform: FakeDingTalk, clock: Clock
) -> None:
    async with listening(platform, clock.channels) as (health, _):
        first = await platform.connected()
        for _ in range(4):  # quiet, but alive
            await clock.run_for(60)
            await platform.ping(first)
        assert platform.opened == 1
        first.is_fed = False
        await clock.run_for(130)
        assert (platform.opened, health.state) == (1, "degraded")
        await move_until(clock, lambda: platform.opened > 1 and health.state == "up")
        assert (await platform.push("1")).code == 200


async def test_a_machine_that_slept_replaces_its_line_at_once(
    platform: FakeDingTalk, clock: Clock
) -> None:
    async with listening(platform, clock.channels) as (health, _):
        first = await platform.connected()
        await move_until(clock, lambda: health.state == "up")
        clock.jump(300)
        seconds = await move_until(clock, lambda: platform.opened > 1)
        assert seconds < 7
        async with asyncio.timeout(5):
            await first.gone.wait()


async def test_a_discovery_that_hangs_ends_in_time_and_blocks_nobody(
    platform: FakeDingTalk, clock: Clock
) -> None:
    platform.faults.hang = True
    async with listening(platform, clock.channels, call_seconds=0.2) as (health, _):
        lags = []
        while health.attempts < 3:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append(time.monotonic() - began)
            clock.advance(1)
        assert max(lags) < 0.2
        assert health.state == "down"


@pytest.mark.parametrize("trouble", ["none", "hang", "refuse", "drop"])
async def test_stopping_ends_in_time_whatever_the_line_does(
    platform: FakeDingTalk, trouble: str
) -> None:
    platform.faults.hang = trouble == "hang"
    platform.faults.refuse = api_refusal(503, "x") if trouble == "refuse" else None
    platform.faults.drop_after_seconds = 0.0 if trouble == "drop" else None
    async with listening(platform):
        if trouble == "none":
            await platform.connected()
        else:
            await platform.until(lambda: len(platform.called("connections/open")) > 0)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    await platform.until(lambda: not platform.connections)


async def test_a_closed_bot_leaves_no_thread(platform: FakeDingTalk) -> None:
    async with listening(platform):
        await platform.connected()
        assert "dingtalk-ding_test" in {thread.name for thread in threading.enumerate()}
    assert "dingtalk-ding_test" not in {thread.name for thread in threading.enumerate()}


async def test_nothing_is_handled_after_the_end(platform: FakeDingTalk) -> None:
    async with listening(platform) as (_, heard):
        connection = await platform.connected()
        await platform.push("1")
    assert connection.gone.is_set()
    assert len(heard.frames) == 1


async def test_a_frame_that_is_being_handled_when_the_bot_stops_is_acknowledged(
    platform: FakeDingTalk,
) -> None:
    heard = Heard(hold=asyncio.Event())
    async with listening(platform, heard=heard):
        await platform.connected()
        running = await platform.push_only("1")
        await heard.came.wait()
        assert heard.hold is not None
        asyncio.get_running_loop().call_later(0.2, heard.hold.set)
    assert (await running).code == 200


async def test_reopening_a_bot_leaves_exactly_one_connection(platform: FakeDingTalk) -> None:
    for _ in range(3):
        async with open_bot(platform):
            pass
    async with open_bot(platform) as bot:
        assert len(platform.connections) == 1
        assert (await platform.say("hi")).code == 200
        assert len(bot.inbox.taken) == 1


async def test_two_bots_in_one_process_hear_their_own(platform: FakeDingTalk) -> None:
    other = platform.add_app("ding_other", "secret-2")
    inboxes = MemoryInbox(), MemoryInbox()
    async with (
        open_bot(platform, inboxes[0]),
        open_bot(platform, inboxes[1], client_id="ding_other", client_secret="secret-2"),
    ):
        await asyncio.gather(*(platform.announce_disconnect(c) for c in platform.connections))
        await platform.connected(4)
        await asyncio.gather(
            platform.say("to the first"),
            platform.push(platform.message("to the second", robotCode="ding_other"), app=other),
        )
    assert [inbound.text for inbound in inboxes[0].taken] == ["to the first"]
    assert [inbound.text for inbound in inboxes[1].taken] == ["to the second"]


async def test_pings_are_answered_while_the_application_is_busy() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fakes.dingtalk", "--ping", "0.1"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            url = (await process.stdout.readline()).decode().strip()
        async with listening_to(url) as http:
            before = await frames(http)
            time.sleep(1.0)  # noqa: ASYNC251  # what a tool must not do, and a bug may
            after = await frames(http)
        assert after - before >= 6
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def listening_to(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A connection to a platform in another process, and a way to look at it."""
    elsewhere = FakeDingTalk(None, 0, time.monotonic)
    elsewhere.url = url
    async with aiohttp.ClientSession(url) as http, listening(elsewhere):
        await until(lambda: is_heard(http))
        yield http


async def is_heard(http: aiohttp.ClientSession) -> bool:
    """The platform has got a frame."""
    return await frames(http) > 0


async def frames(http: aiohttp.ClientSession) -> int:
    """How many frames the platform has got."""
    async with http.get("/sim/state") as response:
        state = await response.json()
    count: int = state["frames"]
    return count
