"""Connections: what a transaction keeps, who waits for whom, and what a fault is called."""

import asyncio
import logging
import shutil
import sqlite3
import subprocess
import traceback
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.errors import Duplicate, SettingsError, StoreRefused, StoreUnavailable
from server.message import Message
from server.store.engine import Store, open_store
from server.store.messages import append_messages, load_page
from server.store.runs import insert_run
from server.store.sessions import insert_session, list_sessions
from tests.postgres import PostgresServer
from tests.server.store.rows import a_message, a_run, a_session, make_session

_SECRET = "hunter2-小明"


async def _count(store: Store, table: str) -> int:
    async with store.read() as db:
        return int(await db.scalar(sa.text(f"SELECT count(*) FROM {table}")) or 0)


def _path_of(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


async def test_block_that_ends_well_is_kept_and_one_that_raises_is_undone(store: Store) -> None:
    await make_session(store, "kept")
    with pytest.raises(LookupError):
        await _write_and_raise(store)
    async with store.read() as db:
        assert [s.id for s in await list_sessions(db, None, before=None, limit=9)] == ["kept"]


async def _write_and_raise(store: Store) -> None:
    async with store.write() as db:
        await insert_session(db, a_session("undone"))
        raise LookupError


async def test_reader_cannot_write(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match="read-only"):
        async with store.read() as db:
            await insert_session(db, a_session())
    assert await _count(store, "session") == 0
    await make_session(store)


async def test_reader_sees_nothing_of_an_unfinished_write(store: Store) -> None:
    async with store.write() as db:
        await insert_session(db, a_session())
        assert await _count(store, "session") == 0
    assert await _count(store, "session") == 1


async def test_forty_writers_that_read_first_all_succeed(store: Store) -> None:
    await make_session(store)

    async def append(number: int) -> None:
        async with store.write() as db:
            await append_messages(db, "s1", [a_message(str(number))])

    await asyncio.gather(*(append(number) for number in range(40)))
    async with store.read() as db:
        messages = await load_page(db, "s1", before_seq=None, limit=99)
    assert [m.seq for m in messages] == list(range(1, 41))
    assert {m.text for m in messages} == {str(number) for number in range(40)}


async def test_forty_writers_of_two_processes_all_succeed(store: Store, database_url: str) -> None:
    await make_session(store)

    async def append(opened: Store) -> None:
        async with opened.write() as db:
            await append_messages(db, "s1", [a_message()])

    async with open_store(database_url) as other:
        await asyncio.gather(*(append(opened) for opened in (store, other) * 20))
    assert await _count(store, "message") == 40


async def test_cancel_inside_the_block_undoes_it(store: Store) -> None:
    entered = asyncio.Event()

    async def write() -> None:
        async with store.write() as db:
            await insert_session(db, a_session())
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await entered.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert await _count(store, "session") == 0
    await make_session(store)


async def test_cancel_during_the_commit_waits_for_it_and_goes_on(store: Store) -> None:
    async def write() -> None:
        async with store.write() as db:
            await insert_session(db, a_session())
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # comes out at the next await, which is the commit

    task = asyncio.create_task(write())
    await asyncio.wait({task})
    assert task.cancelled()
    assert await _count(store, "session") == 1
    await make_session(store, "s2")


async def test_cancel_while_postgresql_commits_does_not_reach_the_server(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        await _make_commits_slow(store)
        task = asyncio.create_task(make_session(store))
        await _await_slow_commit(store)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert await _count(store, "session") == 1


async def _make_commits_slow(store: Store) -> None:
    """Let each commit that adds a session sleep, by a trigger that is put off until then."""
    async with store.write() as db:
        await db.execute(
            sa.text(
                "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END'"
            )
        )
        await db.execute(
            sa.text(
                "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON session DEFERRABLE INITIALLY"
                " DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()"
            )
        )


async def _await_slow_commit(store: Store) -> None:
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    async with asyncio.timeout(10):
        while True:
            async with store.read() as db:
                if await db.scalar(sa.text(sleeping)):
                    return


async def test_cancel_at_any_step_keeps_all_or_nothing_and_the_store_usable(store: Store) -> None:
    async def write(number: int) -> None:
        async with store.write() as db:
            await insert_session(db, a_session(f"s{number}"))
            await insert_run(db, a_run(f"r{number}", session_id=f"s{number}"))

    for number in range(0, 400, 5):
        task = asyncio.create_task(write(number))
        for _ in range(number):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
    assert await _count(store, "session") == await _count(store, "run")
    async with asyncio.timeout(10):
        await write(99)
    assert await _count(store, "session WHERE id = 's99'") == 1


async def test_cancelled_statement_leaves_no_lock_behind(store: Store, database_url: str) -> None:
    """The statement itself is under way, in the driver's thread or on the server."""
    slow = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
        "SELECT count(*) FROM n"
        if store.dialect == "sqlite"
        else "SELECT pg_sleep(60)"
    )
    begun = asyncio.Event()

    async def write() -> None:
        async with store.write() as db:
            await insert_session(db, a_session())
            begun.set()
            await db.execute(sa.text(slow))

    task = asyncio.create_task(write())
    await begun.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(20):
        await asyncio.wait({task})
        async with open_store(database_url) as other:
            await make_session(other)
        await make_session(store, "s2")
    assert task.cancelled()
    assert await _count(store, "session") == 2


async def test_no_free_connection_in_time_is_unavailable(database_url: str) -> None:
    async with open_store(database_url, pool_wait_seconds=0.05) as store:
        with pytest.raises(StoreUnavailable, match="became free"):
            await _hold_many(store, 30)
        await make_session(store)


async def _hold_many(store: Store, transactions: int) -> None:
    async with AsyncExitStack() as held:
        for _ in range(transactions):
            await held.enter_async_context(store.write())


async def test_locked_database_is_unavailable_until_it_is_let_go(sqlite_url: str) -> None:
    other = sqlite3.connect(_path_of(sqlite_url), isolation_level=None)
    async with open_store(sqlite_url, busy_seconds=0.05) as store:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match="is locked"):
            await make_session(store)
        assert await store.check() == (
            "the database is locked; end the program that holds it, or try again"
        )
        assert await _count(store, "session") == 0, "reading goes on meanwhile"
        other.execute("ROLLBACK")
        await make_session(store)
        assert await store.check() is None
    other.close()


