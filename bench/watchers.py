"""Many clients at once, each of one stream; writes down when each delta was sent and arrived."""

import argparse
import asyncio
import json
import re
import time
from typing import Literal

import aiohttp

from bench.client import open_client

Heard = tuple[str, int, int]
"""Kind of a delta, and the microseconds when it was sent and when it arrived."""

_MARK = re.compile(r"~([dp])([0-9a-f]{13})")


async def watch(url: str, face: Literal["server", "bare"], sessions: int) -> list[Heard]:
    """Start all streams and follow each to its end."""
    heard: list[Heard] = []
    connector = aiohttp.TCPConnector(limit=0)
    watcher = _watch_server if face == "server" else _watch_bare
    async with aiohttp.ClientSession(connector=connector) as http, asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(watcher(http, url, heard))
    return heard


async def _watch_server(http: aiohttp.ClientSession, url: str, heard: list[Heard]) -> None:
    async with open_client(http, url) as client:
        await client.ask(await client.open_session(), "go")
        async for text in client.frames():
            _hear(text, heard)


async def _watch_bare(http: aiohttp.ClientSession, url: str, heard: list[Heard]) -> None:
    async with http.ws_connect(f"{url}/ws") as socket:
        await socket.send_str("go")
        async for message in socket:
            _hear(message.data, heard)


def _hear(text: str, heard: list[Heard]) -> None:
    arrived = time.monotonic_ns() // 1000
    for kind, sent in _MARK.findall(text):
        heard.append((kind, int(sent, 16), arrived))


def main() -> None:
    """Watch, and print what was heard as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--face", choices=["server", "bare"], required=True)
    parser.add_argument("--sessions", type=int, required=True)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(watch(given.url, given.face, given.sessions))), flush=True)


if __name__ == "__main__":
    main()
