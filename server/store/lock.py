"""One process per SQLite database: the lock ends with the process, however it ends."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server.errors import SettingsError

LOCK_NAME = "headway.lock"


@contextmanager
def hold_lock(data_dir: Path) -> Iterator[None]:
    """Hold the data folder for this process.

    Raises:
        SettingsError: Another process serves from it.
    """
    with (data_dir / LOCK_NAME).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SettingsError(
                "HEADWAY_DATA_DIR: another server works in this folder; end it, choose another "
                "folder, or share a PostgreSQL database by HEADWAY_DATABASE_URL"
            ) from None
        yield
