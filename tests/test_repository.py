"""What no committed file may hold, and that the README names only what exists."""

import re
import subprocess
from pathlib import Path

import pytest
import typer.main

from server.cli import command_line
from server.settings import VARIABLES

ROOT = Path(__file__).parents[1]

TEXT_SUFFIXES = frozenset(
    {".cfg", ".css", ".html", ".js", ".json", ".md", ".mjs", ".py", ".sh", ".svg", ".toml", ".txt"}
    | {".yaml", ".yml", ".mako", ""}
)

# Written in pieces, so that this file does not hold what it looks for.
REGISTRIES = re.compile(
    "|".join(
        (
            r"pypi\." + r"org",
            r"pythonhosted\." + r"org",
            r"registry\." + r"(npmjs|yarnpkg|npmmirror)",
            r"(deb|security)\." + r"debian\.org",
            r"--(extra-)?index" + r"-url",
            r"--find" + r"-links",
        )
    )
)
MACHINE_PATHS = re.compile(r"(?<![\w./-])/(" + r"root|work|home/(?!somebody\b)\w+|Users/\w+)/\w")

TEST_VARIABLES = frozenset({"HEADWAY_REQUIRE_ALL"})
"""Variables that only the tests and scripts read."""


def committed_texts() -> dict[str, str]:
    """The text files that are committed, or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [name for name in listed.stdout.decode().split("\0") if name]
    paths = {name: ROOT / name for name in names if Path(name).suffix in TEXT_SUFFIXES}
    return {name: path.read_text("utf-8") for name, path in paths.items() if path.is_file()}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Every committed text, by its name."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    return committed_texts()


def lines_with(texts: dict[str, str], pattern: re.Pattern[str]) -> list[str]:
    """Where *pattern* occurs; the bundle of third parties is not ours to judge."""
    return [
        f"{name}:{number}: {found.group()}"
        for name, text in texts.items()
        if "/vendor/" not in name
        for number, line in enumerate(text.splitlines(), 1)
        if (found := pattern.search(line))
    ]


def test_no_file_names_a_package_registry(texts: dict[str, str]) -> None:
    assert lines_with(texts, REGISTRIES) == []


def test_no_file_holds_a_path_of_the_machine_it_was_written_on(texts: dict[str, str]) -> None:
    assert lines_with(texts, MACHINE_PATHS) == []


def test_no_text_holds_a_nul_or_a_windows_line_end(texts: dict[str, str]) -> None:
    wrong = [name for name, text in texts.items() if "\0" in text or "\r\n" in text]
    assert wrong == []


def test_every_constraint_is_one_exact_version(texts: dict[str, str]) -> None:
    lines = texts["constraints.txt"].splitlines()
    wrong = [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+!]+", line)]
    assert wrong == []


def test_every_dependency_is_pinned(texts: dict[str, str]) -> None:
    names = r'^\s+"([\w-]+)(?:\[[\w,-]+\])?[><=;]'
    needed = set(re.findall(names, texts["pyproject.toml"], re.MULTILINE)) - {"setuptools"}
    pinned = {line.partition("==")[0] for line in texts["constraints.txt"].splitlines()}

    def plain(listed: set[str]) -> set[str]:
        return {re.sub(r"[-_.]+", "-", name).lower() for name in listed}

    assert plain(needed) <= plain(pinned)


def test_make_targets_in_the_readme_exist(texts: dict[str, str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", texts["Makefile"], re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)`", texts["README.md"]))
    named |= set(re.findall(r"^\s*make ([a-z-]+)", texts["README.md"], re.MULTILINE))
    assert named <= targets


def test_commands_in_the_readme_exist(texts: dict[str, str]) -> None:
    commands = set(typer.main.get_group(command_line()).commands)
    named = set(re.findall(r"`headway ([a-z]+)", texts["README.md"]))
    named |= set(re.findall(r"^\s*(?:\.venv/bin/)?headway ([a-z]+)", texts["README.md"], re.M))
    assert named <= commands


def test_variables_named_anywhere_in_the_documents_exist(texts: dict[str, str]) -> None:
    named = {
        variable
        for name, text in texts.items()
        if name.endswith(".md")
        for variable in re.findall(r"HEADWAY_[A-Z_]+[A-Z]", text)
    }
    assert named <= set(VARIABLES) | TEST_VARIABLES


def test_every_variable_is_in_the_readme(texts: dict[str, str]) -> None:
    if "HEADWAY_PORT" not in texts["README.md"]:
        pytest.skip("the README has no settings yet")
    missing = [name for name in VARIABLES if name not in texts["README.md"]]
    assert missing == []
