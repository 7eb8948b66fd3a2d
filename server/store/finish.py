"""Work that a cancellation may not cut in two."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await *work* to its end even if cancelled meanwhile; then let the cancellation go on."""
    task = asyncio.create_task(work, name="finish")
    was_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            was_cancelled = True
    if was_cancelled:
        task.exception()  # seen, so that it is not reported as forgotten
        raise asyncio.CancelledError
    return task.result()
