"""Delivers what surfaces have to be told; it owes from the store, so a crash forgets nothing."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from channels.errors import DeliveryError
from server.errors import StoreUnavailable
from server.metrics import Metrics
from server.store.engine import Store
from server.store.outbox import (
    OutboxItem,
    claim_item,
    due_items,
    mark_delivered,
    mark_undeliverable,
    outbox_depth,
)

log = logging.getLogger(__name__)

BATCH: Final = 50
TRIES: Final = 8
"""With the pauses below, a surface has about an hour to come back."""

_PAUSES: Final = tuple(timedelta(seconds=s) for s in (10, 10, 30, 60, 300, 600, 1200, 1800))
"""Until an item is due again; the first also covers a process that dies while it delivers."""

IDLE_SECONDS: Final = 5.0
"""How long a missed wake-up can go unnoticed."""


class Surface(Protocol):
    """A way out."""

    async def deliver(self, item: OutboxItem) -> None:
        """Tell it.

        Raises:
            DeliveryError: It could not be told; retryable or not.

        May be asked twice for the same item after a crash, so it has to know the item's id.
        """


class Outbox:
    """Takes due items one by one and hands each to its surface."""

    def __init__(self, store: Store, surfaces: Mapping[str, Surface], metrics: Metrics) -> None:
        self._store = store
        self._surfaces = surfaces
        self._metrics = metrics
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """Something new is due."""
        self._awake.set()

    async def serve(self) -> None:
        """Deliver until cancelled; cancelling in mid-delivery leaves the item due again."""
        while True:
            self._awake.clear()
            try:
                while await self._deliver_due():
                    pass
            except StoreUnavailable:
                log.warning("[outbox] the store does not answer; trying again")
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._awake.wait()
            except TimeoutError:
                continue

    async def _deliver_due(self) -> bool:
        """Deliver one batch; False if nothing was due."""
        async with self._store.read() as db:
            items = await due_items(db, datetime.now(UTC), BATCH)
            self._metrics.outbox_seen(await outbox_depth(db))
        for item in items:
            await self._deliver(item)
        return bool(items)

    async def _deliver(self, item: OutboxItem) -> None:
        pause = _PAUSES[min(item.attempts, len(_PAUSES) - 1)]
        async with self._store.write() as db:
            if not await claim_item(db, item.id, item.attempts, datetime.now(UTC) + pause):
                return
        surface = self._surfaces.get(item.surface)
        error = f"no surface {item.surface}" if surface is None else None
        if surface is not None:
            try:
                await surface.deliver(item)
            except DeliveryError as failure:
                error = str(failure)
                if failure.retryable and item.attempts + 1 < TRIES:
                    log.warning("[outbox] not delivered yet item=%s: %s", item.id, error)
                    return
        async with self._store.write() as db:
            if error is None:
                await mark_delivered(db, item.id, datetime.now(UTC))
            else:
                await mark_undeliverable(db, item.id, error, datetime.now(UTC))
        if error is not None:
            log.error("[outbox] undeliverable item=%s: %s", item.id, error)


@asynccontextmanager
async def open_outbox(outbox: Outbox) -> AsyncIterator[Outbox]:
    """Deliver in the background until closed."""
    task = asyncio.create_task(outbox.serve(), name="outbox")
    try:
        yield outbox
    finally:
        task.cancel()
        await asyncio.wait({task})
