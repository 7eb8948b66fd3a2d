"""What a later process finds out of a command whose result was lost."""

import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from server.tools.base import Registry, ToolContext, ToolResult, Unknown
from server.tools.process import OUTPUT_CAP_BYTES
from server.tools.shell import FOLDER, Shells, ShellTool
from server.tools.trace import End, Trace, write_end
from tests.server.tools.caller import context_of, open_caller
from tests.server.tools.conftest import decoded, error_of, next_call, until


@pytest.fixture
def lost(workspace: Path) -> ToolContext:
    """The call that the dead process made."""
    return context_of(workspace, "c1")


@pytest.fixture
async def later() -> AsyncIterator[Registry]:
    """The tools of a process that was started afterwards."""
    async with Shells(os.environ) as shells:
        yield Registry([ShellTool(shells)])


def run(command: str, **given: object) -> str:
    return json.dumps({"action": "run", "command": command, **given})


def written(workspace: Path) -> list[str]:
    """What commands have said so far, as it is kept."""
    return [path.read_text() for path in workspace.glob(f"{FOLDER}/sh-*.out")]


async def pid_in(path: Path) -> int:
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())  # noqa: ASYNC240 - a few bytes


async def looked_up(later: Registry, arguments: str, lost: ToolContext) -> ToolResult:
    found = await later.lookup("shell", arguments, "", lost)
    assert isinstance(found, ToolResult)
    return found


async def test_command_that_ended_is_told_as_its_result_would_have_been(
    later: Registry, lost: ToolContext, workspace: Path
) -> None:
    arguments = run("mkdir a; cd a; echo out; echo err >&2; false")
    async with open_caller(workspace, "c1", arguments) as process:
        assert process.stdout is not None
        told = json.loads(await process.stdout.readline())
        process.kill()
    found = await looked_up(later, arguments, lost)
    fields = decoded(found)
    assert fields.pop("message").startswith("ended with exit code 1; the result was lost")
    assert fields == {name: value for name, value in told.items() if name != "message"}
    assert (found.exit_code, found.is_error) == (1, False)
    where = decoded(await later.dispatch("shell", run("pwd"), next_call(lost)))
    assert where["output"] == f"{workspace}/a\n"


async def test_command_whose_own_end_only_the_dead_process_saw_is_told_too(
    later: Registry, lost: ToolContext, workspace: Path
) -> None:
    """The shell itself knows no code on such ways out."""
    for number, command in enumerate(("exit 7", "set -e; (exit 7)", "exec sh -c 'exit 7'")):
        call_id = f"c{number}"
        async with open_caller(workspace, call_id, run(command)) as process:
            assert process.stdout is not None
            await process.stdout.readline()
            process.kill()
        found = await looked_up(later, run(command), replace(lost, call_id=call_id))
        assert found.exit_code == 7


async def test_command_that_ends_after_its_server_died_is_told(
    later: Registry, lost: ToolContext, workspace: Path
) -> None:
    arguments = run("cd /; echo $$ > $OLDPWD/pid; until [ -e $OLDPWD/go ]; do sleep 0.02; done")
    async with open_caller(workspace, "c1", arguments) as process:
        pid = await pid_in(workspace / "pid")
        process.kill()
    still = await later.lookup("shell", arguments, "", lost)
    assert isinstance(still, Unknown)
    assert f"it still runs as process group {pid}, unheard" in still.detail
    assert f"{FOLDER}/sh-" in still.detail
    (workspace / "go").touch()
    await until(lambda: not psutil.pid_exists(pid))
    fields = decoded(await looked_up(later, arguments, lost))
    assert (fields["exit_code"], fields["completed"]) == (0, True)
    assert fields["current_workdir"] == "/"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGPIPE])
