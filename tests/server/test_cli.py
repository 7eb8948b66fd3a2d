"""The command line as its users meet it: real processes."""

import asyncio
import re
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from server.serve import listen
from tests.forkserver import FORKS

WAIT_SECONDS = 60


def environment(data_dir: Path, **variables: str) -> Mapping[str, str]:
    named = {f"HEADWAY_{name}": value for name, value in variables.items()}
    return {"HEADWAY_DATA_DIR": str(data_dir), "HEADWAY_LOCALE": "en", "PATH": "/bin:/usr/bin"} | (
        named
    )


@asynccontextmanager
async def started(
    environ: Mapping[str, str], *arguments: str, folder: Path, is_forked: bool = True
) -> AsyncIterator[Process]:
    """The command as a process, which is killed if it is still there in the end."""
    command = FORKS.command("headway") if is_forked else [sys.executable, "-m", "server"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=folder,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await ending(process)


async def ending(process: Process) -> tuple[int, str, str]:
    """Exit code and what is left of both outputs, once it ended by itself."""
    async with asyncio.timeout(WAIT_SECONDS):
        out, err = await process.communicate()
        return await process.wait(), out.decode(), err.decode()


async def run(environ: Mapping[str, str], *arguments: str, folder: Path) -> tuple[int, str, str]:
    """Exit code and both outputs of a command that is forked, see `tests.forkserver`."""
    with tempfile.TemporaryFile() as errors:
        process = await FORKS.spawn(["headway", *arguments], environ, folder, errors)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                out = await process.stdout.read()
                code = await process.wait()
        finally:
            process.kill()
        errors.seek(0)
        return code, out.decode(), errors.read().decode()


async def line_with(process: Process, words: str) -> str:
    """The next line of its output that has *words* in it."""
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS):
        while line := (await process.stdout.readline()).decode():
            if words in line:
                return line
    pytest.fail(f"ended without saying {words!r}")


def type_in(process: Process, text: str, *, is_last: bool = True) -> None:
    """Type *text* on its terminal."""
    assert process.stdin is not None
    process.stdin.write(text.encode())
    if is_last:
        process.stdin.write_eof()


@asynccontextmanager
async def serving(
    environ: Mapping[str, str], folder: Path, *, is_forked: bool = True
) -> AsyncIterator[tuple[Process, str]]:
    """A server process and its address."""
    arguments = ("serve", "--port", "0")
    async with started(environ, *arguments, folder=folder, is_forked=is_forked) as process:
        url = (await line_with(process, "serves at")).split()[-1]
        yield process, url


