"""The processes that are measured: the server as it is started, and the bare relay."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bench.clock import cpu_seconds

ROOT = Path(__file__).parents[1]
TOKEN = "bench-token"
START_SECONDS = 30
STOP_SECONDS = 20
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True, slots=True)
class Running:
    """A process that listens."""

    url: str
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    async def settle(self) -> None:
        """Wait until it does next to nothing."""
        async with asyncio.timeout(START_SECONDS):
            while True:
                before = cpu_seconds(self.pid)
                await asyncio.sleep(0.2)
                if cpu_seconds(self.pid) - before < 0.004:
                    return

    async def line(self) -> bytes:
        """The next line it prints."""
        assert self.process.stdout is not None, "opened with a pipe"
        return await self.process.stdout.readline()


def server_variables(folder: Path, gateway_url: str | None) -> dict[str, str]:
    """The environment of a server that keeps all it writes in *folder*."""
    variables = {
        "HEADWAY_DATA_DIR": str(folder / "state"),
        "HEADWAY_TOKENS": f"bench={TOKEN}",
        "HEADWAY_LOCALE": "en",
        "HEADWAY_TIMEZONE": "UTC",
        "HEADWAY_MODEL_CONTEXT_TOKENS": "1000000",
    }
    if gateway_url is not None:
        variables |= {"HEADWAY_MODEL_BASE_URL": gateway_url, "HEADWAY_MODEL": "bench"}
    return variables


@asynccontextmanager
async def open_server(folder: Path, gateway_url: str | None) -> AsyncIterator[Running]:
    """`headway serve` on a fresh database."""
    variables = server_variables(folder, gateway_url)
    async with open_process(folder, "server", "serve", "--port", "0", **variables) as running:
        yield running


@asynccontextmanager
async def open_process(folder: Path, *module: str, **variables: str) -> AsyncIterator[Running]:
    """`python -m …`, once it has printed its address.

    It works in *folder*, where no settings of a checkout lie, and writes its log there.
    """
    process = await spawn(folder, *module, **variables)
    try:
        async with asyncio.timeout(START_SECONDS):
            url = await _address(process)
        yield Running(url, process)
    finally:
        await end(process)


async def spawn(folder: Path, *module: str, **variables: str) -> asyncio.subprocess.Process:
    """Start `python -m …` with its output on a pipe."""
    with _open_log(folder) as log:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *module,
            cwd=folder,
            env=_environment() | variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=64 * 1024 * 1024,
        )


async def end(process: asyncio.subprocess.Process) -> None:
    """End a process as Ctrl-C would, or at once if it does not listen."""
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _open_log(folder: Path) -> BinaryIO:
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "log").open("ab")


def _environment() -> dict[str, str]:
    """What is inherited: no settings of whoever runs the benchmark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None, "opened with a pipe"
    while line := await process.stdout.readline():
        if found := _ADDRESS.search(line):
            return found[0].decode()
    raise RuntimeError("a measured process did not start; its log says why")
