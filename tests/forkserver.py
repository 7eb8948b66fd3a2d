"""Commands as processes of their own that need not import anything first.

The imports are most of what a start costs, and the same for all. So a process that has made them,
and nothing else, is forked for each command: it gets the environment, folder and streams that the
command was given, and ends as the command ends. `python -m tests.forkserver` is that process; it
lives until its standard input ends, and takes with it what is left.

Whoever wants a process connects to its socket and sends an order with the three streams. It is
answered with the process id, and with the exit code in the end; who hangs up before has it killed.
Programs that start others by a command line are given `ForkServer.command`, see `tests.launch`.
"""

import asyncio
import contextlib
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.launch import MOST_BYTES, hire, order_of

_ROOT = Path(__file__).parents[1]
_STREAMS = (0, 1, 2)


class ForkedProcess:
    """One command, as `asyncio.subprocess.Process` would show it."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, life: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self._ended = asyncio.create_task(self._end(life), name=f"end of {pid}")

    async def wait(self) -> int:
        """Its exit code, minus the signal's number if one ended it."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    async def _end(self, life: socket.socket) -> int:
        with life:
            self.returncode = int(await _heard(life))
        return self.returncode


class ForkServer:
    """The process that is forked to run one of some programs; begun by its first use."""

    def __init__(self, *programs: str) -> None:
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    async def spawn(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        stderr: IO[bytes],
    ) -> ForkedProcess:
        """Start a program with nothing on its input; whoever calls ends it."""
        order = order_of(arguments, environment, str(folder))
        out, its_out = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        stdout = await _reader(out)
        try:
            life = hire(self._address(), order, (nothing, its_out, stderr.fileno()))
        finally:
            os.close(nothing)
            os.close(its_out)
        life.setblocking(False)
        return ForkedProcess(int(await _heard(life)), stdout, life)

    def command(self, *arguments: str) -> list[str]:
        """The command line of a process that stands for the program's own.

        Signals are passed on, and both end alike; a program whose command is killed is killed right
        afterwards.
        """
        launch = _ROOT / "tests" / "launch.py"
        return [sys.executable, "-I", "-S", str(launch), self._address(), *arguments]

    def close(self) -> None:
        """End the process, and what it started that has not ended."""
        if self._process is not None:
            self._process.communicate()
        self._process = self._folder = None

    def _address(self) -> str:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="headway-forks-"))
            self._process = self._start(self._folder / "socket")
        return str(self._folder / "socket")

    def _start(self, address: Path) -> subprocess.Popen[bytes]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(str(address))
            door.listen()
            return subprocess.Popen(
                [sys.executable, "-m", __name__, str(door.fileno()), *self._programs],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                env={"PATH": "/bin", "PYTHONPATH": str(_ROOT), "PYTHONWARNINGS": "error"},
                pass_fds=[door.fileno()],
            )  # fmt: skip


_MODULES = {
    "headway": "server.cli",
    "mcp_server": "tests.fakes.mcp_server",
    "docs_server": "tests.fakes.docs_server",
}
"""A program is the function `main` of its module."""

FORKS = ForkServer("headway")
"""Of this test process; closed in its end."""
MCP_FORKS = ForkServer("mcp_server", "docs_server")
"""Likewise, for the servers whose SDK a server of ours imports only where it is told to."""


async def _reader(pipe: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", 0)
    )
    return reader


async def _heard(life: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(life, MOST_BYTES)


# What follows runs in the process that is forked, and in its forks.


@dataclass(frozen=True, slots=True)
class _Order:
    """A command that a fork has become."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    streams: Sequence[int]

    def obey(self) -> None:
        """Run the program as the command would."""
        for inner, outer in zip(self.streams, _STREAMS, strict=True):
            os.dup2(inner, outer)
            os.close(inner)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.path[0] = self.folder
        sys.argv = list(self.arguments)
        importlib.import_module(_MODULES[self.arguments[0]]).main()


class _Forks:
    """The forks that live, and whoever ordered them."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._lives: dict[int, socket.socket] = {}

    def fork(self, life: socket.socket) -> _Order | None:
        """Take the order of who has connected: given in the fork, None in the process itself."""
        order, streams, _, _ = socket.recv_fds(life, MOST_BYTES, len(_STREAMS))
        if (pid := os.fork()) == 0:
            for other in (*self._lives.values(), life):
                other.close()
            arguments, environment, folder = json.loads(order)
            return _Order(arguments, environment, folder, streams)
        for stream in streams:
            os.close(stream)
        self._lives[pid] = life
        self._selector.register(life, selectors.EVENT_READ, pid)
        _tell(life, pid)
        return None

    def bury(self) -> None:
        """Say how the ended ones ended."""
        while self._lives:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._lives.pop(pid) as life:
                _tell(life, os.waitstatus_to_exitcode(status))
                with contextlib.suppress(KeyError):  # nobody has been there for a while
                    self._selector.unregister(life)

    def abandon(self, pid: int) -> None:
        """Kill one that nobody waits for any more."""
        if pid in self._lives:
            os.kill(pid, signal.SIGKILL)
            self._selector.unregister(self._lives[pid])

    def kill(self) -> None:
        """Kill them all."""
        for pid in self._lives:
            os.kill(pid, signal.SIGKILL)


def _tell(life: socket.socket, number: int) -> None:
    with contextlib.suppress(ConnectionError):  # it hung up
        life.send(b"%d" % number)


def _serve(door: socket.socket) -> _Order | None:
    """Fork for each order: it is given in the fork; None in the end, in the process itself."""
    noise, ear = socket.socketpair()
    noise.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(noise.fileno())
    with door, noise, ear, selectors.DefaultSelector() as selector:
        forks = _Forks(selector)
        for source in (sys.stdin, door, ear):
            selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    forks.kill()
                    return None
                if key.fileobj is ear:
                    ear.recv(MOST_BYTES)
                    forks.bury()
                elif key.fileobj is not door:
                    forks.abandon(key.data)
                elif order := forks.fork(door.accept()[0]):
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    return order


if __name__ == "__main__":
    for program in sys.argv[2:]:
        importlib.import_module(_MODULES[program])
    gc.freeze()  # collecting would copy the pages that forks share
    door = socket.socket(fileno=int(sys.argv[1]))
    place = Path(door.getsockname()).parent
    if order := _serve(door):
        order.obey()
    else:
        shutil.rmtree(place)
