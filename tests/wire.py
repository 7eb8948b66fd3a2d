"""A client of `/ws` for tests. It holds every frame to the published schema, every event to
AG-UI's rules, and the numbers of a session's events to be without a gap.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # has no stubs
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from server.ws import wire
from tests.agui_rules import AguiRules

Frame = dict[str, Any]
SECONDS = 10.0
"""What a test waits for anything."""

_validators: dict[str, Draft202012Validator] = {}
_FRAMES = {
    "event": "Event",
    "session.update": "SessionUpdate",
    "sessions.changed": "SessionsChanged",
    "notice": "Notice",
    "ping": "Ping",
    "pong": "Pong",
}


class WireError(Exception):
    """The server did not do a request."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: str = error["code"]
        self.message: str = error["message"]
        self.retryable: bool = error["retryable"]
        self.details: Mapping[str, str] = error.get("details", {})


class Lost(Exception):
    """The socket ended before the answer came; nobody knows whether the request was done."""


def validate(name: str, value: object) -> None:
    """Hold *value* to the published definition of this name."""
    validator = _validators.get(name)
    if validator is None:
        published = wire.schema()
        validator = Draft202012Validator(
            {"$ref": f"#/$defs/{name}", "$defs": {**published["$defs"], "agui.Event": {}}}
        )
        _validators[name] = validator
    validator.validate(value)


def validate_event(event: Mapping[str, Any]) -> None:
    """Hold an AG-UI event to the definition of its own kind."""
    kinds = wire.schema()["$defs"]["agui.Event"]["discriminator"]["mapping"]
    validate(kinds[event["type"]].removeprefix("#/$defs/"), event)


class Followed:
    """What came of one session's log."""

    def __init__(self, seq: int, rules: AguiRules) -> None:
        self.seq = seq
        self.rules = rules
        self.frames: list[Frame] = []

    @property
    def events(self) -> list[Frame]:
        """The AG-UI events."""
        return [frame["event"] for frame in self.frames]

    @property
    def kinds(self) -> list[str]:
        """The types of the events."""
        return [event["type"] for event in self.events]

    def text(self, message_id: str) -> str:
        """What came of one text, thought or call's arguments."""
        return "".join(
            event["delta"]
            for event in self.events
            if message_id in (event.get("messageId"), event.get("toolCallId")) and "delta" in event
        )

    def take(self, frame: Frame) -> None:
        """Check and keep the next frame."""
        first = frame.get("first", frame["seq"])
        assert first == self.seq + 1, f"after {self.seq} came {first}"
        self.seq = frame["seq"]
        validate_event(frame["event"])
        self.rules.check(frame["event"])
        self.frames.append(frame)


