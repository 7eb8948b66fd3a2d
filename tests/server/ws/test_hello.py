"""Who may connect, and how a socket begins."""

import asyncio
import json
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.auth import COOKIE, COOKIE_SECONDS, Users
from server.ws.policy import Policy
from tests.fakes.llm import Quirks, reply, serve_gateway
from tests.house import is_title
from tests.server.ws.place import ADMIN, ANN, Place, open_place
from tests.wire import WireError, open_client, open_socket

HELLO: dict[str, Any] = {
    "type": "req",
    "id": "c1",
    "method": "hello",
    "params": {"minProtocol": 1, "maxProtocol": 1, "client": {"id": "t", "locale": "en"}},
}


async def test_a_foreign_name_for_this_machine_is_refused(place: Place) -> None:
    port = int(place.url.rpartition(":")[2])
    with pytest.raises(InvalidStatus) as refused:
        async with open_socket(
            f"http://evil.example:{port}", token=ANN, host="127.0.0.1", port=port
        ):
            pass
    assert refused.value.response.status_code == 403


async def closed(socket: ClientConnection) -> tuple[int, list[Any]]:
    """The code a socket is closed with, and what came before."""
    frames = []
    async with asyncio.timeout(10):
        with suppress(ConnectionClosed):
            async for text in socket:
                frames.append(json.loads(text))
        await socket.wait_closed()
    assert socket.close_code is not None
    return socket.close_code, frames


async def test_a_hello_tells_what_the_client_may_rely_on(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        assert client.hello["protocol"] == 1
        assert client.hello["agui"] == "1.0"
        assert client.hello["user"] == "ann"
        assert client.hello["server"]["instance"] == place.state["logs"].instance
        assert client.hello["policy"]["maxFrameBytes"] == 1024 * 1024
        assert client.hello["policy"]["coalesceMs"] == 40
        assert client.hello["capabilities"]["allSessions"] is False
        assert client.socket.subprotocol == "agent.v1"


async def test_a_token_in_the_hello_is_enough(place: Place) -> None:
    async with open_client(place.url, hello={"auth": {"token": ADMIN}}) as client:
        assert client.hello["user"] == "admin"
        assert client.hello["capabilities"]["allSessions"] is True


async def test_a_login_cookie_of_our_own_page_is_enough(place: Place) -> None:
    cookie = place.state["users"].cookie_for(ANN)
    headers = {"Cookie": f"{COOKIE}={cookie}", "Origin": place.url}
    async with open_client(place.url, headers=headers) as client:
        assert client.hello["user"] == "ann"


async def test_a_header_goes_before_a_token_in_the_hello(place: Place) -> None:
    async with open_client(place.url, token=ANN, hello={"auth": {"token": ADMIN}}) as client:
        assert client.hello["user"] == "ann"


async def test_nobody_gets_in_without_a_credential(place: Place) -> None:
    async with open_socket(place.url) as socket:
        await socket.send(json.dumps(HELLO))
        code, (answer,) = await closed(socket)
        assert code == 4401
        assert answer["error"]["code"] == "unauthenticated"
        assert answer["error"]["message"] == "Please log in first."


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Cookie": f"{COOKIE}=1.x"},
    ],
)
async def test_foreign_pages_are_refused_before_the_handshake(
    place: Place, headers: dict[str, str]
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with open_socket(
            place.url, token=ANN if "Cookie" not in headers else None, headers=headers
        ):
            pass
    assert refused.value.response.status_code == 403
    assert json.loads(refused.value.response.body or b"")["error"]["code"] == "forbidden"


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ("nonsense", 4400),
        (b"{}", 4400),
        ('{"type":"ping","t":1}', 4400),
        ('{"type":"req","id":"c1","method":"session.create","params":{}}', 4400),
        ('{"type":"req","id":"c1","method":"hello","params":{"minProtocol":"1"}}', 4400),
        ("[" * 50_000, 4400),
        (json.dumps({**HELLO, "more": "x" * 70_000}), 1009),
    ],
)
async def test_a_wrong_first_frame_ends_the_socket(
    place: Place, first: str | bytes, code: int
) -> None:
    async with open_socket(place.url, token=ANN) as socket:
        await socket.send(first)
        assert (await closed(socket))[0] == code


