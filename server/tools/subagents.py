"""The tools `spawn_subagent` and `wait_subagents`: parts of the work, done in other sessions."""

from collections.abc import Collection, Mapping
from typing import Annotated, Protocol

from msgspec import UNSET, Meta, UnsetType

from server.errors import StoreUnavailable, ToolError
from server.message import clean_text
from server.store.subagents import SubagentExecution
from server.tools.arguments import Arguments, decode, schema_of
from server.tools.base import Found, Kind, ToolContext, ToolResult, ToolSpec, json_result

SPAWN_SUBAGENT = "spawn_subagent"
WAIT_SUBAGENTS = "wait_subagents"

SPAWN_WAIT_SECONDS = 3_600.0
"""How long `spawn_subagent` waits itself; then the subagent goes on in the background."""

WAIT_SECONDS = 120.0
"""How long `wait_subagents` waits unless told otherwise; who steers the run waits as long."""

WAIT_CAP_SECONDS = 600.0
"""Longer waits are cut to this, so that the user sees a round now and then."""


class Subagents(Protocol):
    """Who starts subagents, and knows how they end."""

    async def spawn(
        self, context: ToolContext, task: str, *, background: bool
    ) -> SubagentExecution:
        """Start one, or find the one that this call started before; raises `ToolError`."""

    async def of_call(self, context: ToolContext) -> SubagentExecution | None:
        """The one that this call started before."""

    async def attend(
        self, context: ToolContext, execution: SubagentExecution, task: str, seconds: float
    ) -> SubagentExecution:
        """Wait for its end and show it meanwhile."""

    async def wait(
        self, context: ToolContext, task_ids: Collection[str], seconds: float
    ) -> list[SubagentExecution]:
        """Wait for the ends of several; without ids for all that are open. Raises `ToolError`."""


class SpawnArguments(Arguments, frozen=True):
    """What `spawn_subagent` takes."""

    task: Annotated[
        str,
        Meta(
            min_length=1,
            description="The whole task. The subagent knows nothing else of this conversation.",
        ),
    ]
    background: Annotated[
        bool, Meta(description="Return at once; get the result with wait_subagents.")
    ] = False


class WaitArguments(Arguments, frozen=True):
    """What `wait_subagents` takes."""

    task_ids: Annotated[
        tuple[str, ...], Meta(description="From spawn_subagent; empty: all that are open.")
    ] = ()
    timeout_seconds: (
        Annotated[float, Meta(ge=0, description="How long to wait: 120, at most 600.")] | UnsetType
    ) = UNSET

    @property
    def wait_seconds(self) -> float:
        """How long the call may wait."""
        given = (
            WAIT_SECONDS if isinstance(self.timeout_seconds, UnsetType) else self.timeout_seconds
        )
        return min(given, WAIT_CAP_SECONDS)


class SpawnSubagent:
    """Hands a task to a new child session."""

    spec = ToolSpec(
        name=SPAWN_SUBAGENT,
        description=(
            "Hand a self-contained part of the work to a subagent: a session of its own with the "
            "same tools and workspace, which sees only the task. Its last message is the result, "
            "so ask for what you need to know. Without background the call waits for it; several "
            "calls in one reply work side by side. With background it returns at once with a "
            "task_id for wait_subagents. status: completed (with result), failed or cancelled "
            "(with error), or running: get the end with wait_subagents."
        ),
        parameters=schema_of(SpawnArguments),
        kind="write",
        parallel=True,
        timeout_seconds=SPAWN_WAIT_SECONDS + 30,  # the call ends its own waiting before
        output_cap_bytes=40_000,
    )

    def __init__(self, subagents: Subagents) -> None:
        self._subagents = subagents

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "write"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        wanted = _spawn_arguments(arguments)
        task = clean_text(wanted.task)
        try:
            execution = await self._subagents.spawn(context, task, background=wanted.background)
        except StoreUnavailable:
            raise ToolError(
                "unavailable",
                "the store does not answer, so whether the subagent was started is unknown; "
                "wait_subagents without task_ids tells",
            ) from None
        if not execution.background:
            execution = await self._subagents.attend(context, execution, task, SPAWN_WAIT_SECONDS)
        return _spawned(execution)

    async def mark(self, arguments: Mapping[str, object], context: ToolContext) -> str:
        _spawn_arguments(arguments)
        return ""  # the call's own id is enough

    async def lookup(
        self, arguments: Mapping[str, object], mark: str, context: ToolContext
    ) -> Found:
        """`not_done` also for one that is waited for and still works: the call joins it again."""
        execution = await self._subagents.of_call(context)
        if execution is None or (execution.status == "RUNNING" and not execution.background):
            return "not_done"
        return _spawned(execution)


class WaitSubagents:
    """Waits for subagents in the background."""

    spec = ToolSpec(
        name=WAIT_SUBAGENTS,
        description=(
            "Wait until subagents have ended, and get their results. timedOut:true means that some "
            "still work (status running): wait again, or go on with something else meanwhile. "
            "Without task_ids it waits for all in the background that you have no result of."
        ),
        parameters=schema_of(WaitArguments),
        kind="wait",
        parallel=False,
        timeout_seconds=WAIT_CAP_SECONDS + 30,  # the call ends its own waiting before
        output_cap_bytes=100_000,
    )

    def __init__(self, subagents: Subagents) -> None:
        self._subagents = subagents

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "wait"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        wanted = decode(arguments, WaitArguments)
        ended = await self._subagents.wait(context, wanted.task_ids, wanted.wait_seconds)
        return json_result(
            {
                "timedOut": any(execution.status == "RUNNING" for execution in ended),
                "results": [_waited(execution) for execution in ended],
            }
        )

    async def mark(self, arguments: Mapping[str, object], context: ToolContext) -> str:
        return ""

    async def lookup(
        self, arguments: Mapping[str, object], mark: str, context: ToolContext
    ) -> Found:
        return "not_done"  # waiting again changes nothing


def _spawn_arguments(arguments: Mapping[str, object]) -> SpawnArguments:
    wanted = decode(arguments, SpawnArguments)
    if not wanted.task.strip():
        raise ToolError("bad_arguments", "task must say what is to be done")
    return wanted


def _spawned(execution: SubagentExecution) -> ToolResult:
    """One in the background is told of as it began, so that a repeated call tells the same."""
    ids = {"child_session_id": execution.child_session_id, "task_id": execution.id}
    if execution.background:
        return json_result({**ids, "status": "running"})
    return json_result({**ids, **_end(execution)})


def _waited(execution: SubagentExecution) -> Mapping[str, object]:
    ids = {"task_id": execution.id, "child_session_id": execution.child_session_id}
    return {**ids, **_end(execution)}


def _end(execution: SubagentExecution) -> Mapping[str, object]:
    status = execution.status.lower()
    match execution.status:
        case "RUNNING":
            return {"status": status}
        case "COMPLETED":
            return {"status": status, "result": execution.result_text or ""}
        case "FAILED":
            return {"status": status, "error": execution.result_text or ""}
        case _:
            return {"status": status, "error": "it was stopped before it was done"}
