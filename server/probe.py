"""Whether the model and the store can be used, for whoever asks, and however often."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from server.llm.port import Model
from server.store.engine import Store

FRESH_SECONDS = 30.0
"""An answer is told again for so long before the model is asked anew."""
STORE_FRESH_SECONDS = 3.0
"""The same for the store, of which every run hears at once when it is gone."""
FIRST_WAIT_SECONDS = 2.0
"""Only the very first question waits for its answer, and no longer than this."""
CHECK_SECONDS = 10.0
"""After this a check counts as failed."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How a check went."""

    reason: str | None
    """None if the model can be asked."""
    age_seconds: float


class ModelProbe:
    """The last answer of `Model.check`, renewed when somebody asks for a stale one."""

    def __init__(self, model: Model, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._clock = clock
        self._reason: str | None = "not checked yet"
        self._checked_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def ask(self) -> Checked:
        """The last answer; a stale one starts the next check and does not wait for it."""
        is_stale = self._checked_at is None or self._age() >= FRESH_SECONDS
        if is_stale and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._check(), name="check the model")
        if self._checked_at is None and self._task is not None:
            await asyncio.wait({self._task}, timeout=FIRST_WAIT_SECONDS)
        return Checked(self._reason, self._age())

    def _age(self) -> float:
        return 0.0 if self._checked_at is None else self._clock() - self._checked_at

    async def _check(self) -> None:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                self._reason = await self._model.check()
        except TimeoutError:
            self._reason = f"the model gateway did not answer within {CHECK_SECONDS:.0f} s"
        self._checked_at = self._clock()

    async def close(self) -> None:
        """End a check that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


class StoreProbe:
    """The last answer of `Store.check`, which writes and so waits for its turn among writers."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._lock = asyncio.Lock()
        self._reason: str | None = None
        self._checked_at: float | None = None

    async def ask(self) -> str | None:
        """What is wrong with the store, or None; those who ask at once share one check."""
        async with self._lock:
            now = self._clock()
            if self._checked_at is None or now - self._checked_at >= STORE_FRESH_SECONDS:
                self._reason = await self._store.check()
                self._checked_at = self._clock()
            return self._reason


@asynccontextmanager
async def open_probe(model: Model) -> AsyncIterator[ModelProbe]:
    """A probe of *model*; leaving ends the check that is under way."""
    probe = ModelProbe(model)
    try:
        yield probe
    finally:
        await probe.close()
