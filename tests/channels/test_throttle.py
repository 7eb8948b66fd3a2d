"""Send budgets, on a clock that the test moves."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from channels.throttle import Budget, Budgets
from tests.fakes.clock import Clock


def budget(clock: Clock, per_second: float = 5, burst: int = 5) -> Budget:
    return Budget(per_second, burst, clock.monotonic, clock.sleep)


async def take_at(clock: Clock, of: Budget, taken: list[float], name: float = 0) -> None:
    await of.take()
    taken.append(name or clock.monotonic())


async def test_a_burst_goes_at_once_and_the_rest_waits_its_second() -> None:
    clock, taken = Clock(), list[float]()
    chat = budget(clock)
    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(take_at(clock, chat, taken))
        await clock.run_for(10)
    assert taken == [1000.0] * 5 + [1001.0] * 5 + [1002.0] * 2
    assert chat.waits == 7


@settings(deadline=None, max_examples=50)
@given(
    burst=st.integers(1, 5),
    per_second=st.sampled_from([0.5, 1.0, 5.0, 16.0]),
    gaps=st.lists(st.floats(0, 2), min_size=1, max_size=25),
)
def test_no_window_ever_sees_more_than_the_burst(
    burst: int, per_second: float, gaps: list[float]
) -> None:
    async def scenario() -> list[float]:
        clock, taken = Clock(), list[float]()
        chat = budget(clock, per_second, burst)
        async with asyncio.TaskGroup() as group:
            for gap in gaps:
                await clock.run_for(gap)
                group.create_task(take_at(clock, chat, taken))
            await clock.run_for(len(gaps) * burst / per_second + 1)
        return taken

    taken = asyncio.run(scenario())
    assert len(taken) == len(gaps)
    for first, beyond in zip(taken, taken[burst:], strict=False):
        assert beyond - first >= burst / per_second - 1e-6


async def test_turns_are_had_in_the_order_they_were_asked_for() -> None:
    clock, taken = Clock(), list[float]()
    chat = budget(clock, per_second=1, burst=1)
    async with asyncio.TaskGroup() as group:
        for number in range(1, 6):
            group.create_task(take_at(clock, chat, taken, name=number))
        await clock.run_for(10)
    assert taken == [1, 2, 3, 4, 5]


async def test_a_refusal_pauses_everybody_also_who_waits_already() -> None:
    clock, taken = Clock(), list[float]()
    chat = budget(clock, per_second=1, burst=1)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(take_at(clock, chat, taken))
        await clock.run_for(0.5)
        chat.pause(3)
        chat.pause(1)
        await clock.run_for(10)
    assert taken == [1000.0, 1003.5, 1004.5]


async def test_who_gives_up_takes_no_turn_and_holds_up_nobody() -> None:
    clock, taken = Clock(), list[float]()
    chat = budget(clock, per_second=1, burst=1)
    await chat.take()
    first = asyncio.create_task(take_at(clock, chat, taken, name=1))
    second = asyncio.create_task(take_at(clock, chat, taken, name=2))
    await clock.run_for(0.5)
    first.cancel()
    await asyncio.wait({first})
    await clock.run_for(0.5)
    async with asyncio.timeout(5):
        await second
    assert taken == [2]
    assert clock.monotonic() == 1001.0


async def test_chats_do_not_wait_for_each_other() -> None:
    clock, taken = Clock(), list[float]()
    chats = Budgets(lambda: budget(clock))
    chats.of("oc_1").pause(60)
    waiting = asyncio.create_task(take_at(clock, chats.of("oc_1"), taken))
    await clock.run_for(0)
    async with asyncio.timeout(5):
        await chats.of("oc_2").take()
    assert not waiting.done()
    assert chats.waits == 0
    await clock.run_for(60)
    assert chats.waits == 1


async def test_idle_budgets_are_forgotten_and_those_in_use_are_not() -> None:
    clock = Clock()
    chats = Budgets(lambda: budget(clock), most=3)
    paused = chats.of("paused")
    paused.pause(60)
    used = chats.of("used")
    await used.take()
    idle = chats.of("idle")
    assert chats.of("new") is not idle
    assert len(chats) == 3
    assert chats.of("paused") is paused
    assert chats.of("used") is used
    assert chats.of("idle") is not idle


async def test_waits_are_counted_after_their_budget_is_forgotten() -> None:
    clock, taken = Clock(), list[float]()
    chats = Budgets(lambda: budget(clock, per_second=1, burst=1), most=1)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(take_at(clock, chats.of("oc_1"), taken))
        await clock.run_for(10)
    chats.of("oc_2")
    assert len(chats) == 1
    assert chats.waits == 2
