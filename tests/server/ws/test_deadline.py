"""The time limit of the steps of a sender."""

import asyncio

import pytest

from server.ws.deadline import open_deadline

SECONDS = 0.3


async def _pause(seconds: float) -> None:
    """Let so much time pass: the limit is about nothing else."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


async def _run_late(first_seconds: float = 0.0) -> None:
    """Take a step in time, and one that has no end."""
    async with open_deadline(SECONDS) as deadline:
        deadline.begin()
        await _pause(first_seconds)
        deadline.done()
        deadline.begin()
        await asyncio.Event().wait()


async def test_a_step_that_takes_longer_ends_the_block() -> None:
    with pytest.raises(TimeoutError):
        await _run_late()


async def test_steps_in_time_may_go_on_for_longer_than_one_may_take() -> None:
    async with open_deadline(SECONDS) as deadline:
        for _ in range(6):
            deadline.begin()
            await _pause(SECONDS / 4)
            deadline.done()


async def test_a_pause_between_steps_is_not_counted() -> None:
    async with open_deadline(SECONDS) as deadline:
        deadline.begin()
        deadline.done()
        await _pause(SECONDS * 1.5)
        deadline.begin()
        deadline.done()


async def test_a_late_step_is_noticed_after_others_that_were_in_time() -> None:
    with pytest.raises(TimeoutError):
        await _run_late(first_seconds=SECONDS / 2)


async def test_a_cancelled_block_stays_cancelled() -> None:
    task = asyncio.create_task(_run_late())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
