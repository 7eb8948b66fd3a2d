"""What a command leaves in the workspace, so that a later process can tell what became of it.

Three files beside each other: `.ready` before it starts, then `.out` with its output and `.exit`
with its process and, at the end, how and where it ended. A command may remove all of them; then
nothing is known, which is never taken for a command that did not start.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from server.tools.cut import Excerpt

_END_CAP_BYTES = 8_192
"""A directory's path is at most 4 095 bytes long."""

_CHUNK_BYTES = 1 << 20

_FILE = re.compile(r"(sh-[0-9a-f]{12})\.(?:ready|out|exit)")


@dataclass(frozen=True, slots=True)
class End:
    """How far a command has come."""

    exit_code: int | None = None
    """None while nobody has told it; negative where a signal ended it."""
    workdir: Path | None = None
    """Where it ended; None where that is unknown."""
    group: int | None = None
    """Its process group, before its end."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The files of one command."""

    folder: Path
    name: str
    """The command's id."""

    @property
    def output(self) -> Path:
        """What it printed."""
        return self.folder / f"{self.name}.out"

    @property
    def _end(self) -> Path:
        return self.folder / f"{self.name}.exit"

    @property
    def _ready(self) -> Path:
        return self.folder / f"{self.name}.ready"

    def announce(self) -> None:
        """Note that the command is about to start; the folder must be there."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(self._ready, flags, 0o666))

    def open(self) -> tuple[int, int]:
        """Descriptors for the output and the end of the command, which starts now.

        Raises:
            FileExistsError: It was started before, by whatever process.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        output = os.open(self.output, flags, 0o666)
        try:
            end = os.open(self._end, flags, 0o666)
        except BaseException:
            os.close(output)
            raise
        with suppress(FileNotFoundError):
            os.unlink(self._ready)
        return output, end

    def look(self) -> End | Literal["ready", "lost"]:
        """How far it has come; `ready` if it did not start, `lost` if nothing can be told."""
        if not self.output.exists():
            return "ready" if self._ready.exists() else "lost"
        try:
            with self._end.open("rb") as file:
                return read_end(file.fileno())
        except OSError:
            return End()

    def excerpt(self, cap_bytes: int) -> Excerpt:
        """The output, its middle left out where it is longer than *cap_bytes*."""
        excerpt = Excerpt(cap_bytes)
        with self.output.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                excerpt.add(chunk)
        return excerpt

    def is_running(self, end: End) -> bool | None:
        """Whether the command's shell is found to live here; None where nobody can tell.

        Process ids are given anew, so it must hold the very file open that tells of its end.
        """
        if end.group is None or not os.path.isdir("/proc/self/fd"):
            return None
        held = f"/proc/{end.group}/fd"
        with suppress(OSError):
            file = self._end.stat()
            return any(_is_same(f"{held}/{name}", file) for name in os.listdir(held))
        return False

    def remove(self) -> None:
        """Forget the command."""
        for file in (self._ready, self.output, self._end):
            file.unlink(missing_ok=True)


def prune_traces(folder: Path, before: datetime) -> int:
    """Forget the commands of *folder* that left nothing new since *before*; how many they were.

    Those that are found to run still are kept, however silent they are.
    """
    newest: dict[str, float] = {}
    with suppress(FileNotFoundError):
        for file in folder.iterdir():
            found = _FILE.fullmatch(file.name)
            if found is not None:
                changed_at = file.lstat().st_mtime
                newest[found[1]] = max(changed_at, newest.get(found[1], 0.0))
    traces = [Trace(folder, name) for name, at in newest.items() if at < before.timestamp()]
    over = [trace for trace in traces if not _is_at_work(trace)]
    for trace in over:
        trace.remove()
    return len(over)


def _is_at_work(trace: Trace) -> bool:
    end = trace.look()
    return isinstance(end, End) and trace.is_running(end) is True


def script(end: int) -> str:
    """Runs its first argument, and tells the descriptor *end* of its process and of its end.

    The code is told only of a command that came to its last line: on the way out after a signal,
    a broken pipe for one, a shell says 0. Where the command ends by itself before that, only
    whoever waits for its process knows the code.
    """
    return (
        f'echo "pid $$" >/dev/fd/{end}; '
        'trap \'{ echo "exit ${headway_exit-}"; pwd -P; } '
        f">/dev/fd/{end} 2>/dev/null' EXIT; "
        # On one line with the command, so that error messages count its lines as the model does.
        'headway_command=$1; set --; eval "$headway_command"; '
        '{ headway_exit=$?; exit "$headway_exit"; } 2>/dev/null'
    )


def read_end(handle: int) -> End:
    """What a command told so far; a mess tells nothing."""
    first, _, rest = os.pread(handle, _END_CAP_BYTES, 0).partition(b"\n")
    word, _, number = first.partition(b" ")
    value: int | None = None
    with suppress(ValueError):
        value = int(number)
    if word == b"pid":
        return End(group=value)
    workdir = os.fsdecode(rest.removesuffix(b"\n"))
    return End(value if word == b"exit" else None, Path(workdir) if _is_path(workdir) else None)


def write_end(handle: int, exit_code: int, workdir: Path | None) -> None:
    """Tell how the command ended, for whoever waited for its process knows it best."""
    told = b"exit %d\n%s\n" % (exit_code, os.fsencode(workdir or ""))
    os.ftruncate(handle, os.pwrite(handle, told, 0))


def _is_path(text: str) -> bool:
    return os.path.isabs(text) and "\x00" not in text


def _is_same(path: str, file: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.stat(path), file)
    return False
