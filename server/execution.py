"""Executes one run: from its trigger to an outcome that is written and told."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, Protocol

from channels.faults import fault_of
from channels.port import RunSink
from guard import NoProgressLoopError
from guard.reminder import RuleStop
from server.agent.context import RunContext
from server.agent.history import History
from server.agent.loop import AgentLoop
from server.agent.record import trace_id_of
from server.agent.speaker import say
from server.agent.stopping import Stopped, unless_stopped
from server.attachments import Attachments
from server.delegate import SUBAGENT
from server.delivery import DELIVER
from server.ending import Written, write_ending
from server.errors import Fenced, StoreUnavailable
from server.message import Message
from server.outcome import (
    FINISHED,
    Ending,
    completed,
    ending_of,
    failed,
    stopped_by,
    waiting,
)
from server.session_state import RunState
from server.store.approvals import Approval, answers_for
from server.store.engine import Store
from server.store.finish import finish
from server.store.ids import new_id
from server.store.runs import Run
from server.store.sessions import Session
from server.store.subagents import executions_by_id
from server.surfaces import turn_of
from server.telling import Teller
from server.tracing import Tracer, current, traced

log = logging.getLogger(__name__)

STORE_PATIENCE_SECONDS: Final = 5.0
"""How long an outcome waits for the store before people are told that the run failed."""

MAX_ATTEMPTS: Final = 10
"""A run that was cut so often, beyond once a round, is given up: it may be what kills us."""

OnRestart = Literal["resume", "fail"]


class Shells(Protocol):
    """The processes that runs started."""

    async def kill_run(self, run_id: str) -> None:
        """End what this run left running."""

    async def kill_session(self, session_id: str) -> None:
        """End what any run of this session left running."""


@dataclass(slots=True)
class ActiveRun:
    """A run that this process executes."""

    run: Run
    session: Session
    sink: RunSink
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    context: RunContext | None = None
    steered: bool = False
    """Somebody wants to join; kept here until there is a context."""
    is_first: bool = False
    is_ending: bool = False
    """Executed; only its outcome is still to be written."""
    started_at: float = field(default_factory=time.monotonic)
    task: asyncio.Task[None] | None = None


class Executor:
    """Executes runs; what they are belongs to `ActiveRun`, so one serves all."""

    def __init__(
        self,
        *,
        store: Store,
        history: History,
        loop: AgentLoop,
        attachments: Attachments,
        teller: Teller,
        shells: Shells,
        tracer: Tracer,
        on_restart: OnRestart,
    ) -> None:
        self._store = store
        self._history = history
        self._loop = loop
        self._attachments = attachments
        self._teller = teller
        self._shells = shells
        self._tracer = tracer
        self._on_restart = on_restart

    async def run(self, active: ActiveRun) -> Ending | None:
        """Execute the run; None if it belongs to another process now."""
        run = active.run
        with traced(self._tracer, run, active.session, trace_id_of(run.id)) as span:
            ending = await self._run(active)
            if ending is not None:
                span.ended(ending.outcome(run, active.context, self._loop.model_name))
        return ending

    async def _run(self, active: ActiveRun) -> Ending | None:
        locale = active.session.locale
        sink = active.sink
        try:
            await self._fetch_files(active)
            context = await self._history.open(active.run, active.session, active.cancelled)
            context.has_steered = active.steered
            context.answers = await self._answers(context)
            active.context = context
            if current().is_recording:
                await self._link(active)
            if self._is_given_up(active.run):
                await self._loop.abandon(context, sink)
                return failed("server_restart", locale)
            return await self._go(context, sink)
        except Fenced:
            log.warning("[run] fenced session=%s run=%s", active.session.id, active.run.id)
            return None
        except StoreUnavailable as error:
            log.error("[run] failed session=%s run=%s: %s", active.session.id, active.run.id, error)
            # What a stop leaves behind could not be kept; it was stopped all the same.
            return ending_of(Stopped() if active.cancelled.is_set() else error, locale)
        except Exception as error:  # noqa: BLE001 - whatever broke, the run has an outcome
            ending = ending_of(error, locale)
            if ending.code == "internal":
                log.error("[run] failed session=%s %s", active.session.id, fault_of(error))
            return ending
        finally:
            if active.cancelled.is_set():
                await self._shells.kill_run(active.run.id)

    async def _go(self, context: RunContext, sink: RunSink) -> Ending:
        """What the run's trigger means; raises as `AgentLoop.execute`."""
        run = context.run
        if run.trigger == "compact":
            await self._loop.compact(context, sink)
        elif run.trigger == DELIVER:
            await self._loop.deliver(context, sink, run.input.text if run.input else "")
        elif any(answer.status == "EXPIRED" for answer in context.answers.values()):
            await self._loop.abandon(context, sink)
            return failed("interrupt_expired", context.session.locale)
        else:
            try:
                questions = await self._loop.execute(context, sink)
            except (RuleStop, NoProgressLoopError) as stop:
                return stopped_by(stop, context)
            if questions:
                return waiting(questions)
            if context.is_complete:
                return completed(context)
        return FINISHED

    async def _link(self, active: ActiveRun) -> None:
        """Let the run's trace lead to that of the run which it works for, or goes on from."""
        run, session = active.run, active.session
        before = run.input.resumes if run.input is not None else None
        if before is None and session.kind == SUBAGENT and session.parent_session_id is not None:
            async with self._store.read() as db:
                asked = await executions_by_id(db, session.parent_session_id, [run.id])
            before = asked[run.id].run_id if run.id in asked else None
        if before is not None:
            current().follows(trace_id_of(before), before)

    async def _answers(self, context: RunContext) -> dict[str, Approval]:
        """What people said of the calls that the run goes on with.

        A round is asked about more than once where the settings became stricter meanwhile.
        """
        asked = context.run.input
        if asked is None or asked.resumes is None:
            return {}
        last = context.messages[-1] if context.messages else None
        call_ids = [call.id for call in last.tool_calls] if last is not None else []
        async with self._store.read() as db:
            answers = await answers_for(db, context.session.id, asked.resumes, call_ids)
        return {approval.interrupt.call_id: approval for approval in answers}

    def _is_given_up(self, run: Run) -> bool:
        """Whether a run that a dead process left is not to go on; a text is told in any case."""
        goes_on = self._on_restart == "resume" or run.trigger == DELIVER
        most = MAX_ATTEMPTS + run.rounds if goes_on else 1
        return run.attempt > most

    async def _fetch_files(self, active: ActiveRun) -> None:
        """Fetch what a chat's message brings; the person can stop that too."""
        turn = turn_of(active.run, active.session)
        if turn is not None and active.run.message_id is not None:
            fetching = self._attachments.fetch(active.run.message_id, active.session, turn)
            await unless_stopped(fetching, active.cancelled)

    async def end(self, active: ActiveRun, ending: Ending) -> Written | None:
        """Write the outcome, then tell it; None if another process has the run now.

        While the store does not answer, watchers are told of the failure after a while, and the
        outcome is written as soon as it can be.
        """
        outcome = ending.outcome(active.run, active.context, self._loop.model_name)
        last_words = _last_words(active.run, ending)
        tried = time.monotonic()
        is_shown = False
        pause = 0.2
        while True:
            try:
                written = await finish(write_ending(self._store, active.run, outcome, last_words))
                break
            except Fenced:
                return None
            except StoreUnavailable as error:
                if not is_shown and time.monotonic() - tried > STORE_PATIENCE_SECONDS:
                    outcome = ending_of(error, active.session.locale).outcome(
                        active.run, active.context, self._loop.model_name
                    )
                    is_shown = True
                    active.sink.emit(outcome)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
        if not is_shown:
            for message in written.last_messages:
                say(active.sink, message)
            active.sink.emit(outcome)
        self._teller.ended(outcome, written, time.monotonic() - active.started_at)
        return written

    def show_running(self, active: ActiveRun) -> None:
        """The run goes on, or is about to be stopped."""
        rounds = active.context.rounds if active.context is not None else active.run.rounds
        run = RunState(active.run.id, active.cancelled.is_set(), rounds)
        self._teller.running(active.session, run)


def _last_words(run: Run, ending: Ending) -> Message | None:
    """What the run says at its end by itself, under one id however often it is written."""
    if not ending.last_words:
        return None
    return Message(
        id=new_id(),
        role="assistant",
        content=ending.last_words,
        created_at=datetime.now(UTC),
        run_id=run.id,
    )
