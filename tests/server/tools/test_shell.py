"""Real commands in real process groups."""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from server.tools.base import Registry, ToolContext
from server.tools.process import OUTPUT_CAP_BYTES
from server.tools.shell import (
    FINISHED_CAP,
    LIVE_CAP,
    Shells,
    ShellTool,
    child_environment,
)
from tests.server.tools.conftest import (
    Call,
    Fields,
    decoded,
    error_of,
    next_call,
    until,
)


async def test_run_gives_exactly_the_fields(workspace: Path, call: Call) -> None:
    result = await call("shell", action="run", command="echo out; echo err >&2; exit 3")
    told = decoded(result)
    shell_id = told["session_id"]
    assert told == {
        "session_id": shell_id,
        "output": "out\nerr\n",
        "exit_code": 3,
        "completed": True,
        "truncated": False,
        "current_workdir": str(workspace),
        "output_file": f".headway/shell/{shell_id}.out",
        "message": "ended with exit code 3",
    }
    assert (workspace / told["output_file"]).read_text() == "out\nerr\n"
    assert (result.is_error, result.exit_code) == (False, 3)


async def test_syntax_error_is_an_ordinary_result(fields: Fields) -> None:
    told = await fields("shell", action="run", command="if then")
    assert told["completed"]
    assert told["exit_code"] != 0
    assert "line 1" in told["output"]


async def test_output_of_equal_runs_is_equal_but_for_the_ids(fields: Fields) -> None:
    def seen(told: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value
            for name, value in told.items()
            if name not in {"session_id", "output_file", "message"}
        }

    one = await fields("shell", action="run", command="seq 100000")
    two = await fields("shell", action="run", command="seq 100000")
    other = await fields("shell", action="run", command="seq 50000; echo x; seq 50002 100000")
    assert one["truncated"]
    assert seen(one) == seen(two)
    assert seen(one) != seen(other)


async def test_long_output_is_cut_with_the_hash_of_the_whole_and_kept_in_the_file(
    workspace: Path, fields: Fields
) -> None:
    told = await fields("shell", action="run", command="seq 200000")
    whole = "".join(f"{n}\n" for n in range(1, 200_001))
    assert told["truncated"]
    assert told["output"].startswith("1\n2\n3\n")
    assert told["output"].endswith("199999\n200000\n")
    assert hashlib.sha256(whole.encode()).hexdigest()[:16] in told["output"]
    assert len(told["output"]) < OUTPUT_CAP_BYTES + 100
    assert (workspace / told["output_file"]).read_text() == whole


async def test_binary_output_is_text_in_the_result(fields: Fields) -> None:
    told = await fields("shell", action="run", command=r"printf 'a\0b\377c'")
    assert told["output"] == "ab\ufffdc"


async def test_cd_lasts_however_the_command_ends(workspace: Path, fields: Fields) -> None:
    (workspace / "a b" / "c").mkdir(parents=True)
    told = await fields("shell", action="run", command="cd 'a b'; exit 7")
    assert (told["exit_code"], told["current_workdir"]) == (7, str(workspace / "a b"))
    told = await fields("shell", action="run", command="cd c && false")
    assert told["current_workdir"] == str(workspace / "a b" / "c")
    told = await fields("shell", action="run", command="set -eu; cd ..; pwd; $unset")
    assert told["output"].startswith(f"{workspace}/a b\n")
    assert told["current_workdir"] == str(workspace / "a b")
    told = await fields("shell", action="run", command="(cd /); exec pwd")
    assert told["output"] == f"{workspace}/a b\n"
    assert told["current_workdir"] == str(workspace / "a b")


async def test_cd_of_a_background_command_does_not_count(workspace: Path, fields: Fields) -> None:
    told = await fields("shell", action="run", command="cd /", run_async=True)
    told = await fields("shell", action="await_async", session_id=told["session_id"])
    assert told["completed"]
    assert told["current_workdir"] == str(workspace)


async def test_cd_of_a_command_that_was_awaited_counts_once(
    workspace: Path, fields: Fields
) -> None:
    (workspace / "a").mkdir()
    slow = await fields("shell", action="run", command="cd a; read x", timeout_seconds=0)
    assert slow["current_workdir"] == str(workspace)
    slow = await fields("shell", action="write_stdin", session_id=slow["session_id"], input="\n")
    assert slow["completed"]
    assert slow["current_workdir"] == str(workspace / "a")
    await fields("shell", action="run", command="cd ..")
    slow = await fields("shell", action="await_async", session_id=slow["session_id"])
    assert slow["current_workdir"] == str(workspace)


