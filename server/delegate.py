"""Subagents: parts of a run's work that sessions of their own do, each with its log and guard."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.events import Outcome, SubagentFailed, SubagentFinished, SubagentStarted
from server import sentences
from server.board import Board
from server.errors import NotFound, StoreUnavailable, ToolError
from server.message import Message, clean_text, title_of
from server.outcome import RUN_STATUS
from server.settings import SubagentSettings
from server.signals import RunSignals
from server.store.engine import Store
from server.store.ids import new_id
from server.store.messages import last_words
from server.store.rows import lock_session
from server.store.runs import (
    QueuedInput,
    Run,
    delete_queue,
    insert_run,
    load_run,
    request_cancel,
    resumed,
    running,
)
from server.store.sessions import (
    Session,
    child_of,
    insert_session,
    load_session,
    set_status,
)
from server.store.subagents import (
    SubagentExecution,
    end_execution,
    execution_of_call,
    executions_by_id,
    executions_of_run,
    insert_execution,
    lock_asking,
    open_executions,
    running_executions,
)
from server.tools.base import ToolContext
from server.tools.cut import cut_text

log = logging.getLogger(__name__)

SUBAGENT: Final = "subagent"
"""Kind of a child session, trigger and origin of its run."""

LOOK_SECONDS: Final = 2.0
"""How often the store is asked for an end that this process may not have heard of."""

RESULT_CAP_BYTES: Final = 16_000
"""What the asking model is told of a subagent's last words; its session has all of them."""


