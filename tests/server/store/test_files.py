"""Files of sessions: what is known of them, and their bytes."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from server.errors import NotFound, StoreUnavailable
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.files import StoredFile, files_by_id, insert_file, load_file
from tests.server.store.rows import NOON, make_session


def _a_file(file_id: str, *, session_id: str | None = "s1") -> StoredFile:
    return StoredFile(
        id=file_id,
        session_id=session_id,
        owner="ann",
        name="图 1.png",
        media_type="image/png",
        size_bytes=5_000_000_000,
        sha256="0" * 64,
        created_at=NOON,
    )


async def test_file_comes_back_as_it_was(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_file(db, _a_file("f1"))
        await insert_file(db, _a_file("f2", session_id=None))
    async with store.read() as db:
        assert await load_file(db, "f1") == _a_file("f1")
        found = await files_by_id(db, ["f1", "f2", "gone"])
        assert found == {"f1": _a_file("f1"), "f2": _a_file("f2", session_id=None)}
        with pytest.raises(NotFound):
            await load_file(db, "gone")


async def test_bytes_are_kept_once_under_their_hash(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "files")
    data = bytes(range(256)) * 1000
    first, second = await asyncio.gather(blobs.write(data), blobs.write(data))
    assert first == second == hashlib.sha256(data).hexdigest()
    assert blobs.path(first) == tmp_path / "files" / first[:2] / first
    assert [path.name for path in (tmp_path / "files").rglob("*") if path.is_file()] == [first]
    assert await blobs.read(first) == data
    assert await blobs.read(await blobs.write(b"")) == b""


async def test_bytes_that_are_gone_are_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await Blobs(tmp_path).read("0" * 64)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
async def test_text_that_is_no_hash_never_becomes_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound):
        Blobs(tmp_path).path(name)


async def test_folder_that_cannot_be_written_is_unavailable_and_named_by_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "files").write_text("a file where the folder should be")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await Blobs(tmp_path / "files").write(b"x")
