"""One command of the shell tool as a process group: its output, its input and its end."""

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from server.errors import ToolError
from server.message import clean_text
from server.store.finish import finish
from server.tools.cut import Excerpt
from server.tools.trace import Trace, read_end, script, write_end

_log = logging.getLogger(__name__)

OUTPUT_CAP_BYTES = 30_000
"""Of a result's `output`: about 8 000 tokens, head and tail in equal parts."""

OUTPUT_FILE_CAP_BYTES = 50_000_000
"""A command that prints for ever must not fill the disk; what comes later is only hashed."""

PIPE_GRACE_SECONDS = 0.5
"""After the command's end: a child in the background may hold the pipe open for days."""

FORCED_SECONDS = 0.3
"""A killed process is gone in milliseconds, unless the kernel itself is stuck on a disk."""

FIRST_OUTPUT_SECONDS = 1.0
"""How long an answer to a line of input is awaited; a prompt answers at once."""

QUIET_SECONDS = 0.1
"""Output that paused this long is taken as the whole answer."""

SETTLE_SECONDS = 3.0
"""A command that never pauses is answered for after this."""

WRITE_SECONDS = 5.0
"""For a command that does not read its input: the pipe takes 64 KB, then this is waited."""

PROGRESS_SECONDS = 1.0
"""Between two lines shown to whoever watches."""

_CHUNK_BYTES = 64 * 1024
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Launch:
    """What a command is started with."""

    shell: str
    """The program that reads it, `bash` or a POSIX `sh`."""
    command: str
    workdir: Path
    environment: Mapping[str, str]
    trace: Trace


@dataclass(frozen=True, slots=True)
class State:
    """How far a command has come; once it has ended this does not change any more."""

    output: str
    truncated: bool
    exit_code: int | None
    """None while it runs; the negative signal number when a signal ended it."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """Our ends of the pipes, and the command's files."""

    stdin: int
    output: int
    file: int
    end: int
    """The file in which the command tells of its end."""
    closing: ExitStack


