"""`headway tasks`: scheduled tasks of the running server, on the command line."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

import aiohttp
import typer

from server.errors import Locale

ANSWER_SECONDS: Final = 30.0
_UNITS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}

_TEXTS: Final = {
    "unreachable": (
        "无法连接 {}。请先运行 headway serve。",
        "Cannot reach {}. Run `headway serve` first.",
    ),
    "one": (
        "请在 --at、--every、--cron 中选一个。",
        "Give exactly one of --at, --every and --cron.",
    ),
    "every": (
        "--every 应写成 90s、30m、6h 或 1d。",
        "--every is written as 90s, 30m, 6h or 1d.",
    ),
    "no_file": ("无法读取 {}。", "Cannot read {}."),
    "no_json": ("{} 不是 JSON 文件。", "{} is not a JSON file."),
    "none": ("没有定时任务。", "There are no scheduled tasks."),
    "no_runs": ("还没有执行过。", "It has not run yet."),
    "added": ("已添加 {}，下次执行：{}。", "Added {}, due next at {}."),
    "paused": ("已暂停 {}。", "{} is paused."),
    "resumed": ("已恢复 {}，下次执行：{}。", "{} goes on, due next at {}."),
    "started": ("已开始执行，会话 {}。", "Started, in session {}."),
    "removed": ("已删除 {}。", "{} is removed."),
}

tasks = typer.Typer(help="Scheduled tasks of the running server.", no_args_is_help=True)

TaskId = Annotated[str, typer.Argument(help="As `headway tasks list` shows it.")]


@dataclass(frozen=True, slots=True)
class Server:
    """The server that is asked."""

    url: str
    token: str
    locale: Locale

    def say(self, key: str, *values: object) -> None:
        """One of our sentences."""
        typer.echo(_TEXTS[key][self.locale == "en"].format(*values))

    def refuse(self, key: str, *values: object) -> typer.Exit:
        """One of our sentences on standard error, and the end to raise."""
        return self.fail(_TEXTS[key][self.locale == "en"].format(*values))

    def fail(self, text: str) -> typer.Exit:
        """*text* on standard error, and the end to raise."""
        typer.echo(f"✗ {text}", err=True)
        return typer.Exit(1)

    def ask(self, method: str, path: str = "", body: Mapping[str, object] | None = None) -> Any:
        """The server's answer as JSON, None where it has none; what it refuses ends the command."""
        return asyncio.run(self._ask(method, f"/api/tasks{path}", body))

    async def _ask(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        limit = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(headers=headers, timeout=limit) as http,
                http.request(method, self.url + path, json=body) as response,
            ):
                if response.status == 204:
                    return None
                answer = await response.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            raise self.refuse("unreachable", self.url) from None
        if response.ok:
            return answer
        error = answer["error"]
        field = (error.get("details") or {}).get("path")
        raise self.fail(f"{field}: {error['message']}" if field else error["message"])


@tasks.command("list")
def list_them(context: typer.Context) -> None:
    """Show the tasks, the newest first."""
    server = _server(context)
    found = server.ask("GET", "?limit=200")["tasks"]
    if not found:
        server.say("none")
    for task in found:
        typer.echo(
            f"{task['id']}  {task['status']:<8} {_time(task, 'nextAt'):<25}  {task['title']}"
        )


@tasks.command()
def add(
    context: typer.Context,
    prompt: Annotated[str, typer.Argument(help="What is to be done each time.")],
    at: Annotated[str | None, typer.Option(help="Once, as 2026-12-31T09:00.")] = None,
    every: Annotated[str | None, typer.Option(help="Each 90s, 30m, 6h or 1d.")] = None,
    cron: Annotated[str | None, typer.Option(help="Five fields, or @daily and the like.")] = None,
    title: Annotated[str | None, typer.Option(help="Default: how the prompt begins.")] = None,
    timezone: Annotated[str | None, typer.Option(help="IANA name; default: the server's.")] = None,
    missed: Annotated[
        str | None,
        typer.Option(help="skip, run_once or run_if_within, for times the server was down."),
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="With run_if_within: how late, as 30m.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="The session in which its answers are told.")
    ] = None,
    quiet: Annotated[bool, typer.Option(help="Tell nothing when there is no news.")] = False,
    failure_limit: Annotated[int, typer.Option(help="Failures in a row that pause it.")] = 3,
    contract: Annotated[
        Path | None, typer.Option(help="A JSON file: what its runs have to find out.")
    ] = None,
) -> None:
    """Add a task."""
    server = _server(context)
    form = {
        "prompt": prompt,
        "schedule": _schedule(server, at, every, cron),
        "title": title,
        "timezone": timezone,
        "missedPolicy": missed,
        "missedWithinSeconds": None if within is None else _seconds(server, within),
        "delivery": None if session is None else {"session": session},
        "quiet": quiet,
        "failureLimit": failure_limit,
        "contract": None if contract is None else _contract(server, contract),
    }
    task = server.ask("POST", body=form)
    server.say("added", task["id"], _time(task, "nextAt"))


