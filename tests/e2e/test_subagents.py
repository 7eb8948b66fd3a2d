"""A parent and its subagents, whose process is killed again and again."""

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from server.store.engine import Store, open_store
from server.store.runs import list_runs
from server.store.subagents import SubagentExecution, executions_of_run
from tests.e2e.process import ANN, Installation, open_server
from tests.fakes.llm import NEVER, Play, Quirks, Recorded, call, reply, serve_gateway
from tests.house import is_title
from tests.waiting import until
from tests.wire import open_client

SEED = int(os.environ.get("TEST_SEED", "2210"))
"""Chooses the moments; another one looks elsewhere."""

TASKS = ("alpha", "omega", "gamma")
SLOW = Quirks(before_headers=0.15)


def _words(request: Recorded) -> str:
    return str(next(m["content"] for m in request.messages if m["role"] == "user"))


def _answers(request: Recorded) -> list[Any]:
    """The results of the calls so far."""
    return [m["content"] for m in request.messages if m["role"] == "tool"]


def _part(request: Recorded) -> Play:
    """A subagent looks four times, and then knows."""
    words, seen = _words(request), len(_answers(request))
    if seen == 4:
        return reply(f"{words[-5:]} is done", quirks=SLOW)
    looks = call("grep_search", {"pattern": f"look {seen}", "path": "."})
    return reply(calls=[looks], quirks=SLOW)


def _answer(request: Recorded) -> Play:
    """The parent waits for two itself and has the third in the background."""
    if not _words(request).endswith("go"):
        return _part(request)
    answers = [json.loads(answer) for answer in _answers(request)]
    if not answers:
        tasks = [{"task": task, "background": task == "gamma"} for task in TASKS]
        calls = [call("spawn_subagent", arguments) for arguments in tasks]
        return reply(calls=calls, quirks=SLOW)
    if "results" in answers[-1] and not answers[-1]["timedOut"]:
        return reply("all is done", quirks=SLOW)
    return reply(calls=[call("wait_subagents")], quirks=SLOW)


async def _executions(store: Store) -> list[SubagentExecution]:
    """Those of the one run of session `s`."""
    async with store.read() as db:
        [run] = await list_runs(db, "s", 10)
        return await executions_of_run(db, run.id)


@pytest.mark.timeout(240)
async def test_no_call_starts_two_subagents_and_no_result_is_lost_through_kills(
    tmp_path: Path, sqlite_url: str
) -> None:
    moments = random.Random(SEED)
    async with (
        serve_gateway(_answer, title=is_title) as gateway,
        open_store(sqlite_url) as store,
    ):
        place = Installation(tmp_path, gateway.url, {"DATABASE_URL": sqlite_url})
        async with open_server(place) as server, open_client(server.url, token=ANN) as client:
            await client.request("session.create", session="s")
            await client.request("run.start", session="s", clientMsgId="m1", content="go")
            await server.sigkill()
        for _ in range(4):
            async with open_server(place) as server:
                await asyncio.sleep(moments.uniform(0.0, 0.5))  # where it is killed is chance
                await server.sigkill()
        async with open_server(place) as server:

            async def is_done() -> bool:
                return bool((await server.session("s"))["status"] == "COMPLETED")

            await until(is_done, seconds=60)
            messages = await server.messages("s")
        executions = await _executions(store)
        assert [one.status for one in executions] == ["COMPLETED"] * 3
        assert sorted(one.result_text or "" for one in executions) == [
            f"{task} is done" for task in sorted(TASKS)
        ]
        ids = {one.id for one in executions}
        told = [json.loads(m["content"]) for m in messages if m["role"] == "tool"]
        assert {one["task_id"] for one in told if "task_id" in one} == ids
        asked = [_words(request)[-5:] for request in gateway.requests]
        for task in TASKS:  # each was cut a few times at most, and never began anew
            assert asked.count(task) <= 5 + 5


async def test_stop_that_was_acknowledged_holds_for_children_though_the_process_dies_at_once(
    tmp_path: Path, sqlite_url: str
) -> None:
    hang = reply("…", quirks=Quirks(before_headers=NEVER))

    def script(request: Recorded) -> Play:
        is_parent = _words(request).endswith("go")
        return _answer(request) if is_parent and not _answers(request) else hang

    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_store(sqlite_url) as store,
    ):
        place = Installation(tmp_path, gateway.url, {"DATABASE_URL": sqlite_url})
        async with open_server(place) as server, open_client(server.url, token=ANN) as client:
            await client.request("session.create", session="s")
            await client.request("run.start", session="s", clientMsgId="m1", content="go")
            await gateway.wait_for_requests(4)
            assert (await client.request("run.cancel", session="s"))["state"] == "cancelling"
            await server.sigkill()
        async with open_server(place) as server:

            async def are_stopped() -> bool:
                ends = [one.status for one in await _executions(store)]
                return ends == ["CANCELLED"] * 3

            await until(are_stopped)
            assert (await server.session("s"))["status"] == "CANCELLED"
