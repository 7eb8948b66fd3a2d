"""A person's stop, seen by whatever a run is waiting for."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """The run was asked to stop while the work was under way; the work has been cancelled."""


async def unless_stopped(work: Coroutine[Any, Any, T], stopped: asyncio.Event) -> T:
    """Await *work*, but cancel it as soon as *stopped* is set.

    Raises:
        Stopped: The work was cancelled for the stop and has ended.

    Work that is done when the stop comes keeps its result. Cancelling cancels the work too and
    waits for its end.
    """
    task = asyncio.create_task(work, name="work")
    watcher = asyncio.create_task(stopped.wait(), name="stop-watcher")
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Stopped
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.wait({task, watcher})
