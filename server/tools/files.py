"""The file tools: read, write, edit and list, all inside the session's workspace."""

import asyncio
import errno
import hashlib
import heapq
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Annotated, Final

from msgspec import Meta

from server.errors import ToolError
from server.tools.arguments import Arguments, decode, schema_of
from server.tools.base import Found, Kind, ToolContext, ToolResult, ToolSpec, json_result
from server.tools.lines import LINE_CAP_BYTES, Lines
from server.tools.workspace import open_file, os_errors, relative, require_file, resolve

READ_CAP_BYTES = 64_000
"""About 16 000 tokens: a source file of 1 500 lines, a sixth of a small model's context."""

EDIT_CAP_BYTES = 10_000_000
"""An edit holds the file twice in memory; nobody edits larger ones by replacing text. Larger files
are not read either to find out whether a call was done."""

LIST_CAP = 500
"""Entries; more would bury the few the model looks for."""

FILE_SECONDS = 30.0
"""A local disk answers in milliseconds; this ends the wait for one that hangs."""

CANCEL_SECONDS = 0.5
"""How long a write that is given up is waited for: a person's stop is heard within a second."""

_ABSENT: Final = "absent"
_OTHER: Final = "other"
"""Too large to compare, or no file that can be read."""

PathText = Annotated[str, Meta(description="Relative to the workspace's root.", max_length=4096)]