class Process:
    """A running command, and what is left of it after its end.

    It is not reaped before its output pipe is closed: until then its id, which is that of its
    group too, cannot go to a stranger, and what it left in the background can still be killed.
    """

    def __init__(self, launch: Launch, ended: Callable[[Path | None], None]) -> None:
        """Start it; *ended* is told its last working directory, None where that is unknown.

        Forks on the event loop, as asyncio itself does: a thread could outlive the cancelling
        of its caller, and leave a process that nobody owns.

        Raises:
            ToolError: It cannot be started.
        """
        try:
            self._popen, self._ends = _spawn(launch)
        except OSError as error:
            words = f"the command cannot be started: {error.strerror}"
            raise ToolError("not_started", words) from None
        self.finished = asyncio.Event()
        self._ended = ended
        self._excerpt = Excerpt(OUTPUT_CAP_BYTES)
        self._exit_code: int | None = None
        self._saved_bytes = 0
        self._is_killed = False
        self._news = asyncio.Event()
        self._life = asyncio.create_task(self._live(), name=f"shell process {self._popen.pid}")

    @property
    def is_over(self) -> bool:
        """It has ended, and nothing that it left in the background holds its pipe."""
        return self._life.done()

    def state(self) -> State:
        """How far it has come."""
        return State(clean_text(self._excerpt.text()), self._excerpt.truncated, self._exit_code)

    async def wait(self, seconds: float, watch: Callable[[str], None]) -> None:
        """Wait for its end, at most *seconds*; *watch* is shown its last line now and then.

        Cancelling leaves it running.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.finished.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(PROGRESS_SECONDS):
                            await self.finished.wait()
                    watch(clean_text(self._excerpt.last_line()))

    async def write(self, text: str) -> None:
        """Write *text* to its input and wait for the answer to pause.

        Raises:
            ToolError: It has ended, has closed its input, or does not read.
        """
        self._news.clear()
        rest = text.encode(errors="replace")
        deadline = asyncio.get_running_loop().time() + WRITE_SECONDS
        while rest:
            rest = rest[self._write_some(rest) :]
            if rest:
                if asyncio.get_running_loop().time() > deadline:
                    raise ToolError("stdin_full", f"{len(rest)} bytes were not read in time")
                # A look now and then: waiting on the descriptor itself could outlive it.
                await asyncio.sleep(_POLL_SECONDS)
        await self._settle()

    async def kill(self, grace_seconds: float) -> None:
        """End the whole group: asked first, forced after *grace_seconds*.

        Also ends what a finished command left in the background, if that still holds the pipe.
        Cancelling lets it come to its end first.
        """
        await finish(self._kill(grace_seconds))

    async def _kill(self, grace_seconds: float) -> None:
        self._is_killed = True
        self._signal(signal.SIGTERM)
        await asyncio.wait({self._life}, timeout=grace_seconds)
        self._signal(signal.SIGKILL)
        await asyncio.wait({self._life}, timeout=FORCED_SECONDS)
        self._life.cancel()  # one that left the group may hold the pipe; it is not waited for
        await asyncio.wait({self._life})

    def _signal(self, number: signal.Signals) -> None:
        if self._popen.returncode is None:  # once reaped, the id may be anybody's
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, number)

    def _write_some(self, rest: bytes) -> int:
        try:
            if self.finished.is_set():
                raise BrokenPipeError
            return os.write(self._ends.stdin, rest)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise ToolError("stdin_closed", "the command has ended or reads no input") from None

    async def _settle(self) -> None:
        patience = FIRST_OUTPUT_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while not self.finished.is_set():
                    async with asyncio.timeout(patience):
                        await self._news.wait()
                    self._news.clear()
                    patience = QUIET_SECONDS

    async def _live(self) -> None:
        pump = asyncio.create_task(self._pump(), name=f"shell output {self._popen.pid}")
        try:
            await _exited(self._popen)
            await asyncio.wait({pump}, timeout=PIPE_GRACE_SECONDS)
            self._finish()
            await asyncio.wait({pump})
        finally:
            pump.cancel()
            await asyncio.wait({pump})
            self._finish()
            self._popen.poll()
            self._ends.closing.close()

    async def _pump(self) -> None:
        """Read until nobody holds the other end; never slower than the command for long."""
        while True:
            await _readable(self._ends.output)
            chunk = os.read(self._ends.output, _CHUNK_BYTES)
            if not chunk:
                return
            if not self.finished.is_set():
                self._excerpt.add(chunk)
                self._news.set()
            await self._save(chunk)

    async def _save(self, chunk: bytes) -> None:
        room = OUTPUT_FILE_CAP_BYTES - self._saved_bytes
        if room <= 0:
            return
        self._saved_bytes += len(chunk)
        try:
            await finish(asyncio.to_thread(_write_all, self._ends.file, chunk[:room]))
        except OSError as error:
            self._saved_bytes = OUTPUT_FILE_CAP_BYTES
            _log.warning("shell output file given up error=%s", error.strerror)

    def _finish(self) -> None:
        if self.finished.is_set():
            return
        code = _exit_code(self._popen)
        self._exit_code = -signal.SIGKILL if code is None else code
        told = read_end(self._ends.end)
        if told.exit_code is None and not self._is_killed:  # what we ended has no end of its own
            write_end(self._ends.end, self._exit_code, told.workdir)
        self._ended(told.workdir)
        self.finished.set()
        self._news.set()


def _spawn(launch: Launch) -> tuple["subprocess.Popen[bytes]", _Ends]:
    with ExitStack() as ours, ExitStack() as theirs:
        stdin, their_stdin = _pipe(ours, theirs, child_reads=True)
        output, their_output = _pipe(ours, theirs, child_reads=False)
        file, end = launch.trace.open()
        ours.callback(os.close, file)
        ours.callback(os.close, end)
        popen = subprocess.Popen(
            [launch.shell, "-c", script(end), launch.shell, launch.command],
            stdin=their_stdin,
            stdout=their_output,
            stderr=their_output,
            pass_fds=(end,),
            cwd=launch.workdir,
            env=launch.environment,
            start_new_session=True,
        )
        return popen, _Ends(stdin, output, file, end, ours.pop_all())


def _pipe(ours: ExitStack, theirs: ExitStack, *, child_reads: bool) -> tuple[int, int]:
    """Our end and the child's end, each closed with its stack."""
    read, write = os.pipe()
    our, their = (write, read) if child_reads else (read, write)
    ours.callback(os.close, our)
    theirs.callback(os.close, their)
    os.set_blocking(our, False)
    return our, their


async def _exited(popen: "subprocess.Popen[bytes]") -> None:
    """Wait until the process has ended, and leave it to be reaped."""
    try:
        handle = os.pidfd_open(popen.pid)
    except (AttributeError, OSError):  # other systems than Linux, and sandboxes without pidfds
        while popen.poll() is None:  # noqa: ASYNC110 - the system has no event for it
            await asyncio.sleep(_POLL_SECONDS)
        return
    try:
        await _readable(handle)
    finally:
        os.close(handle)


async def _readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(handle, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(handle)


def _exit_code(popen: "subprocess.Popen[bytes]") -> int | None:
    """The exit code, without reaping; None while the process lives."""
    if popen.returncode is not None:
        return popen.returncode
    end = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if end is None:
        return None
    return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status


def _write_all(handle: int, chunk: bytes) -> None:
    while chunk:
        chunk = chunk[os.write(handle, chunk) :]
