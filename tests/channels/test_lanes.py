"""Messages of a chat, one after the other."""

import asyncio

from channels.lanes import Lanes
from tests.fakes.clock import Clock

TIMEOUT_SECONDS = 10


async def test_a_backlog_goes_through_in_the_order_in_which_it_was_written() -> None:
    clock = Clock()
    lanes = Lanes(clock.channels)
    through: list[float] = []

    async def go(seconds_ago: float) -> None:
        async with lanes.turn("chat", clock.wall() - seconds_ago):
            through.append(seconds_ago)

    tasks = [asyncio.create_task(go(age)) for age in (30, 90, 0, 60)]
    await clock.run_for(1)
    await asyncio.gather(*tasks)
    assert through == [90, 60, 30, 0]


async def test_fresh_messages_wait_for_nothing_but_each_other() -> None:
    lanes = Lanes(Clock().channels)
    hold, entered = asyncio.Event(), asyncio.Event()
    through: list[str] = []

    async def go(chat_id: str, text: str) -> None:
        async with lanes.turn(chat_id, None):
            entered.set()
            if chat_id == "held":
                await hold.wait()
            through.append(text)

    async with asyncio.timeout(TIMEOUT_SECONDS):
        tasks = [asyncio.create_task(go("held", text)) for text in "abc"]
        await entered.wait()
        await go("other", "x")
        hold.set()
        await asyncio.gather(*tasks)
    assert through == ["x", "a", "b", "c"]


async def test_who_gives_up_is_left_out() -> None:
    clock = Clock()
    lanes = Lanes(clock.channels)
    through: list[str] = []

    async def go(text: str, seconds_ago: float) -> None:
        async with lanes.turn("chat", clock.wall() - seconds_ago):
            through.append(text)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(go(text, 60)) for text in "abc"]
    await asyncio.sleep(0)  # each has its place; the first gathers the others
    tasks[0].cancel()
    tasks[1].cancel()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await asyncio.gather(*tasks, return_exceptions=True)
        await go("d", 0)
    assert through == ["c", "d"]


async def test_a_turn_that_fails_lets_the_next_one_go() -> None:
    lanes = Lanes(Clock().channels)
    try:
        async with lanes.turn("chat", None):
            raise ValueError
    except ValueError:
        pass
    async with asyncio.timeout(TIMEOUT_SECONDS), lanes.turn("chat", None):
        pass
