"""Bring a database's schema to this version. None of this may be called on an event loop."""

import sysconfig
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.pool import NullPool

from server.errors import StoreUnavailable
from server.store.faults import reraise
from server.store.url import sync_url


def migrate(url: str) -> None:
    """Upgrade the database at *url* to `head`, from empty or from any earlier revision.

    All in one transaction: if it fails, the database is as before.

    Raises:
        SettingsError: *url* has another form.
        StoreUnavailable: The database cannot be reached or written.
    """
    try:
        command.upgrade(alembic_config(url), "head")
    except sa.exc.SQLAlchemyError as error:
        reraise(error)


def revision(url: str) -> str | None:
    """The revision that the database at *url* has; None if it is empty or not there yet.

    Raises:
        SettingsError: *url* has another form.
        StoreUnavailable: The database cannot be reached.
    """
    parsed = sync_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists():
        return None  # connecting would make the file
    engine = sa.create_engine(parsed, poolclass=NullPool, hide_parameters=True)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except sa.exc.SQLAlchemyError as error:
        reraise(error)
    finally:
        engine.dispose()


def head() -> str:
    """The revision that this version needs."""
    found = ScriptDirectory(str(_scripts())).get_current_head()
    assert found is not None, "a test keeps the revisions one line with one end"
    return found


def alembic_config(url: str) -> Config:
    """What alembic needs to run the revisions on *url*, without a file of settings."""
    config = Config()
    # Percent signs are doubled, since alembic reads the path as a template.
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    config.attributes["url"] = url
    return config


def _scripts() -> Path:
    """The folder of the revisions: in the source tree, or where a wheel puts its files."""
    in_tree = Path(__file__).parents[2] / "alembic"
    installed = Path(sysconfig.get_path("data")) / "share" / "headway" / "alembic"
    for folder in (in_tree, installed):
        if (folder / "env.py").is_file():
            return folder
    raise StoreUnavailable("the migrations are missing; install Headway again")
