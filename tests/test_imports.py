"""Which way imports may point, read from the sources."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "guard": frozenset({"guard"}),
    "channels": frozenset(
        {"channels", "aiohttp", "dingtalk_stream", "lark_oapi", "msgspec", "starlette"}
        | {"Crypto", "websockets", "yarl"}
    ),
}
"""What a package may import beside the standard library; `server` may import anything."""

LAZY = frozenset({"ag_ui", "lark_oapi", "dingtalk_stream", "mcp", "httpx2", "opentelemetry"})
"""Imported only where a bot, a server or a collector of theirs is configured, since they take
seconds; `ag_ui` takes a tenth of one, and is imported for the first client that speaks it."""

HOME_OF_LAZY = (
    *(".stream", ".mcp_stream", ".mcp_result", ".mcp_transport", ".tracing_sdk"),
    *(".agui_http", ".agui_resume"),
)
"""The modules that import them, which are imported themselves where they are needed."""

FLOORS = (
    "__main__",
    "cli",
    "app chat doctor serve replay_cli tasks_cli",
    "http health page rest rest_files rest_sessions rest_tasks agui_http agui_resume agui_routes "
    "hooks sse ws",
    "state",
    "agent_setup edges",
    "ground",
    "bots chats",
    "inbox",
    "schedule approvals sideline asked",
    "runs",
    "execution",
    "telling surfaces",
    "agent outbox begin ending outcome attachments titles upkeep children "
    "delivery late task_ending delegate replay replay_read replay_text",
    "sentences",
    "llm tools store auth board eventlog eventring agui metrics probe session_state patches "
    "signals due tracing tracing_sdk trace_names "
    "schedule_form task_form task_sentences contract extract partial patterns "
    "ws.objects ws.wire ws.policy",
    "message errors settings settings_policy settings_tools settings_values log",
)
"""The modules of `server`, the top first: one may import what stands on its floor or below.

A folder's name stands for all in it that is not named itself.
"""

READS_ENVIRONMENT = frozenset({"server.cli"})


def modules() -> dict[str, Path]:
    """The source of each of our modules, by its name."""
    found = {}
    for package in ("guard", "channels", "server"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}


def imported(name: str) -> Iterator[str]:
    """Every module that *name* imports, anywhere in it."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import; write the whole name"
            assert node.module is not None, "only a relative import has none"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def ours(name: str) -> set[str]:
    """Those of our modules that *name* imports."""
    return {target for target in imported(name) if target in MODULES and target != name}


def floor_of(name: str) -> int:
    """How far down *name* stands; 0 is the top."""
    parts = name.split(".")[1:]
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        for number, floor in enumerate(FLOORS):
            if prefix in floor.split():
                return number
    pytest.fail(f"{name} has no floor yet: add it to FLOORS where its imports point down")


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_guard_and_channels_import_only_what_they_may(package: str) -> None:
    allowed = MAY_IMPORT[package] | sys.stdlib_module_names
    wrong = {
        f"{name} imports {target}"
        for name in MODULES
        if name.split(".")[0] == package
        for target in imported(name)
        if target.split(".")[0] not in allowed
    }
    assert not wrong


def test_guard_has_no_clock_no_input_and_no_log() -> None:
    impure = {"asyncio", "datetime", "io", "logging", "os", "pathlib", "random", "socket", "time"}
    wrong = {
        f"{name} imports {target}"
        for name in MODULES
        if name.split(".")[0] == "guard"
        for target in imported(name)
        if target.split(".")[0] in impure
    }
    assert not wrong


def test_server_imports_point_down() -> None:
    wrong = {
        f"{name} (floor {floor_of(name)}) imports {target} (floor {floor_of(target)})"
        for name in MODULES
        if name.startswith("server.")
        for target in ours(name)
        if target.startswith("server.") and floor_of(target) < floor_of(name)
    }
    assert not wrong


def test_no_imports_go_in_a_circle() -> None:
    try:
        TopologicalSorter({name: ours(name) for name in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_every_floor_names_modules_that_exist() -> None:
    named = {f"server.{part}" for floor in FLOORS for part in floor.split()}
    assert named <= set(MODULES)


def test_platform_sdks_are_imported_where_they_are_used_only() -> None:
    wrong = {
        f"{name} imports {alias.name} at its top"
        for name in MODULES
        for node in TREES[name].body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).split(".")[0] in LAZY
        and not name.endswith(HOME_OF_LAZY)
    }
    assert not wrong


def test_the_command_line_imports_nothing_that_only_some_servers_need() -> None:
    code = f"import sys, server.cli; print(sorted({set(LAZY)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_the_environment_is_read_by_the_command_line_only() -> None:
    wrong = {
        name
        for name in MODULES
        if name not in READS_ENVIRONMENT
        for node in ast.walk(TREES[name])
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"))
        or (isinstance(node, ast.alias) and node.name in ("environ", "environb", "getenv"))
    }
    assert not wrong


def test_importing_a_module_starts_nothing() -> None:
    wrong = {
        f"{name}:{node.lineno}"
        for name in MODULES
        for node in TREES[name].body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    }
    assert not wrong
