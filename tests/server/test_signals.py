"""What runs tell those who wait for them."""

import asyncio

from server.signals import RunSignals


async def test_one_waiter_whose_time_is_over_does_not_keep_the_end_from_another() -> None:
    signals = RunSignals()
    async with asyncio.timeout(10):
        patient = asyncio.create_task(signals.until_ended("r1", 60))
        await signals.until_ended("r1", 0.01)
        signals.ended("r1")
        await patient


async def test_a_waiter_after_the_end_hears_of_the_next_one() -> None:
    signals = RunSignals()
    signals.ended("r1")
    async with asyncio.timeout(10):
        waiters = [asyncio.create_task(signals.until_ended("r1", 60)) for _ in range(2)]
        await asyncio.sleep(0)
        signals.ended("r1")
        await asyncio.gather(*waiters)