async def test_writer_waits_for_a_lock_that_is_let_go_in_time(sqlite_url: str) -> None:
    other = sqlite3.connect(_path_of(sqlite_url), isolation_level=None)
    async with open_store(sqlite_url, busy_seconds=20) as store:
        other.execute("BEGIN EXCLUSIVE")
        writing = asyncio.create_task(make_session(store))
        done, _ = await asyncio.wait({writing}, timeout=0.2)
        assert not done
        other.execute("ROLLBACK")
        await writing
    other.close()


async def test_full_database_is_unavailable_and_heals(sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        await make_session(store)
        async with store.write() as db:
            pages = await db.scalar(sa.text("PRAGMA page_count"))
            await db.execute(sa.text(f"PRAGMA max_page_count={pages}"))
        with pytest.raises(StoreUnavailable, match="disk of the database is full"):
            await _append_much(store)
        assert await _count(store, "message") == 0
        async with store.write() as db:
            await db.execute(sa.text("PRAGMA max_page_count=1000000"))
        await _append_much(store)
        assert await _count(store, "message") == 1


async def _append_much(store: Store) -> None:
    async with store.write() as db:
        await append_messages(db, "s1", [a_message("x" * 300_000)])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root alone")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_full_disk_is_unavailable_and_heals(small_disk: Path, sqlite_template: Path) -> None:
    shutil.copyfile(sqlite_template, small_disk / "headway.db")
    async with open_store(f"sqlite:///{small_disk / 'headway.db'}") as store:
        await make_session(store)
        assert await store.check() is None
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free))
        with pytest.raises(StoreUnavailable, match="disk of the database is full"):
            await _append_much(store)
        trouble = await store.check()
        assert trouble is not None
        assert trouble.endswith("free some space")
        ballast.unlink()
        await _append_much(store)
        assert await store.check() is None
        assert await _count(store, "message") == 1


async def test_restarted_postgresql_is_met_by_a_fresh_connection(
    postgres: PostgresServer, postgres_url: str
) -> None:
    async with open_store(postgres_url) as store:
        await make_session(store)
        postgres.stop()
        try:
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await make_session(store, "s2")
            assert "does not answer; check that it runs" in (await store.check() or "")
        finally:
            postgres.start()
        assert await store.check() is None
        await make_session(store, "s2")
        assert await _count(store, "session") == 2


async def test_restart_of_postgresql_between_two_transactions_is_not_noticed(
    postgres: PostgresServer, postgres_url: str
) -> None:
    async with open_store(postgres_url) as store:
        await make_session(store)
        postgres.stop()
        postgres.start()
        await make_session(store, "s2")
        assert await _count(store, "session") == 2


async def test_postgresql_lost_inside_a_transaction_is_unavailable(
    postgres: PostgresServer, postgres_url: str
) -> None:
    async with open_store(postgres_url) as store:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await _write_over_restart(store, postgres)
        assert await _count(store, "session") == 0
        await make_session(store)


