"""The forms in which a database may be named, brought to one."""

from typing import Literal

import sqlalchemy as sa

from server.errors import SettingsError

Dialect = Literal["sqlite", "postgresql"]

_DRIVERS: dict[str, Dialect] = {
    "sqlite": "sqlite",
    "sqlite+aiosqlite": "sqlite",
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "postgresql+psycopg": "postgresql",
}
_ASYNC_DRIVER = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg"}
_SYNC_DRIVER = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}


def parse_url(url: str) -> tuple[Dialect, sa.URL]:
    """The dialect of *url* and its form for the async driver.

    Raises:
        SettingsError: Not a form that Headway knows; the text does not repeat the address.
    """
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise SettingsError("HEADWAY_DATABASE_URL is not a database address") from None
    dialect = _DRIVERS.get(parsed.drivername)
    if dialect is None:
        raise SettingsError("HEADWAY_DATABASE_URL must begin with sqlite:/// or postgresql://")
    if dialect == "sqlite" and parsed.database in (None, "", ":memory:"):
        # Readers and the writer have connections of their own, which would not share it.
        raise SettingsError("HEADWAY_DATABASE_URL must name a file: sqlite:///folder/headway.db")
    return dialect, parsed.set(drivername=_ASYNC_DRIVER[dialect])


def sync_url(url: str) -> sa.URL:
    """*url* for a driver that needs no event loop.

    Raises:
        SettingsError: As `parse_url`.
    """
    dialect, parsed = parse_url(url)
    return parsed.set(drivername=_SYNC_DRIVER[dialect])
