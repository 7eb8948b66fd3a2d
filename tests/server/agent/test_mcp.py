"""Runs that use the tools of an MCP server, and requests that stay equal whatever it does."""

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from server.settings import Settings
from tests.fakes.llm import NEVER, Quirks, Recorded, call, reply, serve_gateway
from tests.fakes.mcp_server import command_of, free_port, journal_of, journalled, running
from tests.house import ENVIRONMENT, House, assert_prefixes, is_title, open_house, settings_for
from tests.toml import Sections, write_config

ADD = reply(calls=[call("fake__add", {"a": 1, "b": 2})])
DONE = reply("done")


def settings_with(
    folder: Path,
    url: str,
    gateway: str,
    sections: Sections,
    **variables: str,
) -> Settings:
    """Settings with these sections of the TOML file."""
    return settings_for(
        folder, url, gateway, HEADWAY_CONFIG=write_config(folder, sections), **variables
    )


def tool_names(request: Recorded) -> list[str]:
    """What the model was shown."""
    return [tool["function"]["name"] for tool in request.json["tools"]]


def results_in(request: Recorded) -> list[str]:
    """All results in the request, in order."""
    return [message["content"] for message in request.messages if message["role"] == "tool"]


async def test_run_uses_the_tools_of_a_server(tmp_path: Path, sqlite_url: str) -> None:
    calls = [call("fake__add", {"a": 1, "b": 2}), call("fake__paint", {"colour": "red"})]
    async with serve_gateway([reply(calls=calls), DONE], title=is_title) as gateway:
        sections = {"mcp.fake": command_of(tmp_path)}
        settings = settings_with(tmp_path, sqlite_url, gateway.url, sections)
        async with open_house(settings) as house:
            session = await house.create()
            events = await house.ask(session, "go")
            assert events[-1]["type"] == "RUN_FINISHED"
            [added, painted] = [m for m in await house.messages(session) if m.role == "tool"]
            assert added.text == '{"sum": 3}'
            assert painted.picture is not None
        last = gateway.requests[-1]
        assert results_in(last) == ['{"sum": 3}', "all red"]
        assert "data:image/png;base64," in last.body.decode()
        assert {"fake__add", "read_file"} < set(tool_names(last))


