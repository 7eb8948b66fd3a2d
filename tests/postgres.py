"""A private PostgreSQL server from Debian's package, and fresh databases made from a template."""

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


@dataclass
class PostgresServer:
    """One server in a folder of its own."""

    folder: Path
    _process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str) -> str:
        """The address of a database, as Headway takes it."""
        return f"postgresql://{_SUPERUSER}@/{database}?host={self.folder}"

    def make_template(self) -> None:
        """Make the migrated database that fresh ones are copied from."""
        self._execute("CREATE DATABASE template_headway")
        migrate(self.url("template_headway"))

    @contextmanager
    def database(self, template: str = "template_headway") -> Iterator[str]:
        """The address of a fresh copy of *template*, dropped afterwards."""
        name = f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

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
        url = self.url("postgres")
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement.encode())


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
