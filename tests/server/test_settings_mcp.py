"""The sections of MCP servers: what they take, what stops the start, and that secrets stay in."""

from pathlib import Path

import pytest

from server.settings import McpSettings
from tests.server.test_settings import SECRET, load, refusal


def only(toml: str, folder: Path, **variables: str) -> McpSettings:
    """The one server that *toml* names."""
    [server] = load(toml, folder, **variables).mcp.values()
    return server


def test_child_process_gets_arguments_and_variables(tmp_path: Path) -> None:
    server = only(
        '[mcp.notes]\ncommand = "notes"\nargs = ["--root", "/n"]\nenv = {LEVEL = "high"}\n'
        'kinds = {read = "read", post = "send"}\ntools = ["read", "post"]\ntimeout_seconds = 5\n',
        tmp_path,
    )
    assert [argument.get_secret_value() for argument in server.args] == ["--root", "/n"]
    assert {name: value.get_secret_value() for name, value in server.env.items()} == {
        "LEVEL": "high"
    }
    assert (server.kind, server.kinds) == ("write", {"read": "read", "post": "send"})
    assert (server.tools, server.timeout_seconds) == (("read", "post"), 5)


def test_texts_may_name_variables(tmp_path: Path) -> None:
    child = only(
        '[mcp.a]\ncommand = "a"\nargs = ["--key=${HEADWAY_K}"]\nenv = {B = "${HEADWAY_K}-x"}\n',
        tmp_path,
        K=SECRET,
    )
    assert child.args[0].get_secret_value() == f"--key={SECRET}"
    assert child.env["B"].get_secret_value() == f"{SECRET}-x"
    far = only(
        '[mcp.a]\nurl = "https://mcp.example.com/mcp?key=${HEADWAY_K}"\n'
        'headers = {Authorization = "Bearer ${HEADWAY_K}"}\n',
        tmp_path,
        K=SECRET,
    )
    assert far.url is not None
    assert far.url.get_secret_value() == f"https://mcp.example.com/mcp?key={SECRET}"
    assert far.headers["Authorization"].get_secret_value() == f"Bearer {SECRET}"


def test_no_secret_of_a_server_is_shown(tmp_path: Path) -> None:
    settings = load(
        f'[mcp.a]\ncommand = "a"\nargs = ["{SECRET}"]\nenv = {{B = "{SECRET}"}}\n'
        f'[mcp.b]\nurl = "https://u:{SECRET}@example.com/{SECRET}"\nheaders = {{C = "{SECRET}"}}\n',
        tmp_path,
    )
    assert SECRET not in repr(settings)
    assert SECRET not in settings.model_dump_json()


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[mcp.a]\n", "HEADWAY_CONFIG [mcp.a]: needs either a command or a url"),
        (
            f'[mcp.a]\ncommand = "a"\nurl = "https://{SECRET}"\n',
            "HEADWAY_CONFIG [mcp.a]: needs either a command or a url",
        ),
        (f'[mcp.a]\nurl = "{SECRET}"\n', "HEADWAY_CONFIG [mcp.a] url: must be an http:// or"),
        (
            f'[mcp.a]\nurl = "https://x"\nargs = ["{SECRET}"]\n',
            "HEADWAY_CONFIG [mcp.a]: args and env go with a command",
        ),
        (
            f'[mcp.a]\ncommand = "a"\nheaders = {{B = "{SECRET}"}}\n',
            "HEADWAY_CONFIG [mcp.a]: headers go with a url",
        ),
        (
            f'[mcp.a]\nurl = "https://x"\nheaders = {{B = "{SECRET}\\nC: d"}}\n',
            "HEADWAY_CONFIG [mcp.a]: headers need a plain name and printable ASCII",
        ),
        (
            f'[mcp.a]\ncommand = "a"\nenv = {{"B=C" = "{SECRET}"}}\n',
            "HEADWAY_CONFIG [mcp.a]: env needs names without =",
        ),
        ('[mcp.a]\ncommand = ""\n', "HEADWAY_CONFIG [mcp.a] command: "),
        (
            '[mcp.a]\ncommand = "a"\nkinds = {b = "wait"}\n',
            "HEADWAY_CONFIG [mcp.a] kinds b: Input should be 'read', 'write' or 'send'",
        ),
        ('[mcp.a]\ncommand = "a"\nkind = "any"\n', "HEADWAY_CONFIG [mcp.a] kind: "),
        ('[mcp.a]\ncommand = "a"\ntimeout_seconds = 0\n', "HEADWAY_CONFIG [mcp.a] timeout_seconds"),
        ('[mcp.a]\ncmd = "a"\n', "HEADWAY_CONFIG [mcp.a] cmd: is not known here"),
        (
            '[mcp.a]\ncommand = "a"\nenv = {B = "${NOBODY_SET_THIS}"}\n',
            "HEADWAY_CONFIG [mcp.a] env B: names the variable NOBODY_SET_THIS, which is not set",
        ),
        ("[mcp]\na = 1\n", "HEADWAY_CONFIG [mcp.a]: "),
        ("mcp = 1\n", "HEADWAY_CONFIG [mcp]: "),
    ],
)
def test_a_slip_stops_the_start_with_its_place_and_no_value(
    toml: str, expected: str, tmp_path: Path
) -> None:
    text = refusal(toml, tmp_path)
    assert text.startswith(expected)
    assert SECRET not in text


@pytest.mark.parametrize("name", ["a", "A-1", "a_b", "x" * 32])
def test_plain_names_are_taken(name: str, tmp_path: Path) -> None:
    assert only(f'[mcp.{name}]\ncommand = "a"\n', tmp_path).command == "a"


@pytest.mark.parametrize("name", ["a__b", "_a", "a_", "a-", "a.b", "", "文件", "x" * 33])
def test_names_that_could_be_mistaken_are_refused(name: str, tmp_path: Path) -> None:
    text = refusal(f'[mcp."{name}"]\ncommand = "a"\n', tmp_path)
    assert text.startswith(f"HEADWAY_CONFIG [mcp.{name}]: a server's name is up to 32 letters")