async def test_workdir_survives_a_restart_and_its_own_removal(
    workspace: Path, context: ToolContext
) -> None:
    async def run(registry: Registry, command: str) -> dict[str, Any]:
        arguments = json.dumps({"action": "run", "command": command})
        return decoded(await registry.dispatch("shell", arguments, next_call(context)))

    async with Shells(os.environ) as shells:
        await run(Registry([ShellTool(shells)]), "mkdir a; cd a")
    async with Shells(os.environ) as shells:
        registry = Registry([ShellTool(shells)])
        assert (await run(registry, "pwd"))["output"] == f"{workspace}/a\n"
        await run(registry, "rmdir ../a")
        assert (await run(registry, "pwd"))["output"] == f"{workspace}\n"


async def test_sessions_have_their_own_workdir_and_commands(
    registry: Registry, context: ToolContext, fields: Fields, tmp_path: Path
) -> None:
    mine = await fields("shell", action="run", command="cd /")
    (tmp_path / "other").mkdir()
    other = replace(context, session_id="s2", workspace=tmp_path / "other")
    result = await registry.dispatch("shell", '{"action": "run", "command": "pwd"}', other)
    assert decoded(result)["output"] == f"{tmp_path}/other\n"
    wanted = json.dumps({"action": "await_async", "session_id": mine["session_id"]})
    assert error_of(await registry.dispatch("shell", wanted, other)) == "unknown_session"


async def test_run_goes_on_when_its_time_is_over(fields: Fields) -> None:
    told = await fields("shell", action="run", command="echo a; read x", timeout_seconds=0.3)
    assert (told["completed"], told["exit_code"], told["output"]) == (False, None, "a\n")
    assert "await_async" in told["message"]
    assert told["session_id"] in told["message"]
    told = await fields("shell", action="write_stdin", session_id=told["session_id"], input="\n")
    assert (told["completed"], told["exit_code"]) == (True, 0)


async def test_background_command_returns_at_once_and_can_be_awaited_many_times(
    fields: Fields, workspace: Path
) -> None:
    command = "for n in 1 2 3; do echo $n; until [ -e go$n ]; do sleep 0.02; done; done; echo end"
    told = await fields("shell", action="run", command=command, run_async=True)
    assert not told["completed"]
    shell_id = told["session_id"]
    for n in (1, 2, 3):
        for _ in range(10):
            told = await fields(
                "shell", action="await_async", session_id=shell_id, timeout_seconds=0.03
            )
            assert (told["completed"], told["exit_code"]) == (False, None)
        (workspace / f"go{n}").touch()
    for _ in range(3):
        told = await fields("shell", action="await_async", session_id=shell_id)
        assert (told["completed"], told["exit_code"]) == (True, 0)
        assert told["output"] == "1\n2\n3\nend\n"


async def test_prompts_are_answered_through_stdin(fields: Fields) -> None:
    command = "read -p 'name? ' n; echo hello $n; read -p 'more? ' m; echo bye $m"
    told = await fields("shell", action="run", command=command, run_async=True)
    shell_id = told["session_id"]
    told = await fields("shell", action="write_stdin", session_id=shell_id, input="Ada\n")
    assert not told["completed"]
    assert told["output"].endswith("hello Ada\n")
    told = await fields("shell", action="write_stdin", session_id=shell_id, input="x\n")
    assert told["completed"]
    assert told["output"].endswith("bye x\n")
    again = await fields("shell", action="write_stdin", session_id=shell_id, input="y\n")
    assert error_of(again) == "stdin_closed"


async def test_large_input_reaches_a_slow_reader(fields: Fields) -> None:
    told = await fields(
        "shell", action="run", command="sleep 0.2; head -c 1000000 | wc -c", run_async=True
    )
    told = await fields(
        "shell", action="write_stdin", session_id=told["session_id"], input="x" * 1_000_000
    )
    assert told["output"] == "1000000\n"


async def test_commands_see_no_secrets(context: ToolContext) -> None:
    async with Shells({"PATH": os.environ["PATH"], "HEADWAY_MODEL_API_KEY": "s3cret"}) as shells:
        result = await Registry([ShellTool(shells)]).dispatch(
            "shell", '{"action": "run", "command": "env"}', context
        )
    assert "s3cret" not in result.content
    assert "TERM=dumb\n" in decoded(result)["output"]


def test_environment_of_a_command_is_clean() -> None:
    given = {
        "PATH": "/bin",
        "HOME": "/root",
        "HEADWAY_PORT": "1",
        "OTEL_EXPORTER_OTLP_HEADERS": "x",
        "OPENAI_API_KEY": "x",
        "github_token": "x",
        "DB_PASSWORD": "x",
        "MY_SECRET_THING": "x",
        "AWS_CREDENTIALS": "x",
    }
    seen = child_environment(given)
    assert seen["PATH"] == "/bin"
    assert seen["HOME"] == "/root"
    assert "x" not in seen.values()
    assert "HEADWAY_PORT" not in seen


