"""Subagents in the store: by call, by run, by session, and their ends."""

from dataclasses import replace

import pytest

from server.errors import Duplicate, NotFound
from server.store.engine import Store
from server.store.runs import delete_queued, finish_run, insert_run, start_run
from server.store.sessions import delete_session, insert_session
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
from tests.server.store.rows import NOON, a_run, a_session, later, make_running, make_session


async def make_parent(store: Store, session_id: str = "s1", run_id: str = "r1") -> None:
    """A session whose run is under way."""
    await make_session(store, session_id)
    await make_running(store, run_id, session_id=session_id)


async def make_execution(
    store: Store,
    name: str,
    *,
    parent: str = "s1",
    run_id: str = "r1",
    background: bool = True,
    second: float = 0,
) -> SubagentExecution:
    """A child session at work, asked for by the call `call-<name>`; its run waits."""
    child = replace(a_session(f"child-{name}", parent=parent), kind="subagent")
    execution = SubagentExecution(
        id=name,
        run_id=run_id,
        tool_call_id=f"call-{name}",
        child_session_id=child.id,
        status="RUNNING",
        background=background,
        result_text=None,
        created_at=later(second),
        rounds=0,
    )
    async with store.write() as db:
        await insert_session(db, child)
        await insert_run(db, a_run(name, session_id=child.id))
        await insert_execution(db, execution)
    return execution


def _ids(found: list[SubagentExecution]) -> list[str]:
    return [execution.id for execution in found]


async def test_execution_is_found_by_its_call_as_it_was(store: Store) -> None:
    await make_parent(store)
    execution = await make_execution(store, "a")
    async with store.read() as db:
        assert await execution_of_call(db, "r1", "call-a") == execution
        assert await execution_of_call(db, "r1", "call-b") is None
        assert await execution_of_call(db, "r2", "call-a") is None


async def test_a_call_has_one_execution(store: Store) -> None:
    await make_parent(store)
    execution = await make_execution(store, "a")
    with pytest.raises(Duplicate):
        async with store.write() as db:
            await insert_execution(db, replace(execution, id="b"))


async def test_execution_needs_its_run_and_its_child(store: Store) -> None:
    await make_parent(store)
    execution = await make_execution(store, "a")
    for wrong in (
        replace(execution, id="b", tool_call_id="c", run_id="nobody"),
        replace(execution, id="b", tool_call_id="c", child_session_id="nobody"),
    ):
        with pytest.raises(NotFound):
            async with store.write() as db:
                await insert_execution(db, wrong)


async def test_what_is_known_of_the_childs_run_comes_with_it(store: Store) -> None:
    await make_parent(store)
    await make_execution(store, "a")
    async with store.write() as db:
        attempt = await start_run(db, "a", "p1", later(30), NOON)
        assert attempt == 1
        await finish_run(db, "a", attempt, "FAILED", "no_progress_loop", "why", 15, later(9))
        [found] = await executions_of_run(db, "r1")
    assert (found.rounds, found.code) == (15, "no_progress_loop")


async def test_run_that_was_taken_out_of_the_queue_is_seen_as_gone(store: Store) -> None:
    await make_parent(store)
    await make_execution(store, "a")
    async with store.write() as db:
        assert await delete_queued(db, "a")
        [found] = await executions_of_run(db, "r1")
    assert (found.status, found.rounds) == ("RUNNING", None)


async def test_end_is_written_once(store: Store) -> None:
    await make_parent(store)
    await make_execution(store, "a")
    async with store.write() as db:
        assert await end_execution(db, "child-a", "COMPLETED", "42 😀", later(5))
        assert not await end_execution(db, "child-a", "FAILED", "late", later(6))
        assert not await end_execution(db, "s1", "FAILED", "no subagent", later(6))
        found = await execution_of_call(db, "r1", "call-a")
    assert found is not None
    assert (found.status, found.result_text) == ("COMPLETED", "42 😀")
    assert found.ended_at == later(5)


async def test_those_of_a_run_come_oldest_first_and_those_at_work_apart(store: Store) -> None:
    await make_parent(store)
    await make_parent(store, "s2", "r2")
    await make_execution(store, "b", second=1)
    await make_execution(store, "a", second=2, background=False)
    await make_execution(store, "c", second=3)
    await make_execution(store, "x", parent="s2", run_id="r2")
    async with store.write() as db:
        await end_execution(db, "child-b", "FAILED", "why", later(5))
        assert _ids(await executions_of_run(db, "r1")) == ["b", "a", "c"]
        assert _ids(await running_executions(db, "r1")) == ["a", "c"]


async def test_another_sessions_subagents_are_not_found_by_id(store: Store) -> None:
    await make_parent(store)
    await make_parent(store, "s2", "r2")
    await make_execution(store, "a")
    await make_execution(store, "x", parent="s2", run_id="r2")
    async with store.read() as db:
        assert set(await executions_by_id(db, "s1", ["a", "x", "nobody"])) == {"a"}
        assert await executions_by_id(db, "s1", []) == {}


async def test_open_are_those_whose_end_the_session_may_not_know(store: Store) -> None:
    await make_parent(store)
    await make_execution(store, "seen", second=1)
    await make_execution(store, "waited-for", second=2, background=False)
    await make_execution(store, "outlives", second=3)
    await make_execution(store, "works", second=4)
    async with store.write() as db:
        await end_execution(db, "child-seen", "COMPLETED", "1", later(5))
        await end_execution(db, "child-waited-for", "COMPLETED", "2", later(5))
    async with store.write() as db:
        # During the run that asked for them even those that have ended are news.
        open_now = _ids(await open_executions(db, "s1"))
        assert open_now == ["seen", "outlives", "works"]
        await finish_run(db, "r1", 1, "COMPLETED", "completed", None, 3, later(10))
        await end_execution(db, "child-outlives", "FAILED", "why", later(15))
    await make_running(store, "r2", session_id="s1")
    async with store.read() as db:
        assert _ids(await open_executions(db, "s1")) == ["outlives", "works"]
        assert await open_executions(db, "s2") == []


async def test_a_pause_for_a_person_and_runs_without_a_model_hide_no_end(store: Store) -> None:
    await make_parent(store)
    await make_execution(store, "a")
    async with store.write() as db:
        await end_execution(db, "child-a", "COMPLETED", "1", later(5))
        await finish_run(db, "r1", 1, "WAITING", "risk_gate", None, 2, later(10))
    await make_running(store, "told", session_id="s1")
    async with store.write() as db:
        await finish_run(db, "told", 1, "COMPLETED", "completed", None, 0, later(20))
        assert _ids(await open_executions(db, "s1")) == ["a"]


async def test_run_that_is_over_cannot_be_locked(store: Store) -> None:
    await make_parent(store)
    async with store.write() as db:
        assert await lock_asking(db, "r1")
        await finish_run(db, "r1", 1, "CANCELLED", "cancelled", None, 1, later(1))
        assert not await lock_asking(db, "r1")
        assert not await lock_asking(db, "nobody")


async def test_executions_go_with_the_child_or_the_parent(store: Store) -> None:
    await make_parent(store)
    await make_execution(store, "a", second=1)
    await make_execution(store, "b", second=2)
    async with store.write() as db:
        await delete_session(db, "child-a", NOON)
        assert _ids(await executions_of_run(db, "r1")) == ["b"]
        await delete_session(db, "s1", NOON)
        assert await executions_of_run(db, "r1") == []
