"""Puts the files of a message where the tools find them."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from server.agent.prompt import upload_path
from server.errors import NotFound
from server.message import FilePart
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.files import files_by_id
from server.store.ids import new_id


async def place_uploads(
    store: Store, blobs: Blobs, files: Iterable[FilePart], workspace: Path
) -> None:
    """Write *files* into the workspace; those that lie there already stay as they are."""
    wanted = {part.file_id: part for part in files}
    if not wanted:
        return
    async with store.read() as db:
        stored = await files_by_id(db, list(wanted))
    for file_id, part in wanted.items():
        path = workspace / upload_path(part)
        if file_id in stored and not path.exists():
            try:
                data = await blobs.read(stored[file_id].sha256)
            except NotFound:
                continue
            await asyncio.to_thread(_write, path, data)


def _write(path: Path, data: bytes) -> None:
    """Write it elsewhere first: what lies at *path* is taken for whole by every later run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".part-{new_id()}")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
