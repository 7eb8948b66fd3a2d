"""What a socket keeps that nobody speaks on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path

import aiohttp
import psutil

from bench.client import open_client
from bench.figure import Figure
from bench.process import Running, open_process, open_server

SOCKETS = 1000
SESSIONS = 200
"""One connection may make so many without a pause."""
AT_ONCE = 50
WARM_SOCKETS = 10
"""Opened and left first: what the first of all make the process load is not theirs."""

Connect = Callable[[aiohttp.ClientSession, str], AbstractAsyncContextManager[object]]


async def measure(folder: Path) -> list[Figure]:
    """Resident memory per socket; each of ours follows a session."""
    async with open_server(folder / "server", None) as server:
        ours = await _bytes_per_socket(server, _follow(await _sessions(server.url)))
    async with open_process(folder / "bare", "bench.bare") as bare:
        bares = await _bytes_per_socket(bare, _connect)
    name = f"relay: memory per idle socket, {SOCKETS:,} of them"
    return [Figure(name, ours / 1024, "KB", bares / 1024, 64.0, "measured")]


async def _bytes_per_socket(running: Running, connect: Connect) -> float:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        async with _opened(http, running.url, connect, WARM_SOCKETS):
            pass
        await running.settle()
        before = psutil.Process(running.pid).memory_info().rss
        async with _opened(http, running.url, connect, SOCKETS):
            await running.settle()
            after = psutil.Process(running.pid).memory_info().rss
    return (after - before) / SOCKETS


@asynccontextmanager
async def _opened(
    http: aiohttp.ClientSession, url: str, connect: Connect, count: int
) -> AsyncIterator[None]:
    async with AsyncExitStack() as opened:
        for start in range(0, count, AT_ONCE):
            batch = [connect(http, url) for _ in range(min(AT_ONCE, count - start))]
            await asyncio.gather(*map(opened.enter_async_context, batch))
        yield


async def _sessions(url: str) -> Sequence[str]:
    """Made before the sockets are there, for each of them would hear of each session."""
    async with aiohttp.ClientSession() as http, open_client(http, url) as client:
        return [await client.create_session() for _ in range(SESSIONS)]


def _follow(sessions: Sequence[str]) -> Connect:
    turn = cycle(sessions)

    @asynccontextmanager
    async def connect(http: aiohttp.ClientSession, url: str) -> AsyncIterator[None]:
        async with open_client(http, url) as client:
            await client.follow(next(turn))
            yield

    return connect


@asynccontextmanager
async def _connect(http: aiohttp.ClientSession, url: str) -> AsyncIterator[None]:
    async with http.ws_connect(f"{url}/ws"):
        yield