async def test_commands_inherit_none_of_our_descriptors(fields: Fields) -> None:
    told = await fields("shell", action="run", command="ls /proc/self/fd | wc -l")
    # The three standard ones, the one for the working directory, and the folder being listed.
    assert int(told["output"]) <= 5


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"action": "start"},
        {"action": "run"},
        {"action": "run", "command": " "},
        {"action": "run", "command": "a\x00b"},
        {"action": "run", "command": "x" * 200_000},
        {"action": "run", "command": "ls", "timeout_seconds": -1},
        {"action": "run", "command": "ls", "run_async": "yes"},
        {"action": "await_async"},
        {"action": "kill", "session_id": ""},
    ],
)
async def test_bad_arguments_are_told(arguments: dict[str, object], call: Call) -> None:
    assert error_of(await call("shell", **arguments)) == "bad_arguments"


@pytest.mark.parametrize("action", ["await_async", "write_stdin", "kill"])
async def test_unknown_id_is_told(action: str, call: Call) -> None:
    result = await call("shell", action=action, session_id="sh-00000000")
    assert error_of(result) == "unknown_session"


async def test_too_many_live_commands_are_refused_and_old_ended_ones_forgotten(
    workspace: Path, fields: Fields
) -> None:
    live = [
        await fields("shell", action="run", command="sleep 600", run_async=True)
        for _ in range(LIVE_CAP)
    ]
    refused = await fields("shell", action="run", command="true")
    assert error_of(refused) == "too_many_shells"
    await fields("shell", action="kill", session_id=live[0]["session_id"])
    for _ in range(FINISHED_CAP):
        await fields("shell", action="run", command="true")
    forgotten = await fields("shell", action="await_async", session_id=live[0]["session_id"])
    assert error_of(forgotten) == "unknown_session"
    assert not (workspace / live[0]["output_file"]).exists()
    known = await fields(
        "shell", action="await_async", session_id=live[1]["session_id"], timeout_seconds=0
    )
    assert not known["completed"]


async def test_commands_leave_neither_descriptors_nor_dead_processes(fields: Fields) -> None:
    here = psutil.Process()
    before, others = here.num_fds(), here.children()
    for _ in range(20):
        await fields("shell", action="run", command="true & true")
    await until(lambda: here.num_fds() <= before and here.children() == others)


async def test_endless_output_is_bounded_and_leaves_the_loop_alive(
    workspace: Path, fields: Fields
) -> None:
    told = await fields("shell", action="run", command="yes", timeout_seconds=0.5)
    assert told["truncated"]
    assert len(told["output"]) < OUTPUT_CAP_BYTES + 100
    started = time.monotonic()
    await fields("shell", action="kill", session_id=told["session_id"])
    assert time.monotonic() - started < 2
    assert (workspace / told["output_file"]).stat().st_size <= 50_000_000


async def test_progress_shows_the_last_line(registry: Registry, context: ToolContext) -> None:
    seen: list[str] = []
    watched = replace(context, progress=seen.append)
    arguments = json.dumps({"action": "run", "command": "echo one; echo two; sleep 1.2"})
    await registry.dispatch("shell", arguments, watched)
    assert seen[0] == "two"


async def test_kinds_and_switch(registry: Registry) -> None:
    assert registry.kind_of("shell", '{"action": "await_async", "session_id": "x"}') == "wait"
    for action in ("run", "write_stdin", "kill"):
        assert registry.kind_of("shell", json.dumps({"action": action})) == "write"
    assert b'"shell"' not in Registry([]).definitions_json()


async def test_outputs_are_kept_out_of_searches_and_of_git(workspace: Path, fields: Fields) -> None:
    await fields("shell", action="run", command="echo needle")
    assert (await fields("grep_search", pattern="needle"))["total_matches"] == 0
    assert (workspace / ".headway" / ".gitignore").read_text() == "*\n"


async def test_folder_that_a_command_removed_is_made_again(fields: Fields) -> None:
    await fields("shell", action="run", command="rm -rf .headway")
    told = await fields("shell", action="run", command="ls -A .headway/shell; pwd")
    assert told["exit_code"] == 0


async def test_folder_that_became_a_link_out_is_refused(
    workspace: Path, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "outside").mkdir()
    (workspace / ".headway").symlink_to(tmp_path / "outside")
    result = await call("shell", action="run", command="true")
    assert error_of(result) == "outside_workspace"
