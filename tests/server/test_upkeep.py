"""What nobody needs any more is forgotten."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from server.tools.shell import FOLDER, Shells, trace_of
from server.tools.trace import End
from server.upkeep import COMMANDS_KEPT, tidy_workspace
from tests.fakes.llm import serve_gateway
from tests.house import is_title, open_house, settings_for
from tests.server.tools.caller import context_of
from tests.waiting import until

LONG_AGO = (datetime.now(UTC) - COMMANDS_KEPT - timedelta(hours=1)).timestamp()


def leave(folder: Path, name: str, *endings: str, changed_at: float = LONG_AGO) -> None:
    """Files of a command as an earlier server left them."""
    folder.mkdir(parents=True, exist_ok=True)
    for ending in endings:
        file = folder / f"{name}{ending}"
        file.write_text("exit 0\n/\n" if ending == ".exit" else "")
        os.utime(file, (changed_at, changed_at))


def make_old(files: Sequence[Path]) -> None:
    """Let these be as if nobody had touched them for long."""
    for file in files:
        os.utime(file, (LONG_AGO, LONG_AGO))


async def test_what_commands_of_earlier_servers_left_goes_with_the_start(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with serve_gateway([], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        folder = settings.workspace / FOLDER
        leave(folder, "sh-000000000001", ".out", ".exit")
        leave(folder, "sh-000000000002", ".ready")
        leave(folder, "sh-000000000003", ".out")
        leave(folder, "sh-000000000003", ".exit", changed_at=datetime.now(UTC).timestamp())
        leave(folder, "s1", ".workdir")
        leave(folder, "sh-of-a-person", ".out")
        async with open_house(settings):

            async def is_tidy() -> bool:
                return sorted(file.name for file in folder.iterdir()) == [
                    "s1.workdir",
                    "sh-000000000003.exit",
                    "sh-000000000003.out",
                    "sh-of-a-person.out",
                ]

            await until(is_tidy)


async def test_a_command_that_still_runs_keeps_its_files_however_silent_it_is(
    tmp_path: Path,
) -> None:
    context = context_of(tmp_path, "c1")
    async with Shells(os.environ) as shells:
        await shells.start("sleep 600", run_async=True, context=context)
        trace = trace_of(context)

        async def has_begun() -> bool:
            end = trace.look()
            return isinstance(end, End) and end.group is not None

        await until(has_begun)
        files = sorted((tmp_path / FOLDER).glob("sh-*"))
        assert len(files) == 2
        make_old(files)
        await tidy_workspace(tmp_path, datetime.now(UTC))
        assert sorted((tmp_path / FOLDER).glob("sh-*")) == files
    make_old(files)
    await tidy_workspace(tmp_path, datetime.now(UTC))
    assert list((tmp_path / FOLDER).glob("sh-*")) == []


async def test_a_workspace_in_which_no_command_ran_has_nothing_to_tidy(tmp_path: Path) -> None:
    await tidy_workspace(tmp_path, datetime.now(UTC))
    assert os.listdir(tmp_path) == []


async def test_what_cannot_be_tidied_keeps_no_hour_from_being_tidied(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_gateway([], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        folder = settings.workspace / FOLDER
        (folder / "sh-000000000001.out").mkdir(parents=True)
        make_old([folder / "sh-000000000001.out"])
        async with open_house(settings):

            async def is_told() -> bool:
                return any("[upkeep] failed" in record.message for record in caplog.records)

            await until(is_told)
            assert "upkeep" in {task.get_name() for task in asyncio.all_tasks()}
