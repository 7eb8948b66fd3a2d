"""Databases for tests: each test gets a fresh one that alembic migrated. And the end of forks."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from server.store.engine import Store, open_store
from server.store.migrate import migrate
from tests.forkserver import FORKS, MCP_FORKS
from tests.postgres import PostgresServer, open_postgres


@pytest.fixture(scope="session", autouse=True)
def forks() -> Iterator[None]:
    """Ends the processes from which commands are forked."""
    yield
    FORKS.close()
    MCP_FORKS.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process alone."""
    with open_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("template") / "headway.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """The address of a fresh SQLite database."""
    path = tmp_path / "headway.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of a fresh PostgreSQL database."""
    with postgres.database() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of a fresh database, of each kind in turn."""
    fixture = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    return str(request.getfixturevalue(fixture))


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """An open store, on each kind of database in turn."""
    async with open_store(database_url) as opened:
        yield opened
