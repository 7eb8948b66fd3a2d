"""Commands of Headway as processes of their own that need not import anything first.

The imports are most of what a start costs, and the same for all. So a process that has made them,
and nothing else, is forked for each command: it gets the environment, folder and outputs that the
command was given, and ends as the command ends. `python -m tests.forkserver` is that process; it
lives until its control socket is closed, and takes with it what is left.
"""

import asyncio
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from server.cli import main as headway

_ROOT = Path(__file__).parents[1]
_MOST_BYTES = 1 << 16
_STDOUT, _STDERR = 1, 2


class ForkedProcess:
    """One command, as `asyncio.subprocess.Process` would show it."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, life: asyncio.StreamReader) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self._ended = asyncio.create_task(self._end(life), name=f"end of {pid}")

    async def wait(self) -> int:
        """Its exit code, minus the signal's number if one ended it."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    async def _end(self, life: asyncio.StreamReader) -> int:
        self.returncode = int(await life.read())
        return self.returncode


class ForkServer:
    """The process that is forked; begun by its first use."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    async def spawn(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        stderr: IO[bytes],
    ) -> ForkedProcess:
        """Start a command with nothing on its input; whoever calls ends it."""
        control = self._control or self._start()
        out, its_out = os.pipe()
        life, its_life = os.pipe()
        order = json.dumps([list(arguments), dict(environment), str(folder)]).encode()
        stdout, ending = await _reader(out), await _reader(life)
        try:
            socket.send_fds(control, [order], [its_out, stderr.fileno(), its_life])
        finally:
            os.close(its_out)
            os.close(its_life)
        return ForkedProcess(int(await ending.readline()), stdout, ending)

    def close(self) -> None:
        """End the process, and what it started that has not ended."""
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.wait()
        self._process = self._control = None

    def _start(self) -> socket.socket:
        self._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(its.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                env={"PATH": "/bin", "PYTHONPATH": str(_ROOT), "PYTHONWARNINGS": "error"},
                pass_fds=[its.fileno()],
            )  # fmt: skip
        return self._control


FORKS = ForkServer()
"""Of this test process; closed in its end."""


async def _reader(pipe: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", 0)
    )
    return reader


# What follows runs in the process that is forked, and in its forks.


@dataclass(frozen=True, slots=True)
class _Order:
    """A command that a fork has become."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    outputs: tuple[int, int]

    def obey(self) -> None:
        """Run the command as `python -m server` would."""
        for inner, outer in zip(self.outputs, (_STDOUT, _STDERR), strict=True):
            os.dup2(inner, outer)
            os.close(inner)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.path[0] = self.folder
        sys.argv = ["headway", *self.arguments]
        headway()


def _serve(control: socket.socket) -> _Order | None:
    """Fork for each order: it is given in the fork; None in the end, in the process itself."""
    lives: dict[int, int] = {}
    noise, ear = socket.socketpair()
    for end in (control, noise, ear):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(noise.fileno())
    with control, noise, ear, selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(ear, selectors.EVENT_READ)
        while True:
            selector.select()
            with contextlib.suppress(BlockingIOError):
                ear.recv(_MOST_BYTES)
            _bury(lives)
            with contextlib.suppress(BlockingIOError):
                order, outputs, _, _ = socket.recv_fds(control, _MOST_BYTES, 3)
                if not order:
                    break
                *its_outputs, life = outputs
                if (pid := os.fork()) == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for other in (*lives.values(), life):
                        os.close(other)
                    arguments, environment, folder = json.loads(order)
                    stdout, stderr = its_outputs
                    return _Order(arguments, environment, folder, (stdout, stderr))
                for output in its_outputs:
                    os.close(output)
                lives[pid] = life
                os.write(life, b"%d\n" % pid)
    for pid in lives:
        os.kill(pid, signal.SIGKILL)
    return None


def _bury(lives: dict[int, int]) -> None:
    """Say how the ended ones ended."""
    while lives:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        life = lives.pop(pid)
        # Nobody reads any more where the test that started it is over.
        with contextlib.suppress(BrokenPipeError):
            os.write(life, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(life)


if __name__ == "__main__":
    gc.freeze()  # collecting would copy the pages that forks share
    if order := _serve(socket.socket(fileno=int(sys.argv[1]))):
        order.obey()
