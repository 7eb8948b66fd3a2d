"""A session whose run asks for subagents; their runs are begun and ended as the server does it."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from channels.events import Outcome, OutcomeStatus, RunEvent
from server.board import Board
from server.delegate import Delegate, end_child
from server.message import Message
from server.outcome import RUN_STATUS
from server.settings import SubagentSettings
from server.signals import RunSignals
from server.store.engine import Store
from server.store.messages import append_messages
from server.store.runs import begin_round, finish_run, load_run, start_run
from server.store.sessions import Session, insert_session, load_session
from server.store.subagents import SubagentExecution, execution_of_call
from server.tools.base import ToolContext
from tests.server.store.rows import NOON, a_session, later, make_running


@dataclass
class Place:
    """A session `s1` whose run `r1` is under way, and what its calls have to do with."""

    store: Store
    limits: SubagentSettings = SubagentSettings()
    signals: RunSignals = field(default_factory=RunSignals)
    events: list[RunEvent] = field(default_factory=list)
    progress: list[str] = field(default_factory=list)

    @property
    def delegate(self) -> Delegate:
        """Holds nothing itself: each call may be met by another process."""
        return Delegate(store=self.store, signals=self.signals, board=Board(), limits=self.limits)

    def context(
        self, call_id: str = "c1", *, session_id: str = "s1", run_id: str = "r1"
    ) -> ToolContext:
        return ToolContext(
            session_id=session_id,
            run_id=run_id,
            call_id=call_id,
            workspace=Path("/"),
            locale="zh-CN",
            progress=self.progress.append,
            emit=self.events.append,
        )

    async def spawn(
        self, call_id: str = "c1", task: str = "count", *, background: bool = True
    ) -> SubagentExecution:
        return await self.delegate.spawn(self.context(call_id), task, background=background)

    async def attend(self, execution: SubagentExecution, seconds: float = 600) -> SubagentExecution:
        return await self.delegate.attend(self.context(), execution, "count", seconds)

    async def child(self, execution: SubagentExecution) -> Session:
        async with self.store.read() as db:
            return await load_session(db, execution.child_session_id)

    async def begin(self, execution: SubagentExecution) -> None:
        """The child's run begins, and its first round."""
        async with self.store.write() as db:
            assert await start_run(db, execution.id, "p1", later(30), NOON) == 1
            await begin_round(db, execution.id, 1, 1)

    async def end(
        self,
        execution: SubagentExecution,
        status: OutcomeStatus = "finished",
        *,
        said: str = "done",
        code: str = "completed",
        text: str = "",
    ) -> Message | None:
        """The child's run says something and ends; what its end leaves in the history."""
        child = await self.child(execution)
        async with self.store.write() as db:
            run = await load_run(db, execution.id)
            if run.status == "QUEUED":
                await start_run(db, run.id, "p1", later(30), NOON)
            if status != "failed":  # which breaks off before the answer
                message = Message(f"m-{run.id}", "assistant", said, NOON, run_id=run.id)
                await append_messages(db, child.id, [message])
            await finish_run(db, run.id, 1, RUN_STATUS[status], code, text, 1, later(60))
            outcome = Outcome(run.id, status, code, text)
            left = await end_child(db, run, child, outcome, later(60))
        self.signals.ended(execution.id)
        return left

    async def now(self, execution: SubagentExecution) -> SubagentExecution:
        async with self.store.read() as db:
            found = await execution_of_call(db, execution.run_id, execution.tool_call_id)
        assert found is not None
        return found


async def make_place(store: Store) -> Place:
    """The session `s1`, whose run `r1` is under way."""
    parent = replace(a_session(), origin="feishu", model="step-3", title="parent")
    async with store.write() as db:
        await insert_session(db, parent)
    await make_running(store, "r1", session_id="s1")
    return Place(store)