class WireClient:
    """One socket that said hello."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.hello: Frame = {}
        self.followed: dict[str, Followed] = {}
        self.frames: list[Frame] = []
        """All that are neither answers nor events, in order."""
        self.order: list[str] = []
        """What came, by kind: the type of an event or of a frame."""
        self.strays: list[tuple[str, str]] = []
        """Ids and error codes of answers to what was no request of `send`."""
        self._answers: dict[str, asyncio.Future[Frame]] = {}
        self._subscribing: dict[str, str] = {}
        self._has_families = False
        self._rules: dict[str, AguiRules] = {}
        self._changed = asyncio.Condition()
        self._count = 0
        self._is_over = False

    async def say_hello(self, **params: Any) -> Frame:
        """Send the first frame; the reader must run."""
        given = {"minProtocol": 1, "maxProtocol": 1, "client": {"id": "test"}, **params}
        self.hello = await self.request("hello", **given)
        return self.hello

    async def request(self, method: str, **params: Any) -> Frame:
        """Send a request and wait for its result, or raise `WireError` or `Lost`."""
        async with asyncio.timeout(SECONDS):
            try:
                answer = await (await self.send(method, **params))
            except ConnectionClosed:
                raise Lost(method) from None
            except asyncio.CancelledError:
                if self._is_over:
                    raise Lost(method) from None
                raise
        if not answer["ok"]:
            validate("Failure", answer)
            raise WireError(answer["error"])
        validate("Result", answer)
        reference = wire.schema()["methods"][method]["result"]["$ref"]
        validate(reference.removeprefix("#/$defs/"), answer["result"])
        result: Frame = answer["result"]
        return result

    async def send(self, method: str, **params: Any) -> "asyncio.Future[Frame]":
        """Send a request; the future gets the whole answer."""
        self._count += 1
        request_id = f"c{self._count}"
        if method == "session.subscribe":
            self._subscribing[request_id] = params["session"]
            self._has_families |= params.get("children", False)
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = future
        frame = {"type": "req", "id": request_id, "method": method, "params": params}
        await self.socket.send(json.dumps(frame))
        return future

    async def subscribe(self, session_id: str, **params: Any) -> Frame:
        """Follow a session."""
        return await self.request("session.subscribe", session=session_id, **params)

    async def until(self, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Wait until *condition* holds; it is asked after each frame. `Lost` if the socket ends."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: condition() or self._is_over)
        if not condition():
            raise Lost

    async def over(self) -> int | None:
        """Wait until the socket ends, and give its close code."""
        await self.until(lambda: self._is_over)
        return self.socket.close_code

    async def event(self, session_id: str, kind: str, count: int = 1) -> Frame:
        """Wait for the *count*-th event of this type and give it."""

        def found() -> Sequence[Frame]:
            return [e for e in self.followed[session_id].events if e["type"] == kind]

        await self.until(lambda: session_id in self.followed and len(found()) >= count)
        return found()[count - 1]

    async def frame(self, kind: str, matching: Callable[[Frame], bool] = lambda _: True) -> Frame:
        """Wait for a frame of this type that is neither an answer nor an event."""

        def found() -> Sequence[Frame]:
            return [f for f in self.frames if f["type"] == kind and matching(f)]

        await self.until(lambda: bool(found()))
        return found()[0]

    async def read(self) -> None:
        """Take frames until the socket ends."""
        try:
            async for text in self.socket:
                await self._take(json.loads(text))
        except ConnectionClosed:
            pass
        self._is_over = True
        for future in self._answers.values():
            future.cancel()
        async with self._changed:
            self._changed.notify_all()

    async def _take(self, frame: Frame) -> None:
        kind = frame["type"]
        self.order.append(frame["event"]["type"] if kind == "event" else kind)
        if kind == "res":
            self._take_answer(frame)
        else:
            validate(_FRAMES[kind], frame)
            if kind == "event":
                self._followed(frame).take(frame)
            else:
                self.frames.append(frame)
        async with self._changed:
            self._changed.notify_all()

    def _followed(self, frame: Frame) -> Followed:
        """Where an event belongs; a child that comes with its parent begins unannounced."""
        session_id = frame["session"]
        if self._has_families and session_id not in self.followed:
            self.followed[session_id] = Followed(frame["seq"] - 1, AguiRules())
        return self.followed[session_id]

    def _take_answer(self, frame: Frame) -> None:
        session_id = self._subscribing.pop(frame["id"], None)
        if session_id is not None and frame["ok"]:
            result = frame["result"]
            seq = result["replayFrom"] - 1
            known = self.followed.get(session_id)
            goes_on = result["mode"] == "replay" and known is not None and known.seq == seq
            rules = known.rules if goes_on and known is not None else _rules_from(result)
            self.followed[session_id] = Followed(seq, rules)
        future = self._answers.pop(frame["id"], None)
        if future is None:
            self.strays.append((frame["id"], frame["error"]["code"]))
        elif not future.done():
            future.set_result(frame)


def _rules_from(result: Mapping[str, Any]) -> AguiRules:
    is_midway = result["mode"] == "replay" and result["replayFrom"] > 1
    return AguiRules(is_midway=is_midway)


@asynccontextmanager
async def open_socket(
    url: str, *, token: str | None = None, headers: Mapping[str, str] | None = None, **more: Any
) -> AsyncIterator[ClientConnection]:
    """A bare socket."""
    given = dict(headers or {})
    if token is not None:
        given["Authorization"] = f"Bearer {token}"
    address = url.replace("http", "ws", 1) + "/ws"
    options = {"subprotocols": ["agent.v1"], "max_size": None, **more}
    async with connect(address, additional_headers=given, **options) as socket:
        yield socket


@asynccontextmanager
async def open_client(
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    hello: Mapping[str, Any] | None = None,
) -> AsyncIterator[WireClient]:
    """A client that said hello. What its checks found is raised at the end."""
    async with open_socket(url, token=token, headers=headers) as socket:
        client = WireClient(socket)
        reader = asyncio.create_task(client.read(), name="wire-client")
        try:
            await client.say_hello(**(hello or {}))
            yield client
        finally:
            await socket.close()
            await reader
