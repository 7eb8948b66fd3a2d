"""Searching real folders with the real ripgrep."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from server.tools.base import Registry, ToolContext
from server.tools.search import COUNT_CAP, GrepSearch
from tests.server.tools.conftest import Call, Fields, as_nobody, decoded, error_of, until


def matches(told: Mapping[str, object]) -> list[tuple[str, int, str]]:
    found = told["matches"]
    assert isinstance(found, list)
    return [(match["path"], match["line"], match["text"]) for match in found]


async def test_matches_come_sorted_with_relative_paths(workspace: Path, fields: Fields) -> None:
    (workspace / "b.txt").write_text("no\nneedle: 1\r\n")
    (workspace / "a").mkdir()
    (workspace / "a" / "c.txt").write_text("needle\n")
    (workspace / "群.txt").write_text("a needle 群名\n")
    told = await fields("grep_search", pattern="needle")
    assert list(told) == ["success", "total_matches", "matches"]
    assert (told["success"], told["total_matches"]) == (True, 3)
    assert matches(told) == [
        ("a/c.txt", 1, "needle"),
        ("b.txt", 2, "needle: 1"),
        ("群.txt", 1, "a needle 群名"),
    ]


async def test_nothing_found_is_a_success(fields: Fields) -> None:
    told = await fields("grep_search", pattern="needle")
    assert told == {"success": True, "total_matches": 0, "matches": []}


async def test_path_glob_and_case_narrow_the_search(workspace: Path, fields: Fields) -> None:
    for name in ("a.py", "a.txt", "sub/b.py", "-x/c.py"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("Needle\n")
    only = await fields("grep_search", pattern="needle", glob="*.py", case_sensitive=False)
    assert [path for path, _, _ in matches(only)] == ["-x/c.py", "a.py", "sub/b.py"]
    there = await fields("grep_search", pattern="Needle", path="sub")
    assert [path for path, _, _ in matches(there)] == ["sub/b.py"]
    dashed = await fields("grep_search", pattern="Needle", path="-x/c.py")
    assert [path for path, _, _ in matches(dashed)] == ["-x/c.py"]
    assert (await fields("grep_search", pattern="needle"))["total_matches"] == 0


async def test_all_matches_are_counted_when_few_are_shown(workspace: Path, fields: Fields) -> None:
    (workspace / "a.txt").write_text("x\n" * 50)
    told = await fields("grep_search", pattern="x", max_results=2)
    assert told["total_matches"] == 50
    assert matches(told) == [("a.txt", 1, "x"), ("a.txt", 2, "x")]
    assert "truncated" not in told


async def test_counting_ends_at_its_cap_and_says_so(workspace: Path, call: Call) -> None:
    for n in range(4):
        (workspace / f"{n}.txt").write_text(f"{'word ' * 20}\n" * COUNT_CAP)
    result = await call("grep_search", pattern="word", max_results=1)
    told = decoded(result)
    assert (told["total_matches"], told["truncated"]) == (COUNT_CAP, True)
    assert result.truncated


async def test_long_lines_are_cut(workspace: Path, fields: Fields) -> None:
    (workspace / "a.js").write_text("x" * 100 + "needle" + "y" * 1_000_000 + "\n")
    [(_, _, text)] = matches(await fields("grep_search", pattern="needle"))
    assert text.startswith("x" * 100 + "needle")
    assert len(text) < 600


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pattern": "("}, "unclosed group"),
        ({"pattern": "a\nb"}, "not allowed"),
        ({"pattern": "a", "glob": "{"}, "unclosed alternate"),
        ({"pattern": "\x00"}, "NUL"),
    ],
)
async def test_wrong_pattern_is_named(
    arguments: dict[str, str], words: str, fields: Fields, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("a\n")
    told = await fields("grep_search", **arguments)
    assert error_of(told) == "bad_pattern"
    assert words in told["message"]


async def test_pattern_and_glob_are_no_options(workspace: Path, fields: Fields) -> None:
    (workspace / "a.txt").write_text("--files\n")
    told = await fields("grep_search", pattern="--files", glob="--hidden")
    assert told["matches"] == []
    assert (await fields("grep_search", pattern="--files"))["total_matches"] == 1


async def test_binary_and_hidden_files_are_skipped(workspace: Path, fields: Fields) -> None:
    (workspace / "early.bin").write_bytes(b"needle\n\x00\n")
    (workspace / "late.bin").write_bytes(b"needle\n" * 3 + b"hay\n" * 100_000 + b"\x00needle\n")
    (workspace / ".hidden").write_text("needle\n")
    (workspace / "latin.txt").write_bytes(b"needle \xfc\n")
    (workspace / "line\nend.txt").write_text("needle\n")
    told = await fields("grep_search", pattern="needle")
    assert told["total_matches"] == 2
    assert matches(told) == [
        ("latin.txt", 1, "needle \ufffd"),
        ("line\nend.txt", 1, "needle"),
    ]


async def test_links_are_not_followed_out(workspace: Path, tmp_path: Path, call: Call) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("needle\n")
    (workspace / "folder").symlink_to(outside)
    (workspace / "file").symlink_to(outside / "a.txt")
    assert decoded(await call("grep_search", pattern="needle"))["total_matches"] == 0
    for path in ("folder", "file", ".."):
        result = await call("grep_search", pattern="needle", path=path)
        assert error_of(result) == "outside_workspace"
    assert error_of(await call("grep_search", pattern="x", path="absent")) == "not_found"


async def test_rules_above_the_workspace_do_not_matter(
    workspace: Path, tmp_path: Path, fields: Fields
) -> None:
    (tmp_path / ".ignore").write_text("*\n")
    (workspace / "a.txt").write_text("needle\n")
    assert (await fields("grep_search", pattern="needle"))["total_matches"] == 1


async def test_unreadable_files_are_skipped(
    public_workspace: Path, registry: Registry, context: ToolContext
) -> None:
    for name, mode in (("a.txt", 0o600), ("b.txt", 0o644)):
        (public_workspace / name).write_text("needle\n")
        (public_workspace / name).chmod(mode)
    here = replace(context, workspace=public_workspace)
    with as_nobody():
        result = await registry.dispatch("grep_search", '{"pattern": "needle"}', here)
        none = await registry.dispatch("grep_search", '{"pattern": "absent"}', here)
    assert matches(decoded(result)) == [("b.txt", 1, "needle")]
    assert decoded(none)["total_matches"] == 0


async def test_without_ripgrep_the_result_says_so(context: ToolContext) -> None:
    for place in (None, Path("/nowhere/rg")):
        result = await Registry([GrepSearch(place)]).dispatch(
            "grep_search", json.dumps({"pattern": "a"}), context
        )
        assert error_of(result) == "unavailable"
        assert "ripgrep" in decoded(result)["message"]


async def test_cancelling_ends_ripgrep(context: ToolContext, tmp_path: Path) -> None:
    slow = tmp_path / "rg"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    others = set(psutil.Process().children())
    task = asyncio.create_task(
        Registry([GrepSearch(slow)]).dispatch("grep_search", '{"pattern": "a"}', context)
    )
    await until(lambda: bool(set(psutil.Process().children()) - others))
    children = set(psutil.Process().children()) - others
    task.cancel()
    async with asyncio.timeout(1):
        await asyncio.wait({task})
    assert task.cancelled()
    assert not any(child.is_running() for child in children)
