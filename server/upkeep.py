"""Forgets what nobody needs any more, so that the database does not grow without end."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from server.errors import StoreUnavailable
from server.store.actions import prune_actions
from server.store.engine import Store
from server.store.inbound import prune_inbound
from server.store.outbox import prune_outbox
from server.store.toolsets import prune_toolsets

log = logging.getLogger(__name__)

KEYS_KEPT: Final = timedelta(hours=12)
"""Platforms push a message again for at most 7.1 hours."""

OUTBOX_KEPT: Final = timedelta(days=7)
"""For whoever looks into why something was not told."""

ACTIONS_KEPT: Final = timedelta(days=7)
"""For whoever looks into what a call did; a round that is open keeps its own."""

TOOLSETS_KEPT: Final = timedelta(days=1)
"""One without a session may soon be that of a new one."""

EVERY_SECONDS: Final = 3600.0


@asynccontextmanager
async def open_upkeep(store: Store) -> AsyncIterator[None]:
    """Tidy up now and every hour until closed."""
    task = asyncio.create_task(_tidy_forever(store), name="upkeep")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _tidy_forever(store: Store) -> None:
    while True:
        try:
            await tidy(store, datetime.now(UTC))
        except StoreUnavailable:
            log.warning("[upkeep] the store does not answer; trying again in an hour")
        await asyncio.sleep(EVERY_SECONDS)


async def tidy(store: Store, now: datetime) -> None:
    """Forget old keys, settled outbox items and actions, and tools of sessions that are gone."""
    async with store.write() as db:
        keys = await prune_inbound(db, now - KEYS_KEPT)
        items = await prune_outbox(db, now - OUTBOX_KEPT)
        actions = await prune_actions(db, now - ACTIONS_KEPT)
        toolsets = await prune_toolsets(db, now - TOOLSETS_KEPT)
    if keys or items or actions or toolsets:
        log.info(
            "[upkeep] forgot keys=%d outbox=%d actions=%d toolsets=%d",
            keys,
            items,
            actions,
            toolsets,
        )
