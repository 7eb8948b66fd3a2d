"""What nobody needs any more is forgotten."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from channels.port import InboundFile
from server.errors import NotFound
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.files import StoredFile, files_by_id, insert_file, load_file
from server.store.ids import new_id
from server.tools.shell import FOLDER, Shells, trace_of
from server.tools.trace import End
from server.upkeep import COMMANDS_KEPT, FILES_KEPT, tidy_files, tidy_workdirs, tidy_workspace
from tests.fakes.llm import forever, reply, serve_gateway
from tests.house import House, is_title, open_house, settings_for
from tests.server.store.rows import NOON, make_session
from tests.server.tools.caller import context_of
from tests.waiting import until

PNG = b"\x89PNG\r\n\x1a\n no picture"

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
        leave(folder, "gone", ".workdir")
        leave(folder, "sh-of-a-person", ".out")
        async with open_house(settings):

            async def is_tidy() -> bool:
                return sorted(file.name for file in folder.iterdir()) == [
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


async def test_files_go_a_day_after_their_session_or_without_one(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        serve_gateway(forever(reply("hello")), title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        store, blobs = house.state["store"], house.state["blobs"]
        kept, gone = await house.create(), await house.create()
        by_message = await upload(house, PNG)
        both = [await upload(house, b"in both", session.id) for session in (kept, gone)]
        alone, unused = await upload(house, b"alone", gone.id), await upload(house, b"unused")
        await house.ask(kept, "look", files=[InboundFile(by_message.id)])
        await house.ask(gone, "look", files=[InboundFile(both[1].id), InboundFile(alone.id)])
        await house.settled(gone)
        await house.state["inbox"].delete_session(gone.id)
        async with store.read() as db:
            with pytest.raises(NotFound):
                await load_file(db, alone.id)

        now = datetime.now(UTC)
        await tidy_files(store, blobs, house.workspace, now)
        assert await blobs.read(alone.sha256) == b"alone"
        placed = sorted(place.name for place in (house.workspace / "uploads").iterdir())
        assert len(placed) == 3

        await tidy_files(store, blobs, house.workspace, now + FILES_KEPT + timedelta(minutes=5))
        for file in (alone, unused):
            assert not blobs.path(file.sha256).exists()
        async with store.read() as db:
            found = await files_by_id(db, [by_message.id, both[0].id])
            assert {file.session_id for file in found.values()} == {kept.id}
            assert len(found) == 2
            assert await db.scalar(sa.text("SELECT count(*) FROM file")) == 2
        assert await blobs.read(both[0].sha256) == b"in both"
        assert await blobs.read(by_message.sha256) == PNG
        placed = [place.name for place in (house.workspace / "uploads").iterdir()]
        assert placed == [f"{by_message.id}-a"]


async def upload(house: House, data: bytes, session_id: str | None = None) -> StoredFile:
    """A file of ann's, kept as an upload is."""
    file = StoredFile(
        id=new_id(),
        session_id=session_id,
        owner="ann",
        name="a",
        media_type="image/png" if data == PNG else "text/plain",
        size_bytes=len(data),
        sha256=await house.state["blobs"].write(data),
        created_at=datetime.now(UTC),
    )
    async with house.state["store"].write() as db:
        await insert_file(db, file)
    return file


async def test_bytes_that_somebody_wrote_again_meanwhile_stay(store: Store, tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "files")
    sha256 = await blobs.write(b"words")
    os.utime(blobs.path(sha256), (LONG_AGO, LONG_AGO))
    file = StoredFile("f1", None, "ann", "a", "text/plain", 5, sha256, NOON)
    async with store.write() as db:
        await insert_file(db, file)
    await blobs.write(b"words")  # an upload whose row is not there yet
    now = datetime.now(UTC)
    await tidy_files(store, blobs, tmp_path, now)
    assert await blobs.read(sha256) == b"words"
    await tidy_files(store, blobs, tmp_path, now + FILES_KEPT + timedelta(minutes=5))
    assert not blobs.path(sha256).exists()


async def test_where_commands_stood_is_forgotten_with_the_session(
    store: Store, tmp_path: Path
) -> None:
    await make_session(store, "s1")
    leave(tmp_path / FOLDER, "s1", ".workdir")
    leave(tmp_path / FOLDER, "gone", ".workdir")
    await tidy_workdirs(store, tmp_path)
    assert [file.name for file in (tmp_path / FOLDER).iterdir()] == ["s1.workdir"]


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
