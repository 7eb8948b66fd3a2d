"""A private PostgreSQL server from Debian's package, and migrated databases without rows."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg
import pytest

from server.store.migrate import migrate

_PROGRAMS = max(
    Path("/usr/lib/postgresql").glob("*/bin"),
    key=lambda folder: int(folder.parent.name),
    default=Path("/usr/lib/postgresql/none/bin"),
)
"""Of the newest version that Debian's packages installed."""
_SUPERUSER = "headway"
_START_SECONDS = 30.0

_SETTINGS = {
    "listen_addresses": "",  # a socket in the server's own folder: nothing on the network
    "fsync": "off",  # nothing here has to outlive a loss of power
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "lc_messages": "C",
}

_TEMPLATE = "template_headway"

_CUT_OTHERS = b"""
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

_TAKE_ROWS = b"""
SET session_replication_role = replica;  -- the order of tables does not matter then
DO $$
DECLARE name text; long bool;
BEGIN
    FOR name, long IN
        SELECT oid::regclass, pg_relation_size(oid) > 65536 FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
        AND relname <> 'alembic_version' AND pg_relation_size(oid) > 0
    LOOP
        -- New files cost more, and are worth it only where dead rows would slow the next test.
        IF long THEN EXECUTE 'TRUNCATE ' || name || ' CASCADE';
        ELSE EXECUTE 'DELETE FROM ' || name;
        END IF;
    END LOOP;
    PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence;
END $$
"""

_SCHEMA = b"""
SELECT
    (SELECT md5(string_agg(a::text, ',' ORDER BY attrelid, attnum)) FROM pg_attribute a
     WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)),
    (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_constraint),
    (SELECT count(*) FROM pg_trigger), (SELECT count(*) FROM pg_proc),
    (SELECT count(*) FROM pg_db_role_setting), (SELECT array_agg(version_num) FROM alembic_version)
"""


@dataclass
class PostgresServer:
    """One server in a folder of its own."""

    folder: Path
    _process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=count)
    _idle: list[str] = field(default_factory=list)
    """Migrated databases without a row."""
    _schema: object = None
    """Of the template."""

    def url(self, database: str) -> str:
        """The address of a database, as Headway takes it."""
        return f"postgresql://{_SUPERUSER}@/{database}?host={self.folder}"

    def make_template(self) -> None:
        """Make the migrated database that fresh ones are copied from."""
        self._execute(f"CREATE DATABASE {_TEMPLATE}")
        migrate(self.url(_TEMPLATE))
        with self._connected(_TEMPLATE) as connection:
            self._schema = _schema_of(connection)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The address of a migrated database without a row.

        To copy and drop one costs more than most tests do, so whoever only wrote into his leaves
        it, emptied, to the next one.
        """
        name = self._idle.pop() if self._idle else self._copy(_TEMPLATE)
        try:
            yield self.url(name)
        finally:
            if self._empty(name):
                self._idle.append(name)
            else:
                self._drop(name)

    @contextmanager
    def empty_database(self) -> Iterator[str]:
        """The address of a fresh database without a table, dropped afterwards."""
        name = self._copy("template1")
        try:
            yield self.url(name)
        finally:
            self._drop(name)

    def _copy(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def _drop(self, name: str) -> None:
        self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _empty(self, name: str) -> bool:
        """Cut who is still connected, and take all rows out; False if the tables were changed."""
        with self._connected(name) as connection:
            connection.execute(_CUT_OTHERS)
            if _schema_of(connection) != self._schema:
                return False
            connection.execute(_TAKE_ROWS)
        return True

    def start(self) -> None:
        """Start, and wait until it lets somebody in."""
        options = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *_as_other_user("--pdeathsig", "INT"),
                    str(_PROGRAMS / "postgres"),
                    *("-D", str(self.folder / "data"), "-k", str(self.folder)),
                    *options,
                ],
                stdout=log,
                stderr=log,
            )
        self._await_login(self._process)

    def stop(self) -> None:
        """Stop at once, cutting all connections."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=_START_SECONDS)
        self._process = None

    def _await_login(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                return self._execute("SELECT 1")
            except psycopg.OperationalError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()}")
                time.sleep(0.02)

    def _execute(self, statement: str) -> None:
        with self._connected("postgres") as connection:
            connection.execute(statement.encode())

    def _connected(self, name: str) -> psycopg.Connection:
        return psycopg.connect(self.url(name), autocommit=True, connect_timeout=10)


@contextmanager
def open_postgres() -> Iterator[PostgresServer]:
    """A running server with a migrated template; skips the test if PostgreSQL is missing."""
    _require_programs()
    # Not in pytest's folder, which other users may not enter: PostgreSQL refuses to run as root.
    folder = Path(tempfile.mkdtemp(prefix="headway-pg-"))
    server = PostgresServer(folder)
    try:
        _give_away(folder)
        _make_cluster(folder)
        server.start()
        server.make_template()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _make_cluster(folder: Path) -> None:
    initdb = [str(_PROGRAMS / "initdb"), "-D", str(folder / "data"), "-U", _SUPERUSER]
    subprocess.run(
        [*_as_other_user(), *initdb, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N"],
        check=True,
        capture_output=True,
        cwd=folder,
    )


def _require_programs() -> None:
    missing = None
    if not (_PROGRAMS / "postgres").exists():
        missing = "Debian's package postgresql is not installed"
    elif shutil.which("setpriv") is None:
        missing = "setpriv (Debian's util-linux) is not installed"
    elif os.getuid() == 0 and not _has_user("postgres"):
        missing = "there is no user postgres, and PostgreSQL refuses to run as root"
    if missing is None:
        return
    if os.environ.get("HEADWAY_REQUIRE_ALL") == "1":
        pytest.fail(missing)
    pytest.skip(missing)


def _as_other_user(*options: str) -> list[str]:
    """What to put before a command, so that it runs as a user that PostgreSQL accepts."""
    if os.getuid() == 0:
        options = (*options, "--reuid=postgres", "--regid=postgres", "--clear-groups")
    return ["setpriv", *options] if options else []


def _give_away(folder: Path) -> None:
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _schema_of(connection: psycopg.Connection) -> object:
    return connection.execute(_SCHEMA).fetchone()
