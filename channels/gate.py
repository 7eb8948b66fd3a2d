"""The way onto an event loop in another thread, which is shut before that loop ends.

Work that is handed over in the very instant in which a loop ends would never begin, and whoever
waits for it would wait for ever.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from channels.errors import LineError

T = TypeVar("T")

_LAST_ROUNDS: Final = 10
"""Cancellations of what is left: an SDK may swallow the first, and a close takes time."""
_ROUND_SECONDS: Final = 0.2


class Gate:
    """Stands before one loop for as long as it runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._is_open = True

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* on the other loop and wait for it here; cancelling cancels it there.

        Raises:
            LineError: That loop has ended.
        """
        with self._lock:
            if not self._is_open:
                work.close()
                raise LineError("the thread has ended")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LineError("the thread has ended") from None

    def end(self) -> None:
        """Called in the loop's thread when the loop has stopped: end all that is on it."""
        with self._lock:
            self._is_open = False
        asyncio.set_event_loop(self._loop)
        for _ in range(_LAST_ROUNDS):
            self._loop.run_until_complete(asyncio.sleep(0))  # begins what came last
            tasks = asyncio.all_tasks(self._loop)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=_ROUND_SECONDS))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
