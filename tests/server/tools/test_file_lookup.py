"""Whether a file was written is read from the file."""

import asyncio
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import ToolError
from server.tools.base import Found, Registry, ToolContext, ToolResult
from server.tools.files import EDIT_CAP_BYTES, EditFile, WriteFile
from tests.server.tools.conftest import decoded, error_of

REGISTRY = Registry([WriteFile(), EditFile()])
WRITE = '{"path": "a/b.txt", "content": "new\\n"}'
EDIT = '{"path": "a.txt", "old_text": "1", "new_text": "22", "replace_all": true}'


async def begin(name: str, arguments: str, context: ToolContext) -> str:
    return await REGISTRY.mark(name, arguments, context)


async def test_file_that_was_written_is_told_as_the_call_would_have_told_it(
    context: ToolContext,
) -> None:
    mark = await begin("write_file", WRITE, context)
    assert await REGISTRY.lookup("write_file", WRITE, mark, context) == "not_done"
    told = await REGISTRY.dispatch("write_file", WRITE, context, mark)
    assert await REGISTRY.lookup("write_file", WRITE, mark, context) == told


async def test_edit_that_was_done_is_told_as_the_call_would_have_told_it(
    context: ToolContext, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("1 2 1\n")
    mark = await begin("edit_file", EDIT, context)
    assert await REGISTRY.lookup("edit_file", EDIT, mark, context) == "not_done"
    told = await REGISTRY.dispatch("edit_file", EDIT, context, mark)
    assert decoded(told)["replacements"] == 2
    assert await REGISTRY.lookup("edit_file", EDIT, mark, context) == told


async def test_edit_that_could_be_done_again_is_not_taken_for_undone(
    context: ToolContext, workspace: Path
) -> None:
    """`1` is found in `11` too: whoever repeats such an edit does it twice."""
    (workspace / "a.txt").write_text("1")
    edit = '{"path": "a.txt", "old_text": "1", "new_text": "11"}'
    mark = await begin("edit_file", edit, context)
    await REGISTRY.dispatch("edit_file", edit, context, mark)
    assert isinstance(await REGISTRY.lookup("edit_file", edit, mark, context), ToolResult)
    assert (workspace / "a.txt").read_text() == "11"


async def test_file_that_already_held_the_content_counts_as_written(
    context: ToolContext, workspace: Path
) -> None:
    (workspace / "a").mkdir()
    (workspace / "a" / "b.txt").write_text("new\n")
    mark = await begin("write_file", WRITE, context)
    assert isinstance(await REGISTRY.lookup("write_file", WRITE, mark, context), ToolResult)


async def test_file_that_somebody_else_changed_meanwhile_is_unknown(
    context: ToolContext, workspace: Path
) -> None:
    mark = await begin("write_file", WRITE, context)
    (workspace / "a").mkdir()
    (workspace / "a" / "b.txt").write_text("of a third hand\n")
    assert await REGISTRY.lookup("write_file", WRITE, mark, context) == "unknown"
    (workspace / "a" / "b.txt").unlink()
    (workspace / "a").rmdir()
    (workspace / "a").write_text("a file where the folder was")
    assert await REGISTRY.lookup("write_file", WRITE, mark, context) == "unknown"


async def test_what_cannot_be_compared_is_unknown(context: ToolContext, workspace: Path) -> None:
    (workspace / "a").mkdir()
    with (workspace / "a" / "b.txt").open("wb") as file:
        file.truncate(EDIT_CAP_BYTES + 1)
    mark = await begin("write_file", WRITE, context)
    assert await REGISTRY.lookup("write_file", WRITE, mark, context) == "unknown"
    told = await REGISTRY.dispatch("write_file", WRITE, context, mark)
    assert await REGISTRY.lookup("write_file", WRITE, mark, context) == told


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("write_file", {"path": "../x", "content": ""}, "outside_workspace"),
        ("write_file", {"content": ""}, "bad_arguments"),
        ("edit_file", {"path": "none", "old_text": "a", "new_text": "b"}, "not_found"),
        ("edit_file", {"path": "a.txt", "old_text": "a", "new_text": "a"}, "bad_arguments"),
        ("edit_file", {"path": "a.txt", "old_text": "x", "new_text": "b"}, "not_found"),
        ("edit_file", {"path": "a.txt", "old_text": "a", "new_text": "b"}, "not_unique"),
    ],
)
async def test_call_that_cannot_be_done_is_refused_before_it_begins_as_it_would_be_after(
    name: str, arguments: dict[str, str], code: str, context: ToolContext, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("aa")
    tool = WriteFile() if name == "write_file" else EditFile()
    refused = await REGISTRY.dispatch(name, json.dumps(arguments), context)
    assert error_of(refused) == code
    with pytest.raises(ToolError) as marked:
        await tool.mark(arguments, context)
    assert str(marked.value) == decoded(refused)["message"]


async def test_write_that_was_given_up_changes_nothing_later(
    context: ToolContext, workspace: Path
) -> None:
    """Its thread goes on: here it has not come further than the queue for a thread."""
    held = Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        threads.submit(held.wait)
        task = asyncio.create_task(REGISTRY.dispatch("write_file", WRITE, context, "- -"))
        await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(1):
            await asyncio.wait({task})
        held.set()
    assert task.cancelled()
    assert os.listdir(workspace) == ["a"]
    assert os.listdir(workspace / "a") == []


contents = st.text(st.sampled_from("ab\n"), max_size=4)


@given(
    before=st.none() | contents,
    content=contents,
    edit=st.booleans(),
    is_done=st.booleans(),
    meddled=st.none() | contents,
)
def test_nothing_that_was_done_is_ever_taken_for_undone(
    before: str | None, content: str, edit: bool, is_done: bool, meddled: str | None
) -> None:
    """Unless somebody put the file back as it was: then nothing is left of what was done."""

    async def story(workspace: Path, context: ToolContext) -> None:
        place = workspace / "f"
        if before is not None:
            place.write_bytes(before.encode())
        name = "edit_file" if edit else "write_file"
        asked = {"old_text": "a", "new_text": content} if edit else {"content": content}
        arguments = json.dumps({"path": "f", **asked})
        tool = EditFile() if edit else WriteFile()
        try:
            mark = await tool.mark(json.loads(arguments), context)
        except ToolError:
            return
        told = await REGISTRY.dispatch(name, arguments, context, mark) if is_done else None
        written = place.read_bytes() if place.exists() else None
        if meddled is not None:
            place.write_bytes(meddled.encode())
        found: Found = await REGISTRY.lookup(name, arguments, mark, context)
        now = place.read_bytes() if place.exists() else None
        if told is not None and now == written:
            assert found == told
        elif told is None and meddled is None and found != "not_done":
            assert isinstance(found, ToolResult), "it had been as wanted before"
        if found == "not_done":
            assert now == (None if before is None else before.encode())

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        there = ToolContext("s", "r", "c", place, "en", lambda line: None, lambda event: None)
        asyncio.run(story(place, there))
