"""Reading, writing, editing and listing real files."""

import json
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from server.tools.base import Registry, ToolContext, ToolResult
from server.tools.files import LIST_CAP, READ_CAP_BYTES, ReadFile
from tests.server.tools.conftest import Call, Fields, as_nobody, error_of


async def test_read_shows_a_text_as_it_is(workspace: Path, call: Call) -> None:
    (workspace / "a.txt").write_bytes("eins\r\nzwei ü\n\tdrei".encode())
    result = await call("read_file", path="a.txt")
    assert result.content == "eins\r\nzwei ü\n\tdrei"
    assert not result.truncated


async def test_read_shows_the_wanted_lines_and_says_how_to_go_on(
    workspace: Path, call: Call
) -> None:
    (workspace / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))
    first = await call("read_file", path="a.txt", offset=4, limit=3)
    assert first.content == "4\n5\n6\n[lines 4 to 6 are shown; go on with offset 7]"
    assert first.truncated
    last = await call("read_file", path="a.txt", offset=10, limit=3)
    assert last.content == "10\n"
    assert not last.truncated


async def test_read_beyond_the_end_is_an_error(workspace: Path, call: Call) -> None:
    (workspace / "a.txt").write_text("1\n2")
    assert (await call("read_file", path="a.txt", offset=2)).content == "2"
    assert error_of(await call("read_file", path="a.txt", offset=3)) == "out_of_range"


async def test_read_says_that_a_file_is_empty(workspace: Path, call: Call) -> None:
    (workspace / "a.txt").touch()
    assert (await call("read_file", path="a.txt")).content == "[the file is empty]"


async def test_read_replaces_what_is_not_utf8_and_says_so(workspace: Path, call: Call) -> None:
    (workspace / "a.txt").write_bytes("grün".encode("latin-1"))
    content = (await call("read_file", path="a.txt")).content
    assert content == "gr\ufffdn\n[bytes that are not UTF-8 are shown as \ufffd]"


async def test_read_refuses_binary_files(workspace: Path, call: Call) -> None:
    (workspace / "a.bin").write_bytes(b"ELF\x00\x01")
    assert error_of(await call("read_file", path="a.bin")) == "binary_file"


async def test_read_stops_at_its_cap_and_goes_on_where_it_stopped(
    workspace: Path, call: Call
) -> None:
    lines = [f"line {n} " + "x" * 90 + "\n" for n in range(5_000)]
    (workspace / "a.txt").write_text("".join(lines))

    async def read(offset: int) -> ToolResult:
        return await call("read_file", path="a.txt", offset=offset, limit=10_000)

    seen, offset = "", 1
    while (result := await read(offset)).truncated:
        assert len(result.content) < READ_CAP_BYTES + 5_000
        text, _, note = result.content.rpartition("[lines")
        seen += text
        offset = int(note.rpartition(" ")[2].rstrip("]"))
    assert seen + result.content == "".join(lines)


async def test_read_never_holds_a_huge_file_in_memory(workspace: Path, call: Call) -> None:
    with (workspace / "huge.txt").open("w") as file:
        file.write("x" * 80_000_000 + "\n")
        for n in range(300_000):
            file.write(f"line {n}\n")
    tracemalloc.start()
    try:
        long = await call("read_file", path="huge.txt", limit=1)
        late = await call("read_file", path="huge.txt", offset=300_001, limit=5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "…[cut: 78121 KB, sha256 " in long.content
    assert late.content == "line 299999\n"
    assert peak < 3_000_000


async def test_a_changed_end_of_a_cut_line_is_seen(workspace: Path, call: Call) -> None:
    (workspace / "a.js").write_text("a" * 10_000)
    one = await call("read_file", path="a.js")
    (workspace / "a.js").write_text("a" * 5_000 + "b" + "a" * 4_999)
    assert (await call("read_file", path="a.js")).content != one.content


@pytest.mark.parametrize("tool", ["read_file", "view_image"])
async def test_pipes_and_devices_and_folders_are_refused_at_once(
    tool: str, workspace: Path, call: Call
) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "zero").symlink_to("/dev/zero")
    assert error_of(await call(tool, path="pipe")) == "not_a_file"
    assert error_of(await call(tool, path="/dev/zero")) == "outside_workspace"
    assert error_of(await call(tool, path="zero")) == "outside_workspace"
    assert error_of(await call(tool, path=".")) == "not_a_file"
    assert error_of(await call(tool, path="absent")) == "not_found"


async def test_a_device_in_the_workspace_is_refused(context: ToolContext) -> None:
    registry = Registry([ReadFile()])
    inside = replace(context, workspace=Path("/dev"))
    result = await registry.dispatch("read_file", '{"path": "zero"}', inside)
    assert error_of(result) == "not_a_file"


async def test_write_makes_folders_and_tells_the_size(workspace: Path, fields: Fields) -> None:
    told = await fields("write_file", path="a/b/c.txt", content="grün\n")
    assert told == {"success": True, "path": "a/b/c.txt", "bytes": 6}
    assert (workspace / "a/b/c.txt").read_text() == "grün\n"
    assert os.listdir(workspace / "a/b") == ["c.txt"]


async def test_write_replaces_in_one_step_and_keeps_the_mode(
    workspace: Path, fields: Fields
) -> None:
    place = workspace / "run.sh"
    place.write_text("old")
    place.chmod(0o750)
    with place.open() as reader:
        await fields("write_file", path="run.sh", content="new")
        assert reader.read() == "old"
    assert place.read_text() == "new"
    assert place.stat().st_mode & 0o777 == 0o750


