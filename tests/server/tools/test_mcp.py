"""MCP servers as the agent's tools: real server processes over stdio and HTTP."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from server.settings import McpSettings
from server.tools.base import Registry, ToolContext
from server.tools.mcp import McpServer, McpServers, open_mcp, tool_name
from server.tools.mcp_keeper import RemoteTool
from tests.fakes.mcp_server import (
    command_of,
    free_port,
    journal_of,
    journalled,
    running,
    unforked_command_of,
)
from tests.server.tools.conftest import decoded, error_of
from tests.server.tools.mcp_place import Place, open_place


@pytest.fixture
async def place(tmp_path: Path, context: ToolContext) -> AsyncIterator[Place]:
    async with open_place(tmp_path, context) as opened:
        yield opened


@pytest.fixture(params=["stdio", "stdio of 2025", "http", "http of 2025"])
async def each_way(
    request: pytest.FixtureRequest, tmp_path: Path, context: ToolContext
) -> AsyncIterator[Place]:
    transport, _, year = str(request.param).partition(" of ")
    options = ["--legacy"] if year else []
    async with AsyncExitStack() as opened:
        if transport == "http":
            port = free_port()
            await opened.enter_async_context(running(tmp_path, port, *options))
            url = f"http://127.0.0.1:{port}/mcp"
            place = open_place(tmp_path, context, url=url)
        else:
            place = open_place(tmp_path, context, *options)
        yield await opened.enter_async_context(place)


async def test_calls_reach_the_server_and_their_results_come_back(each_way: Place) -> None:
    assert decoded(await each_way.call("add", a=1, b=2)) == {"sum": 3}
    assert (await each_way.call("say", text="你好")).content == "你好"
    assert error_of(await each_way.call("fail", why="no")) == "failed"


async def test_cancelling_a_call_tells_the_server_within_a_second(each_way: Place) -> None:
    call = asyncio.create_task(each_way.call("hang"))
    await journalled(each_way.folder, "hang began")
    began = time.monotonic()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert time.monotonic() - began < 1
    await journalled(each_way.folder, "hang cancelled")
    assert (await each_way.call("say", text="still there")).content == "still there"


async def test_new_tools_are_offered_while_the_process_lives(each_way: Place) -> None:
    assert "fake__sing" not in each_way.names
    await each_way.call("grow", name="sing")
    await each_way.has_tool("fake__sing")
    assert (await each_way.call("sing")).content == "sing"


async def test_server_that_dies_in_a_call_leaves_its_outcome_unknown(each_way: Place) -> None:
    result = await each_way.call("crash")
    assert error_of(result) == "interrupted"
    assert result.is_unsure
    assert "verify before repeating" in decoded(result)["message"]
    assert journal_of(each_way.folder).count("crash began") == 1


async def test_stream_that_cannot_be_taken_up_again_leaves_the_outcome_unknown(
    tmp_path: Path, context: ToolContext
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with (
        running(tmp_path, port, "--legacy", "--resumable"),
        open_place(tmp_path, context, url=url) as place,
    ):
        result = await place.call("crash", after_seconds=0.3)
        assert (error_of(result), result.is_unsure) == ("interrupted", True)


async def test_lost_answer_of_a_read_is_nothing_to_verify(
    tmp_path: Path, context: ToolContext
) -> None:
    async with open_place(tmp_path, context, kind="read") as place:
        result = await place.call("crash")
        assert error_of(result) == "unavailable"
        assert not result.is_unsure


async def test_call_that_takes_too_long_is_stopped(tmp_path: Path, context: ToolContext) -> None:
    async with open_place(tmp_path, context, timeout_seconds=0.3) as place:
        result = await place.call("hang")
        assert (error_of(result), result.is_unsure) == ("timeout", True)
        await journalled(tmp_path, "hang cancelled")


async def test_child_sees_the_given_variables_and_no_secrets(
    tmp_path: Path, context: ToolContext
) -> None:
    fake = McpSettings(**command_of(tmp_path), env={"FAKE_TOKEN": SecretStr("for the child")})
    environment = {**os.environ, "SOME_API_KEY": "not for children"}
    async with open_mcp({"fake": fake}, environment) as servers:
        place = Place(tmp_path, servers, Registry([], servers), context)
        assert (await place.call("environment", name="FAKE_TOKEN")).content == "for the child"
        assert (await place.call("environment", name="SOME_API_KEY")).content == "(not set)"
        assert (await place.call("environment", name="PATH")).content == os.environ["PATH"]


async def test_frozen_server_holds_up_neither_a_stop_nor_the_end(
    tmp_path: Path, context: ToolContext
) -> None:
    # Unforked, so that the process which is ended is the server's own.
    async with open_place(tmp_path, context, **unforked_command_of(tmp_path), kind="read") as place:
        frozen = asyncio.create_task(place.call("freeze"))
        await journalled(tmp_path, "frozen")
        stuck = asyncio.create_task(place.call("say", text="x" * 3_000_000))  # no pipe holds that
        await journalled(tmp_path, "frozen")
        [started] = [line for line in journal_of(tmp_path) if line.startswith("start")]
        for call in (frozen, stuck):
            began = time.monotonic()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert time.monotonic() - began < 1
    assert not psutil.pid_exists(int(started.split()[1]))


async def test_killed_server_is_started_again_for_the_next_call(place: Place) -> None:
    [started] = [line for line in journal_of(place.folder) if line.startswith("start")]
    psutil.Process(int(started.split()[1])).kill()
    await place.is_degraded()
    assert (await place.call("say", text="back")).content == "back"
    assert place.servers.health()[0].state == "up"


async def test_server_that_stays_away_is_told_to_the_model(
    tmp_path: Path, context: ToolContext
) -> None:
    port = free_port()
    async with AsyncExitStack() as opened:
        server = running(tmp_path, port)
        await opened.enter_async_context(server)
        place = await opened.enter_async_context(
            open_place(tmp_path, context, url=f"http://127.0.0.1:{port}/mcp")
        )
        names = place.names
        await server.__aexit__(None, None, None)
        result = await place.call("say", text="anybody?")
        assert (error_of(result), result.is_unsure) == ("unavailable", False)
        assert "nothing was done" in decoded(result)["message"]
        assert place.names == names
        health = place.servers.health()[0]
        assert (health.state, health.reason) == ("degraded", "cannot be reached")


@pytest.mark.parametrize("options", [[], ["--legacy"]], ids=["of 2026", "of 2025"])
async def test_calls_go_on_after_an_http_server_was_restarted(
    tmp_path: Path, context: ToolContext, options: Sequence[str]
) -> None:
    port = free_port()
    async with AsyncExitStack() as opened:
        first = running(tmp_path, port, *options)
        await first.__aenter__()
        place = await opened.enter_async_context(
            open_place(tmp_path, context, url=f"http://127.0.0.1:{port}/mcp")
        )
        await place.call("write", line="one")
        await first.__aexit__(None, None, None)
        (tmp_path / "tools").write_text("sing")
        await opened.enter_async_context(running(tmp_path, port, *options))
        assert (await place.call("write", line="two")).content == "written"
        await place.has_tool("fake__sing")
    written = [line for line in journal_of(tmp_path) if line.startswith("written")]
    assert written == ["written one", "written two"]


async def test_missing_or_wrong_token_is_a_reason_and_no_fault(
    tmp_path: Path, context: ToolContext
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with running(tmp_path, port, "--token", "right"):
        async with open_place(tmp_path, context, url=url) as place:
            assert place.servers.health()[0].reason == "answered HTTP 401"
        headers = {"Authorization": "Bearer right"}
        async with open_place(tmp_path, context, url=url, headers=headers) as place:
            assert (await place.call("say", text="in")).content == "in"


@pytest.mark.parametrize(
    ("status", "code", "is_unsure"),
    [(400, "unavailable", False), (429, "unavailable", False), (502, "interrupted", True)],
)
async def test_answer_of_a_proxy_says_whether_the_call_began(
    tmp_path: Path, context: ToolContext, status: int, code: str, is_unsure: bool
) -> None:
    port = free_port()
    async with (
        running(tmp_path, port),
        open_place(tmp_path, context, url=f"http://127.0.0.1:{port}/mcp") as place,
    ):
        (tmp_path / "status").write_text(str(status))
        result = await place.call("write", line="x")
        assert (error_of(result), result.is_unsure) == (code, is_unsure)
        assert f"HTTP {status}" in decoded(result)["message"]
        (tmp_path / "status").unlink()
        assert (await place.call("say", text="still there")).content == "still there"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"command": "/nonexistent/server"}, "its command is not there"),
        ({"command": "/"}, "its command may not be run"),
        ({"command": "true"}, "ended before it was ready"),
        ({"command": "echo", "args": ["no JSON"]}, "ended before it was ready"),
        ({"url": "http://127.0.0.1:1/mcp"}, "cannot be reached"),
    ],
)
async def test_server_that_cannot_be_had_does_not_stop_the_start(
    settings: dict[str, Any], reason: str
) -> None:
    began = time.monotonic()
    async with open_mcp({"fake": McpSettings(**settings)}, os.environ) as servers:
        [health] = servers.health()
        assert (health.state, health.reason, health.tools) == ("degraded", reason, 0)
    assert time.monotonic() - began < 5


async def test_slow_server_joins_when_it_is_ready(tmp_path: Path, context: ToolContext) -> None:
    gate = tmp_path / "gate"
    slow = McpSettings(**command_of(tmp_path, "--wait-for", str(gate)))
    async with open_mcp({"fake": slow}, os.environ, start_seconds=0.2) as servers:
        place = Place(tmp_path, servers, Registry([], servers), context)
        assert place.names == []
        gate.touch()
        await place.has_tool("fake__say")
        assert (await place.call("say", text="here")).content == "here"


async def test_tool_of_a_server_that_never_came_is_unavailable_and_keeps_its_kind(
    context: ToolContext,
) -> None:
    settings = McpSettings(command="/nonexistent", kinds={"files.read/all": "read"})
    async with open_mcp({"fake": settings}, os.environ) as servers:
        registry = Registry([], servers)
        for tool, kind in (("write", "write"), ("files.read/all", "read")):
            name = tool_name("fake", tool)
            assert registry.kind_of(name, "{}") == kind
            assert error_of(await registry.dispatch(name, "{}", context)) == "unavailable"
        bound = [registry.spec(f"fake__invented{number}") for number in range(200)]
        assert sum(spec is not None for spec in bound) < 128
        made_up = await registry.dispatch("other__write", "{}", context)
        assert error_of(made_up) == "bad_arguments"


async def test_settings_choose_the_tools_and_their_kinds(
    tmp_path: Path, context: ToolContext
) -> None:
    async with open_place(
        tmp_path, context, tools=["add", "say", "write"], kind="send", kinds={"add": "read"}
    ) as place:
        assert place.names == ["fake__add", "fake__say", "fake__write"]
        add, say = place.registry.spec("fake__add"), place.registry.spec("fake__say")
        assert add is not None
        assert say is not None
        assert (add.kind, add.parallel, say.kind, say.parallel) == ("read", True, "send", False)
        assert error_of(await place.call("crash")) == "bad_arguments"


def test_name_depends_on_the_two_names_alone() -> None:
    assert tool_name("notes", "add") == "notes__add"
    assert tool_name("notes", "add-2_x") == "notes__add-2_x"
    odd = ["a.b", "a/b", "a b", "文件", "", "x" * 65, "x" * 66, "a_b"]
    names = [tool_name("notes", name) for name in odd]
    assert len(set(names)) == len(names)
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert all(len(name) <= 64 and set(name) <= allowed for name in names)
    assert tool_name("s" * 32, "x" * 200) == tool_name("s" * 32, "x" * 200)
    assert len(tool_name("s" * 32, "x" * 200)) == 64


async def test_order_of_a_list_changes_no_definition() -> None:
    def definitions(listed: Sequence[RemoteTool]) -> bytes:
        server = McpServer("notes", McpSettings(command="true"), _never)
        server.learn(listed)
        return Registry([], McpServers([server])).definitions_json()

    tools = [RemoteTool(name, f"Does {name}.", {}) for name in ("b", "a.b", "a_b", "a/b")]
    assert definitions(tools) == definitions(tools[::-1])


def _never(_: object) -> Any:
    raise AssertionError("nobody connects")


def test_application_imports_no_sdk_of_servers_that_are_not_configured() -> None:
    script = "import server.app, sys; print(sorted({'mcp', 'httpx2'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert out.stdout.strip() == "[]"
