"""The walls of the workspace: nothing the model can write as a path leads out."""

import os
import socket
from pathlib import Path

import pytest

from server.errors import ToolError
from server.tools.workspace import open_file, relative, resolve


def refusal(workspace: Path, path: str) -> str:
    with pytest.raises(ToolError) as caught:
        resolve(workspace, path)
    assert str(workspace.parent) not in str(caught.value).replace(path, "")
    return caught.value.code


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (".", ""),
        ("a/b.txt", "a/b.txt"),
        ("./a//b.txt", "a/b.txt"),
        ("a/../b.txt", "b.txt"),
        ("新文件.txt", "新文件.txt"),
        ("~file", "~file"),
        ("..a", "..a"),
    ],
)
def test_path_inside_is_found_even_if_it_does_not_exist(
    path: str, place: str, workspace: Path
) -> None:
    assert resolve(workspace, path) == workspace / place


def test_absolute_path_inside_is_allowed(workspace: Path) -> None:
    place = resolve(workspace, str(workspace / "a.txt"))
    assert relative(workspace, place) == "a.txt"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("..", "outside_workspace"),
        ("a/../../b", "outside_workspace"),
        ("/etc/passwd", "outside_workspace"),
        ("../workspace-other/a", "outside_workspace"),
        ("//etc/passwd", "outside_workspace"),
        ("/proc/self/cwd/../etc/passwd", "outside_workspace"),
        ("~", "bad_path"),
        ("~/a", "bad_path"),
        ("", "bad_path"),
        ("  ", "bad_path"),
        ("a\x00b", "bad_path"),
        ("a" * 256, "bad_path"),
        ("文" * 86, "bad_path"),
        ("a/" * 3_000, "bad_path"),
    ],
)
def test_path_that_leads_out_or_can_be_none_is_refused(
    path: str, code: str, workspace: Path
) -> None:
    assert refusal(workspace, path) == code


def test_folder_whose_name_begins_like_the_workspace_is_outside(workspace: Path) -> None:
    neighbour = workspace.with_name("workspace-other")
    neighbour.mkdir()
    assert refusal(workspace, str(neighbour / "a")) == "outside_workspace"


def test_links_that_lead_out_are_refused(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / "folder").symlink_to(outside)
    (workspace / "dangling").symlink_to(outside / "not-there")
    (workspace / "chain").symlink_to("folder")
    (workspace / "up").symlink_to("..")
    for path in ("folder/new.txt", "folder", "dangling", "chain/a/b", "up/outside/x"):
        assert refusal(workspace, path) == "outside_workspace"


def test_link_inside_is_followed(workspace: Path) -> None:
    (workspace / "real").mkdir()
    (workspace / "link").symlink_to("real")
    assert resolve(workspace, "link/new.txt") == workspace / "real" / "new.txt"


def test_links_in_a_circle_are_refused(workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    assert refusal(workspace, "a") == "bad_path"
    assert refusal(workspace, "a/file") == "bad_path"


def test_link_that_took_the_place_of_a_file_after_the_check_is_not_opened(
    workspace: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    place = resolve(workspace, "a.txt")
    place.symlink_to(secret)
    with pytest.raises(ToolError, match="became a link"):
        open_file(place, "a.txt")


def test_pipes_sockets_and_devices_are_not_opened(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(workspace / "socket"))
    for place in (workspace / "pipe", workspace / "socket", Path("/dev/zero"), workspace):
        with pytest.raises(ToolError) as caught:
            open_file(place, place.name)
        assert caught.value.code == "not_a_file"