async def test_write_goes_through_a_link_inside_and_keeps_it(
    workspace: Path, fields: Fields
) -> None:
    (workspace / "real.txt").write_text("old")
    (workspace / "link.txt").symlink_to("real.txt")
    assert (await fields("write_file", path="link.txt", content="new"))["path"] == "real.txt"
    assert (workspace / "link.txt").is_symlink()
    assert (workspace / "real.txt").read_text() == "new"


async def test_write_refuses_what_is_no_file(workspace: Path, call: Call) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "file").touch()
    assert error_of(await call("write_file", path="pipe", content="")) == "not_a_file"
    assert error_of(await call("write_file", path=".", content="")) == "not_a_file"
    assert error_of(await call("write_file", path="../x", content="")) == "outside_workspace"
    assert error_of(await call("write_file", path="file/x", content="")) == "not_a_folder"


async def test_edit_replaces_the_one_place(workspace: Path, fields: Fields) -> None:
    place = workspace / "a.py"
    place.write_text("x = 1\ny = 1\n")
    place.chmod(0o755)
    told = await fields("edit_file", path="a.py", old_text="y = 1", new_text="y = 2")
    assert told == {"success": True, "path": "a.py", "replacements": 1}
    assert place.read_text() == "x = 1\ny = 2\n"
    assert place.stat().st_mode & 0o777 == 0o755


async def test_edit_tells_how_often_the_text_was_found(workspace: Path, fields: Fields) -> None:
    place = workspace / "a.py"
    place.write_text("a a a")
    none = await fields("edit_file", path="a.py", old_text="b", new_text="c")
    assert error_of(none) == "not_found"
    assert "0 times" in none["message"]
    many = await fields("edit_file", path="a.py", old_text="a", new_text="c")
    assert error_of(many) == "not_unique"
    assert "3 times" in many["message"]
    assert place.read_text() == "a a a"
    every = await fields("edit_file", path="a.py", old_text="a", new_text="", replace_all=True)
    assert every["replacements"] == 3
    assert place.read_text() == "  "


@pytest.mark.parametrize(("old", "new"), [("", "x"), ("a", "a")])
async def test_edit_that_changes_nothing_is_an_error(
    old: str, new: str, workspace: Path, call: Call
) -> None:
    (workspace / "a.py").write_text("a")
    result = await call("edit_file", path="a.py", old_text=old, new_text=new)
    assert error_of(result) == "bad_arguments"


async def test_edit_keeps_windows_line_ends(workspace: Path, call: Call) -> None:
    place = workspace / "a.txt"
    place.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await call("edit_file", path="a.txt", old_text="one\ntwo", new_text="1\n2\nzwei")
    assert place.read_bytes() == b"1\r\n2\r\nzwei\r\nthree\r\n"


async def test_edit_leaves_bytes_alone_that_are_not_utf8(workspace: Path, call: Call) -> None:
    place = workspace / "a.txt"
    place.write_bytes(b"gr\xfcn = 1")
    await call("edit_file", path="a.txt", old_text="= 1", new_text="= 2")
    assert place.read_bytes() == b"gr\xfcn = 2"


async def test_list_is_sorted_and_tells_what_is_what(workspace: Path, fields: Fields) -> None:
    (workspace / "b.txt").write_text("12")
    (workspace / "a").mkdir()
    (workspace / "c").symlink_to("/etc")
    os.mkfifo(workspace / "d")
    (workspace / os.fsdecode(b"e\xff")).touch()
    assert await fields("list_dir") == {
        "success": True,
        "path": ".",
        "entries": [
            {"name": "a", "type": "folder"},
            {"name": "b.txt", "type": "file", "size_bytes": 2},
            {"name": "c", "type": "link"},
            {"name": "d", "type": "other"},
            {"name": "e\ufffd", "type": "file", "size_bytes": 0},
        ],
    }


async def test_list_of_a_large_folder_is_capped(workspace: Path, call: Call) -> None:
    for n in range(LIST_CAP + 5):
        (workspace / f"{n:04}").touch()
    result = await call("list_dir", path=".")
    value = json.loads(result.content)
    assert result.truncated
    assert value["truncated"] is True
    assert [entry["name"] for entry in value["entries"]] == [f"{n:04}" for n in range(LIST_CAP)]


async def test_list_refuses_files_and_links_that_lead_out(workspace: Path, call: Call) -> None:
    (workspace / "a.txt").touch()
    (workspace / "out").symlink_to("/etc")
    assert error_of(await call("list_dir", path="a.txt")) == "not_a_folder"
    assert error_of(await call("list_dir", path="out")) == "outside_workspace"
    assert error_of(await call("list_dir", path="absent")) == "not_found"


async def test_what_the_server_may_not_open_is_told(
    registry: Registry, context: ToolContext, public_workspace: Path
) -> None:
    (public_workspace / "secret.txt").write_text("secret")
    (public_workspace / "secret.txt").chmod(0o600)
    (public_workspace / "closed").mkdir(mode=0o700)
    here = replace(context, workspace=public_workspace)
    calls = {
        "read_file": {"path": "secret.txt"},
        "list_dir": {"path": "closed"},
        "write_file": {"path": "closed/new.txt", "content": "x"},
    }
    with as_nobody():
        for name, arguments in calls.items():
            result = await registry.dispatch(name, json.dumps(arguments), here)
            assert error_of(result) == "permission_denied", name
