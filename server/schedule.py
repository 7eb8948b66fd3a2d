"""Starts scheduled tasks when they are due.

One asyncio task sleeps until the next due time, in short naps, since a machine that was asleep or a
clock that was set wakes nobody. Each due time is claimed in the store, in the transaction in which
its run is queued: several processes on one database fire it once, and a crash neither loses nor
repeats it. A process executes a few of these runs at once; the others wait in the store, where
whichever process has room next begins the one that was due first.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.clock import SYSTEM, Clock
from channels.faults import fault_of
from server import task_sentences as sentences
from server.agent.texts import PromptTexts
from server.contract import given_contract
from server.due import Due, due_now, next_after
from server.errors import Conflict, Duplicate, Locale, NotFound, ServerError, StoreUnavailable
from server.metrics import Metrics
from server.runs import Runs
from server.store.engine import Store
from server.store.finish import finish
from server.store.ids import new_id
from server.store.runs import QueuedInput, Run, insert_run
from server.store.sessions import Session, insert_session
from server.store.task_runs import (
    TaskRun,
    close_task_run,
    forget_session,
    has_task_run,
    insert_task_run,
    is_alive,
    prune_task_runs,
    settle_lost_deliveries,
    spent_sessions,
    task_runs_under_way,
    tasks_under_way,
    waiting_sessions,
)
from server.store.tasks import (
    ScheduledTask,
    active_task_ids,
    claim_due,
    due_task_ids,
    load_task,
    mark_invalid,
    next_due_at,
    set_next_at,
)

log = logging.getLogger(__name__)

KIND: Final = "scheduled"
"""Of the sessions that runs of tasks have."""

TRIGGER: Final = "schedule"
"""Of the runs that tasks begin; also where they say they come from."""

NAP_SECONDS: Final = 2.0
"""The longest sleep: so late a task fires after the machine was asleep or the clock was set."""

SHORTEST_NAP_SECONDS: Final = 0.01

GRACE: Final = timedelta(seconds=60)
"""What comes so late is in time: a server that is restarted at once misses nothing."""

AT_ONCE: Final = 4
"""Runs of tasks that a process executes at the same time. Many tasks are due on the hour, and a
model or a gateway that gets them all in one second refuses most."""

BATCH: Final = 50

KEPT_SESSIONS: Final = 100
"""Ended runs of a task whose sessions are kept, the newest."""

KEPT_RUNS: Final = 1000
"""Due times of a task of which it is known what became of them, the newest."""

TIDY_EVERY: Final = timedelta(minutes=10)

PUT_OFF: Final = timedelta(seconds=60)
"""How long a task whose start failed inside is left alone."""

STEP_BACK: Final = timedelta(seconds=5)
"""A clock that goes back further than this was set."""

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)

Began = Literal["due", "manual"]


class Scheduler:
    """The scheduled tasks of this process's database."""

    def __init__(
        self,
        *,
        store: Store,
        runs: Runs,
        locale: Locale,
        awake: asyncio.Event,
        delete_session: Callable[[str], Awaitable[None]],
        metrics: Metrics,
        clock: Clock = SYSTEM,
    ) -> None:
        """See `open_scheduler`, which lets it work.

        Args:
            locale: Of the sessions of runs.
            awake: Set by whoever changes a task, so that it is looked at at once.
            delete_session: Deletes a session with all that belongs to it.
        """
        self._store = store
        self._runs = runs
        self._locale = locale
        self._awake = awake
        self._delete_session = delete_session
        self._metrics = metrics
        self._clock = clock
        self._put_off: dict[str, datetime] = {}
        """Until when a task, or a session that waits for its turn, is left alone after a fault."""
        self._has_waiting = False
        """Some runs wait for their turn."""
        self._tidied_at = _LONG_AGO
        self._is_aligned = False

    def now(self) -> datetime:
        """What time it is for the tasks."""
        return time_of(self._clock)

    def wake(self) -> None:
        """A task was made or changed."""
        self._awake.set()

    def run_ended(self) -> None:
        """A run is over: there may be room for one that waits."""
        if self._has_waiting:
            self._awake.set()

    async def run_now(self, task_id: str) -> TaskRun:
        """Start a task because a person asks for it, whatever its schedule says.

        Raises:
            NotFound: There is no such task.
            Conflict: It is damaged, at work already, or the server is about to stop.
        """
        return await finish(self._run_now(task_id))

    async def serve(self) -> None:
        """Start what is due until cancelled; a start that was begun is finished first."""
        looked_at = self.now()
        while True:
            self._awake.clear()
            now = self.now()
            if now < looked_at - STEP_BACK:
                log.warning("[schedule] the clock was set back; looking at all tasks")
                self._is_aligned = False
            looked_at = now
            seconds = NAP_SECONDS
            try:
                seconds = await self._look(now)
            except ServerError as error:  # the store is away, or a task was deleted meanwhile
                log.warning("[schedule] looking again: %s", error)
            await self._nap(seconds)

    async def _look(self, now: datetime) -> float:
        """Do what is to be done now; how many seconds to sleep afterwards."""
        if not self._is_aligned:
            await self._align(now)
            self._is_aligned = True
        if not self._runs.is_closing:
            await self._start_due()
            await self._begin_waiting()
        if abs(now - self._tidied_at) > TIDY_EVERY:
            await self._tidy()
            self._tidied_at = now
        now = self.now()
        async with self._store.read() as db:
            next_at = await next_due_at(db, now)
        if next_at is None:
            return NAP_SECONDS
        return min(NAP_SECONDS, max(SHORTEST_NAP_SECONDS, (next_at - now).total_seconds()))

    async def _nap(self, seconds: float) -> None:
        waits = {
            asyncio.create_task(_slept(self._clock, seconds), name="schedule-nap"),
            asyncio.create_task(self._awake.wait(), name="schedule-awake"),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)

    async def _align(self, now: datetime) -> None:
        """Compute due times that lie ahead again.

        They were computed by a clock that has been set since, or by older rules of a time zone.
        """
        async with self._store.read() as db:
            tasks = [await load_task(db, task_id) for task_id in await active_task_ids(db)]
        for task in tasks:
            await self._align_task(task, now)

    async def _align_task(self, task: ScheduledTask, now: datetime) -> None:
        if task.schedule is None:
            async with self._store.write() as db:
                await self._give_up(db, task)
        elif task.next_at is None or task.next_at > now:
            next_at = next_after(task.schedule, task.zone, now)
            if next_at is not None and next_at != task.next_at:
                async with self._store.write() as db:
                    await set_next_at(db, task, next_at)

    async def _start_due(self) -> None:
        """Queue all that is due, the longest due first; one that cannot be stops no other."""
        now = self.now()
        self._put_off = {task_id: at for task_id, at in self._put_off.items() if at > now}
        tried = set(self._put_off)
        while True:
            async with self._store.read() as db:
                due = await due_task_ids(db, self.now(), BATCH, but=tried)
            for task_id in due:
                tried.add(task_id)
                await self._try(task_id)
                if self._runs.count(TRIGGER) < AT_ONCE:
                    await self._begin_waiting()
            if not due:
                return

    async def _begin_waiting(self) -> None:
        """Begin runs that wait for their turn, the longest due first, while there is room."""
        async with self._store.read() as db:
            waiting = await waiting_sessions(db)
        tried = 0
        for session_id in waiting:
            if self._runs.count(TRIGGER) >= AT_ONCE:
                break
            if session_id not in self._put_off:
                await self._begin(session_id)
            tried += 1
        self._has_waiting = tried < len(waiting)
        self._metrics.task_runs_wait(len(waiting) - tried)

    async def _begin(self, session_id: str) -> None:
        try:
            await finish(self._runs.advance(session_id))
        except (Duplicate, NotFound):
            log.info("[schedule] changed meanwhile session=%s", session_id)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one task's fault must not stop the others
            log.error("[schedule] not begun session=%s %s", session_id, fault_of(error))
            self._put_off[session_id] = self.now() + PUT_OFF

    async def _try(self, task_id: str) -> None:
        try:
            if await finish(self._start(task_id)):
                await self._prune(task_id)
        except (Duplicate, NotFound):
            log.info("[schedule] changed meanwhile task=%s", task_id)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one task's fault must not stop the others
            log.error("[schedule] not started task=%s %s", task_id, fault_of(error))
            self._put_off[task_id] = self.now() + PUT_OFF

    async def _start(self, task_id: str) -> bool:
        """Claim what is due of a task and queue its run; False if nothing was."""
        now = self.now()
        async with self._store.write() as db:
            task = await load_task(db, task_id, lock=True)
            if task.status != "ACTIVE":
                return False
            if task.schedule is None:
                await self._give_up(db, task)
                return False
            if task.next_at is None or task.next_at > now:
                return False
            due = due_now(
                task.schedule,
                task.zone,
                task.next_at,
                now,
                policy=task.missed_policy,
                within=timedelta(seconds=task.missed_within_seconds or 0),
                grace=GRACE,
            )
            if not await claim_due(db, task, due.next_at, now):
                return False
            await self._take(db, task, due, now)
        return True

    async def _take(
        self, db: AsyncConnection, task: ScheduledTask, due: Due, now: datetime
    ) -> None:
        """Write what becomes of the due times, and queue the run of the one that runs."""
        if due.missed_at is not None:
            await self._skip(db, task, due.missed_at, "missed", now)
        if due.run_at is None or await has_task_run(db, task.id, due.run_at):
            return
        reason = await self._hindrance(db, task.id, now)
        if reason is not None:
            await self._skip(db, task, due.run_at, reason, now)
            return
        await self._queue(db, task, due.run_at, "due", now)

    async def _skip(
        self, db: AsyncConnection, task: ScheduledTask, due_at: datetime, reason: str, now: datetime
    ) -> None:
        if await has_task_run(db, task.id, due_at):
            return
        skipped = TaskRun(task.id, due_at, "due", "SKIPPED", now, reason=reason, ended_at=now)
        await insert_task_run(db, skipped)
        self._metrics.task_skipped(reason)
        log.warning("[schedule] skipped task=%s due=%s reason=%s", task.id, due_at, reason)

    async def _hindrance(self, db: AsyncConnection, task_id: str, now: datetime) -> str | None:
        """Why the task, which is locked, cannot start: an earlier run of it is not over.

        A run that is gone with its session, or was dropped, hinders nobody.
        """
        for task_run in await task_runs_under_way(db, task_id):
            if await is_alive(db, task_run.session_id):
                return "waiting" if task_run.status == "WAITING" else "overlap"
            reason = sentences.ended_unseen(self._locale)
            run_id = task_run.run_id
            await close_task_run(db, task_run, "CANCELLED", reason, now, run_id=run_id)
        return None

    async def _queue(
        self,
        db: AsyncConnection,
        task: ScheduledTask,
        due_at: datetime,
        trigger: Began,
        now: datetime,
    ) -> TaskRun:
        """Queue a run of the task in a session of its own."""
        session = _session_of(task, self._locale, now)
        await insert_session(db, session)
        run = await insert_run(db, _run_of(task, session, now))
        task_run = TaskRun(task.id, due_at, trigger, "RUNNING", now, session.id, run.id)
        await insert_task_run(db, task_run)
        self._metrics.task_started(trigger)
        log.info(
            "[schedule] started task=%s due=%s trigger=%s session=%s run=%s",
            task.id,
            due_at,
            trigger,
            session.id,
            run.id,
        )
        return task_run

    async def _run_now(self, task_id: str) -> TaskRun:
        if self._runs.is_closing:
            raise Conflict("shutting_down", sentences.stopping(self._locale), retryable=True)
        now = self.now()
        async with self._store.write() as db:
            task = await load_task(db, task_id, lock=True)
            if task.schedule is None:
                raise Conflict("bad_request", sentences.damaged(self._locale))
            if await self._hindrance(db, task_id, now) is not None:
                raise Conflict("busy", sentences.at_work(self._locale), retryable=True)
            while await has_task_run(db, task_id, now):
                now += timedelta(microseconds=1)
            task_run = await self._queue(db, task, now, "manual", now)
        # A person waits for it, so it takes no turn.
        await self._runs.advance(str(task_run.session_id))
        return task_run

    async def _give_up(self, db: AsyncConnection, task: ScheduledTask) -> None:
        await mark_invalid(db, task.id)
        log.error("[schedule] damaged task=%s; mend it by editing it, or delete it", task.id)

    async def _prune(self, task_id: str) -> None:
        """Delete the sessions of old runs, and forget very old ones."""
        async with self._store.read() as db:
            spent = await spent_sessions(db, task_id, KEPT_SESSIONS)
            idle = [session_id for session_id in spent if not await is_alive(db, session_id)]
        for session_id in idle[:BATCH]:
            try:
                await self._delete_session(session_id)
            except NotFound:
                pass  # a person was faster
            async with self._store.write() as db:
                await forget_session(db, task_id, session_id)
        async with self._store.write() as db:
            await prune_task_runs(db, task_id, KEPT_RUNS)

    async def _tidy(self) -> None:
        """Find what ended without a word: runs and deliveries that went with their session."""
        async with self._store.read() as db:
            task_ids = await tasks_under_way(db)
        for task_id in task_ids:
            async with self._store.write() as db:
                await load_task(db, task_id, lock=True)
                await self._hindrance(db, task_id, self.now())
        async with self._store.write() as db:
            await settle_lost_deliveries(db)


