"""`grep_search`: ripgrep over the workspace, with results in a fixed order."""

import asyncio
import re
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from server.errors import ToolError
from server.tools.arguments import Arguments, decode, schema_of
from server.tools.base import Kind, ToolContext, ToolResult, ToolSpec, json_result
from server.tools.files import PathText
from server.tools.workspace import relative, resolve

SEARCH_SECONDS = 30.0
"""ripgrep reads about 1 GB in this when sorting; a wider search should be narrowed."""

COUNT_CAP = 10_000
"""Matches that are counted; beyond, the exact number helps nobody."""

LINE_CAP_BYTES = 500
"""Of a matching line; minified files have lines of megabytes."""

_CHUNK_BYTES = 64 * 1024

_BINARY = re.compile(rb"^(?P<path>.*): (?:WARNING: stopped searching binary|binary file matches)")
"""How ripgrep ends the matches of a file in which it then found a NUL byte."""


class GrepSearchArguments(Arguments, frozen=True):
    """What `grep_search` takes."""

    pattern: Annotated[str, Meta(description="Regular expression (Rust syntax), one line.",
                                 min_length=1, max_length=4_096)]  # fmt: skip
    path: PathText = "."
    glob: Annotated[str, Meta(description="Only these files, as `*.py` or `!dist/**`.",
                              max_length=1_000)] = ""  # fmt: skip
    case_sensitive: bool = True
    max_results: Annotated[int, Meta(ge=1, le=1_000, description="Matches to show.")] = 100


@dataclass(frozen=True, slots=True)
class _Match:
    path: bytes
    line: int
    text: bytes

    def fields(self) -> dict[str, object]:
        path = self.path.removeprefix(b"./").decode(errors="replace")
        return {"path": path, "line": self.line, "text": self.text.decode(errors="replace")}


@dataclass(slots=True)
class _Found:
    """The matches seen so far: all counted, the first ones kept."""

    wanted: int
    total: int = 0
    matches: list[_Match] = field(default_factory=list)
    _path: bytes = b""
    _of_path: int = 0
    _unfinished: bytes = b""

    def add_line(self, line: bytes) -> None:
        """Take a line of ripgrep's output, `path NUL number:text`."""
        if binary := _BINARY.match(line):
            self._drop(binary["path"])
            return
        path, separator, rest = (self._unfinished + line).partition(b"\x00")
        if not separator:  # the path has a line end in it
            self._unfinished += line + b"\n"
            return
        self._unfinished = b""
        number, _, text = rest.partition(b":")
        self._count(_Match(path, int(number), text.removesuffix(b"\r")))

    def _count(self, match: _Match) -> None:
        self._of_path = self._of_path + 1 if match.path == self._path else 1
        self._path = match.path
        self.total += 1
        if len(self.matches) < self.wanted:
            self.matches.append(match)

    def _drop(self, path: bytes) -> None:
        """Forget the matches of *path*, which turned out to be no text."""
        if path == self._path:
            self.total -= self._of_path
            self._of_path = 0
            self.matches = [match for match in self.matches if match.path != path]


def find_ripgrep() -> Path | None:
    """The `rg` beside the running Python, where the wheel puts it, or else on the PATH."""
    beside = Path(sys.executable).with_name("rg")
    if beside.is_file():
        return beside
    found = shutil.which("rg")
    return Path(found) if found else None


class GrepSearch:
    """Searches file contents by regular expression."""

    spec = ToolSpec(
        name="grep_search",
        description=(
            "Search file contents in the workspace by regular expression. Matches come sorted by "
            "path. Hidden, binary and git-ignored files are not searched; links are not followed."
        ),
        parameters=schema_of(GrepSearchArguments),
        kind="read",
        parallel=True,
        timeout_seconds=SEARCH_SECONDS + 5,  # it stops itself before, with a better message
        output_cap_bytes=64_000,
    )

    def __init__(self, ripgrep: Path | None) -> None:
        """*ripgrep* is the program; without it each call is answered with an error."""
        self._ripgrep = ripgrep

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "read"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        wanted = decode(arguments, GrepSearchArguments)
        if "\x00" in wanted.pattern + wanted.glob:
            raise ToolError("bad_pattern", "a NUL character cannot be searched for")
        if self._ripgrep is None:
            raise ToolError("unavailable", "ripgrep is not installed here; use shell with grep")
        place = await asyncio.to_thread(_place, context.workspace, wanted.path)
        command = [str(self._ripgrep), *_options(wanted), "--", place]
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                found = await _search(command, context.workspace, wanted.max_results)
        except TimeoutError:
            raise ToolError(
                "timeout", f"stopped after {SEARCH_SECONDS:g} seconds; narrow path or glob"
            ) from None
        return _result(found)


def _place(workspace: Path, path: str) -> str:
    place = resolve(workspace, path)
    if not place.exists():
        raise ToolError("not_found", f"{path}: does not exist")
    if not (place.is_file() or place.is_dir()):
        raise ToolError("not_a_file", f"{path}: is neither a file nor a folder")
    return "." if place == workspace else f"./{relative(workspace, place)}"


def _options(wanted: GrepSearchArguments) -> list[str]:
    options = [
        "--no-config",
        "--no-ignore-global",
        "--no-ignore-parent",  # what lies above the workspace must not change the results
        "--no-messages",
        "--color=never",
        "--no-heading",
        "--with-filename",
        "--line-number",
        "--null",
        "--sort=path",
        f"--max-columns={LINE_CAP_BYTES}",
        "--max-columns-preview",
        "--case-sensitive" if wanted.case_sensitive else "--ignore-case",
        f"--regexp={wanted.pattern}",
    ]
    return [*options, f"--glob={wanted.glob}"] if wanted.glob else options


async def _search(command: list[str], workspace: Path, wanted: int) -> _Found:
    found = _Found(wanted)
    async with _started(command, workspace) as process:
        assert process.stdout is not None  # both were asked for as pipes
        assert process.stderr is not None
        await _collect(process.stdout, found)
        if found.total > 0:
            return found
        # Read second: a complaint is bounded like the pattern it quotes, so it fits the pipe.
        words = (await process.stderr.read()).decode(errors="replace").strip()
    if words:
        raise ToolError("bad_pattern", words.removeprefix("rg: "))
    return found


async def _collect(output: asyncio.StreamReader, found: _Found) -> None:
    """Feed *found* line by line, until the output ends or enough is counted."""
    rest = b""
    while chunk := await output.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            found.add_line(line)
            if found.total >= COUNT_CAP:  # at once, so that chunking cannot change the result
                return


@asynccontextmanager
async def _started(command: list[str], workspace: Path) -> AsyncIterator[Process]:
    """Run *command* for the length of the block; it is killed where the block is left early."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=workspace, env={}, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
    except OSError as error:
        raise ToolError("unavailable", f"ripgrep cannot be started: {error.strerror}") from None
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # drains the pipes, without which the wait may not end


def _result(found: _Found) -> ToolResult:
    fields: dict[str, object] = {
        "success": True,
        "total_matches": found.total,
        "matches": [match.fields() for match in found.matches],
    }
    if found.total >= COUNT_CAP:
        fields["truncated"] = True
    return json_result(fields)