async def test_a_protocol_that_is_not_spoken_here_is_told(place: Place) -> None:
    hello = {**HELLO, "params": {**HELLO["params"], "minProtocol": 2, "maxProtocol": 3}}
    async with open_socket(place.url, token=ANN) as socket:
        await socket.send(json.dumps(hello))
        code, (answer,) = await closed(socket)
        assert code == 4426
        assert answer["id"] == "c1"
        assert answer["error"]["code"] == "unsupported_protocol"
    async with open_socket(place.url, token=ANN, subprotocols=["agent.v2"]) as socket:
        assert (await closed(socket))[0] == 4426


async def test_unknown_fields_are_ignored(place: Place) -> None:
    more = {"later": {"x": None}, "client": {"id": "t", "theme": "dark"}}
    async with open_client(place.url, token=ANN, hello=more) as client:
        assert client.hello["protocol"] == 1


async def test_a_socket_without_a_hello_is_closed_in_time(tmp_path: Path, sqlite_url: str) -> None:
    policy = Policy(hello_seconds=0.05)
    async with (
        open_place(tmp_path, sqlite_url, policy=policy) as place,
        open_socket(place.url, token=ANN) as socket,
    ):
        assert (await closed(socket))[0] == 4408


async def test_an_address_gets_only_so_many_sockets(tmp_path: Path, sqlite_url: str) -> None:
    policy = Policy(waiting_per_address=2, sockets_per_address=3)
    async with (
        open_place(tmp_path, sqlite_url, policy=policy) as place,
        AsyncExitStack() as sockets,
    ):
        waiting = await sockets.enter_async_context(open_socket(place.url, token=ANN))
        await sockets.enter_async_context(open_socket(place.url, token=ANN))
        async with open_socket(place.url, token=ANN) as third:
            assert (await closed(third))[0] == 4429
        await waiting.send(json.dumps(HELLO))
        await waiting.recv()
        await sockets.enter_async_context(open_client(place.url, token=ANN))
        async with open_socket(place.url, token=ANN) as fourth:
            assert (await closed(fourth))[0] == 4429


async def test_hello_comes_once(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        with pytest.raises(WireError) as again:
            await client.say_hello()
        assert again.value.code == "bad_request"


async def test_texts_are_chinese_unless_the_client_is_not(place: Place) -> None:
    hello = {"client": {"id": "t", "locale": "zh-TW"}}
    async with open_client(place.url, token=ANN, hello=hello) as client:
        with pytest.raises(WireError) as error:
            await client.request("session.unsubscribe")
        assert error.value.details == {"path": "session"}
        with pytest.raises(WireError, match="没有找到") as error:
            await client.subscribe("none")
        assert error.value.code == "not_found"


async def test_socket_ends_with_its_login_and_the_run_goes_on(
    tmp_path: Path, sqlite_url: str
) -> None:
    go_on = asyncio.Event()
    slow = reply("一二三四五六", quirks=Quirks(piece_chars=2, hold_at=2, hold=go_on))
    async with (
        serve_gateway([slow], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
        open_client(place.url, token=ANN) as other,
    ):
        session_id = await place.session()
        await other.subscribe(session_id)
        await other.request("run.start", session=session_id, clientMsgId="m1", content="go")
        then = time.time() - COOKIE_SECONDS + 4
        cookie = Users(place.state["settings"].tokens, lambda: then).cookie_for(ANN)
        headers = {"Cookie": f"{COOKIE}={cookie}", "Origin": place.url}
        async with open_client(place.url, headers=headers) as client:
            notice = await client.frame("notice")
            assert notice["code"] == "auth_expired"
            assert await client.over() == 4401
        go_on.set()
        end = await other.event(session_id, "RUN_FINISHED")
        assert end["outcome"] == {"type": "success"}
