"""`headway tasks` as its users meet it: real processes beside a running server."""

import json
import re
from pathlib import Path

from server.serve import listen
from tests.server.contracts import TWO_SOURCES
from tests.server.test_cli import environment, run, serving
from tests.waiting import until


async def test_a_task_is_added_shown_started_paused_and_removed(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data", TIMEZONE="Asia/Shanghai")
    async with serving(environ, tmp_path) as (_, url):

        async def tasks(*arguments: str) -> str:
            code, out, err = await run(environ, "tasks", "--url", url, *arguments, folder=tmp_path)
            assert (code, err) == (0, ""), (out, err)
            return out

        added = await tasks("add", "hello", "--cron", "0 9 * * 7", "--title", "greeting")
        task_id = added.split()[1].rstrip(",")
        assert re.search(r"due next at \d{4}-\d\d-\d\d 09:00:00\+08:00", added)
        assert re.match(rf"{task_id}  ACTIVE +\S+ 09:00:00\+08:00 +greeting\n", await tasks("list"))
        shown = await tasks("show", task_id)
        assert "schedule: kind cron, expression 0 9 * * 7\n" in shown
        session_id = (await tasks("run", task_id)).split()[-1].rstrip(".")

        async def is_over() -> bool:
            return "COMPLETED" in await tasks("runs", task_id)

        await until(is_over, seconds=60)
        assert session_id in await tasks("runs", task_id)
        assert "is paused" in await tasks("pause", task_id)
        assert re.search(r"goes on, due next at .* 09:00:00\+08:00", await tasks("resume", task_id))
        assert "is removed" in await tasks("remove", task_id)
        assert await tasks("list") == "There are no scheduled tasks.\n"


async def test_a_task_is_given_the_contract_in_a_file(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    names = ("good", "wrong", "broken", "absent")
    good, wrong, broken, absent = (tmp_path / f"{name}.json" for name in names)
    good.write_text(json.dumps(TWO_SOURCES), "utf-8")
    wrong.write_text(json.dumps({**TWO_SOURCES, "stop_after": 0}), "utf-8")
    broken.write_bytes(b"{\xff")
    async with serving(environ, tmp_path) as (_, url):

        async def tasks(*arguments: str) -> tuple[int | None, str, str]:
            return await run(environ, "tasks", "--url", url, *arguments, folder=tmp_path)

        add = ("add", "hello", "--cron", "@daily", "--contract")
        for path, words in (
            (wrong, "contract.stop_after: Expected `int` >= 1"),
            (broken, f"{broken} is not a JSON file."),
            (absent, f"Cannot read {absent}."),
        ):
            assert await tasks(*add, str(path)) == (1, "", f"✗ {words}\n")
        assert (await tasks("list"))[1] == "There are no scheduled tasks.\n"
        code, added, err = await tasks(*add, str(good))
        assert (code, err) == (0, "")
        shown = (await tasks("show", added.split()[1].rstrip(",")))[1]
        [line] = [line for line in shown.splitlines() if line.startswith("contract: ")]
        assert json.loads(line.removeprefix("contract: ")) == TWO_SOURCES


async def test_what_the_server_refuses_is_one_line_with_the_field(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    async with serving(environ, tmp_path) as (_, url):
        for arguments, words in (
            (("add", "x", "--cron", "61 * * * *"), "schedule.expression: The first field"),
            (("add", "x", "--every", "often"), "--every is written as 90s"),
            (("add", "x", "--at", "2099-01-01", "--cron", "@daily"), "Give exactly one of --at"),
            (("show", "there-is-none"), "Not found."),
        ):
            code, out, err = await run(environ, "tasks", "--url", url, *arguments, folder=tmp_path)
            assert (code, out) == (1, "")
            assert err.startswith(f"✗ {words}")
            assert len(err.splitlines()) == 1


async def test_without_a_server_it_is_said_what_to_start(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
    environ = environment(tmp_path / "data", PORT=str(port))
    code, out, err = await run(environ, "tasks", "list", folder=tmp_path)
    assert (code, out) == (1, "")
    assert "headway serve" in err