async def test_stop_ends_a_call_within_a_second_and_tells_the_server(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = [reply(calls=[call("fake__hang")])]
    async with serve_gateway(script, title=is_title) as gateway:
        sections = {"mcp.fake": command_of(tmp_path)}
        settings = settings_with(tmp_path, sqlite_url, gateway.url, sections)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await journalled(tmp_path, "hang began")
            began = time.monotonic()
            assert await house.state["inbox"].cancel(session.id, None, "ann")
            events = await house.ended(session)
            assert time.monotonic() - began < 1
            assert events[-1]["outcome"]["type"] == "cancelled"
            await journalled(tmp_path, "hang cancelled")


async def test_server_that_dies_in_a_write_is_started_again_and_the_write_is_not_repeated(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = [reply(calls=[call("fake__crash")]), ADD, DONE]
    async with serve_gateway(script, title=is_title) as gateway:
        sections = {"mcp.fake": command_of(tmp_path)}
        settings = settings_with(tmp_path, sqlite_url, gateway.url, sections)
        async with open_house(settings) as house:
            await house.ask(await house.create(), "go")
    crashed, added = results_in(gateway.requests[-1])
    assert json.loads(crashed)["error"] == "interrupted"
    assert added == '{"sum": 3}'
    assert journal_of(tmp_path).count("crash began") == 1


async def test_write_that_a_restart_cut_is_not_repeated(tmp_path: Path, sqlite_url: str) -> None:
    script = [reply(calls=[call("fake__hang")]), DONE]
    async with serve_gateway(script, title=is_title) as gateway:
        sections: dict[str, dict[str, Any]] = {"mcp.fake": command_of(tmp_path)}
        settings = settings_with(tmp_path, sqlite_url, gateway.url, sections)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await journalled(tmp_path, "hang began")
        # Not even known to be a tool when the run goes on, and a write all the same.
        sections["mcp.fake"] = {"command": "/nonexistent/server"}
        settings = settings_with(tmp_path, sqlite_url, gateway.url, sections)
        async with open_house(settings) as house:
            await house.ended(session)
    [result] = results_in(gateway.requests[-1])
    assert json.loads(result)["error"] == "interrupted"
    assert journal_of(tmp_path).count("hang began") == 1


@pytest.mark.parametrize(
    ("change", "shown_to_a_new_session"),
    [
        ("grown", {"fake__add", "fake__sing", "fake__dance", "shell"}),
        ("shrunk", {"fake__add", "shell"}),
        ("gone", {"shell"}),
        ("unconfigured", {"shell"}),
        ("without a shell", {"fake__add", "fake__sing"}),
    ],
)
async def test_session_keeps_its_tools_over_a_restart_with_others(
    tmp_path: Path, database_url: str, change: str, shown_to_a_new_session: set[str]
) -> None:
    (tmp_path / "tools").write_text("sing\n")
    sections: dict[str, dict[str, Any]] = {"mcp.fake": command_of(tmp_path)}
    async with serve_gateway([ADD, DONE, ADD, DONE, DONE], title=is_title) as gateway:
        settings = settings_with(tmp_path, database_url, gateway.url, sections)
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
        _change(change, tmp_path, sections)
        settings = settings_with(tmp_path, database_url, gateway.url, sections)
        async with open_house(settings) as house:
            await house.ask(session, "again")
            await house.ask(await house.create(), "and a new one")
    *old, new = gateway.requests
    assert_prefixes(old)
    looked_at = {"fake__add", "fake__sing", "fake__dance", "shell"}
    assert looked_at & set(tool_names(old[-1])) == {"fake__add", "fake__sing", "shell"}
    assert looked_at & set(tool_names(new)) == shown_to_a_new_session
    expected = {"gone": "unavailable", "unconfigured": "bad_arguments"}.get(change)
    if expected is None:
        assert results_in(old[-1])[-1] == '{"sum": 3}'
    else:
        assert json.loads(results_in(old[-1])[-1])["error"] == expected


def _change(change: str, folder: Path, sections: dict[str, dict[str, Any]]) -> None:
    match change:
        case "grown":
            (folder / "tools").write_text("sing\ndance\n")
        case "shrunk":
            (folder / "tools").unlink()
        case "gone":
            sections["mcp.fake"] = {"command": "/nonexistent/server"}
        case "unconfigured":
            del sections["mcp.fake"]
        case _:
            sections["shell"] = {"enabled": False}


async def test_run_that_a_restart_resumes_asks_with_the_same_bytes(
    tmp_path: Path, database_url: str
) -> None:
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    async with serve_gateway([ADD, hang, DONE], title=is_title) as gateway:
        sections = {"mcp.fake": command_of(tmp_path)}
        settings = settings_with(tmp_path, database_url, gateway.url, sections)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(2)
        (tmp_path / "tools").write_text("sing\n")
        async with open_house(settings) as house:
            await house.ended(session)
    assert gateway.requests[1].body == gateway.requests[2].body
    assert_prefixes(gateway.requests)


async def test_list_that_changes_in_a_run_is_seen_by_new_sessions_only(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "server")
    grow = reply(calls=[call("fake__grow", {"name": "sing"})])
    sing = reply(calls=[call("fake__sing")])
    async with serve_gateway([grow, DONE, sing, DONE, sing, DONE], title=is_title) as gateway:
        sections = {"mcp.fake": command_of(tmp_path)}
        settings = settings_with(tmp_path, sqlite_url, gateway.url, sections)
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            await _until_offered(house, tools=19)
            await house.ask(session, "sing")
            await house.ask(await house.create(), "sing")
    *old, first, last = gateway.requests
    assert_prefixes(old)
    assert "fake__sing" not in tool_names(old[-1])
    assert "fake__sing" in tool_names(first)
    assert results_in(last) == ["sing"]
    told = [r.getMessage() for r in caplog.records if "tools changed" in r.getMessage()]
    assert len(told) == 1
    assert f"session={session.id}" in told[0]


async def _until_offered(house: House, tools: int) -> None:
    async with asyncio.timeout(20):
        while house.state["mcp"].health()[0].tools != tools:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


async def test_no_secret_argument_or_result_gets_into_a_log(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    port = free_port()
    sections = {
        "mcp.child": {
            **command_of(tmp_path, "--token", "${SECRET_ARGUMENT}"),
            "env": {"SECRET_VARIABLE": "s3cret-variable"},
        },
        "mcp.far": {
            "url": f"http://127.0.0.1:{port}/mcp?key=s3cret-query",
            "headers": {"Authorization": "Bearer ${SECRET_TOKEN}"},
        },
    }
    calls = [
        call("child__environment", {"name": "SECRET_VARIABLE"}),
        call("child__say", {"text": "s3cret-text"}),
        call("far__say", {"text": "s3cret-text"}),
        call("far__fail", {"why": "s3cret-reason"}),
        call("far__crash"),
    ]
    async with (
        running(tmp_path, port, "--token", "s3cret-token"),
        serve_gateway([reply(calls=calls), DONE], title=is_title) as gateway,
    ):
        secrets = {"SECRET_ARGUMENT": "s3cret-argument", "SECRET_TOKEN": "s3cret-token"}
        settings = settings_with(tmp_path, sqlite_url, gateway.url, sections, **secrets)
        async with open_house(settings, ENVIRONMENT) as house:
            await house.ask(await house.create(), "go")
    results = results_in(gateway.requests[-1])
    assert results[:3] == ["s3cret-variable", "s3cret-text", "s3cret-text"]
    assert "[mcp] far down" in caplog.text
    ours = [r for r in caplog.records if not r.name.startswith(("asyncio", "tests"))]
    assert not [r.name for r in ours if "s3cret" in r.getMessage() + str(r.exc_text)]
