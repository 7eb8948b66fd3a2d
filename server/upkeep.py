"""Forgets what nobody needs any more, so that database and workspace do not grow without end."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from channels.faults import fault_of
from server.agent.prompt import UPLOAD_FOLDER
from server.errors import StoreUnavailable, ToolError
from server.store.actions import prune_actions
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.files import delete_files, hashes_of, shared_hashes, stale_files
from server.store.inbound import prune_inbound
from server.store.outbox import prune_outbox
from server.store.sessions import existing_sessions
from server.store.toolsets import prune_toolsets
from server.tools.shell import FOLDER, WORKDIR_ENDING
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

FILES_KEPT: Final = timedelta(days=1)
"""One that was uploaded waits for its message; and while a backup copies the files of a database
that still had their sessions, none is missing."""

FILES_AT_ONCE: Final = 500
"""Forgotten in one transaction, for which writers wait; the others go an hour later."""

EVERY_SECONDS: Final = 3600.0


@asynccontextmanager
async def open_upkeep(store: Store, blobs: Blobs, workspace: Path) -> AsyncIterator[None]:
    """Tidy up now and every hour until closed."""
    task = asyncio.create_task(_tidy_forever(store, blobs, workspace), name="upkeep")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _tidy_forever(store: Store, blobs: Blobs, workspace: Path) -> None:
    while True:
        now = datetime.now(UTC)
        await _put_off(tidy(store, now))
        await _put_off(tidy_workspace(workspace, now))
        await _put_off(tidy_files(store, blobs, workspace, now))
        await _put_off(tidy_workdirs(store, workspace))
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


async def tidy_files(store: Store, blobs: Blobs, workspace: Path, now: datetime) -> None:
    """Remove files that no message took into a session, and those of sessions that are gone.

    Bytes go before the rows that name them: what is cut in between is done the next time.
    """
    before = now - FILES_KEPT
    async with store.write() as db:
        stale = await stale_files(db, before, FILES_AT_ONCE)
        if not stale:
            return
        shared = await shared_hashes(db, stale)
        left = await blobs.remove(hashes_of(stale) - shared, before)
        gone = {file.id for file in stale if not hashes_of([file]) & left}
        await asyncio.to_thread(_remove_uploads, workspace, gone)
        await delete_files(db, gone)
    log.info("[upkeep] forgot files=%d", len(gone))


def _remove_uploads(workspace: Path, file_ids: Collection[str]) -> None:
    """Remove what was placed in the workspace for these files, if it is there still."""
    with suppress(FileNotFoundError, ToolError):
        for place in resolve(workspace.resolve(), UPLOAD_FOLDER).iterdir():
            if place.name.partition("-")[0] in file_ids:
                with suppress(OSError):
                    place.unlink()


async def tidy_workdirs(store: Store, workspace: Path) -> None:
    """Forget where commands of sessions stood that are gone."""
    places = await asyncio.to_thread(_workdirs, workspace)
    session_ids = sorted(places)
    for start in range(0, len(session_ids), FILES_AT_ONCE):
        some = session_ids[start : start + FILES_AT_ONCE]
        async with store.read() as db:
            existing = await existing_sessions(db, some)
        for session_id in set(some) - existing:
            await asyncio.to_thread(places[session_id].unlink, missing_ok=True)


def _workdirs(workspace: Path) -> dict[str, Path]:
    """The files that keep where commands stood, by session."""
    files = resolve(workspace.resolve(), FOLDER).glob(f"*{WORKDIR_ENDING}")
    return {file.name.removesuffix(WORKDIR_ENDING): file for file in files}
