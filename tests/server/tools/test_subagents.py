"""Calls of `spawn_subagent` and `wait_subagents` as the loop makes them, on a real store."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from guard import NoProgressCall, NoProgressGuard, is_no_progress_exempt, result_digest
from server.settings import SubagentSettings
from server.store.engine import open_store
from server.store.subagents import executions_of_run
from server.tools.base import Registry, ToolResult
from server.tools.subagents import SpawnSubagent, WaitSubagents
from tests.server.subagent_place import Place, make_place
from tests.server.tools.conftest import decoded, error_of
from tests.waiting import until


@pytest.fixture
async def place(sqlite_url: str) -> AsyncIterator[Place]:
    async with open_store(sqlite_url, busy_seconds=0.2, pool_wait_seconds=0.2) as store:
        yield await make_place(store)


def _registry(place: Place) -> Registry:
    return Registry([SpawnSubagent(place.delegate), WaitSubagents(place.delegate)])


async def _spawn(place: Place, call_id: str = "c1", **arguments: object) -> ToolResult:
    text = json.dumps({"task": "count", **arguments})
    return await _registry(place).dispatch("spawn_subagent", text, place.context(call_id))


async def _wait(place: Place, *task_ids: str, **arguments: object) -> ToolResult:
    text = json.dumps({"task_ids": task_ids, **arguments})
    return await _registry(place).dispatch("wait_subagents", text, place.context("w"))


async def _lookup(place: Place, call_id: str = "c1") -> Any:
    return await _registry(place).lookup(
        "spawn_subagent", '{"task": "count"}', "", place.context(call_id)
    )


async def _of_call(place: Place, call_id: str = "c1") -> Any:
    return await place.delegate.of_call(place.context(call_id))


async def test_subagent_in_the_background_is_told_of_at_once(place: Place) -> None:
    result = decoded(await _spawn(place, background=True))
    execution = await _of_call(place)
    assert result == {
        "child_session_id": execution.child_session_id,
        "task_id": execution.id,
        "status": "running",
    }
    assert list(result) == ["child_session_id", "task_id", "status"]
    assert place.events == []


async def _is_spawned(place: Place) -> bool:
    return await _of_call(place) is not None


async def test_call_waits_for_the_result_of_its_subagent(place: Place) -> None:
    calling = asyncio.create_task(_spawn(place))
    await until(lambda: _is_spawned(place))
    execution = await _of_call(place)
    await place.end(execution, said="there are 42")
    async with asyncio.timeout(10):
        result = decoded(await calling)
    assert result == {
        "child_session_id": execution.child_session_id,
        "task_id": execution.id,
        "status": "completed",
        "result": "there are 42",
    }


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("failed", "后台子代理执行失败: 原因"),
        ("cancelled", "it was stopped before it was done"),
    ],
)
async def test_call_tells_that_its_subagent_ended_badly(
    place: Place, status: Any, error: str
) -> None:
    calling = asyncio.create_task(_spawn(place))
    await until(lambda: _is_spawned(place))
    await place.end(await _of_call(place), status, code=status, text="原因")
    async with asyncio.timeout(10):
        result = decoded(await calling)
    assert (result["status"], result["error"]) == (status, error)
    assert "result" not in result


@pytest.mark.parametrize("task", ["", "  \n"])
async def test_subagent_needs_a_task(place: Place, task: str) -> None:
    assert error_of(await _spawn(place, task=task)) == "bad_arguments"
    assert await _of_call(place) is None


async def test_limit_is_told_with_what_to_do_instead(place: Place) -> None:
    place.limits = SubagentSettings(at_once=1)
    await _spawn(place, "c1", background=True)
    result = await _spawn(place, "c2", background=True)
    assert error_of(result) == "too_many_at_once"
    assert "wait_subagents" in decoded(result)["message"]


async def test_wait_tells_how_each_ended_in_the_order_that_was_asked_for(place: Place) -> None:
    executions = [await place.spawn(call_id) for call_id in ("c1", "c2")]
    await place.end(executions[0], "failed", code="internal", text="原因")
    await place.end(executions[1], said="42")
    result = decoded(await _wait(place, executions[1].id, executions[0].id))
    assert result == {
        "timedOut": False,
        "results": [
            {
                "task_id": executions[1].id,
                "child_session_id": executions[1].child_session_id,
                "status": "completed",
                "result": "42",
            },
            {
                "task_id": executions[0].id,
                "child_session_id": executions[0].child_session_id,
                "status": "failed",
                "error": "后台子代理执行失败: 原因",
            },
        ],
    }


async def test_wait_that_is_over_says_so_and_who_works(place: Place) -> None:
    execution = await place.spawn()
    result = decoded(await _wait(place, timeout_seconds=0))
    assert result["timedOut"] is True
    assert result["results"] == [
        {
            "task_id": execution.id,
            "child_session_id": execution.child_session_id,
            "status": "running",
        }
    ]


async def test_wait_for_nothing_ends_at_once(place: Place) -> None:
    assert decoded(await _wait(place)) == {"timedOut": False, "results": []}


async def test_wait_refuses_what_is_no_subagent_and_no_time(place: Place) -> None:
    assert error_of(await _wait(place, "nobody")) == "unknown_task"
    assert error_of(await _wait(place, timeout_seconds=-1)) == "bad_arguments"


async def test_call_whose_result_was_lost_is_looked_up(place: Place) -> None:
    assert await _lookup(place) == "not_done"
    execution = await place.spawn(background=False)
    assert await _lookup(place) == "not_done"  # running it again joins the one at work
    await place.end(execution, said="42")
    assert decoded(await _lookup(place))["result"] == "42"
    async with place.store.read() as db:
        assert len(await executions_of_run(db, "r1")) == 1


async def test_call_in_the_background_is_looked_up_as_it_was_told(place: Place) -> None:
    told = await _spawn(place, background=True)
    assert await _lookup(place) == told
    await place.end(await _of_call(place))
    assert await _lookup(place) == told


async def test_call_that_is_run_again_after_a_crash_joins_its_subagent(place: Place) -> None:
    execution = await place.spawn(background=False)
    calling = asyncio.create_task(_spawn(place))
    await place.end(execution, said="42")
    async with asyncio.timeout(10):
        assert decoded(await calling)["task_id"] == execution.id


async def test_waiting_may_always_be_done_again(place: Place) -> None:
    registry = _registry(place)
    assert await registry.lookup("wait_subagents", "{}", "", place.context()) == "not_done"


async def test_store_that_does_not_answer_leaves_it_open_whether_one_was_started(
    place: Place, sqlite_url: str
) -> None:
    lock = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    try:
        result = await _spawn(place)
    finally:
        lock.close()
    assert error_of(result) == "unavailable"
    assert "unknown" in decoded(result)["message"]


async def test_waiting_outlasts_a_store_that_does_not_answer(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    execution = await place.spawn(background=False)
    await place.end(execution, said="42")

    async def is_looking_again() -> bool:
        return "does not answer" in caplog.text

    async with AsyncExitStack() as readers:
        for _ in range(4):  # all that there are
            await readers.enter_async_context(place.store.read())
        attending = asyncio.create_task(place.attend(execution))
        await until(is_looking_again)
    async with asyncio.timeout(10):
        assert (await attending).result_text == "42"


def _guarded(guard: NoProgressGuard, result: ToolResult) -> None:
    guard.observe_call(NoProgressCall("wait_subagents", '{"task_ids": []}', result.content))
    guard.end_round("call")


async def test_waits_that_time_out_are_no_loop_and_those_with_the_same_ends_are(
    place: Place,
) -> None:
    execution = await place.spawn()
    guard = NoProgressGuard()
    for _ in range(20):
        _guarded(guard, await _wait(place, timeout_seconds=0))
    assert guard.streak == 0
    await place.end(execution)
    for _ in range(5):
        _guarded(guard, await _wait(place))
    assert guard.streak == 5


async def test_two_subagents_with_the_same_task_and_result_are_not_the_same(place: Place) -> None:
    digests = set()
    for call_id in ("c1", "c2"):
        await place.end(await place.spawn(call_id, background=False), said="42")
        result = await _spawn(place, call_id)
        call = NoProgressCall("spawn_subagent", '{"task": "count"}', result.content)
        assert not is_no_progress_exempt(call)
        digests.add(result_digest(call))
    assert len(digests) == 2


async def test_refusals_of_one_kind_are_the_same(place: Place) -> None:
    place.limits = SubagentSettings(at_once=1)
    await _spawn(place, "c1", background=True)
    results = [await _spawn(place, call_id) for call_id in ("c2", "c3")]
    assert len({result.content for result in results}) == 1
