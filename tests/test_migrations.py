"""Migrations: from empty and from every revision, with rows that refer to each other."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.pool import NullPool
from sqlmodel import SQLModel

from server.errors import SettingsError, StoreUnavailable
from server.store.migrate import alembic_config, head, migrate, revision
from server.store.url import sync_url
from tests.postgres import PostgresServer

_REVISIONS = [
    script.revision
    for script in ScriptDirectory.from_config(alembic_config("sqlite://")).walk_revisions()
]

_ROWS = (
    "INSERT INTO session (id, kind, status, owner, origin, locale, timezone, queue_paused,"
    " runtime_status_json, created_at, updated_at) VALUES ('s1', 'main', 'IDLE', 'ann', 'web',"
    " 'zh-CN', 'UTC', false, '{}', '2026-01-01 00:00:00', '2026-01-01 00:00:00')",
    "INSERT INTO run (id, session_id, trigger, status, queue_seq, steer, rounds, attempt,"
    " cancel_requested, created_at) VALUES ('r1', 's1', 'message', 'RUNNING', 0, false, 0, 1,"
    " false, '2026-01-01 00:00:00')",
    "INSERT INTO message (id, session_id, run_id, seq, role, content, metadata_json, created_at)"
    " VALUES ('m1', 's1', 'r1', 1, 'user', '你好', '{}', '2026-01-01 00:00:00')",
    "INSERT INTO decision (run_id, round, action_digest, result_digest, exempt, streak, verdict,"
    " rule, policy, created_at) VALUES ('r1', 1, 'a', 'b', false, 1, 'none', 'streak', 'v1',"
    " '2026-01-01 00:00:00')",
)
"""Rows as revision 0001 has them; later revisions carry them along."""

_REBUILD = '''
"""Rebuild a table that others refer to, the way SQLite has to."""

from alembic import op
import sqlalchemy as sa

revision = "rebuild"
down_revision = "{head}"


def upgrade() -> None:
    with op.batch_alter_table("session", recreate="{recreate}") as table:
        table.add_column(sa.Column("color", sa.String(), nullable=True))
    {also}
'''


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database without tables, of each kind in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    postgres: PostgresServer = request.getfixturevalue("postgres")
    with postgres.empty_database() as url:
        yield url


@contextmanager
def _connected(url: str) -> Iterator[sa.Connection]:
    engine = sa.create_engine(sync_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def _insert_rows(url: str) -> None:
    with _connected(url) as connection:
        for statement in _ROWS:
            connection.execute(sa.text(statement))


def _counts(url: str) -> dict[str, int]:
    tables = ("session", "run", "message", "decision")
    with _connected(url) as connection:
        return {
            table: connection.scalar(sa.text(f"SELECT count(*) FROM {table}")) or 0
            for table in tables
        }


def _with_rebuild(url: str, folder: Path, *, also: str = "") -> Config:
    """The revisions with one more that rebuilds `session` and does *also*."""
    config = alembic_config(url)
    scripts = ScriptDirectory.from_config(config)
    recreate = "always" if url.startswith("sqlite") else "auto"
    text = _REBUILD.format(head=head(), recreate=recreate, also=also)
    (folder / "rebuild.py").write_text(text)
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", f"{scripts.versions}:{folder}")
    return config


def test_empty_database_is_brought_to_head(empty_url: str) -> None:
    assert revision(empty_url) is None
    migrate(empty_url)
    assert revision(empty_url) == head()
    migrate(empty_url)
    assert revision(empty_url) == head()


def test_migrated_schema_is_what_the_tables_say(empty_url: str) -> None:
    migrate(empty_url)
    with _connected(empty_url) as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, SQLModel.metadata) == []


@pytest.mark.parametrize("earlier", _REVISIONS)
def test_rows_outlive_the_way_from_every_revision(empty_url: str, earlier: str) -> None:
    command.upgrade(alembic_config(empty_url), "0001")
    _insert_rows(empty_url)
    command.upgrade(alembic_config(empty_url), earlier)
    migrate(empty_url)
    assert revision(empty_url) == head()
    assert _counts(empty_url) == {"session": 1, "run": 1, "message": 1, "decision": 1}


def test_files_of_before_get_the_session_whose_message_has_them(empty_url: str) -> None:
    command.upgrade(alembic_config(empty_url), "0004")
    _insert_rows(empty_url)
    named, queued, unused = "0" * 26, "1" * 26, "2" * 26
    part = '{"type":"file","fileId":"%s","name":"a"}'
    with _connected(empty_url) as connection:
        for file_id in (named, queued, unused):
            connection.execute(
                sa.text(
                    "INSERT INTO file (id, owner, name, media_type, size_bytes, sha256, created_at)"
                    " VALUES (:id, 'ann', 'a', 'image/png', 1, 'h', '2026-01-01 00:00:00')"
                ),
                {"id": file_id},
            )
        message = sa.text("UPDATE message SET metadata_json = :value WHERE id = 'm1'")
        connection.execute(message, {"value": '{"parts":[%s]}' % (part % named)})
        run = sa.text("UPDATE run SET status = 'QUEUED', input_json = :value WHERE id = 'r1'")
        connection.execute(run, {"value": '{"files":[%s]}' % (part % queued)})
    migrate(empty_url)
    with _connected(empty_url) as connection:
        rows = connection.execute(sa.text("SELECT id, session_id FROM file ORDER BY id")).all()
    assert [tuple(row) for row in rows] == [(named, "s1"), (queued, "s1"), (unused, None)]


def test_rebuilding_a_table_keeps_the_rows_that_refer_to_it(empty_url: str, tmp_path: Path) -> None:
    migrate(empty_url)
    _insert_rows(empty_url)
    command.upgrade(_with_rebuild(empty_url, tmp_path), "head")
    assert revision(empty_url) == "rebuild"
    assert _counts(empty_url) == {"session": 1, "run": 1, "message": 1, "decision": 1}


def test_migration_that_orphans_rows_is_refused_and_undone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'headway.db'}"
    migrate(url)
    _insert_rows(url)
    config = _with_rebuild(url, tmp_path, also='op.execute("DELETE FROM session")')
    with pytest.raises(RuntimeError, match="refer to nothing in: message, run"):
        command.upgrade(config, "head")
    assert revision(url) == head()
    assert _counts(url)["session"] == 1
    with _connected(url) as connection:
        columns = {column["name"] for column in sa.inspect(connection).get_columns("session")}
    assert "color" not in columns


def test_migration_that_fails_halfway_leaves_the_database_as_it_was(
    empty_url: str, tmp_path: Path
) -> None:
    migrate(empty_url)
    _insert_rows(empty_url)
    config = _with_rebuild(empty_url, tmp_path, also='raise LookupError("broken revision")')
    with pytest.raises(LookupError):
        command.upgrade(config, "head")
    assert revision(empty_url) == head()
    with _connected(empty_url) as connection:
        columns = {column["name"] for column in sa.inspect(connection).get_columns("session")}
    assert "color" not in columns


def test_all_tables_can_be_dropped_again(empty_url: str) -> None:
    migrate(empty_url)
    command.downgrade(alembic_config(empty_url), "base")
    with _connected(empty_url) as connection:
        assert sa.inspect(connection).get_table_names() == ["alembic_version"]


def test_processes_that_start_at_once_all_find_it_migrated(empty_url: str) -> None:
    program = "import sys; from server.store.migrate import migrate; migrate(sys.argv[1])"
    started = [subprocess.Popen([sys.executable, "-c", program, empty_url]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in started] == [0, 0, 0]
    assert revision(empty_url) == head()


def test_revisions_are_one_line_with_one_end() -> None:
    scripts = ScriptDirectory.from_config(alembic_config("sqlite://"))
    assert len(scripts.get_heads()) == 1
    assert len(scripts.get_bases()) == 1


def test_looking_for_the_revision_makes_no_file(tmp_path: Path) -> None:
    assert revision(f"sqlite:///{tmp_path / 'none.db'}") is None
    assert list(tmp_path.iterdir()) == []


def test_migrated_sqlite_file_is_in_wal_mode(sqlite_url: str) -> None:
    with _connected(sqlite_url) as connection:
        assert connection.scalar(sa.text("PRAGMA journal_mode")) == "wal"


def test_database_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    for url in (
        f"sqlite:///{tmp_path / 'nowhere' / 'headway.db'}",
        f"postgresql://u:hunter2@/d?host={tmp_path}",
    ):
        with pytest.raises(StoreUnavailable) as raised:
            migrate(url)
        assert "hunter2" not in str(raised.value)
    with pytest.raises(SettingsError):
        migrate("mysql://u:hunter2@h/d")


def test_percent_sign_in_an_address_is_taken_as_it_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / '100%s.db'}"
    migrate(url)
    assert revision(url) == head()