class ReadFileArguments(Arguments, frozen=True):
    """What `read_file` takes."""

    path: PathText
    offset: Annotated[int, Meta(ge=1, description="First line to show, counted from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=10_000, description="Number of lines.")] = 2_000


class WriteFileArguments(Arguments, frozen=True):
    """What `write_file` takes."""

    path: PathText
    content: Annotated[str, Meta(description="The whole new content.")]


class EditFileArguments(Arguments, frozen=True):
    """What `edit_file` takes."""

    path: PathText
    old_text: Annotated[str, Meta(description="Text to replace, exactly as in the file.")]
    new_text: Annotated[str, Meta(description="What takes its place; may be empty.")]
    replace_all: Annotated[bool, Meta(description="Replace each occurrence.")] = False


class ListDirArguments(Arguments, frozen=True):
    """What `list_dir` takes."""

    path: PathText = "."


class ReadFile:
    """Shows lines of a text file."""

    spec = ToolSpec(
        name="read_file",
        description=(
            "Read a text file as it is, without line numbers. Long files are shown in parts; "
            "the last line then says how to go on."
        ),
        parameters=schema_of(ReadFileArguments),
        kind="read",
        parallel=True,
        timeout_seconds=FILE_SECONDS,
        # The lines end themselves before this; the rest is for the notes.
        output_cap_bytes=READ_CAP_BYTES + LINE_CAP_BYTES + 1_000,
    )

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "read"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        wanted = decode(arguments, ReadFileArguments)
        return await asyncio.to_thread(_read, context.workspace, wanted)


class WriteFile:
    """Writes a whole file."""

    spec = ToolSpec(
        name="write_file",
        description=(
            "Write a text file, replacing what it held; missing folders are made. "
            "Prefer edit_file for small changes."
        ),
        parameters=schema_of(WriteFileArguments),
        kind="write",
        parallel=False,
        timeout_seconds=FILE_SECONDS,
        output_cap_bytes=8_000,
    )

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "write"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        wanted = decode(arguments, WriteFileArguments)
        return await _change(lambda given_up: _write(context.workspace, wanted, given_up))

    async def mark(self, arguments: Mapping[str, object], context: ToolContext) -> str:
        wanted = decode(arguments, WriteFileArguments)
        return await asyncio.to_thread(_mark_write, context.workspace, wanted)

    async def lookup(
        self, arguments: Mapping[str, object], mark: str, context: ToolContext
    ) -> Found:
        wanted = decode(arguments, WriteFileArguments)
        before, after = mark.split()
        place = resolve(context.workspace, wanted.path)
        done = _written(context.workspace, place, len(_encode(wanted.content)))
        return await asyncio.to_thread(_compare, place, before, after, done)


class EditFile:
    """Replaces text in a file."""

    spec = ToolSpec(
        name="edit_file",
        description=(
            "Replace text in a file. old_text must match exactly, white space included, and "
            "only once unless replace_all is true. Line ends and mode of the file are kept."
        ),
        parameters=schema_of(EditFileArguments),
        kind="write",
        parallel=False,
        timeout_seconds=FILE_SECONDS,
        output_cap_bytes=8_000,
    )

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "write"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        wanted = decode(arguments, EditFileArguments)
        return await _change(lambda given_up: _edit(context.workspace, wanted, given_up))

    async def mark(self, arguments: Mapping[str, object], context: ToolContext) -> str:
        wanted = decode(arguments, EditFileArguments)
        return await asyncio.to_thread(_mark_edit, context.workspace, wanted)

    async def lookup(
        self, arguments: Mapping[str, object], mark: str, context: ToolContext
    ) -> Found:
        wanted = decode(arguments, EditFileArguments)
        before, after, count = mark.split()
        place = resolve(context.workspace, wanted.path)
        done = _edited(context.workspace, place, int(count))
        return await asyncio.to_thread(_compare, place, before, after, done)


class ListDir:
    """Lists a folder."""

    spec = ToolSpec(
        name="list_dir",
        description=f"List a folder, sorted by name, at most {LIST_CAP} entries.",
        parameters=schema_of(ListDirArguments),
        kind="read",
        parallel=True,
        timeout_seconds=FILE_SECONDS,
        output_cap_bytes=200_000,
    )

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "read"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        wanted = decode(arguments, ListDirArguments)
        return await asyncio.to_thread(_list, context.workspace, wanted.path)


def _read(workspace: Path, wanted: ReadFileArguments) -> ToolResult:
    with (
        open_file(resolve(workspace, wanted.path), wanted.path) as file,
        os_errors(wanted.path),
    ):
        source = Lines(file, wanted.path)
        source.skip(wanted.offset - 1)
        lines = source.take(wanted.limit, READ_CAP_BYTES)
        more = source.has_more()
    if not lines and wanted.offset == 1:
        return ToolResult("[the file is empty]")
    text = "".join(lines)
    notes = []
    if "\ufffd" in text:
        notes.append("[bytes that are not UTF-8 are shown as \ufffd]")
    if more:
        last = wanted.offset + len(lines) - 1
        shown = f"lines {wanted.offset} to {last} are shown"
        notes.append(f"[{shown}; go on with offset {last + 1}]")
    parted = "\n" if notes and not text.endswith("\n") else ""
    return ToolResult(text + parted + "\n".join(notes), truncated=more)


async def _change(work: Callable[[Event], ToolResult]) -> ToolResult:
    """Run *work* in a thread; when it is cancelled it is told to change nothing any more.

    A thread cannot be ended: one that a disk holds up would write long after its call was answered.
    """
    given_up = Event()
    task = asyncio.create_task(asyncio.to_thread(work, given_up), name="change file")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        given_up.set()
        await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        raise


def _write(workspace: Path, wanted: WriteFileArguments, given_up: Event) -> ToolResult:
    place = resolve(workspace, wanted.path)
    content = _encode(wanted.content)
    with os_errors(wanted.path):
        place.parent.mkdir(parents=True, exist_ok=True)
        _replace(place, content, wanted.path, given_up)
    return _written(workspace, place, len(content))


def _written(workspace: Path, place: Path, size_bytes: int) -> ToolResult:
    return json_result({"success": True, "path": relative(workspace, place), "bytes": size_bytes})


def _mark_write(workspace: Path, wanted: WriteFileArguments) -> str:
    place = resolve(workspace, wanted.path)
    return f"{_fingerprint(place)} {_sha256(_encode(wanted.content))}"


def _edit(workspace: Path, wanted: EditFileArguments, given_up: Event) -> ToolResult:
    place = resolve(workspace, wanted.path)
    after, count = _replaced(_content(place, wanted.path), wanted)
    with os_errors(wanted.path):
        _replace(place, after, wanted.path, given_up)
    return _edited(workspace, place, count)


def _edited(workspace: Path, place: Path, count: int) -> ToolResult:
    return json_result({"success": True, "path": relative(workspace, place), "replacements": count})


def _mark_edit(workspace: Path, wanted: EditFileArguments) -> str:
    before = _content(resolve(workspace, wanted.path), wanted.path)
    after, count = _replaced(before, wanted)
    return f"{_sha256(before)} {_sha256(after)} {count}"


def _content(place: Path, shown: str) -> bytes:
    """What an edit begins with."""
    with open_file(place, shown) as file, os_errors(shown):
        content = file.read(EDIT_CAP_BYTES + 1)
    if len(content) > EDIT_CAP_BYTES:
        limit = EDIT_CAP_BYTES // 1_000_000
        raise ToolError("too_large", f"{shown}: is larger than {limit} MB; use shell")
    return content


def _compare(place: Path, before: str, after: str, done: ToolResult) -> Found:
    """Whether the file is as the call would have left it, or as it found it."""
    now = _fingerprint(place)
    if now == after:
        return done
    return "not_done" if now == before != _OTHER else "unknown"


def _fingerprint(place: Path) -> str:
    """The hash of what stands at *place*, or a word that is none."""
    try:
        return _sha256(_content(place, place.name))
    except ToolError as error:
        return _ABSENT if error.code == "not_found" else _OTHER


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _replaced(before: bytes, wanted: EditFileArguments) -> tuple[bytes, int]:
    """The new content and how often the text was found; on bytes, so any encoding survives."""
    old, new = _encode(wanted.old_text), _encode(wanted.new_text)
    if _has_windows_line_ends(before):
        old, new = _with_windows_line_ends(old), _with_windows_line_ends(new)
    if not old:
        raise ToolError("bad_arguments", "old_text is empty; write_file makes new files")
    if old == new:
        raise ToolError("bad_arguments", "old_text and new_text are the same")
    count = before.count(old)
    if count == 0:
        raise ToolError(
            "not_found", f"{wanted.path}: old_text was found 0 times; read the file and copy it"
        )
    if count > 1 and not wanted.replace_all:
        raise ToolError(
            "not_unique",
            f"{wanted.path}: old_text was found {count} times; "
            "give more of what stands around it, or set replace_all",
        )
    return before.replace(old, new), count


def _encode(text: str) -> bytes:
    """The model's text as bytes; half a surrogate pair, which no file can hold, becomes `?`."""
    return text.encode(errors="replace")


def _has_windows_line_ends(content: bytes) -> bool:
    ends = content.count(b"\n")
    return ends > 0 and content.count(b"\r\n") == ends


def _with_windows_line_ends(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _replace(place: Path, content: bytes, shown: str, given_up: Event) -> None:
    """Put *content* at *place* in one step: whoever reads sees the old or the new file whole."""
    old = _stat(place)
    if old is not None:
        require_file(old.st_mode, shown)
        _require_writable(place)
    draft = place.with_name(f".headway-{secrets.token_hex(6)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(draft, flags, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            _keep_owner_and_mode(file.fileno(), old)
        if given_up.is_set():
            raise ToolError("cancelled", f"{shown}: was not written")
        os.replace(draft, place)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise


def _stat(place: Path) -> os.stat_result | None:
    try:
        return place.lstat()
    except FileNotFoundError:
        return None


def _require_writable(place: Path) -> None:
    """A write-protected file stays so, though its folder would admit a new one in its place."""
    if not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _keep_owner_and_mode(handle: int, old: os.stat_result | None) -> None:
    if old is None:
        return
    with suppress(PermissionError):  # only root may give files away; the content matters more
        os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, stat.S_IMODE(old.st_mode))  # after the owner, whose change drops setuid


def _list(workspace: Path, path: str) -> ToolResult:
    place = resolve(workspace, path)
    with os_errors(path), os.scandir(place) as found:
        first = heapq.nsmallest(LIST_CAP + 1, found, key=lambda entry: entry.name)
        entries = [_entry(entry) for entry in first[:LIST_CAP]]
    fields = {"success": True, "path": relative(workspace, place), "entries": entries}
    return json_result(fields | ({"truncated": True} if len(first) > LIST_CAP else {}))


def _entry(entry: os.DirEntry[str]) -> dict[str, object]:
    name = os.fsencode(entry.name).decode(errors="replace")
    if entry.is_symlink():
        return {"name": name, "type": "link"}
    if entry.is_dir(follow_symlinks=False):
        return {"name": name, "type": "folder"}
    if entry.is_file(follow_symlinks=False):
        return {"name": name, "type": "file", "size_bytes": entry.stat().st_size}
    return {"name": name, "type": "other"}