async def test_a_newcomer_gets_a_link_that_logs_him_in(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    async with serving(environ, tmp_path, is_forked=False) as (process, url):
        link = (await line_with(process, "#token=")).split()[-1]
        address, _, token = link.partition("/#token=")
        assert address == url
        async with aiohttp.ClientSession(url) as http:
            async with http.get("/readyz") as response:
                assert response.status == 200
            async with http.post("/api/login", json={"token": token}) as response:
                assert (await response.json())["user"]["isAdmin"] is True
        process.send_signal(signal.SIGTERM)
        _, _, err = await ending(process)
    assert token not in err
    assert "Traceback" not in err


async def test_tokens_of_the_settings_are_never_printed(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data", TOKENS="alice=very-secret-token")
    async with serving(environ, tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        code, out, err = await ending(process)
    assert code == 0
    assert "very-secret-token" not in out + err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"LOCALE": "fr"}, "headway: HEADWAY_LOCALE: Input should be 'zh-CN' or 'en'"),
        ({"DATABASE_URL": "postgresql://u:s3cret@127.0.0.1:1/d"}, "headway: "),
        ({"DATA_DIR": "/dev/null/x"}, "headway: HEADWAY_DATA_DIR: "),
    ],
)
async def test_what_an_operator_can_mend_is_one_line(
    tmp_path: Path, variables: dict[str, str], expected: str
) -> None:
    environ = environment(tmp_path / "data", **variables)
    code, out, err = await run(environ, "serve", "--port", "0", folder=tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith(expected)
    assert len(err.splitlines()) == 1
    assert "s3cret" not in err


async def test_a_second_server_of_one_folder_or_port_says_why_it_does_not_start(
    tmp_path: Path,
) -> None:
    environ = environment(tmp_path / "data")
    async with serving(environ, tmp_path) as (_, url):
        code, _, err = await run(environ, "serve", "--port", "0", folder=tmp_path)
        assert code == 2
        assert err.splitlines()[-1].startswith("headway: HEADWAY_DATA_DIR: ")
        assert "Traceback" not in err
        other, port = environment(tmp_path / "other"), url.rpartition(":")[2]
        code, _, err = await run(other, "serve", "--port", port, folder=tmp_path)
        assert code == 2
        assert err.startswith("headway: HEADWAY_HOST, HEADWAY_PORT: ")


async def test_a_slip_in_a_variables_name_is_told(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HEADWAY_TOKEN=x\n", "utf-8")
    code, _, err = await run(environment(tmp_path / "data"), "migrate", folder=tmp_path)
    assert code == 0
    assert "HEADWAY_TOKEN is not a setting; did you mean HEADWAY_TOKENS?" in err


async def test_the_doctor_finds_a_fresh_machine_healthy(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data", PORT="0")
    code, out, _ = await run(environ, "doctor", folder=tmp_path)
    assert code == 0, out
    assert re.search("^ok +database: empty", out, re.MULTILINE)
    assert re.search("^warn +model: none is set", out, re.MULTILINE)
    code, _, _ = await run(environ, "migrate", folder=tmp_path)
    assert code == 0
    _, out, _ = await run(environ, "doctor", folder=tmp_path)
    assert re.search("^ok +database: at revision ", out, re.MULTILINE)


async def test_the_doctor_says_what_is_wrong_and_how_to_mend_it(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        environ = environment(
            tmp_path / "data",
            PORT=str(port),
            DATABASE_URL="postgresql://u:s3cret@127.0.0.1:1/d",
            MODEL_BASE_URL="http://127.0.0.1:1/v1",
            MODEL="m",
            MODEL_API_KEY="sk-s3cret-123456",
        )
        code, out, err = await run(environ, "doctor", folder=tmp_path)
    assert code == 1
    assert re.search("^fail +database: .*HEADWAY_DATABASE_URL", out, re.MULTILINE)
    assert re.search("^warn +address: .*not free", out, re.MULTILINE)
    assert re.search("^fail +model: ", out, re.MULTILINE)
    assert "s3cret" not in out + err


async def test_a_conversation_in_the_terminal(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    async with serving(environ, tmp_path) as (_, url):
        chat = started(environ, "chat", "--url", url, folder=tmp_path, is_forked=False)
        async with chat as process:
            type_in(process, "hello\n")
            code, out, err = await ending(process)
    assert (code, err) == (0, "")
    assert "Built-in offline model" in out


async def test_interrupting_a_conversation_stops_the_run_and_then_leaves(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    async with serving(environ, tmp_path) as (_, url):
        async with started(environ, "chat", "--url", url, folder=tmp_path) as process:
            type_in(process, "/demo loop\n", is_last=False)
            await line_with(process, "grep_search")
            process.send_signal(signal.SIGINT)
            await line_with(process, "Stopped")
            process.send_signal(signal.SIGINT)
            code, _, err = await ending(process)
    assert (code, err) == (0, "")


async def test_a_run_that_the_guard_stops_says_why_in_the_terminal(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    async with serving(environ, tmp_path) as (_, url):
        async with started(environ, "chat", "--url", url, folder=tmp_path) as process:
            type_in(process, "/demo loop\n")
            code, out, _ = await ending(process)
    lines = out.splitlines()
    assert code == 0
    assert sum("grep_search (" in line for line in lines) == 15
    assert lines[-1].startswith("✗ ")
    assert "grep_search" in lines[-1]


async def test_question_of_a_run_is_answered_in_the_terminal(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    async with serving(environ, tmp_path) as (_, url):
        async with started(environ, "chat", "--url", url, folder=tmp_path) as process:
            type_in(process, "/demo ask\n", is_last=False)
            await line_with(process, "1 + 1 = ?")
            type_in(process, "certainly 2\n")
            code, out, err = await ending(process)
    assert (code, err) == (0, "")
    assert "certainly 2" in out


async def test_call_that_needs_a_word_is_refused_in_the_terminal(tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.write_text('[approvals]\nweb = "writes"\n')
    environ = environment(tmp_path / "data", CONFIG=str(config))
    async with serving(environ, tmp_path) as (_, url):
        async with started(environ, "chat", "--url", url, folder=tmp_path) as process:
            type_in(process, "run touch made\n", is_last=False)
            await line_with(process, "touch made")
            type_in(process, "not now\n")
            code, out, err = await ending(process)
    assert (code, err) == (0, "")
    assert "denied" in out
    assert not await asyncio.to_thread(lambda: list(tmp_path.rglob("made")))


async def test_without_a_server_the_chat_says_what_to_start(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
    environ = environment(tmp_path / "data", PORT=str(port))
    code, out, err = await run(environ, "chat", folder=tmp_path)
    assert (code, err) == (1, "")
    assert "headway serve" in out
