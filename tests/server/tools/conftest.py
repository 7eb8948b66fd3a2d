"""A session's workspace, and calls made in it as the loop makes them."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from server.tools.base import Registry, Tool, ToolContext, ToolResult
from server.tools.files import EditFile, ListDir, ReadFile, WriteFile
from server.tools.image import ViewImage
from server.tools.search import GrepSearch, find_ripgrep
from server.tools.shell import Shells, ShellTool

Call = Callable[..., Awaitable[ToolResult]]
Fields = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "workspace"
    place.mkdir()
    return place


@pytest.fixture
def context(workspace: Path) -> ToolContext:
    return ToolContext(
        session_id="s1",
        run_id="r1",
        call_id="c1",
        workspace=workspace,
        locale="en",
        progress=lambda line: None,
        emit=lambda event: None,
    )


@pytest.fixture
async def shells() -> AsyncIterator[Shells]:
    async with Shells(os.environ) as opened:
        yield opened


@pytest.fixture
def registry(shells: Shells) -> Registry:
    grep_search = GrepSearch(find_ripgrep())
    files: list[Tool] = [ReadFile(), WriteFile(), EditFile(), ListDir(), ViewImage()]
    return Registry([*files, grep_search, ShellTool(shells)])


_CALLS = count(1)


def next_call(context: ToolContext) -> ToolContext:
    """The context of another call of the same run."""
    return replace(context, call_id=f"call-{next(_CALLS)}")


@pytest.fixture
def call(registry: Registry, context: ToolContext) -> Call:
    """Dispatches a call: `await call("read_file", path="a.txt")`."""

    async def dispatch(name: str, **arguments: object) -> ToolResult:
        return await registry.dispatch(name, json.dumps(arguments), next_call(context))

    return dispatch


@pytest.fixture
def fields(call: Call) -> Fields:
    """Dispatches a call whose result is a JSON object."""

    async def dispatch(name: str, **arguments: object) -> dict[str, Any]:
        return decoded(await call(name, **arguments))

    return dispatch


def decoded(result: ToolResult) -> dict[str, Any]:
    value = json.loads(result.content)
    assert isinstance(value, dict)
    return value


def error_of(result: ToolResult | Mapping[str, Any]) -> str:
    """The code of a failed call, whose form is checked on the way."""
    content = decoded(result) if isinstance(result, ToolResult) else result
    assert set(content) == {"error", "message"}, content
    if isinstance(result, ToolResult):
        assert result.is_error
    return str(content["error"])


async def until(holds: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for what has no event to wait for: the state of a process or of a file."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may open everything; within the block the process is an ordinary user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_workspace() -> Iterator[Path]:
    """A workspace that every user may enter; pytest's own folders admit only their owner."""
    place = Path(tempfile.mkdtemp()).resolve()
    place.chmod(0o777)
    yield place
    shutil.rmtree(place)
