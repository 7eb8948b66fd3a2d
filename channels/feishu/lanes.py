"""One message of a chat after the other, in the order in which they were written."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from channels.clock import Clock
from channels.port import Inbound, Submitted

LATE_SECONDS = 5.0
"""A message that took longer to arrive belongs to a backlog, which comes in any order."""
GATHER_SECONDS = 0.25
"""Waited for the rest of a backlog before its oldest message is taken."""

Submit = Callable[[Inbound], Awaitable[Submitted]]


@dataclass(slots=True, eq=False)
class _Waiting:
    sent_at: float
    inbound: Inbound
    done: "asyncio.Future[Submitted]"


class Lanes:
    """A lane for each chat; different chats do not wait for each other."""

    def __init__(self, submit: Submit, clock: Clock) -> None:
        self._submit = submit
        self._clock = clock
        self._lanes: dict[str, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, lane: str, sent_at: float, inbound: Inbound) -> Submitted:
        """Submit when all that was written earlier in *lane* is through; raises what that raises.

        Cancelling does not take the message back.
        """
        done: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        is_new = lane not in self._lanes
        self._lanes.setdefault(lane, []).append(_Waiting(sent_at, inbound, done))
        if is_new:
            task = asyncio.create_task(self._work(lane), name="lane")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await done

    async def _work(self, lane: str) -> None:
        waiting = self._lanes[lane]
        now = self._clock.wall()
        if any(now - one.sent_at > LATE_SECONDS for one in waiting):
            await self._clock.sleep(GATHER_SECONDS)
        while waiting:
            waiting.sort(key=lambda one: one.sent_at)
            await self._pass(waiting.pop(0))
        del self._lanes[lane]

    async def _pass(self, one: _Waiting) -> None:
        task = asyncio.ensure_future(self._submit(one.inbound))
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()  # no effect unless the lane is closed
        if one.done.cancelled():
            return
        if task.cancelled():  # from inside; who comes after it in the lane must not wait for ever
            one.done.cancel()
        elif error := task.exception():
            one.done.set_exception(error)
        else:
            one.done.set_result(task.result())

    async def close(self) -> None:
        """Submit no more."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
