"""Files of messages in the workspace."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from server.agent.prompt import upload_path
from server.agent.uploads import place_uploads
from server.message import FilePart
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.files import StoredFile, insert_file
from tests.server.store.rows import NOON, make_session

MIB = 1 << 20


@contextmanager
def files_up_to(most_bytes: int) -> Iterator[None]:
    """Let this process write no file that is longer, as a disk that is full would."""
    was, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (was, hard))


async def test_a_file_that_could_not_be_written_whole_is_placed_the_next_time(
    store: Store, tmp_path: Path
) -> None:
    blobs, workspace = Blobs(tmp_path / "files"), tmp_path / "workspace"
    data = bytes(9 * MIB)
    await make_session(store)
    file = StoredFile(
        "f1", "s1", "ann", "a", "text/plain", len(data), await blobs.write(data), NOON
    )
    async with store.write() as db:
        await insert_file(db, file)
    part = FilePart("f1", "text/plain", "a", len(data))
    with files_up_to(8 * MIB), pytest.raises(OSError, match="large"):
        await place_uploads(store, blobs, [part], workspace)
    assert list((workspace / "uploads").iterdir()) == []
    await place_uploads(store, blobs, [part], workspace)
    assert (workspace / upload_path(part)).stat().st_size == len(data)