async def test_command_that_a_signal_ended_unseen_is_unknown_and_never_a_success(
    number: signal.Signals, later: Registry, lost: ToolContext, workspace: Path
) -> None:
    """A shell that a signal ends says 0 on its way out."""
    arguments = run("echo begun; echo $$ > pid; true; sleep 60")
    async with open_caller(workspace, "c1", arguments) as process:
        pid = await pid_in(workspace / "pid")
        await until(lambda: "begun\n" in written(workspace))
        process.kill()
    os.killpg(pid, number)
    await until(lambda: not psutil.pid_exists(pid))
    found = await later.lookup("shell", arguments, "", lost)
    assert isinstance(found, Unknown)
    is_last_word_said = number != signal.SIGKILL
    words = "its shell has ended" if is_last_word_said else "it is not found running any more"
    assert words in found.detail
    named = re.search(rf"{FOLDER}/sh-\w+\.out", found.detail)
    assert named is not None
    assert (workspace / named[0]).read_text() == "begun\n"


async def test_command_that_loses_its_reader_is_unknown(
    later: Registry, lost: ToolContext, workspace: Path
) -> None:
    arguments = run("echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo late; touch after")
    async with open_caller(workspace, "c1", arguments) as process:
        pid = await pid_in(workspace / "pid")
        process.kill()
    (workspace / "go").touch()
    await until(lambda: not psutil.pid_exists(pid))
    assert not (workspace / "after").exists()
    assert isinstance(await later.lookup("shell", arguments, "", lost), Unknown)


async def test_command_that_was_only_announced_was_not_done_and_runs_once(
    later: Registry, lost: ToolContext, workspace: Path
) -> None:
    arguments = run("echo once >> ledger")
    async with Shells(os.environ) as shells:
        await Registry([ShellTool(shells)]).mark("shell", arguments, lost)
    assert await later.lookup("shell", arguments, "", lost) == "not_done"
    assert not (await later.dispatch("shell", arguments, lost)).is_error
    again = await later.dispatch("shell", arguments, lost)
    assert error_of(again) == "not_started"
    assert (workspace / "ledger").read_text() == "once\n"
    assert (await looked_up(later, arguments, lost)).exit_code == 0


async def test_command_that_removed_its_trace_is_unknown_and_not_taken_for_undone(
    later: Registry, lost: ToolContext, workspace: Path
) -> None:
    arguments = run("rm -rf .headway; touch done")
    async with open_caller(workspace, "c1", arguments) as process:
        assert process.stdout is not None
        await process.stdout.readline()
        process.kill()
    assert (workspace / "done").exists()
    assert await later.lookup("shell", arguments, "", lost) == "unknown"


async def test_call_of_another_machine_is_unknown(later: Registry, lost: ToolContext) -> None:
    assert await later.lookup("shell", run("true"), "", lost) == "unknown"


@pytest.mark.parametrize("action", ["await_async", "write_stdin", "kill"])
async def test_what_became_of_the_other_actions_is_unknown(
    action: str, later: Registry, lost: ToolContext
) -> None:
    arguments = json.dumps({"action": action, "session_id": "sh-000000000000"})
    assert await later.mark("shell", arguments, lost) == ""
    assert await later.lookup("shell", arguments, "", lost) == "unknown"


async def test_command_that_a_stop_of_the_server_ended_is_unknown(
    later: Registry, lost: ToolContext, workspace: Path
) -> None:
    arguments = run("echo $$ > pid; sleep 600", run_async=True)
    async with Shells(os.environ) as shells:
        registry = Registry([ShellTool(shells)])
        await registry.dispatch("shell", arguments, lost)
        await pid_in(workspace / "pid")
    found = await later.lookup("shell", arguments, "", lost)
    assert isinstance(found, Unknown)
    assert "its shell has ended" in found.detail


async def test_long_output_is_cut_as_in_any_result(
    later: Registry, lost: ToolContext, workspace: Path
) -> None:
    async with Shells(os.environ) as shells:
        told = await Registry([ShellTool(shells)]).dispatch("shell", run("seq 100000"), lost)
    fields, found = decoded(told), decoded(await looked_up(later, run("seq 100000"), lost))
    assert found["truncated"]
    assert found["output"] == fields["output"]
    assert len(found["output"]) < OUTPUT_CAP_BYTES + 100