@tasks.command()
def show(context: typer.Context, task: TaskId) -> None:
    """Show all of a task."""
    shown = _server(context).ask("GET", f"/{task}")
    for name, value in shown.items():
        if value is not None:
            typer.echo(f"{name}: {_shown(shown, name, value)}")


@tasks.command()
def pause(context: typer.Context, task: TaskId) -> None:
    """Start a task no more by itself."""
    server = _server(context)
    server.say("paused", server.ask("POST", f"/{task}/pause")["title"])


@tasks.command()
def resume(context: typer.Context, task: TaskId) -> None:
    """Go on with a task; its failures are forgotten."""
    server = _server(context)
    resumed = server.ask("POST", f"/{task}/resume")
    server.say("resumed", resumed["title"], _time(resumed, "nextAt"))


@tasks.command()
def run(context: typer.Context, task: TaskId) -> None:
    """Start a task now."""
    server = _server(context)
    server.say("started", server.ask("POST", f"/{task}/run")["session"])


@tasks.command()
def remove(context: typer.Context, task: TaskId) -> None:
    """Forget a task and stop what runs of it."""
    server = _server(context)
    server.ask("DELETE", f"/{task}")
    server.say("removed", task)


@tasks.command()
def runs(context: typer.Context, task: TaskId) -> None:
    """Show what became of a task's due times, the latest first."""
    server = _server(context)
    known = server.ask("GET", f"/{task}")
    found = server.ask("GET", f"/{task}/runs?limit=200")["runs"]
    if not found:
        server.say("no_runs")
    for one in found:
        due = _time({**one, "timezone": known["timezone"]}, "dueAt")
        words = (one["status"], one["deliveryStatus"], one["session"], one["reason"])
        typer.echo("  ".join([due, *(word for word in words if word)]))


def _server(context: typer.Context) -> Server:
    server = context.obj
    assert isinstance(server, Server), "the command line puts it there"
    return server


def _schedule(
    server: Server, at: str | None, every: str | None, cron: str | None
) -> dict[str, object]:
    match (at, every, cron):
        case (str(at), None, None):
            return {"kind": "once", "at": at}
        case (None, str(every), None):
            return {"kind": "interval", "seconds": _seconds(server, every)}
        case (None, None, str(cron)):
            return {"kind": "cron", "expression": cron}
    raise server.refuse("one")


def _contract(server: Server, path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except OSError:
        raise server.refuse("no_file", path) from None
    except (ValueError, RecursionError):
        raise server.refuse("no_json", path) from None


def _seconds(server: Server, text: str) -> int:
    matched = re.fullmatch(r"([0-9]{1,9})([smhd])", text.strip())
    if matched is None:
        raise server.refuse("every")
    return int(matched[1]) * _UNITS[matched[2]]


def _time(task: Mapping[str, Any], name: str) -> str:
    """A time as the clocks of the task's zone show it."""
    if task[name] is None:
        return "-"
    time = datetime.fromisoformat(task[name])
    try:
        zone = ZoneInfo(task["timezone"])
    except (ValueError, OSError, LookupError):  # of a damaged task
        return time.isoformat(sep=" ", timespec="seconds")
    return time.astimezone(zone).isoformat(sep=" ", timespec="seconds")


def _shown(task: Mapping[str, Any], name: str, value: object) -> str:
    if name == "nextAt":
        return _time(task, name)
    if name == "contract":
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {part}" for key, part in value.items() if part is not None)
    return str(value)
