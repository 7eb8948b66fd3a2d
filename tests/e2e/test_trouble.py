"""The store in trouble, and starts that cannot be: told clearly, survived, and healed."""

import asyncio
import os
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.process import ANN, Installation, ServerProcess, open_server
from tests.fakes.llm import Quirks, reply, serve_gateway
from tests.house import is_title
from tests.postgres import PostgresServer
from tests.waiting import until
from tests.wire import Frame, WireClient, WireError, open_client

SESSION = "s"
STORE_TEXT = "存储暂时不可用（数据库被锁、磁盘已满或连接中断），本次执行已停止。请稍后重试。"
MIB = 2**20
PATIENCE_SECONDS = 30
"""For an end that cannot be written: the store waits for its lock, then the run for the store."""


class Trouble:
    """A session whose run waits for the model, so that trouble can begin in its middle."""

    def __init__(self, server: ServerProcess, client: WireClient, gate: asyncio.Event) -> None:
        self.server = server
        self.client = client
        self._gate = gate

    def go_on(self) -> None:
        """Let the model answer."""
        self._gate.set()

    async def told(self) -> Frame:
        """The failure, as the client hears it."""
        events = self.client.followed[SESSION]
        await self.client.until(lambda: "RUN_ERROR" in events.kinds, PATIENCE_SECONDS)
        return await self.client.event(SESSION, "RUN_ERROR")

    async def assert_not_ready(self, words: str) -> None:
        """The server is up, and says what is wrong with its store."""
        status, _ = await self.server.get("/healthz")
        assert status == 200
        await until(self._is_not_ready)  # the last answer is told for a few seconds more
        _, body = await self.server.get("/readyz")
        assert body["status"] == "not_ready"
        assert not body["checks"]["store"]["ok"]
        assert words in body["checks"]["store"]["reason"]

    async def assert_refuses(self) -> None:
        """A message is not taken, and the client is told to come again."""
        with pytest.raises(WireError) as refused:
            await start(self.client, "refused")
        assert refused.value.retryable

    async def assert_ready(self) -> None:
        """The server takes messages again."""
        await until(self._is_ready)

    async def assert_healed(self) -> None:
        """The server is ready, the run is over, and the session can be used."""
        await self.assert_ready()
        await until(self._has_rested)
        session = await self.server.session(SESSION)
        assert session["status"] == "FAILED"
        assert session["executionError"]["message"] == STORE_TEXT
        await start(self.client, "m2")
        await self.client.event(SESSION, "RUN_FINISHED")
        session = await self.server.session(SESSION)
        assert (session["status"], session["executionError"]) == ("COMPLETED", None)
        said = [m["content"] for m in await self.server.messages(SESSION)]
        assert said == ["m1", "m2", "later"]

    async def _is_ready(self) -> bool:
        status, _ = await self.server.get("/readyz")
        return status == 200

    async def _is_not_ready(self) -> bool:
        status, _ = await self.server.get("/readyz")
        return status == 503

    async def _has_rested(self) -> bool:
        session = await self.server.session(SESSION)
        return bool(session["status"] not in ("RUNNING", "QUEUED"))


async def start(client: WireClient, message_id: str) -> Any:
    """Send a message that says its own id."""
    return await client.request(
        "run.start", session=SESSION, clientMsgId=message_id, content=message_id
    )


@asynccontextmanager
async def open_trouble(folder: Path, **variables: str) -> AsyncIterator[Trouble]:
    """A server in the middle of a run."""
    gate = asyncio.Event()
    script = [reply("lost", quirks=Quirks(before_body=gate)), reply("later")]
    async with serve_gateway(script, title=is_title) as gateway:
        place = Installation(folder, gateway.url, variables)
        async with (
            open_server(place) as server,
            open_client(server.url, token=ANN) as client,
        ):
            await client.request("session.create", session=SESSION)
            await client.subscribe(SESSION)
            status, _ = await server.get("/readyz")
            assert status == 200
            await start(client, "m1")
            await gateway.wait_for_requests(1)
            yield Trouble(server, client, gate)


@dataclass(frozen=True, slots=True)
class Disk:
    """Where a database stands that shall run out of room."""

    folder: Path
    is_mounted: bool
    """A file system of its own, to be filled; else the server's files are kept from growing."""

    def fill(self, pid: int) -> None:
        """Leave no room to the process."""
        if not self.is_mounted:
            limit_files(pid, 4096)
            return
        with (self.folder / "ballast").open("wb", buffering=0) as ballast:
            for size in (MIB, 4096, 1):
                with suppress(OSError):
                    while ballast.write(b"\0" * size):
                        pass

    def free(self, pid: int) -> None:
        """Give the room back."""
        if self.is_mounted:
            (self.folder / "ballast").unlink()
        else:
            limit_files(pid, None)


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """A disk that a test can fill, as real as this machine lets us make one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={32 * MIB}", "tmpfs", str(folder)]
    can_mount = os.getuid() == 0 and shutil.which("mount") is not None
    is_mounted = can_mount and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield Disk(folder, is_mounted)
    finally:
        if is_mounted:
            subprocess.run(["umount", str(folder)], check=True)


def limit_files(pid: int, size_bytes: int | None) -> None:
    """Keep the files of a process from growing, as a quota does; None lets them again."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size_bytes is None else size_bytes, most))


