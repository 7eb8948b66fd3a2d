"""The `shell` tool: commands that may outlast the call that started them."""

import asyncio
import hashlib
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Annotated, Literal, Self

from msgspec import UNSET, Meta, UnsetType

from server.errors import ToolError
from server.message import clean_text
from server.tools.arguments import Arguments, decode, schema_of
from server.tools.base import (
    Found,
    Kind,
    ToolContext,
    ToolResult,
    ToolSpec,
    Unknown,
    json_result,
)
from server.tools.process import OUTPUT_CAP_BYTES, Launch, Process, State
from server.tools.trace import End, Trace
from server.tools.workspace import os_errors, resolve

WAIT_SECONDS = 60.0
"""How long `run` and `await_async` wait unless told otherwise: most builds and tests fit."""

WAIT_CAP_SECONDS = 600.0
"""Longer waits are cut to this, so that the guard and the user see a round now and then."""

COMMAND_CAP_BYTES = 100_000
"""Linux admits 128 KB for one argument of a program; longer scripts belong into a file."""

LIVE_CAP = 16
"""Running commands of one session; a model that starts more has lost sight of them."""

FINISHED_CAP = 16
"""Ended commands of one session that can still be awaited; older ones go, with their files."""

IDLE_SECONDS = 3_600.0
"""After this a session without a running command is forgotten; the traces have the rest."""

KILL_GRACE_SECONDS = 1.0
"""Between SIGTERM and SIGKILL for `kill` and at shutdown: time to write a last line."""

CANCEL_GRACE_SECONDS = 0.4
"""The same when a person stops the run, who must see it end within a second."""

FOLDER = ".headway/shell"
"""In the workspace, hidden from searches; holds outputs and the working directory."""

WORKDIR_ENDING = ".workdir"
"""Of the file there that keeps where a session's next command starts; its name is the session's."""

_LOST = "the result was lost with a restart of the server, and the end of the output may be too"

_ID = re.compile(r"sh-[0-9a-f]{12}")

