"""The listening socket and the server on it, over real connections."""

import asyncio
import socket
import time

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from server.errors import SettingsError
from server.serve import MAX_FRAME_BYTES, listen, url_of
from tests.serve import serve


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(str(len(text)))


APP = Starlette(routes=[Route("/", hello), WebSocketRoute("/ws", echo)])


def test_the_socket_frees_itself_of_dead_peers_and_does_not_wait_to_send() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        # Linux doubles what is asked for, to have room for its own records.
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 256 * 1024


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SettingsError, match="HEADWAY_PORT.*choose another"):
            listen("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(SettingsError, match="HEADWAY_HOST"):
        listen("192.0.2.1", 0)


async def test_an_accepted_connection_sends_at_once() -> None:
    async with serve(APP) as url, aiohttp.ClientSession() as http:
        async with http.get(url) as response:
            assert await response.text() == "hello"
            assert "server" not in response.headers


async def test_a_frame_within_the_limit_arrives_and_one_above_it_closes() -> None:
    async with serve(APP) as url, connect(f"{url.replace('http', 'ws')}/ws", proxy=None) as ws:
        await ws.send("x" * MAX_FRAME_BYTES)
        assert await ws.recv() == str(MAX_FRAME_BYTES)
        await ws.send("x" * (MAX_FRAME_BYTES + 1))
        with pytest.raises(ConnectionClosed) as closed:
            await ws.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_frames_are_not_deflated() -> None:
    async with serve(APP) as url, connect(f"{url.replace('http', 'ws')}/ws", proxy=None) as ws:
        assert ws.response is not None
        assert "Sec-WebSocket-Extensions" not in ws.response.headers


async def test_an_endless_answer_does_not_keep_the_server_from_ending() -> None:
    async def endless(request: Request) -> Response:
        async def pieces() -> object:
            yield "first"
            await asyncio.Event().wait()

        return StreamingResponse(pieces())  # type: ignore[arg-type]

    app = Starlette(routes=[Route("/", endless)])
    async with aiohttp.ClientSession() as http:
        async with serve(app, grace_seconds=1) as url:
            response = await http.get(url)
            assert await response.content.readany() == b"first"
            began = time.monotonic()
        assert time.monotonic() - began < 5
        response.close()


def test_the_address_shown_is_one_that_a_browser_can_open() -> None:
    with listen("0.0.0.0", 0) as everywhere, listen("127.0.0.1", 0) as here:
        assert url_of(everywhere).startswith("http://127.0.0.1:")
        assert url_of(here) == f"http://127.0.0.1:{here.getsockname()[1]}"
