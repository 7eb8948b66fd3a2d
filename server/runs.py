"""Which runs are under way: one at a time per session, each under a lease of this process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.faults import fault_of
from server.begin import RESUME, UNASKED, WORDLESS, Begun, Lease, begin_run, is_asked
from server.ending import HELD_KINDS, Written
from server.errors import Duplicate, NotFound, StoreUnavailable
from server.execution import ActiveRun, Executor, Shells
from server.log import bound
from server.session_state import queue_items
from server.signals import RunSignals
from server.store.engine import Store
from server.store.ids import new_id
from server.store.messages import last_seq, load_message
from server.store.rows import lock_session
from server.store.runs import (
    Run,
    cancels_requested,
    claim_expired,
    delete_queue,
    delete_queued,
    idle_queues,
    queued,
    release_leases,
    renew_leases,
    request_cancel,
    running,
    sessions_with_queue,
)
from server.store.sessions import Session, load_session, set_queue_paused
from server.store.task_runs import waiting_sessions
from server.telling import Teller

log = logging.getLogger(__name__)

LEASE: Final = timedelta(seconds=30)
"""How long a run stays with a process that gives no more signs of life."""

BEAT_SECONDS: Final = 10.0
"""How often leases are renewed and expired ones looked for."""

GRACE_SECONDS: Final = 2.0
"""What a stopping server gives its runs to end by themselves; then they wait for the next start."""


class Runs:
    """The runs of this process."""

    def __init__(
        self,
        *,
        store: Store,
        executor: Executor,
        teller: Teller,
        shells: Shells,
        told: Callable[[], None],
        first_finished: Callable[[Session], None],
        signals: RunSignals,
        is_alone: bool,
    ) -> None:
        """See `open_runs`, which makes and ends one."""
        self._store = store
        self._executor = executor
        self._teller = teller
        self._shells = shells
        self._told = told
        self._first_finished = first_finished
        self._signals = signals
        self._is_alone = is_alone
        self._owner = new_id()
        self._active: dict[str, ActiveRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    @property
    def is_closing(self) -> bool:
        """Nothing begins here any more; what comes waits for the next start."""
        return self._is_closing

    def count(self, trigger: str) -> int:
        """How many runs that began so are executed here."""
        return sum(active.run.trigger == trigger for active in self._active.values())

    def lease(self) -> Lease:
        """What a run that begins now is held by."""
        return Lease(self._owner, datetime.now(UTC) + LEASE)

    def launch(self, begun: Begun) -> None:
        """Execute a run that a transaction has just begun; the transaction is committed."""
        if self._is_closing:  # it began at the very end, and is recovered at the next start
            return
        active = ActiveRun(
            begun.run,
            begun.session,
            self._teller.sink(begun.run, begun.session),
            steered=begun.run.attempt > 1,  # who wanted to join is not remembered
            is_first=begun.is_first,
        )
        if begun.run.cancel_requested:
            active.cancelled.set()
        self._teller.begun(begun, active.sink)
        self._executor.show_running(active)
        self._active[begun.session.id] = active
        active.task = asyncio.create_task(self._execute(active), name=f"run-{begun.run.id}")
        self._tasks.add(active.task)
        active.task.add_done_callback(self._tasks.discard)

    def steer(self, session_id: str) -> None:
        """Tell the session's run that somebody wants to join."""
        active = self._active.get(session_id)
        if active is not None:
            active.steered = True
            if active.context is not None:
                active.context.has_steered = True

    async def cancel(self, session_id: str, run_id: str | None) -> bool:
        """Stop the session's run; False if there is none, or it is another than *run_id*.

        A run of this process is stopped before the store is asked, so that a store that is slow
        or gone delays no stop.
        """
        active = self._active.get(session_id)
        is_mine = active is not None and run_id in (None, active.run.id) and not active.is_ending
        if active is not None and is_mine:
            self.stop(active.run.id)
        try:
            async with self._store.write() as db:
                run = await running(db, session_id)
                if run is None or run_id not in (None, run.id):
                    return is_mine
                await request_cancel(db, run.id)
            self.stop(run.id)  # one that was launched only while the store was asked
        except StoreUnavailable:
            if not is_mine:
                raise
        return True

    def stop(self, run_id: str) -> bool:
        """Stop a run that is executed here, at once; False if it is none, or ends by itself.

        The store does not hear of it: who asks for a stop that outlives this process `cancel`s.
        """
        for active in self._active.values():
            if active.run.id == run_id and not active.is_ending:
                if not active.cancelled.is_set():
                    active.cancelled.set()
                    self._executor.show_running(active)
                return True
        return False

    def dropped(self, session: Session, runs: Iterable[Run]) -> None:
        """These runs were taken out of the session's queue; their chats wait for them no more."""
        for run in runs:
            self._teller.dropped(run, session)

    async def dismiss(self, session_id: str) -> None:
        """Empty the session's queue, stop its run, and wait for the end of it and of its tools."""
        async with self._store.write() as db:
            await delete_queue(db, session_id)
        await self.cancel(session_id, None)
        active = self._active.get(session_id)
        if active is not None and active.task is not None:
            await asyncio.wait({active.task})
        await self._shells.kill_session(session_id)

    async def advance(self, session_id: str) -> None:
        """Begin the next run of the session's queue, if it may go on."""
        if self._is_closing:
            return
        async with self._store.write() as db:
            await lock_session(db, session_id)
            session = await load_session(db, session_id)
            if await running(db, session_id) is not None or not await queued(db, session_id):
                return
            begun = await _begin_next(db, session, self.lease())
            waiting = await queued(db, session_id)
        if begun is not None:
            self._teller.queue(session, queue_items(waiting, paused=session.queue_paused))
            self.launch(begun)

    async def obey_signals(self) -> None:
        """Do what other parts of the application ask for, until cancelled."""
        while True:
            ask = await self._signals.next()
            if ask.what == "advance":
                await self._advance(ask.session_id)
            else:
                cancelling = self.cancel(ask.session_id, ask.run_id)
                await self._put_off("cancel", ask.session_id, cancelling)

    async def advance_idle(self) -> None:
        """Go on with queues that a lost process, or a store that was away, left standing.

        The scheduler gives runs of tasks their turn.
        """
        async with self._store.read() as db:
            idle = await idle_queues(db, UNASKED, RESUME)
            in_turn = set(await waiting_sessions(db))
        for session_id in idle:
            if session_id not in in_turn:
                await self._advance(session_id)

    async def recover(self) -> None:
        """Take over the runs that nobody executes."""
        held = [active.run.id for active in self._active.values()]
        async with self._store.write() as db:
            now = datetime.now(UTC)
            claimed = await claim_expired(
                db, self._owner, now + LEASE, now, any_owner=self._is_alone, held=held
            )
            recovered = [await _recovered(db, run) for run in claimed]
            for begun in recovered:
                await _hold_queue(db, begun.session)
        for begun in recovered:
            log.warning(
                "[run] recovered session=%s run=%s attempt=%d",
                begun.session.id,
                begun.run.id,
                begun.run.attempt,
            )
            self.launch(begun)

    async def hold_queues(self) -> None:
        """Hold the queues that a dead process left where a person looks on.

        Where other processes may be alive, their queues are left alone.
        """
        if not self._is_alone:
            return
        async with self._store.write() as db:
            waiting = await sessions_with_queue(db)
            sessions = [await load_session(db, session_id) for session_id in waiting]
            for session in sessions:
                await _hold_queue(db, session)

    async def beat(self) -> None:
        """Renew leases, let go of runs that are no longer ours, and hear of stops from afar."""
        mine = {active.run.id: active for active in self._active.values()}
        async with self._store.write() as db:
            kept = await renew_leases(db, self._owner, list(mine), datetime.now(UTC) + LEASE)
            stopped = await cancels_requested(db, self._owner)
        for run_id in stopped:
            self.stop(run_id)
        for run_id in mine.keys() - kept:
            active = self._active.get(mine[run_id].session.id)
            if active is mine[run_id] and active.task is not None and not active.is_ending:
                log.warning("[run] lease lost run=%s", run_id)
                active.task.cancel()

    async def close(self) -> None:
        """Give running runs a moment, then leave the rest to whoever starts next."""
        self._is_closing = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE_SECONDS)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        try:
            async with self._store.write() as db:
                await release_leases(db, self._owner)
        except StoreUnavailable:
            log.warning("[run] leases could not be given back; they end by themselves")

    async def _execute(self, active: ActiveRun) -> None:
        written: Written | None = None
        with bound(session=active.session.id, run=active.run.id):
            try:
                ending = await self._executor.run(active)
                active.is_ending = True
                written = await self._executor.end(active, ending) if ending is not None else None
            except Exception as error:  # noqa: BLE001 - it is taken up again when its lease is over
                log.error("[run] its end was not written %s", fault_of(error))
            finally:
                if self._active.get(active.session.id) is active:
                    del self._active[active.session.id]
                    if written is None and not self._is_closing:
                        self._teller.let_go(active.session)
            if written is not None:
                await self._after(active, written)

    async def _after(self, active: ActiveRun, written: Written) -> None:
        """Let others know of the end, and go on with the queue."""
        self._told()
        self._signals.ended(active.run.id)
        if written.task is not None and written.task.told_in is not None:
            self._signals.advance(written.task.told_in)
        for session_id in written.stop:
            self._signals.cancel(session_id)
        await self._advance(active.session.id)
        if active.is_first and written.session.status in ("COMPLETED", "WAITING"):
            self._first_finished(active.session)

    async def _advance(self, session_id: str) -> None:
        """`advance`; what does not work is tried again at the next beat."""
        await self._put_off("advance", session_id, self.advance(session_id))

    async def _put_off(self, what: str, session_id: str, work: Coroutine[Any, Any, object]) -> None:
        """Do *work* for one session, whose trouble is not that of the others."""
        try:
            await work
        except (Duplicate, NotFound, StoreUnavailable):
            log.warning("[run] %s put off session=%s", what, session_id)
        except Exception as error:  # noqa: BLE001 - a session's fault must not stop the others
            log.error("[run] %s failed session=%s %s", what, session_id, fault_of(error))


