"""The two incidents against a running server: what its clients, its gateway and REST see."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.process import ANN, Installation, ServerProcess, open_server
from tests.fakes.llm import NEVER, Quirks, ScriptedReply, call, forever, reply, serve_gateway
from tests.house import assert_prefixes, is_title, notices_in
from tests.wire import Frame, WireClient, open_client

SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
COMMAND = reply(calls=[call("shell", {"action": "run", "command": "ls missing-folder"})])
HANG = reply("…", quirks=Quirks(before_headers=NEVER))
INCIDENTS = pytest.mark.parametrize(
    ("incident", "tool"), [(SEARCH, "grep_search"), (COMMAND, "shell")], ids=["2210", "2207"]
)
DEMOS = pytest.mark.parametrize(
    ("demo", "tool"), [("/demo loop", "grep_search"), ("/demo shell-loop", "shell")]
)

SESSION = "2210"


def loop_text(tool: str) -> str:
    """What a person is told."""
    return (
        f"检测到 Agent 连续 15 轮重复执行同一组工具调用({tool})"
        "且结果没有任何变化,已自动中止本次执行以避免无限循环。请调整需求描述后重试。"
    )


@asynccontextmanager
async def open_watcher(server: ServerProcess) -> AsyncIterator[WireClient]:
    """A client that follows the session, made if need be."""
    async with open_client(server.url, token=ANN) as client:
        await client.request("session.create", session=SESSION)
        await client.subscribe(SESSION)
        yield client


async def ask(client: WireClient, text: str, message_id: str = "m1") -> str:
    """Send a message; the id of its run."""
    answer = await client.request(
        "run.start", session=SESSION, clientMsgId=message_id, content=text
    )
    return str(answer["runId"])


async def assert_stopped(server: ServerProcess, run_id: str, tool: str) -> None:
    """REST tells of a session whose run the guard stopped after its fifteenth round."""
    session = await server.session(SESSION)
    assert session["status"] == "FAILED"
    error = session["executionError"]
    assert (error["code"], error["message"]) == ("no_progress_loop", loop_text(tool))
    assert error["runId"] == run_id
    _, run = await server.get(f"/api/runs/{run_id}")
    assert (run["status"], run["rounds"]) == ("FAILED", 15)
    assert run["outcome"] == {"code": "no_progress_loop", "text": loop_text(tool)}
    _, answer = await server.get(f"/api/runs/{run_id}/rounds")
    rounds = answer["rounds"]
    assert [one["streak"] for one in rounds] == list(range(1, 16))
    spoken = {one["round"]: one["verdict"] for one in rounds if one["verdict"] != "none"}
    assert spoken == {5: "nudge", 10: "nudge", 15: "abort"}
    messages = await server.messages(SESSION)
    assert [m["role"] for m in messages] == ["user", *["assistant", "tool"] * 15]
    assert not any("system-notice" in str(message) for message in messages)


def assert_told(end: Frame, run_id: str, tool: str) -> None:
    """The terminal event says why."""
    assert (end["code"], end["message"]) == ("no_progress_loop", loop_text(tool))
    assert end["metadata"]["runId"] == run_id


@INCIDENTS
async def test_an_incident_is_stopped_after_15_calls_and_says_so_for_good(
    tmp_path: Path, incident: ScriptedReply, tool: str
) -> None:
    async with serve_gateway(forever(incident), title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url)
        async with open_server(place) as server:
            async with open_watcher(server) as client:
                run_id = await ask(client, "补充飞书机器人文档")
                assert_told(await client.event(SESSION, "RUN_ERROR"), run_id, tool)
                kinds = client.followed[SESSION].kinds
                assert kinds.count("STEP_STARTED") == kinds.count("STEP_FINISHED") == 15
                assert "system-notice" not in str(client.followed[SESSION].events)
            await assert_stopped(server, run_id, tool)
            async with open_client(server.url, token=ANN) as reloaded:
                shown = await reloaded.subscribe(SESSION)
                assert shown["executionError"]["message"] == loop_text(tool)
                assert shown["status"] == "FAILED"
        async with open_server(place) as server:
            await assert_stopped(server, run_id, tool)
        assert len(gateway.requests) == 15
        assert [len(notices_in(r)) for r in gateway.requests] == [0] * 5 + [1] * 5 + [2] * 5
        assert_prefixes(gateway.requests)
    spoken = [line for line in place.log.splitlines() if "[no-progress]" in line]
    assert [line.split("[no-progress] ")[1].split()[0] for line in spoken] == [
        "nudge",
        "nudge",
        "abort",
    ]


@pytest.mark.parametrize(
    ("incident", "tool", "signal"),
    [(SEARCH, "grep_search", "SIGTERM"), (COMMAND, "shell", "SIGKILL")],
    ids=["2210-SIGTERM", "2207-SIGKILL"],
)
async def test_a_restart_after_round_12_changes_neither_the_requests_nor_the_end(
    tmp_path: Path, incident: ScriptedReply, tool: str, signal: str
) -> None:
    script = [*[incident] * 12, HANG, *[incident] * 3]
    async with serve_gateway(script, title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url)
        async with open_server(place) as server:
            async with open_watcher(server) as client:
                run_id = await ask(client, "go")
                await gateway.wait_for_requests(13)
                await (server.sigterm() if signal == "SIGTERM" else server.sigkill())
                assert "RUN_ERROR" not in client.followed[SESSION].kinds
        async with open_server(place) as server:
            async with open_watcher(server) as client:
                await client.until(lambda: has_failed(client))
            await assert_stopped(server, run_id, tool)
            _, run = await server.get(f"/api/runs/{run_id}")
            assert run["attempt"] == 2
        requests = gateway.requests
        assert requests[12].body == requests[13].body
        assert_prefixes(requests)
        assert [len(notices_in(r)) for r in requests] == [0] * 5 + [1] * 5 + [2] * 6


def has_failed(client: WireClient) -> bool:
    """The failure was told, by an event or by a change of state."""
    patches: list[Any] = [f["patch"] for f in client.frames if f["type"] == "session.update"]
    return any(patch.get("status") == "FAILED" for patch in patches) or (
        "RUN_ERROR" in client.followed[SESSION].kinds
    )


@DEMOS
async def test_a_newcomer_without_a_key_sees_the_guard_at_work(
    tmp_path: Path, demo: str, tool: str
) -> None:
    place = Installation(tmp_path)
    async with open_server(place) as server:
        async with open_watcher(server) as client:
            run_id = await ask(client, demo)
            assert_told(await client.event(SESSION, "RUN_ERROR"), run_id, tool)
        await assert_stopped(server, run_id, tool)
    async with open_server(place) as server:
        await assert_stopped(server, run_id, tool)
