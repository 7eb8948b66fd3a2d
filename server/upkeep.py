"""Forgets what nobody needs any more, so that database and workspace do not grow without end."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from server.errors import StoreUnavailable
from server.log import fault_of
from server.store.actions import prune_actions
from server.store.engine import Store
from server.store.inbound import prune_inbound
from server.store.outbox import prune_outbox
from server.store.toolsets import prune_toolsets
from server.tools.shell import FOLDER
from server.tools.trace import prune_traces
from server.tools.workspace import resolve

log = logging.getLogger(__name__)

KEYS_KEPT: Final = timedelta(hours=12)
"""Platforms push a message again for at most 7.1 hours."""

OUTBOX_KEPT: Final = timedelta(days=7)
"""For whoever looks into why something was not told."""

ACTIONS_KEPT: Final = timedelta(days=7)
"""For whoever looks into what a call did; a round that is open keeps its own."""

TOOLSETS_KEPT: Final = timedelta(days=1)
"""One without a session may soon be that of a new one."""

COMMANDS_KEPT: Final = timedelta(days=7)
"""Output and end of a shell command, after its end, for models and people who look at them."""

EVERY_SECONDS: Final = 3600.0


@asynccontextmanager
async def open_upkeep(store: Store, workspace: Path) -> AsyncIterator[None]:
    """Tidy up now and every hour until closed."""
    task = asyncio.create_task(_tidy_forever(store, workspace), name="upkeep")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _tidy_forever(store: Store, workspace: Path) -> None:
    while True:
        now = datetime.now(UTC)
        await _put_off(tidy(store, now))
        await _put_off(tidy_workspace(workspace, now))
        await asyncio.sleep(EVERY_SECONDS)


async def _put_off(work: Coroutine[Any, Any, None]) -> None:
    """Do *work*, or leave it for the next time."""
    try:
        await work
    except StoreUnavailable:
        log.warning("[upkeep] the store does not answer; trying again in an hour")
    except Exception as error:  # noqa: BLE001 - what breaks once must not break for good
        log.error("[upkeep] failed; trying again in an hour %s", fault_of(error))


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


async def tidy_workspace(workspace: Path, now: datetime) -> None:
    """Remove what shell commands left that ended, or fell silent for good, long ago."""
    commands = await asyncio.to_thread(
        lambda: prune_traces(resolve(workspace.resolve(), FOLDER), now - COMMANDS_KEPT)
    )
    if commands:
        log.info("[upkeep] forgot commands=%d", commands)