class Delegate:
    """Starts subagents and waits for them, for the tools."""

    def __init__(
        self, *, store: Store, signals: RunSignals, board: Board, limits: SubagentSettings
    ) -> None:
        self._store = store
        self._signals = signals
        self._board = board
        self._limits = limits

    async def spawn(
        self, context: ToolContext, task: str, *, background: bool
    ) -> SubagentExecution:
        """Give *task* to a new child of the session; the same call again gives the same child.

        Raises:
            ToolError: The run may not have another one.
        """
        now = datetime.now(UTC)
        async with self._store.write() as db:
            if not await lock_asking(db, context.run_id):
                raise ToolError("not_running", "the run that asks for it is over")
            known = await execution_of_call(db, context.run_id, context.call_id)
            if known is not None:
                return known
            parent = await load_session(db, context.session_id)
            await self._check_limits(db, parent, context.run_id)
            asking = await load_run(db, context.run_id)
            child, run = _born(parent, asking, task, now)
            await insert_session(db, child)
            await insert_run(db, run)
            execution = SubagentExecution(
                id=run.id,
                run_id=asking.id,
                tool_call_id=context.call_id,
                child_session_id=child.id,
                status="RUNNING",
                background=background,
                result_text=None,
                created_at=now,
                rounds=0,
            )
            await insert_execution(db, execution)
        log.info("[subagent] started child=%s background=%s", child.id, background)
        self._board.changed(child.owner, [child.id])
        self._signals.advance(child.id)
        return execution

    async def of_call(self, context: ToolContext) -> SubagentExecution | None:
        """What this very call began before, maybe in a process that is gone."""
        async with self._store.read() as db:
            return await execution_of_call(db, context.run_id, context.call_id)

    async def attend(
        self, context: ToolContext, execution: SubagentExecution, task: str, seconds: float
    ) -> SubagentExecution:
        """Wait at most *seconds* for the subagent's end; it is shown as part of the run meanwhile.

        Cancelling ends the waiting alone: whether the child is stopped too depends on how the run
        ends (`children_to_stop`); a run that a restart goes on with meets it again.
        """
        context.emit(
            SubagentStarted(
                execution.id, execution.child_session_id, context.call_id, title_of(task)
            )
        )
        shown = 0

        def look(seen: Sequence[SubagentExecution]) -> None:
            nonlocal shown
            rounds = seen[0].rounds or 0
            if rounds > shown:
                context.progress(sentences.subagent_round(context.locale, rounds))
                shown = rounds

        try:
            [ended] = await self._until_ended(context, [execution], seconds, look)
        except BaseException:  # what was begun in the log has to end there
            context.emit(_stopped(execution, context))
            raise
        context.emit(_end_event(ended, context))
        return ended

    async def wait(
        self, context: ToolContext, task_ids: Collection[str], seconds: float
    ) -> list[SubagentExecution]:
        """Wait until those subagents of the session have ended, at most *seconds*.

        Args:
            task_ids: Without any, all whose end the session may not know.
        Raises:
            ToolError: The session has no such subagent.
        """
        async with self._store.read() as db:
            if task_ids:
                found = await executions_by_id(db, context.session_id, task_ids)
            else:
                news = await open_executions(db, context.session_id)
                found = {execution.id: execution for execution in news}
        for task_id in task_ids:
            if task_id not in found:
                raise ToolError(
                    "unknown_task",
                    f"this session has no subagent with the id {clean_text(task_id)[:80]!r}; "
                    "give a task_id that spawn_subagent returned",
                )
        wanted = [found[task_id] for task_id in dict.fromkeys(task_ids or found)]
        return await self._until_ended(context, wanted, seconds, lambda seen: None)

    async def _until_ended(
        self,
        context: ToolContext,
        executions: Sequence[SubagentExecution],
        seconds: float,
        look: Callable[[Sequence[SubagentExecution]], None],
    ) -> list[SubagentExecution]:
        """Wait for all of them; *look* is shown where they stand whenever the store was asked."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        while True:
            executions = await self._refreshed(context, executions)
            look(executions)
            working = [execution for execution in executions if execution.status == "RUNNING"]
            left = ends_at - loop.time()
            if not working or left <= 0:
                return list(executions)
            await self._signals.until_ended(working[0].id, min(left, LOOK_SECONDS))

    async def _refreshed(
        self, context: ToolContext, executions: Sequence[SubagentExecution]
    ) -> Sequence[SubagentExecution]:
        """Where they stand now; as before, while the store does not answer."""
        working = [execution.id for execution in executions if execution.status == "RUNNING"]
        try:
            async with self._store.read() as db:
                found = await executions_by_id(db, context.session_id, working)
            for execution in found.values():
                if execution.status == "RUNNING" and execution.rounds is None:
                    await self._end_dropped(execution)
        except StoreUnavailable:
            log.warning("[subagent] the store does not answer; looking again")
            return executions
        return [
            found.get(execution.id, replace(execution, status="CANCELLED"))  # deleted by a person
            if execution.status == "RUNNING"
            else execution
            for execution in executions
        ]

    async def _end_dropped(self, execution: SubagentExecution) -> None:
        """A person took the task out of the child's queue; the next look sees the end."""
        async with self._store.write() as db:
            now = datetime.now(UTC)
            await end_execution(db, execution.child_session_id, "CANCELLED", None, now)

    async def _check_limits(self, db: AsyncConnection, parent: Session, run_id: str) -> None:
        """Raises `ToolError` with what the model can do instead."""
        limits = self._limits
        if await _depth(db, parent) >= limits.depth:
            raise ToolError("too_deep", "subagents cannot start subagents here; do it yourself")
        executions = [
            execution
            for asking_id in await resumed(db, run_id)
            for execution in await executions_of_run(db, asking_id)
        ]
        at_work = sum(execution.status == "RUNNING" for execution in executions)
        if at_work >= limits.at_once:
            raise ToolError(
                "too_many_at_once",
                f"{at_work} subagents of this run are at work, and no more may be at once; "
                "wait for them with wait_subagents first, or do it yourself",
            )
        if len(executions) >= limits.per_run:
            raise ToolError(
                "too_many",
                f"this run has had {len(executions)} subagents, and no more are allowed; "
                "do the rest yourself",
            )


