"""How commands end: killed, cancelled, or with the server, and what they leave."""

import asyncio
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from server.tools.base import Registry, ToolContext
from server.tools.shell import (
    IDLE_SECONDS,
    Shells,
    ShellTool,
)
from tests.fakes.clock import Clock
from tests.server.tools.conftest import (
    Fields,
    decoded,
    error_of,
    next_call,
    until,
)


def is_alive(pid: int) -> bool:
    """Not so when it is dead but not reaped yet."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def has_line(place: Path) -> bool:
    return place.exists() and place.read_text().endswith("\n")


async def pid_from(place: Path) -> int:
    """The process id that a command writes into a file once it runs."""
    await until(lambda: has_line(place))
    return int(place.read_text())  # noqa: ASYNC240 - a few bytes


async def test_kill_ends_the_group_and_tells_the_signal(workspace: Path, fields: Fields) -> None:
    told = await fields(
        "shell", action="run", command="sleep 600 & echo $! > pid; wait", run_async=True
    )
    pid = await pid_from(workspace / "pid")
    told = await fields("shell", action="kill", session_id=told["session_id"])
    assert (told["completed"], told["exit_code"]) == (True, -15)
    assert told["message"] == "ended by SIGTERM"
    await until(lambda: not is_alive(pid), 1)


async def test_kill_forces_what_ignores_the_signal(workspace: Path, fields: Fields) -> None:
    command = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done"
    told = await fields("shell", action="run", command=command, run_async=True)
    pid = await pid_from(workspace / "pid")
    told = await fields("shell", action="kill", session_id=told["session_id"])
    assert (told["completed"], told["exit_code"]) == (True, -9)
    assert not is_alive(pid)


async def test_kill_of_an_ended_command_gives_its_end_again(fields: Fields) -> None:
    told = await fields("shell", action="run", command="exit 4")
    assert await fields("shell", action="kill", session_id=told["session_id"]) == told


async def test_child_in_the_background_that_holds_the_pipe_hangs_nothing(
    workspace: Path, fields: Fields
) -> None:
    command = "(sleep 600 & echo $! > pid); echo done"
    async with asyncio.timeout(3):
        told = await fields("shell", action="run", command=command)
    assert (told["completed"], told["exit_code"], told["output"]) == (True, 0, "done\n")
    pid = await pid_from(workspace / "pid")
    assert is_alive(pid)
    again = await fields("shell", action="kill", session_id=told["session_id"])
    assert again == told
    await until(lambda: not is_alive(pid), 1)


async def test_child_that_left_the_group_and_holds_the_pipe_hangs_nothing(
    workspace: Path, context: ToolContext
) -> None:
    command = "setsid -f sh -c 'echo $$ > pid; exec sleep 600'; echo done"
    async with asyncio.timeout(6), Shells(os.environ) as shells:
        arguments = json.dumps({"action": "run", "command": command})
        result = await Registry([ShellTool(shells)]).dispatch("shell", arguments, context)
        assert decoded(result)["output"] == "done\n"
        pid = await pid_from(workspace / "pid")
        started = time.monotonic()
        await shells.kill_run("r1")
        assert time.monotonic() - started < 1
    psutil.Process(pid).kill()


async def test_later_output_of_the_background_does_not_change_the_end(
    workspace: Path, fields: Fields
) -> None:
    command = "(until [ -e go ]; do sleep 0.02; done; echo late; touch done) & echo now"
    told = await fields("shell", action="run", command=command)
    (workspace / "go").touch()
    await until(lambda: "late" in (workspace / told["output_file"]).read_text())
    assert await fields("shell", action="await_async", session_id=told["session_id"]) == told
    assert told["output"] == "now\n"


async def test_cancelling_a_run_kills_its_group_within_a_second(
    workspace: Path, registry: Registry, context: ToolContext
) -> None:
    command = "trap '' TERM; sleep 600 & echo $! > child; echo $$ > pid; wait; sleep 600"
    arguments = json.dumps({"action": "run", "command": command})
    task = asyncio.create_task(registry.dispatch("shell", arguments, context))
    pids = [await pid_from(workspace / "pid"), await pid_from(workspace / "child")]
    task.cancel()
    async with asyncio.timeout(1):
        await asyncio.wait({task})
        while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110 - a process tells nobody
            await asyncio.sleep(0.01)
    assert task.cancelled()


async def test_cancelling_an_await_leaves_the_command_running_until_its_run_is_killed(
    workspace: Path, registry: Registry, context: ToolContext, shells: Shells
) -> None:
    async def dispatch(**arguments: object) -> dict[str, Any]:
        call = next_call(context)
        return decoded(await registry.dispatch("shell", json.dumps(arguments), call))

    command = "echo $$ > pid; sleep 600"
    told = await dispatch(action="run", command=command, run_async=True)
    pid = await pid_from(workspace / "pid")
    task = asyncio.create_task(dispatch(action="await_async", session_id=told["session_id"]))
    await asyncio.wait({task}, timeout=0.1)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert is_alive(pid)
    await shells.kill_run("another run")
    assert is_alive(pid)
    async with asyncio.timeout(1):
        await shells.kill_run("r1")
    assert not is_alive(pid)


async def test_killing_a_session_forgets_it(
    workspace: Path, fields: Fields, shells: Shells
) -> None:
    told = await fields("shell", action="run", command="echo $$ > pid; sleep 600", run_async=True)
    pid = await pid_from(workspace / "pid")
    await shells.kill_session("s1")
    assert not is_alive(pid)
    again = await fields("shell", action="await_async", session_id=told["session_id"])
    assert error_of(again) == "unknown_session"


async def test_session_whose_commands_ended_an_hour_ago_is_forgotten(
    context: ToolContext,
) -> None:
    clock = Clock()
    async with Shells(os.environ, clock.monotonic) as shells:
        registry = Registry([ShellTool(shells)])

        async def use(place: str, **arguments: object) -> dict[str, Any]:
            there = replace(next_call(context), session_id=place)
            return decoded(await registry.dispatch("shell", json.dumps(arguments), there))

        ended = await use("ended", action="run", command="mkdir -p in; cd in; echo out")
        left = await use("left", action="run", command="sleep 600 & echo out")
        clock.advance(IDLE_SECONDS - 1)
        await use("asked", action="run", command="true")
        known = await use("ended", action="await_async", session_id=ended["session_id"])
        assert known["output"] == "out\n"
        clock.advance(IDLE_SECONDS + 1)
        await use("other", action="run", command="true")
        forgotten = await use("ended", action="await_async", session_id=ended["session_id"])
        assert error_of(forgotten) == "unknown_session"
        assert ended["output_file"] in forgotten["message"]
        assert (await use("ended", action="run", command="pwd"))["output"].endswith("/in\n")
        assert (await use("left", action="kill", session_id=left["session_id"]))["completed"]


async def test_kill_that_is_cancelled_twice_is_finished_all_the_same(context: ToolContext) -> None:
    async with Shells(os.environ) as shells:
        shell = await shells.start(
            "trap '' TERM; echo ready; while :; do sleep 600; done", run_async=True, context=context
        )
        await until(lambda: "ready" in shell.process.state().output)
        task = asyncio.create_task(shell.process.kill(0.2))
        for _ in range(2):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert shell.process.finished.is_set()


async def test_shutdown_kills_everything_within_two_seconds(
    workspace: Path, context: ToolContext
) -> None:
    commands = {
        "kind": "echo $$ > kind; sleep 600",
        "stubborn": "trap '' TERM; echo $$ > stubborn; while :; do sleep 600; done",
        "left": "(sleep 600 & echo $! > left)",
    }
    async with Shells(os.environ) as shells:
        registry = Registry([ShellTool(shells)])
        for number, command in enumerate(commands.values()):
            arguments = json.dumps({"action": "run", "command": command, "run_async": True})
            there = replace(context, session_id=f"s{number}")
            await registry.dispatch("shell", arguments, there)
        pids = [await pid_from(workspace / name) for name in commands]
        started = time.monotonic()
    assert time.monotonic() - started < 2
    assert not any(is_alive(pid) for pid in pids)


async def test_nothing_is_started_after_the_shutdown(context: ToolContext) -> None:
    async with Shells(os.environ) as shells:
        pass
    result = await Registry([ShellTool(shells)]).dispatch(
        "shell", '{"action": "run", "command": "true"}', context
    )
    assert error_of(result) == "shutting_down"
