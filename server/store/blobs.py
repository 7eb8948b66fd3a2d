"""The bytes of files, each under its hash, so that equal ones are kept once."""

import asyncio
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from server.errors import NotFound, StoreUnavailable

_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Blobs:
    """A folder of bytes; made when first written to."""

    root: Path

    def path(self, sha256: str) -> Path:
        """Where these bytes stand, whether or not they are there.

        Raises:
            NotFound: *sha256* is no hash; so no text of a caller's ever becomes a path.
        """
        if not _SHA256.fullmatch(sha256):
            raise NotFound("there is no such file")
        return self.root / sha256[:2] / sha256

    async def write(self, data: bytes) -> str:
        """Keep *data*; its SHA-256 in hex. On disk for good when this returns.

        Raises:
            StoreUnavailable: The disk is full or cannot be written.

        Cancelling leaves either all bytes or none.
        """
        return await asyncio.to_thread(self._write, data)

    async def read(self, sha256: str) -> bytes:
        """The bytes, or `NotFound`."""
        path = self.path(sha256)
        try:
            return await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError:
            raise NotFound("the bytes of this file are gone") from None
        except OSError as error:
            raise StoreUnavailable(f"a file cannot be read: {error.strerror}") from None

    async def remove(self, hashes: Iterable[str], before: datetime) -> set[str]:
        """Remove these bytes; back with those that stay, since they were written after *before*.

        Whoever wrote them may be about to store a row that names them.
        """
        return await asyncio.to_thread(self._remove, hashes, before)

    def _remove(self, hashes: Iterable[str], before: datetime) -> set[str]:
        left: set[str] = set()
        for sha256 in hashes:
            path = self.path(sha256)
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before.timestamp():
                    path.unlink()
                else:
                    left.add(sha256)
        return left

    def _write(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.path(sha256)
        try:
            if not _touch(path):
                _write_whole(path, data)
        except OSError as error:
            raise StoreUnavailable(f"a file cannot be written: {error.strerror}") from None
        return sha256


def _touch(path: Path) -> bool:
    """Let the file be as if it was written just now; False if there is none."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _write_whole(path: Path, data: bytes) -> None:
    """Write under another name first, so that a half-written file never has its hash as name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as part:
            part.write(data)
            part.flush()
            os.fsync(part.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name in *folder* outlive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