def time_of(clock: Clock) -> datetime:
    """What its wall clock shows."""
    return datetime.fromtimestamp(clock.wall(), UTC)


async def _slept(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)


def _session_of(task: ScheduledTask, locale: Locale, now: datetime) -> Session:
    return Session(
        id=new_id(),
        kind=KIND,
        title=task.title,
        status="IDLE",
        parent_session_id=None,
        owner=task.owner,
        origin=TRIGGER,
        model=None,
        locale=locale,
        timezone=task.timezone,
        external_id=None,
        queue_paused=False,
        execution_error=None,
        created_at=now,
        updated_at=now,
    )


def _run_of(task: ScheduledTask, session: Session, now: datetime) -> Run:
    quiet_note = PromptTexts(session.locale).quiet_note if task.is_quiet else ""
    message_id = new_id()
    return Run(
        id=new_id(),
        session_id=session.id,
        trigger=TRIGGER,
        status="QUEUED",
        created_at=now,
        message_id=message_id,
        input=QueuedInput(
            message_id=message_id,
            text=task.prompt + quiet_note,
            origin=TRIGGER,
            is_quiet=task.is_quiet,
            contract=given_contract(task.contract_json),
        ),
    )


@asynccontextmanager
async def open_scheduler(scheduler: Scheduler) -> AsyncIterator[Scheduler]:
    """Start what is due until closed; runs that it started are the runs' own affair."""
    task = asyncio.create_task(scheduler.serve(), name="scheduler")
    try:
        yield scheduler
    finally:
        task.cancel()
        await asyncio.wait({task})
