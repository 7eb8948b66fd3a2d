"""From the start of the process to its first answer."""

import asyncio
import socket
import time
from contextlib import closing
from pathlib import Path
from statistics import median

from bench.figure import Figure
from bench.process import START_SECONDS, end, server_variables, spawn

TURNS = 3
LOOK_SECONDS = 0.005


async def measure(folder: Path) -> list[Figure]:
    """Both from nothing: the server has its database to make."""
    ours: list[float] = []
    bares: list[float] = []
    for number in range(TURNS):
        where = folder / str(number)
        variables = server_variables(where / "server", None)
        ours.append(await _seconds(where / "server", "server", "serve", **variables))
        bares.append(await _seconds(where / "bare", "bench.bare"))
    name = "start to the first answered /healthz"
    return [Figure(name, median(ours), "s", median(bares), 2.0, "measured")]


async def _seconds(folder: Path, *module: str, **variables: str) -> float:
    port = _free_port()
    began = time.monotonic()
    process = await spawn(folder, *module, "--port", str(port), **variables)
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:  # nothing tells from outside when it listens
                if await _answers(port):
                    break
                await asyncio.sleep(LOOK_SECONDS)
        return time.monotonic() - began
    finally:
        await end(process)


async def _answers(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    with closing(writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
        return b" 200 " in await reader.readline()


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port: int = taken.getsockname()[1]
        return port
