"""Reading some lines of a file that may be huge, without ever holding more than is shown."""

import os
import time
from typing import BinaryIO

from server.errors import ToolError
from server.tools.cut import Excerpt, size_bytes

LINE_CAP_BYTES = 4_000
"""Longer lines are minified code or encoded bytes; head and tail show which."""

READ_SECONDS = 20.0
"""A disk reads some GB in this; a thread cannot be stopped from outside, so it looks itself."""

_CHUNK_BYTES = 64 * 1024


class Lines:
    """The lines of an open file, from its beginning."""

    def __init__(self, file: BinaryIO, shown: str) -> None:
        """*shown* is the file's name in an error."""
        self._file = file
        self._shown = shown
        self._deadline = time.monotonic() + READ_SECONDS

    def skip(self, count: int) -> None:
        """Go past *count* lines.

        Raises:
            ToolError: The file ends before, or the way takes too long.
        """
        missing = count
        while missing:
            chunk = self._file.read(_CHUNK_BYTES)
            if not chunk:
                break
            self._check_time()
            found = chunk.count(b"\n")
            if found >= missing:
                self._file.seek(_after_lines(chunk, missing) - len(chunk), os.SEEK_CUR)
            missing -= min(found, missing)
        if count and not self.has_more():
            raise ToolError("out_of_range", f"{self._shown}: the file ends before line {count + 1}")

    def take(self, limit: int, room_bytes: int) -> list[str]:
        """Up to *limit* lines, the last of them at most one line beyond *room_bytes*."""
        lines: list[str] = []
        while len(lines) < limit and room_bytes > 0:
            line = self._next()
            if not line:
                break
            lines.append(line)
            room_bytes -= size_bytes(line)
        return lines

    def has_more(self) -> bool:
        """Whether another line follows."""
        byte = self._file.read(1)
        self._file.seek(-len(byte), os.SEEK_CUR)
        return bool(byte)

    def _next(self) -> str:
        excerpt = Excerpt(LINE_CAP_BYTES)
        for piece in iter(lambda: self._file.readline(_CHUNK_BYTES), b""):
            if b"\x00" in piece:
                raise ToolError(
                    "binary_file", f"{self._shown}: is no text file (view_image shows pictures)"
                )
            self._check_time()
            excerpt.add(piece)
            if piece.endswith(b"\n"):
                break
        return excerpt.text()

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise ToolError("timeout", f"{self._shown}: reading so far takes too long; use shell")


def _after_lines(chunk: bytes, count: int) -> int:
    """Where the line after *count* line ends begins."""
    start = 0
    for _ in range(count):
        start = chunk.index(b"\n", start) + 1
    return start
