"""The server is killed after a call had its effect and before its result was stored."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.process import ANN, Installation, ServerProcess, open_server
from tests.fakes.llm import Play, call, reply, serve_gateway
from tests.fakes.llm_wire import ScriptedCall
from tests.house import is_title
from tests.waiting import until
from tests.wire import open_client

SESSION = "s"
DONE = reply("done")


def run(command: str, **given: object) -> ScriptedCall:
    return call("shell", {"action": "run", "command": command, **given})


HOLD = run("echo $$ > pid; sleep 300")
"""Comes after the call that matters, so that the round stays open."""


async def pid_in(path: Path) -> int:
    """The process that a command names in a file."""

    def has_line() -> bool:
        return path.exists() and path.read_text().endswith("\n")

    async def is_there() -> bool:
        return await asyncio.to_thread(has_line)

    await until(is_there)
    return int(await asyncio.to_thread(path.read_text))


async def cut(place: Installation) -> int:
    """Ask in the session, and kill the server when a command of it tells its process."""
    async with open_server(place) as server, open_client(server.url, token=ANN) as client:
        await client.request("session.create", session=SESSION)
        await client.request("run.start", session=SESSION, clientMsgId="m1", content="go")
        pid = await pid_in(place.workspace / "pid")
        await server.sigkill()
    return pid


async def results(server: ServerProcess) -> list[Any]:
    """The results of the session, once its run has ended well."""

    async def is_completed() -> bool:
        return bool((await server.session(SESSION))["status"] == "COMPLETED")

    await until(is_completed)
    messages = await server.messages(SESSION)
    return [json.loads(one["content"]) for one in messages if one["role"] == "tool"]


def kill_group(pid: int) -> None:
    """End what a killed server left running."""
    os.killpg(pid, signal.SIGKILL)


async def test_command_that_ended_unreported_keeps_its_result_and_one_that_runs_is_told_of(
    tmp_path: Path,
) -> None:
    script: list[Play] = [reply(calls=[run("echo once >> ledger; echo said"), HOLD]), DONE]
    async with serve_gateway(script, title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url)
        pid = await cut(place)
        try:
            async with open_server(place) as server:
                ended, running = await results(server)
            assert psutil.pid_exists(pid), "nobody ended it"
        finally:
            kill_group(pid)
    assert (ended["exit_code"], ended["output"]) == (0, "said\n")
    assert (place.workspace / "ledger").read_text() == "once\n"
    assert running["error"] == "interrupted"
    assert running["message"] == "outcome unknown, verify before repeating"
    assert f"it still runs as process group {pid}" in running["detail"]


async def test_command_that_ends_after_its_server_was_killed_is_not_repeated(
    tmp_path: Path,
) -> None:
    slow = run("echo $$ > pid; until [ -e go ]; do sleep 0.05; done; echo once >> ledger")
    async with serve_gateway([reply(calls=[slow]), DONE], title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url)
        pid = await cut(place)
        (place.workspace / "go").touch()

        async def is_gone() -> bool:
            return not psutil.pid_exists(pid)

        await until(is_gone)
        async with open_server(place) as server:
            [result] = await results(server)
    assert (result["exit_code"], result["completed"]) == (0, True)
    assert (place.workspace / "ledger").read_text() == "once\n"


async def test_file_that_was_written_is_not_written_again(tmp_path: Path) -> None:
    write = call("write_file", {"path": "a.txt", "content": "1"})
    edit = call("edit_file", {"path": "b.txt", "old_text": "1", "new_text": "11"})
    async with serve_gateway([reply(calls=[write, edit, HOLD]), DONE], title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url)
        await asyncio.to_thread(place.workspace.mkdir, parents=True)
        (place.workspace / "b.txt").write_text("1")
        pid = await cut(place)
        kill_group(pid)
        before = (place.workspace / "a.txt").stat()
        async with open_server(place) as server:
            wrote, edited, _ = await results(server)
    assert wrote == {"success": True, "path": "a.txt", "bytes": 1}
    assert edited == {"success": True, "path": "b.txt", "replacements": 1}
    after = (place.workspace / "a.txt").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (place.workspace / "b.txt").read_text() == "11"


async def test_message_that_was_sent_is_told_once(tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.write_text('[approvals]\nweb = "never"\n')
    send = call("send_message", {"to": "other", "text": "报告已完成"})
    async with serve_gateway([reply(calls=[send, HOLD]), DONE], title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url, {"CONFIG": str(config)})
        async with open_server(place) as server, open_client(server.url, token=ANN) as client:
            await client.request("session.create", session="other")
        pid = await cut(place)
        kill_group(pid)
        async with open_server(place) as server:
            sent, _ = await results(server)
            assert sent["queued"]

            async def is_told() -> bool:
                return bool(await server.messages("other"))

            await until(is_told)
            said = [message["content"] for message in await server.messages("other")]
    assert said == ["报告已完成"]


async def test_what_had_not_begun_is_done_after_the_restart(tmp_path: Path) -> None:
    write = call("write_file", {"path": "a.txt", "content": "1"})
    async with serve_gateway([reply(calls=[HOLD, write]), DONE], title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url)
        pid = await cut(place)
        kill_group(pid)
        assert not (place.workspace / "a.txt").exists()
        async with open_server(place) as server:
            held, wrote = await results(server)
    assert held["error"] == "interrupted"
    assert "it is not found running any more" in held["detail"]
    assert wrote["success"]
    assert (place.workspace / "a.txt").read_text() == "1"