async def test_bad_command_is_refused_before_it_leaves_a_trace(
    later: Registry, lost: ToolContext, workspace: Path
) -> None:
    result = await later.dispatch("shell", run(" "), lost)
    assert error_of(result) == "bad_arguments"
    assert not (workspace / FOLDER).exists()


async def test_id_of_a_lost_command_is_answered_with_what_is_known(
    later: Registry, lost: ToolContext, workspace: Path
) -> None:
    arguments = run("echo $$ > pid; sleep 600", run_async=True)
    async with open_caller(workspace, "c1", arguments) as process:
        assert process.stdout is not None
        shell_id = json.loads(await process.stdout.readline())["session_id"]
        pid = await pid_in(workspace / "pid")
        process.kill()
    ask = json.dumps({"action": "await_async", "session_id": shell_id})
    told = await later.dispatch("shell", ask, next_call(lost))
    assert error_of(told) == "unknown_session"
    assert f"it still runs as process group {pid}" in decoded(told)["message"]
    os.killpg(pid, signal.SIGKILL)
    await until(lambda: not psutil.pid_exists(pid))
    told = await later.dispatch("shell", ask, next_call(lost))
    assert "it is not found running any more" in decoded(told)["message"]


@pytest.mark.parametrize("shell_id", ["../../x", "sh-", "sh-0123456789ab/../x", "sh-ffffffffffff"])
async def test_id_that_names_no_command_tells_nothing(
    shell_id: str, later: Registry, lost: ToolContext
) -> None:
    ask = json.dumps({"action": "await_async", "session_id": shell_id})
    told = await later.dispatch("shell", ask, lost)
    assert error_of(told) == "unknown_session"
    assert decoded(told)["message"].endswith("or never was")


async def test_process_id_that_was_given_to_a_stranger_is_not_taken_for_the_command(
    tmp_path: Path,
) -> None:
    trace = Trace(tmp_path, "sh-1")
    output, end = trace.open()
    os.write(end, b"pid %d\n" % os.getppid())
    os.close(output)
    os.close(end)
    told = trace.look()
    assert told == End(group=os.getppid())
    assert trace.is_running(told) is False
    assert trace.is_running(End()) is None


@pytest.mark.parametrize(
    ("told", "end"),
    [
        (b"", End()),
        (b"pid 12\n", End(group=12)),
        (b"pid x\n", End()),
        (b"exit 3\n/a b\n", End(3, Path("/a b"))),
        (b"exit -15\n\n", End(-15)),
        (b"exit \n/a\nb\n", End(None, Path("/a\nb"))),
        (b"exit 0", End(0)),
        (b"exit 0\nrelative\n", End(0)),
        (b"exit 0\n/a\x00b\n", End(0)),
        (b"\xff\xfe", End()),
    ],
)
def test_what_a_command_tells_of_its_end_is_read_forgivingly(
    told: bytes, end: End, tmp_path: Path
) -> None:
    trace = Trace(tmp_path, "sh-1")
    output, handle = trace.open()
    os.write(handle, told)
    os.close(output)
    os.close(handle)
    assert trace.look() == end


def test_what_the_server_writes_of_an_end_replaces_what_stood_there(tmp_path: Path) -> None:
    trace = Trace(tmp_path, "sh-1")
    output, end = trace.open()
    os.write(end, b"pid 1234567890\n" + b"x" * 100)
    write_end(end, -9, None)
    assert trace.look() == End(-9)
    write_end(end, 0, tmp_path)
    assert trace.look() == End(0, tmp_path)
    os.close(output)
    os.close(end)


def test_trace_tells_how_far_it_came(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "f", "sh-1")
    assert trace.look() == "lost"
    trace.folder.mkdir()
    trace.announce()
    assert trace.look() == "ready"
    for handle in trace.open():
        os.close(handle)
    assert trace.look() == End()
    with pytest.raises(FileExistsError):
        trace.open()
    trace.remove()
    assert trace.look() == "lost"
    shutil.rmtree(trace.folder)
    assert trace.look() == "lost"
