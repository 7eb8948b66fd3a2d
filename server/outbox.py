"""Delivers what surfaces have to be told; it owes from the store, so a crash forgets nothing."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Protocol

from channels.errors import DeliveryError
from channels.faults import fault_of
from server import sentences
from server.board import Board
from server.errors import NotFound, StoreUnavailable
from server.metrics import Metrics
from server.patches import undelivered_patch
from server.store.engine import Store
from server.store.finish import finish
from server.store.outbox import (
    OutboxItem,
    claim_item,
    due_items,
    mark_delivered,
    mark_undeliverable,
    outbox_depth,
    postpone,
    prolong_claim,
    release_claims,
)
from server.store.sessions import Undelivered, load_session, set_undelivered
from server.task_ending import settle_task_delivery

log = logging.getLogger(__name__)

BATCH: Final = 50
"""Items looked at at once, and sessions that one surface tells at the same time."""

TRIES: Final = 30
"""With the pauses below, a surface has about half a day to come back."""

_PAUSES: Final = tuple(timedelta(seconds=s) for s in (2, 10, 30, 60, 300, 600, 1200, 1800))
"""After each failed try; the last one after all others."""

CLAIM: Final = timedelta(seconds=60)
"""How long a process that tells something may be silent; then another one takes it for dead."""

GRACE_SECONDS: Final = 2.0
"""What a stopping server gives the tries that are under way."""

IDLE_SECONDS: Final = 5.0
"""How long a missed wake-up can go unnoticed."""


OTHERS_PATIENCE: Final = timedelta(hours=12)
"""How long another process has to tell what only it can; then nobody could."""


class Surface(Protocol):
    """A way out."""

    async def deliver(self, item: OutboxItem) -> None:
        """Tell it.

        Raises:
            DeliveryError: It could not be told; retryable or not.

        May be asked twice for the same item after a crash, so it has to know the item's id.
        """


@dataclass(frozen=True, slots=True)
class _Telling:
    """One item on its way."""

    surface: str
    task: asyncio.Task[None]


class Outbox:
    """Takes due items and hands each to its surface: one at a time per session, in order.

    Sessions do not wait for each other, so a surface that hangs delays its own chats alone.
    """

    def __init__(
        self,
        store: Store,
        surfaces: Mapping[str, Surface],
        metrics: Metrics,
        board: Board,
        *,
        is_alone: bool,
        claim: timedelta = CLAIM,
    ) -> None:
        """*is_alone*: no other process tells anything, nor has surfaces that this one has not."""
        self._is_alone = is_alone
        self._claim = claim
        self._store = store
        self._surfaces = surfaces
        self._metrics = metrics
        self._board = board
        self._awake = asyncio.Event()
        self._busy: dict[str, _Telling] = {}
        """By session."""

    def wake(self) -> None:
        """Something new is due."""
        self._awake.set()

    async def release(self) -> None:
        """Try again at once what a process that is gone was telling; another's is left to it."""
        if not self._is_alone:
            return
        async with self._store.write() as db:
            await release_claims(db, datetime.now(UTC))

    async def serve(self) -> None:
        """Deliver until cancelled; what takes longer than `GRACE_SECONDS` then is due again."""
        try:
            while True:
                self._awake.clear()
                try:
                    await self._start_due()
                except StoreUnavailable:
                    log.warning("[outbox] the store does not answer; trying again")
                except Exception as error:  # noqa: BLE001 - nothing would be told any more
                    log.error("[outbox] look failed %s", fault_of(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_SECONDS):
                        await self._awake.wait()
        finally:
            await self._finish_telling()

    async def _finish_telling(self) -> None:
        """Let go of nothing that a platform may just be taking: it would be told twice."""
        tasks = {telling.task for telling in self._busy.values()}
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _start_due(self) -> None:
        """Begin to tell every session that has something due and is not being told already."""
        told = Counter(telling.surface for telling in self._busy.values())
        full = [surface for surface, count in told.items() if count >= BATCH]
        async with self._store.read() as db:
            now = datetime.now(UTC)
            items = await due_items(
                db,
                now,
                BATCH,
                but_sessions=self._busy,
                but_surfaces=full,
                others_before=None if self._is_alone else now - OTHERS_PATIENCE,
                own_surfaces=list(self._surfaces),
            )
            self._metrics.outbox_seen(await outbox_depth(db))
        for item in items:
            if item.session_id not in self._busy and told[item.surface] < BATCH:
                task = asyncio.create_task(self._try(item), name=f"outbox-{item.id}")
                self._busy[item.session_id] = _Telling(item.surface, task)
                told[item.surface] += 1
                task.add_done_callback(partial(self._done, item.session_id))
        if items:
            self._awake.set()  # more may be due than was looked at

    def _done(self, session_id: str, _: asyncio.Task[None]) -> None:
        del self._busy[session_id]
        self._awake.set()  # the session may have more

    async def _try(self, item: OutboxItem) -> None:
        try:
            await self._deliver(item)
        except StoreUnavailable:
            log.warning("[outbox] the store does not answer item=%s; trying again", item.id)
        except NotFound:
            log.info("[outbox] dropped, its session was deleted item=%s", item.id)
        except Exception as error:  # noqa: BLE001 - the others are still told
            log.error("[outbox] not told item=%s %s", item.id, fault_of(error))

    async def _deliver(self, item: OutboxItem) -> None:
        async with self._store.write() as db:
            if not await claim_item(db, item.id, item.attempts, datetime.now(UTC) + self._claim):
                return
        holding = asyncio.create_task(self._hold(item), name=f"outbox-hold-{item.id}")
        try:
            failure = await self._failure(item)
        finally:
            holding.cancel()
            await asyncio.wait({holding})
        # What was told is noted even if the server stops this very moment: else it is told twice.
        await finish(self._note(item, failure))

    async def _note(self, item: OutboxItem, failure: DeliveryError | None) -> None:
        """Write how a try went."""
        now = datetime.now(UTC)
        async with self._store.write() as db:
            if failure is None:
                await mark_delivered(db, item.id, now)
                await settle_task_delivery(db, item.run_id, is_delivered=True)
                return
            if failure.retryable and item.attempts + 1 < TRIES:
                await postpone(db, item.id, str(failure), now + _pause(item, failure))
                return
            await mark_undeliverable(db, item.id, str(failure), now)
            session = await load_session(db, item.session_id)
            reason = sentences.not_told(session.locale, failure.trouble)
            undelivered = Undelivered(item.surface, reason, item.run_id or "", now)
            await set_undelivered(db, item.session_id, undelivered)
            for_good = None if failure.retryable else reason
            await settle_task_delivery(
                db, item.run_id, is_delivered=False, refused_for_good=for_good
            )
        log.error("[outbox] undeliverable item=%s: %s", item.id, failure)
        self._board.patch(session.id, session.owner, undelivered_patch(undelivered))

    async def _hold(self, item: OutboxItem) -> None:
        """Keep the claim while the try goes on: a platform that throttles takes minutes."""
        while True:
            await asyncio.sleep(self._claim.total_seconds() / 3)
            try:
                async with self._store.write() as db:
                    until = datetime.now(UTC) + self._claim
                    await prolong_claim(db, item.id, item.attempts + 1, until)
            except StoreUnavailable:
                log.warning("[outbox] a claim could not be prolonged item=%s", item.id)
            except Exception as error:  # noqa: BLE001 - the telling itself goes on
                log.error("[outbox] a claim was not prolonged item=%s %s", item.id, fault_of(error))

    async def _failure(self, item: OutboxItem) -> DeliveryError | None:
        """Tell the surface; what went wrong, or None."""
        surface = self._surfaces.get(item.surface)
        if surface is None:
            reason = f"no surface {item.surface} is configured"
            return DeliveryError(reason, retryable=False, trouble="not_configured")
        try:
            await surface.deliver(item)
        except DeliveryError as error:
            return error
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - a surface's fault must not stop the others
            log.error("[outbox] surface failed item=%s %s", item.id, fault_of(error))
            return DeliveryError(type(error).__name__, retryable=True, trouble="fault")
        return None


def _pause(item: OutboxItem, failure: DeliveryError) -> timedelta:
    usual = _PAUSES[min(item.attempts, len(_PAUSES) - 1)]
    return max(usual, timedelta(seconds=failure.retry_after_seconds or 0))


@asynccontextmanager
async def open_outbox(outbox: Outbox) -> AsyncIterator[Outbox]:
    """Deliver in the background until closed."""
    await outbox.release()
    task = asyncio.create_task(outbox.serve(), name="outbox")
    try:
        yield outbox
    finally:
        task.cancel()
        await asyncio.wait({task})
