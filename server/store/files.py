"""What is known of a session's files; their bytes stand in `blobs`."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.errors import NotFound
from server.store.tables import FileRow, table_of

_FILE = table_of(FileRow)

_NOBODY: Final = ""
"""Owner of a file whose session was deleted: its row is there for the bytes alone."""

NOT_SHOWN: Final = ""
"""Stands for the bytes shown of a file that cannot be read as a picture."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that a person or a tool gave to a session."""

    id: str
    session_id: str | None
    """None until a message takes it into a session, and again when that is deleted."""
    owner: str
    name: str
    media_type: str
    size_bytes: int
    sha256: str
    """Names the bytes; several files may share them."""
    created_at: datetime
    shown_sha256: str | None = None
    """Names the bytes that a model is shown of a picture; None until it was shown to one."""


async def insert_file(db: AsyncConnection, file: StoredFile) -> None:
    """Add a file whose bytes are written already."""
    await db.execute(sa.insert(_FILE).values(asdict(file)))


async def load_file(db: AsyncConnection, file_id: str) -> StoredFile:
    """The file, or `NotFound`."""
    found = await files_by_id(db, [file_id])
    if file_id not in found:
        raise NotFound("there is no such file")
    return found[file_id]


async def files_by_id(db: AsyncConnection, file_ids: Collection[str]) -> dict[str, StoredFile]:
    """Those of the files that are there."""
    query = sa.select(_FILE).where(_FILE.c.id.in_(file_ids), _FILE.c.owner != _NOBODY)
    return {file.id: file for file in await _load(db, query)}


async def bind_files(db: AsyncConnection, file_ids: Collection[str], session_id: str) -> None:
    """Take those of the files that are in no session yet into this one."""
    is_free = sa.and_(_FILE.c.id.in_(file_ids), _FILE.c.session_id.is_(None))
    await db.execute(sa.update(_FILE).where(is_free).values(session_id=session_id))


async def abandon_files(db: AsyncConnection, session_ids: Collection[str], now: datetime) -> None:
    """Leave of the sessions' files what `stale_files` finds a while after *now*, for their bytes.

    Nobody else finds them any more.
    """
    left = sa.update(_FILE).where(_FILE.c.session_id.in_(session_ids))
    await db.execute(left.values(session_id=None, owner=_NOBODY, name="", created_at=now))


async def stale_files(db: AsyncConnection, before: datetime, limit: int) -> list[StoredFile]:
    """Files that have been in no session since *before*, the oldest first.

    Nobody takes one into a session until the transaction ends.
    """
    query = sa.select(_FILE).where(_FILE.c.session_id.is_(None), _FILE.c.created_at < before)
    return await _load(db, query.order_by(_FILE.c.created_at).limit(limit).with_for_update())


async def shared_hashes(db: AsyncConnection, files: Collection[StoredFile]) -> set[str]:
    """Names of bytes of *files* that other files have too."""
    hashes = hashes_of(files)
    found: set[str] = set()
    for column in (_FILE.c.sha256, _FILE.c.shown_sha256):
        query = sa.select(column).where(
            column.in_(hashes), _FILE.c.id.not_in([file.id for file in files])
        )
        found |= set(await db.scalars(query))
    return found


async def delete_files(db: AsyncConnection, file_ids: Collection[str]) -> None:
    """Forget the files; their bytes are the caller's affair."""
    await db.execute(sa.delete(_FILE).where(_FILE.c.id.in_(file_ids)))


def hashes_of(files: Iterable[StoredFile]) -> set[str]:
    """Names of all bytes that *files* have."""
    names = (name for file in files for name in (file.sha256, file.shown_sha256))
    return {name for name in names if name}


async def set_shown(db: AsyncConnection, file_id: str, shown_sha256: str) -> None:
    """Note which bytes a model is shown of the file, or `NOT_SHOWN`."""
    await db.execute(
        sa.update(_FILE).where(_FILE.c.id == file_id).values(shown_sha256=shown_sha256)
    )


async def _load(db: AsyncConnection, query: sa.Select[Any]) -> list[StoredFile]:
    return [StoredFile(**row) for row in (await db.execute(query)).mappings()]