async def _begin_next(db: AsyncConnection, session: Session, lease: Lease) -> Begun | None:
    """Begin the first of the queue that still can.

    What waits for an answer goes on with the answer alone; a held queue lets pass what no person
    queued.
    """
    for run in await queued(db, session.id):
        if session.status == "WAITING" and run.trigger != RESUME:
            continue
        if session.queue_paused and run.trigger not in UNASKED:
            continue
        try:
            begun = await begin_run(db, session, run, lease, datetime.now(UTC))
        except NotFound:
            log.warning("[run] dropped, nothing to retry session=%s run=%s", session.id, run.id)
            await delete_queued(db, run.id)
            continue
        if begun is not None:
            return begun
    return None


async def _hold_queue(db: AsyncConnection, session: Session) -> None:
    """After a restart a person decides what of the queue is still meant; elsewhere it goes on."""
    if session.kind in HELD_KINDS and is_asked(await queued(db, session.id)):
        await set_queue_paused(db, session.id, True)


async def _recovered(db: AsyncConnection, run: Run) -> Begun:
    session = await load_session(db, run.session_id)
    message = None
    if run.message_id is not None and run.trigger not in WORDLESS:
        _, message = await load_message(db, run.message_id)
    return Begun(run, session, await last_seq(db, session.id), message)


@asynccontextmanager
async def open_runs(runs: Runs) -> AsyncIterator[Runs]:
    """Recover what a dead process left, then keep the leases until closed."""
    await runs.hold_queues()
    await runs.recover()
    await runs.advance_idle()
    tasks = {
        asyncio.create_task(_beat_forever(runs), name="run-leases"),
        asyncio.create_task(runs.obey_signals(), name="run-signals"),
    }
    try:
        yield runs
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await runs.close()


async def _beat_forever(runs: Runs) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        try:
            await runs.beat()
            await runs.recover()
            await runs.advance_idle()
        except (Duplicate, NotFound, StoreUnavailable):
            log.warning("[run] leases could not be renewed; trying again")
        except Exception as error:  # noqa: BLE001 - without a beat all leases would end
            log.error("[run] leases could not be renewed %s", fault_of(error))
