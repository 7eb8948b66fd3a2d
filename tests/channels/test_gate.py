"""Work on a loop that ends begins and ends, or is refused; it is never forgotten."""

import asyncio
import threading

import pytest

from channels.errors import LineError
from channels.gate import Gate


def _serve(loop: asyncio.AbstractEventLoop, gate: Gate) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        gate.end()


async def test_work_that_meets_the_end_of_its_loop_is_answered() -> None:
    outcomes = set()
    for _ in range(200):
        loop = asyncio.new_event_loop()
        gate = Gate(loop)
        thread = threading.Thread(target=_serve, args=(loop, gate), daemon=True)
        thread.start()
        loop.call_soon_threadsafe(loop.stop)
        try:
            async with asyncio.timeout(10):
                outcomes.add(await gate.run(asyncio.sleep(0, "done")))
        except LineError:
            outcomes.add("refused")
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()
    assert outcomes <= {"done", "refused"}


async def test_gate_that_is_shut_refuses_at_once() -> None:
    loop = asyncio.new_event_loop()
    gate = Gate(loop)
    await asyncio.to_thread(gate.end)
    with pytest.raises(LineError):
        await gate.run(asyncio.sleep(0))


async def test_cancelling_cancels_the_work_there() -> None:
    loop = asyncio.new_event_loop()
    gate = Gate(loop)
    thread = threading.Thread(target=_serve, args=(loop, gate), daemon=True)
    thread.start()
    began, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.create_task(gate.run(wait()))
    assert await asyncio.to_thread(began.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(cancelled.wait, 5)
    loop.call_soon_threadsafe(loop.stop)
    await asyncio.to_thread(thread.join, 5)
