"""What is known of a session's files; their bytes stand in `blobs`."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.errors import NotFound
from server.store.tables import FileRow, table_of

_FILE = table_of(FileRow)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that a person or a tool gave to a session."""

    id: str
    session_id: str | None
    """None until a message takes it into a session."""
    owner: str
    name: str
    media_type: str
    size_bytes: int
    sha256: str
    """Names the bytes; several files may share them."""
    created_at: datetime


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
    rows = await db.execute(sa.select(_FILE).where(_FILE.c.id.in_(file_ids)))
    return {row["id"]: StoredFile(**row) for row in rows.mappings()}
