"""The walls of a session's folder: where a path given by the model may lead, and opening it."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from server.errors import ToolError

_NAME_CAP_BYTES = 255
"""Of one name, on every common file system."""

_PATH_CAP_BYTES = 3_500
"""Linux admits 4 095 with the workspace's own path before it."""

_CODES = {
    errno.ENOENT: ("not_found", "does not exist"),
    errno.EACCES: ("permission_denied", "the server may not open it"),
    errno.EPERM: ("permission_denied", "the server may not change it"),
    errno.EROFS: ("permission_denied", "is on a read-only disk"),
    errno.EISDIR: ("not_a_file", "is a folder"),
    errno.EEXIST: ("not_a_folder", "one part of it is a file, not a folder"),
    errno.ENOTDIR: ("not_a_folder", "one part of it is a file, not a folder"),
    errno.ENAMETOOLONG: ("bad_path", "the name is too long"),
    errno.ELOOP: ("bad_path", "its links lead nowhere, or it became a link just now"),
    errno.ENOSPC: ("disk_full", "the disk is full"),
    errno.EDQUOT: ("disk_full", "the disk quota is used up"),
    errno.ENXIO: ("not_a_file", "is not an ordinary file"),
}


def resolve(workspace: Path, path: str) -> Path:
    """The real place of *path*, which need not exist yet; all links on the way are followed.

    Args:
        workspace: Absolute and resolved.
        path: Relative to the workspace, or absolute and inside it.
    Raises:
        ToolError: It leads out of the workspace, or can be no path.
    """
    _check_form(path)
    with os_errors(path):
        try:
            place = (workspace / path).resolve()
        except RuntimeError:  # how pathlib reports a loop of links
            raise ToolError("bad_path", f"{path}: its links lead in a circle") from None
    if not place.is_relative_to(workspace):
        raise ToolError(
            "outside_workspace",
            f"{path}: leads out of the workspace; give a path inside it, relative to its root",
        )
    return place


def relative(workspace: Path, place: Path) -> str:
    """How *place* is named to the model: relative to the workspace, its root as `.`."""
    return place.relative_to(workspace).as_posix()


def open_file(place: Path, shown: str) -> BinaryIO:
    """Open an ordinary file for reading; *shown* is its name in an error.

    Neither a pipe nor a device is opened: the one would wait for a writer, the other never ends.
    A link that took the file's place after `resolve` is refused.

    Raises:
        ToolError: It cannot be read, or is no ordinary file.
    """
    with os_errors(shown):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(place, flags)
        try:
            require_file(os.fstat(handle).st_mode, shown)
        except BaseException:
            os.close(handle)
            raise
        return os.fdopen(handle, "rb")


def require_file(mode: int, shown: str) -> None:
    """Raises ToolError unless *mode* is that of an ordinary file."""
    if stat.S_ISDIR(mode):
        raise ToolError("not_a_file", f"{shown}: is a folder; list_dir shows what is in it")
    if not stat.S_ISREG(mode):
        raise ToolError("not_a_file", f"{shown}: is a pipe, socket or device, not a file")


@contextmanager
def os_errors(shown: str) -> Iterator[None]:
    """Turn what the system says of the path *shown* into words for the model."""
    try:
        yield
    except OSError as error:
        code, words = _CODES.get(error.errno or 0, ("io_error", error.strerror or "unreadable"))
        raise ToolError(code, f"{shown}: {words}") from None


def _check_form(path: str) -> None:
    if not path.strip():
        raise ToolError("bad_path", "the path is empty; `.` is the workspace's root")
    if "\x00" in path:
        raise ToolError("bad_path", "a path cannot contain a NUL character")
    if path == "~" or path.startswith("~/"):
        raise ToolError("bad_path", f"{path[:80]}: `~` means nothing here; paths are relative")
    if any(len(os.fsencode(part)) > _NAME_CAP_BYTES for part in path.split("/")):
        raise ToolError("bad_path", f"{path[:80]}…: a name in it is longer than 255 bytes")
    if len(os.fsencode(path)) > _PATH_CAP_BYTES:
        raise ToolError("bad_path", f"{path[:80]}…: is longer than {_PATH_CAP_BYTES} bytes")
