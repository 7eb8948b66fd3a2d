"""A small client of `/ws` that checks nothing, so that it costs next to nothing."""

import itertools
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from bench.process import TOKEN

ENDS = ('"event":{"type":"RUN_FINISHED"', '"event":{"type":"RUN_ERROR"')


class Client:
    """One socket that said hello."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._unread: deque[str] = deque()

    async def request(self, method: str, **params: object) -> Mapping[str, Any]:
        """Send a request and wait for its result; what comes before it is kept for `frames`."""
        request_id = f"c{next(self._ids)}"
        frame = {"type": "req", "id": request_id, "method": method, "params": params}
        await self._socket.send_str(json.dumps(frame))
        answer = f'{{"type":"res","id":"{request_id}"'
        while not (text := await self._socket.receive_str()).startswith(answer):
            self._unread.append(text)
        decoded: Mapping[str, Any] = json.loads(text)
        if not decoded["ok"]:
            raise RuntimeError(f"{method}: {decoded['error']['code']}")
        result: Mapping[str, Any] = decoded["result"]
        return result

    async def create_session(self) -> str:
        """Make a session."""
        # With a title of its own, so that the model is not asked for one.
        return str((await self.request("session.create", title="bench"))["id"])

    async def follow(self, session: str) -> None:
        """Get what comes in *session*."""
        await self.request("session.subscribe", session=session)

    async def open_session(self) -> str:
        """Make a session and follow it."""
        session = await self.create_session()
        await self.follow(session)
        return session

    async def ask(self, session: str, text: str) -> None:
        """Start a run."""
        await self.request("run.start", session=session, clientMsgId=f"m-{session}", content=text)

    async def frames(self) -> AsyncIterator[str]:
        """What comes, as it comes, up to the end of the run."""
        while True:
            text = self._unread.popleft() if self._unread else await self._socket.receive_str()
            yield text
            if any(end in text for end in ENDS):
                return

    async def ended(self) -> Mapping[str, Any]:
        """The event that ends the run."""
        text = ""
        async for frame in self.frames():
            text = frame
        event: Mapping[str, Any] = json.loads(text)["event"]
        return event


@asynccontextmanager
async def open_client(http: aiohttp.ClientSession, url: str) -> AsyncIterator[Client]:
    """A client of the server at *url*."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with http.ws_connect(f"{url}/ws", headers=headers, max_msg_size=0) as socket:
        client = Client(socket)
        await client.request("hello", minProtocol=1, maxProtocol=1, client={"id": "bench"})
        yield client