_SECRET = re.compile(r"^HEADWAY_|^OTEL_|KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
"""Names of variables that a command never sees: the model reads what it prints."""

_PLAIN_TERMINAL = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Nobody sits at a terminal: no colours, no pagers, no questions for a password."""

Action = Literal["run", "await_async", "write_stdin", "kill"]


class ShellArguments(Arguments, frozen=True):
    """What `shell` takes."""

    action: Action
    command: Annotated[str, Meta(description="For run: the shell command.")] = ""
    session_id: Annotated[
        str, Meta(description="For the other actions: the command's id, from run.")
    ] = ""
    input: Annotated[str, Meta(description="For write_stdin: the text, with its newline.")] = ""
    run_async: Annotated[bool, Meta(description="For run: do not wait for the end.")] = False
    timeout_seconds: (
        Annotated[float, Meta(ge=0, description="How long run and await_async wait: 60, to 600.")]
        | UnsetType
    ) = UNSET

    @property
    def wait_seconds(self) -> float:
        """How long the call may wait."""
        given = (
            WAIT_SECONDS if isinstance(self.timeout_seconds, UnsetType) else self.timeout_seconds
        )
        return min(given, WAIT_CAP_SECONDS)


@dataclass(frozen=True, slots=True)
class Shell:
    """One command of a session."""

    id: str
    run_id: str
    process: Process
    trace: Trace


@dataclass(slots=True)
class _Session:
    """The commands of one chat session, oldest first, and where the next one starts."""

    workdir: Path
    saved_workdir: Path
    used_at: float = 0.0
    """When a command of it was started or asked for last."""
    shells: dict[str, Shell] = field(default_factory=dict)

    @property
    def is_at_rest(self) -> bool:
        """Nothing of it runs, and what the next command needs to know is on disk."""
        is_over = all(shell.process.is_over for shell in self.shells.values())
        return is_over and self.workdir == self.saved_workdir


class Shells:
    """All commands of this process, by session; leaving it kills them within two seconds."""

    def __init__(
        self, environment: Mapping[str, str], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """*environment* is the server's own; a command sees it without secrets."""
        self._monotonic = monotonic
        self._environment = child_environment(environment)
        self._program = shutil.which("bash", path=environment.get("PATH")) or "/bin/sh"
        self._sessions: dict[str, _Session] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        await _kill_all(self._where(lambda shell: True), KILL_GRACE_SECONDS)
        self._sessions.clear()

    async def announce(self, context: ToolContext) -> str:
        """Leave a trace of a command that is about to start; its id."""
        trace = trace_of(context)
        await asyncio.to_thread(_announce, trace, context)
        return trace.name

    async def start(self, command: str, *, run_async: bool, context: ToolContext) -> Shell:
        """Start *command* where the session's last one ended.

        Raises:
            ToolError: Too many are running, or it cannot be started.
        """
        self._forget_idle()
        session = await self._open_session(context)
        await _make_room(session)
        trace = trace_of(context)
        if not await asyncio.to_thread(session.workdir.is_dir):
            session.workdir = context.workspace
        launch = Launch(
            shell=self._program,
            command=command,
            workdir=session.workdir,
            environment=self._environment,
            trace=trace,
        )
        if self._closed:  # asked after the waiting above, so that none is started too late
            raise ToolError("shutting_down", "the server is stopping")
        process = Process(launch, _adopt(session, run_async=run_async))
        shell = Shell(trace.name, context.run_id, process, trace)
        session.shells[shell.id] = shell
        self._sessions[context.session_id] = session  # it may have been killed in the meantime
        return shell

    async def go_on_from(self, workdir: Path, context: ToolContext) -> None:
        """Let the session's next command start where one ended that an earlier process ran."""
        session = await self._open_session(context)
        session.workdir = workdir

    async def find(self, shell_id: str, context: ToolContext) -> Shell:
        """Raises ToolError for an id that is not one of the session's."""
        session = self._sessions.get(context.session_id)
        shell = session.shells.get(shell_id) if session else None
        if session is not None:
            session.used_at = self._monotonic()
        if shell is None:
            left = await asyncio.to_thread(_what_is_left, shell_id, context)
            raise ToolError(
                "unknown_session",
                f"no command has the id {shell_id[:80]!r}; it was forgotten, was lost with a "
                f"restart of the server, or never was{left}",
            )
        return shell

    async def workdir(self, context: ToolContext) -> Path:
        """Where the session's next command starts; kept in a file, to survive a restart."""
        session = self._sessions.get(context.session_id)
        if session is None:  # killed while its command's result was on the way
            return context.workspace
        if session.workdir != session.saved_workdir:
            session.saved_workdir = session.workdir
            await asyncio.to_thread(_save_workdir, context, session.workdir)
        return session.workdir

    async def kill_run(self, run_id: str) -> None:
        """Kill what a run started: a person stopped it, and wants it to end within a second."""
        await _kill_all(self._where(lambda shell: shell.run_id == run_id), CANCEL_GRACE_SECONDS)

    async def kill_session(self, session_id: str) -> None:
        """Kill what a session started, and forget it."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await _kill_all(session.shells.values(), KILL_GRACE_SECONDS)

    def _forget_idle(self) -> None:
        before = self._monotonic() - IDLE_SECONDS
        for session_id, session in list(self._sessions.items()):
            if session.used_at < before and session.is_at_rest:
                del self._sessions[session_id]

    def _where(self, holds: Callable[[Shell], bool]) -> list[Shell]:
        sessions = self._sessions.values()
        return [shell for one in sessions for shell in one.shells.values() if holds(shell)]

    async def _open_session(self, context: ToolContext) -> _Session:
        """The folder is made each time, for a command may have removed it."""
        workdir = await asyncio.to_thread(_open_folder, context)
        session = self._sessions.setdefault(context.session_id, _Session(workdir, workdir))
        session.used_at = self._monotonic()
        return session


class ShellTool:
    """Runs commands in the session's workspace."""

    spec = ToolSpec(
        name="shell",
        description=(
            "Run shell commands in the workspace. `run` waits for the end; when timeout_seconds "
            "are over (or at once with run_async) the result has completed:false and a "
            "session_id, and the command goes on: wait with await_async, answer its prompts with "
            "write_stdin, end it with kill. `output` is all output so far, cut in the middle when "
            "long; output_file has more of it. `cd` lasts for later commands, except with "
            "run_async. Standard input is an open pipe: add `</dev/null` to programs that would "
            "read it. exit_code is negative when a signal ended the command."
        ),
        parameters=schema_of(ShellArguments),
        kind="write",
        parallel=False,
        timeout_seconds=WAIT_CAP_SECONDS + 30,  # each action ends its own waiting before
        # `output` is capped by itself; escapes in JSON may double it.
        output_cap_bytes=64_000,
    )

    def __init__(self, shells: Shells) -> None:
        self._shells = shells

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "wait" if arguments.get("action") == "await_async" else "write"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        wanted = decode(arguments, ShellArguments)
        if wanted.action == "run":
            return await self._run(wanted, context)
        if not wanted.session_id:
            raise ToolError("bad_arguments", f"{wanted.action} needs the session_id that run gave")
        shell = await self._shells.find(wanted.session_id, context)
        if wanted.action == "await_async":
            await shell.process.wait(wanted.wait_seconds, context.progress)
        elif wanted.action == "write_stdin":
            await shell.process.write(wanted.input)
        else:
            await shell.process.kill(KILL_GRACE_SECONDS)
        return await self._result(shell, context)

    async def mark(self, arguments: Mapping[str, object], context: ToolContext) -> str:
        wanted = decode(arguments, ShellArguments)
        if wanted.action != "run":
            return ""
        _check_command(wanted.command)
        return await self._shells.announce(context)

    async def lookup(
        self, arguments: Mapping[str, object], mark: str, context: ToolContext
    ) -> Found:
        wanted = decode(arguments, ShellArguments)
        if wanted.action != "run":
            return "unknown"
        trace = trace_of(context)
        match await asyncio.to_thread(trace.look):
            case "ready":
                return "not_done"
            case "lost":
                return "unknown"
            case End(exit_code=None) as end:
                return Unknown(await asyncio.to_thread(_what_is_known, trace, end))
            case End() as end:
                return await self._result_of(trace, end, wanted, context)

    async def _run(self, wanted: ShellArguments, context: ToolContext) -> ToolResult:
        _check_command(wanted.command)
        shell = await self._shells.start(
            wanted.command, run_async=wanted.run_async, context=context
        )
        if not wanted.run_async:
            try:
                await shell.process.wait(wanted.wait_seconds, context.progress)
            except asyncio.CancelledError:
                await shell.process.kill(CANCEL_GRACE_SECONDS)
                raise
        return await self._result(shell, context)

    async def _result(self, shell: Shell, context: ToolContext) -> ToolResult:
        state = shell.process.state()
        message = _message(shell.id, state.exit_code)
        return await self._told(shell.trace, state, message, context)

    async def _result_of(
        self, trace: Trace, end: End, wanted: ShellArguments, context: ToolContext
    ) -> ToolResult:
        """The result of a command of which the trace tells that it ended."""
        excerpt = await asyncio.to_thread(trace.excerpt, OUTPUT_CAP_BYTES)
        state = State(clean_text(excerpt.text()), excerpt.truncated, end.exit_code)
        if end.workdir is not None and not wanted.run_async:
            await self._shells.go_on_from(end.workdir, context)
        message = f"{_message(trace.name, end.exit_code)}; {_LOST}"
        return await self._told(trace, state, message, context)

    async def _told(
        self, trace: Trace, state: State, message: str, context: ToolContext
    ) -> ToolResult:
        fields = {
            "session_id": trace.name,
            "output": state.output,
            "exit_code": state.exit_code,
            "completed": state.exit_code is not None,
            "truncated": state.truncated,
            "current_workdir": str(await self._shells.workdir(context)),
            "output_file": f"{FOLDER}/{trace.output.name}",
            "message": message,
        }
        return replace(json_result(fields), exit_code=state.exit_code)


def trace_of(context: ToolContext) -> Trace:
    """The trace of the command that a call runs; the same for the same call, in any process.

    Raises:
        ToolError: The folder was made a link that leads out of the workspace.
    """
    call = f"{context.session_id} {context.call_id}"
    name = f"sh-{hashlib.sha256(call.encode()).hexdigest()[:12]}"
    return Trace(resolve(context.workspace, FOLDER), name)


def child_environment(environment: Mapping[str, str]) -> Mapping[str, str]:
    """What a command sees of *environment*: no secrets, nothing of the server's own."""
    shown = {name: value for name, value in environment.items() if not _SECRET.search(name)}
    return shown | _PLAIN_TERMINAL


def _adopt(session: _Session, *, run_async: bool) -> Callable[[Path | None], None]:
    """What a command's end means for the session: its last directory is where the next starts.

    Not for one in the background, nor if another command went elsewhere in the meantime.
    """
    started_in = session.workdir

    def ended(workdir: Path | None) -> None:
        if workdir is not None and not run_async and session.workdir == started_in:
            session.workdir = workdir

    return ended


async def _make_room(session: _Session) -> None:
    """Forget the oldest ended commands.

    Raises:
        ToolError: Too many are running.
    """
    ended = [shell for shell in session.shells.values() if shell.process.finished.is_set()]
    live = len(session.shells) - len(ended)
    if live >= LIVE_CAP:
        ids = ", ".join(shell.id for shell in session.shells.values() if shell not in ended)
        raise ToolError("too_many_shells", f"{live} commands are running; kill some of: {ids}")
    for shell in ended[: max(0, len(ended) - FINISHED_CAP + 1)]:
        del session.shells[shell.id]
        await shell.process.kill(CANCEL_GRACE_SECONDS)
        await asyncio.to_thread(shell.trace.remove)


async def _kill_all(shells: Iterable[Shell], grace_seconds: float) -> None:
    async with asyncio.TaskGroup() as group:
        for shell in shells:
            group.create_task(shell.process.kill(grace_seconds), name=f"kill {shell.id}")


def _check_command(command: str) -> None:
    if not command.strip():
        raise ToolError("bad_arguments", "run needs a command")
    if "\x00" in command:
        raise ToolError("bad_arguments", "a command cannot contain a NUL character")
    if len(command.encode(errors="replace")) > COMMAND_CAP_BYTES:
        limit = COMMAND_CAP_BYTES // 1_000
        raise ToolError(
            "bad_arguments", f"longer than {limit} KB; write a script with write_file and run it"
        )


def _message(shell_id: str, exit_code: int | None) -> str:
    if exit_code is None:
        return f"still running; wait with action await_async and session_id {shell_id}"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-exit_code).name}"
    return f"ended by signal {-exit_code}"