async def test_a_full_disk_fails_the_run_and_heals_when_there_is_room_again(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        database = disk.folder / "headway.db"
        async with open_trouble(tmp_path, DATABASE_URL=f"sqlite:///{database}") as trouble:
            await asyncio.to_thread(disk.fill, trouble.server.pid)
            trouble.go_on()
            assert (await trouble.told())["message"] == STORE_TEXT
            await trouble.assert_not_ready("the disk of the database")
            await trouble.assert_refuses()
            await asyncio.to_thread(disk.free, trouble.server.pid)
            await trouble.assert_healed()


async def test_files_that_may_not_grow_are_told_though_the_disk_has_room(tmp_path: Path) -> None:
    async with open_trouble(tmp_path) as trouble:
        limit_files(trouble.server.pid, 4096)
        await trouble.assert_not_ready("the disk of the database")
        await trouble.assert_refuses()
        limit_files(trouble.server.pid, None)
        await trouble.assert_ready()
        trouble.go_on()
        await trouble.client.event(SESSION, "RUN_FINISHED")
        await start(trouble.client, "m2")
        await trouble.client.event(SESSION, "RUN_FINISHED", 2)


async def test_a_database_that_another_program_holds_fails_the_run_and_heals_when_it_lets_go(
    tmp_path: Path,
) -> None:
    async with open_trouble(tmp_path) as trouble:
        holder = sqlite3.connect(tmp_path / "data" / "headway.db", isolation_level=None)
        try:
            holder.execute("BEGIN EXCLUSIVE")
            trouble.go_on()
            told, _ = await asyncio.gather(
                trouble.told(), trouble.assert_not_ready("the database is locked")
            )
            assert told["message"] == STORE_TEXT
            holder.execute("ROLLBACK")
            await trouble.assert_healed()
        finally:
            holder.close()


async def test_a_database_server_that_stops_fails_the_run_and_heals_when_it_is_back(
    tmp_path: Path, postgres: PostgresServer, postgres_url: str
) -> None:
    async with open_trouble(tmp_path, DATABASE_URL=postgres_url) as trouble:
        postgres.stop()
        try:
            trouble.go_on()
            assert (await trouble.told())["message"] == STORE_TEXT
            await trouble.assert_not_ready("the database does not answer")
            await trouble.assert_refuses()
        finally:
            postgres.start()  # in this thread, with which it ends
        await trouble.assert_healed()


async def test_a_stop_while_the_database_is_away_leaves_the_run_to_the_next_start(
    tmp_path: Path, postgres: PostgresServer, postgres_url: str
) -> None:
    gate = asyncio.Event()
    script = [reply("lost", quirks=Quirks(before_body=gate)), reply("later")]
    async with serve_gateway(script, title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url, {"DATABASE_URL": postgres_url})
        async with open_server(place) as server, open_client(server.url, token=ANN) as client:
            await client.request("session.create", session=SESSION)
            await start(client, "m1")
            await gateway.wait_for_requests(1)
            postgres.stop()
            try:
                gate.set()
                assert await server.sigterm() < 10
            finally:
                postgres.start()
        end_leases(postgres_url)
        async with open_server(place) as server:

            async def is_completed() -> bool:
                return bool((await server.session(SESSION))["status"] == "COMPLETED")

            await until(is_completed)
            said = [m["content"] for m in await server.messages(SESSION)]
            assert said == ["m1", "later"]


def end_leases(url: str) -> None:
    """Let the half minute pass after which a run of a dead process may be taken up."""
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE run SET lease_until = now() WHERE status = 'RUNNING'")


# Starts that cannot be


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "hunter2"),
        ("TOKENS", "ann=hunter2,bob=hunter2"),
        ("MODEL_BASE_URL", "ftp://ann:hunter2@127.0.0.1/v1"),
        ("DATABASE_URL", "mysql://ann:hunter2@127.0.0.1/headway"),
        ("CONFIG", "/nowhere/hunter2.toml"),
    ],
)
async def test_a_wrong_setting_stops_the_start_by_its_name_and_never_shows_its_value(
    tmp_path: Path, name: str, value: str
) -> None:
    place = Installation(tmp_path, variables={name: value})
    code, said = await place.run("serve")
    assert code == 2
    assert f"HEADWAY_{name}" in said.splitlines()[-1]
    assert "hunter2" not in said
    assert len(said.splitlines()) == 1
    assert not place.data_dir.exists()


async def test_a_second_server_on_a_folder_or_port_says_so_and_leaves_the_first_alone(
    tmp_path: Path,
) -> None:
    async with open_server(Installation(tmp_path)) as server:
        code, said = await Installation(tmp_path).run("serve")
        assert code == 2
        assert "HEADWAY_DATA_DIR: another server works in this folder" in said
        port = server.url.rpartition(":")[2]
        code, said = await Installation(tmp_path / "other", variables={"PORT": port}).run("serve")
        assert code == 2
        assert "HEADWAY_HOST, HEADWAY_PORT: cannot listen there" in said
        async with open_client(server.url, token=ANN) as client:
            await client.request("session.create", session=SESSION)
            await client.subscribe(SESSION)
            await start(client, "m1")
            await client.event(SESSION, "RUN_FINISHED")