async def end_child(
    db: AsyncConnection,
    run: Run,
    session: Session,
    outcome: Outcome,
    now: datetime,
) -> Message | None:
    """Write how a child's task ended, in the transaction that ends its run.

    Whoever gave the task gets what the run said last, of one that failed as well.

    Returns:
        What a failure leaves in the child's history as its last message, not stored yet.
    """
    if run.trigger != SUBAGENT or outcome.status == "waiting":
        return None
    told = await last_words(db, run.id)
    failure: Message | None = None
    if outcome.status == "failed":
        said = sentences.subagent_failed(session.locale, outcome.text)
        told = f"{said}\n\n{told}" if told else said
        failure = Message(
            id=new_id(), role="assistant", content=said, created_at=now, run_id=run.id
        )
    told = cut_text(told, RESULT_CAP_BYTES)
    await end_execution(db, session.id, RUN_STATUS[outcome.status], told, now)
    return failure


async def children_to_stop(db: AsyncConnection, run_id: str, now: datetime) -> list[str]:
    """Ask all that works for a run to stop, in the transaction that ends the run badly.

    That includes what works for the runs which waited for a person, and which this one goes on.

    Returns:
        The sessions to call `RunSignals.cancel` for after the commit.
    """
    children: list[str] = []
    for asking_id in await resumed(db, run_id):
        children += [one.child_session_id for one in await running_executions(db, asking_id)]
    for child_session_id in children:
        with suppress(NotFound):  # deleted meanwhile
            await _ask_to_stop(db, child_session_id, now)
    return children


async def _ask_to_stop(db: AsyncConnection, child_session_id: str, now: datetime) -> None:
    at_work = await running(db, child_session_id)
    if at_work is not None:  # its row before the session's: so does the end of a run
        await request_cancel(db, at_work.id)
    await lock_session(db, child_session_id)
    await delete_queue(db, child_session_id)
    if at_work is not None:
        return
    begun = await running(db, child_session_id)  # in the meantime
    if begun is not None:
        await request_cancel(db, begun.id)
    else:
        await end_execution(db, child_session_id, "CANCELLED", None, now)
        await set_status(db, child_session_id, "CANCELLED", error=None, now=now)


async def _depth(db: AsyncConnection, session: Session) -> int:
    """How many generations of subagents stand above the session's children."""
    depth = 0
    while True:
        depth += session.kind == SUBAGENT
        if session.parent_session_id is None:
            return depth
        session = await load_session(db, session.parent_session_id)


def _born(parent: Session, asking: Run, task: str, now: datetime) -> tuple[Session, Run]:
    """The child, and the run that does the task."""
    child = replace(child_of(parent, new_id(), SUBAGENT, now), title=title_of(task))
    message_id = new_id()
    run = Run(
        id=new_id(),
        session_id=child.id,
        trigger=SUBAGENT,
        status="QUEUED",
        created_at=now,
        input=QueuedInput(
            message_id=message_id,
            text=task,
            origin=SUBAGENT,
            model=asking.input.model if asking.input is not None else None,
            contract=asking.input.contract if asking.input is not None else None,
        ),
        message_id=message_id,
    )
    return child, run


def _end_event(ended: SubagentExecution, context: ToolContext) -> SubagentFinished | SubagentFailed:
    match ended.status:
        case "COMPLETED":
            return SubagentFinished(ended.id)
        case "FAILED":
            return SubagentFailed(ended.id, ended.code or "internal", ended.result_text or "")
        case "RUNNING":
            text = sentences.subagent_goes_on(context.locale)
            return SubagentFailed(ended.id, "timeout", text)
        case _:
            return _stopped(ended, context)


def _stopped(execution: SubagentExecution, context: ToolContext) -> SubagentFailed:
    return SubagentFailed(execution.id, "cancelled", sentences.subagent_stopped(context.locale))