def _what_is_left(shell_id: str, context: ToolContext) -> str:
    """What can be told of a command that no process of ours runs any more."""
    if _ID.fullmatch(shell_id) is None:
        return ""
    trace = Trace(resolve(context.workspace, FOLDER), shell_id)
    end = trace.look()
    return f". Of one with this id: {_what_is_known(trace, end)}" if isinstance(end, End) else ""


def _what_is_known(trace: Trace, end: End) -> str:
    kept = f"its output, as far as it was kept, is in {FOLDER}/{trace.output.name}"
    if end.exit_code is not None:
        return f"it {_message(trace.name, end.exit_code)}; {kept}"
    if end.workdir is not None:
        return f"its shell has ended, and nobody saw how; {kept}"
    match trace.is_running(end):
        case True:
            return f"it still runs as process group {end.group}, unheard; {kept}"
        case False:
            return f"it is not found running any more; {kept}"
        case None:
            return f"whether it still runs cannot be told; {kept}"


def _open_folder(context: ToolContext) -> Path:
    """Make the folder for outputs, kept out of git; the working directory as it was left."""
    folder = resolve(context.workspace, FOLDER)
    with os_errors(FOLDER):
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / ".gitignore").write_text("*\n")
        with suppress(FileNotFoundError, UnicodeDecodeError):
            workdir = Path((folder / _workdir_name(context)).read_text())
            return workdir if workdir.is_absolute() else context.workspace
    return context.workspace


def _announce(trace: Trace, context: ToolContext) -> None:
    _open_folder(context)
    with os_errors(FOLDER):
        trace.announce()


def _save_workdir(context: ToolContext, workdir: Path) -> None:
    with suppress(OSError, UnicodeEncodeError):  # it would only start in the root again
        (context.workspace / FOLDER / _workdir_name(context)).write_text(str(workdir))


def _workdir_name(context: ToolContext) -> str:
    """The file that keeps a session's working directory; sessions share the workspace."""
    return f"{context.session_id}{WORKDIR_ENDING}"