async def _write_over_restart(store: Store, postgres: PostgresServer) -> None:
    async with store.write() as db:
        await insert_session(db, a_session())
        postgres.stop()
        postgres.start()
        await insert_run(db, a_run("r1"))


async def test_row_locked_for_too_long_is_unavailable(postgres_url: str) -> None:
    async with open_store(postgres_url, busy_seconds=0.05) as store:
        await make_session(store)
        async with store.write() as db:
            await append_messages(db, "s1", [a_message()])
            with pytest.raises(StoreUnavailable, match="is locked"):
                await _append_much(store)


async def test_missing_tables_name_the_command_that_makes_them(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with postgres.empty_database() as empty:
        for url in (f"sqlite:///{tmp_path / 'empty.db'}", empty):
            async with open_store(url) as store:
                trouble = await store.check()
            assert trouble is not None
            assert "headway migrate" in trouble


async def test_file_that_is_no_database_is_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "headway.db").write_bytes(b"not a database " * 1000)
    async with open_store(f"sqlite:///{tmp_path / 'headway.db'}") as store:
        assert "damaged" in (await store.check() or "")


async def test_missing_folder_is_named_as_the_reason(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path / 'nowhere' / 'headway.db'}") as store:
        assert "check that its folder exists" in (await store.check() or "")


async def test_missing_server_and_database_are_named_without_the_address(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    nobody = f"postgresql://u:{_SECRET}@/d?host={tmp_path}"
    for url in (nobody, postgres.url("missing")):
        async with open_store(url) as store:
            trouble = await store.check()
        assert trouble is not None
        assert "does not answer; check" in trouble
        assert _SECRET not in trouble


async def test_readonly_replica_is_noticed(postgres_url: str) -> None:
    alter = f"ALTER DATABASE {sa.make_url(postgres_url).database}"
    async with open_store(postgres_url) as store, store.write() as db:
        await db.execute(sa.text(f"{alter} SET default_transaction_read_only = on"))
    async with open_store(postgres_url) as store:
        assert "read-only" in (await store.check() or "")


async def test_no_value_reaches_an_error_or_a_log(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await make_session(store)
    message = a_message(_SECRET, message_id=_SECRET)
    broken = replace(message, id="m2", content=_SECRET, role=None)  # type: ignore[arg-type]
    await _append(store, [message])
    for refused, kind in ((message, Duplicate), (broken, StoreRefused)):
        with pytest.raises(kind) as raised:
            await _append(store, [refused])
        shown = "".join(traceback.format_exception(raised.value))
        assert _SECRET not in shown
        assert "in append_messages" in shown, "the place where it happened is lost"
    assert _SECRET not in caplog.text


async def _append(store: Store, messages: list[Message]) -> None:
    async with store.write() as db:
        await append_messages(db, "s1", messages)


async def test_connections_are_set_up_as_the_design_needs(sqlite_url: str) -> None:
    async with open_store(sqlite_url, busy_seconds=7) as store:
        async with store.write() as db:
            assert await _pragma(db, "journal_mode") == "wal"
            assert await _pragma(db, "synchronous") == 1
            assert await _pragma(db, "foreign_keys") == 1
            assert await _pragma(db, "busy_timeout") == 7000
        async with store.read() as db:
            assert await _pragma(db, "query_only") == 1


async def _pragma(db: AsyncConnection, name: str) -> object:
    return await db.scalar(sa.text(f"PRAGMA {name}"))


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hunter2@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "hunter2",
        "",
        "postgresql+asyncpg://",
    ],
)
async def test_address_of_another_form_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(SettingsError, match="HEADWAY_DATABASE_URL") as refused:
        await _open(url)
    assert "hunter2" not in str(refused.value)


async def _open(url: str) -> None:
    async with open_store(url):
        pass


@pytest.mark.parametrize("prefix", ["sqlite:///", "sqlite+aiosqlite:///"])
async def test_driver_may_be_named_or_not(sqlite_url: str, prefix: str) -> None:
    async with open_store(sqlite_url.replace("sqlite:///", prefix)) as store:
        assert store.dialect == "sqlite"
        assert await store.check() is None


@pytest.mark.parametrize("prefix", ["postgres:", "postgresql:", "postgresql+psycopg:"])
async def test_driver_of_postgresql_may_be_named_or_not(postgres_url: str, prefix: str) -> None:
    async with open_store(postgres_url.replace("postgresql:", prefix)) as store:
        assert store.dialect == "postgresql"
        assert await store.check() is None
