"""A bare relay, the baseline of ours: one upstream stream to one socket, and nothing else.

It runs on the same server with the same options and asks with the same HTTP client; each event of
the stream becomes one frame, which is not even decoded.
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from server.serve import listen, run, url_of

_FIELD = b"data: "


class State(TypedDict):
    """What the lifespan opens."""

    http: aiohttp.ClientSession


def create_relay(upstream_url: str) -> Starlette:
    """The application."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[State]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            yield State(http=http)

    async def relay(websocket: WebSocket[State]) -> None:
        await websocket.accept()
        await websocket.receive_text()
        asked = {"stream": True, "messages": [], "tools": []}
        async with websocket.state["http"].post(upstream_url, json=asked) as response:
            async for line in response.content:
                if line.startswith(_FIELD):
                    await websocket.send_text(line[len(_FIELD) : -1].decode())
        await websocket.close()

    async def healthz(_: Request[State]) -> PlainTextResponse:
        return PlainTextResponse("ok")

    return Starlette(
        routes=[WebSocketRoute("/ws", relay), Route("/healthz", healthz)], lifespan=lifespan
    )


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--upstream", default="http://127.0.0.1:9")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    listener = listen("127.0.0.1", given.port)
    url = url_of(listener)
    run(create_relay(given.upstream), listener, on_started=lambda: print(url, flush=True))


if __name__ == "__main__":
    main()
