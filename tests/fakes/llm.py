"""A scripted OpenAI-compatible gateway: a small HTTP/1.1 server on a real port of 127.0.0.1.

    async with serve_gateway([reply(calls=[call("list_dir")]), reply("done")]) as gateway:
        ...  # ask gateway.url
        assert gateway.requests[1].messages[-1]["role"] == "tool"

It speaks HTTP by hand, so that it can cut a connection, write single bytes, and see at once when
a client leaves. As a process: `python -m tests.fakes.llm --port 0 --scenario loop`.
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, assert_never

from server.message import Usage
from tests.fakes.llm_wire import (
    NEVER,
    Play,
    Quirks,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedReply,
    Wait,
    answer,
    call,
    refuse,
    render,
    render_error,
    reply,
)

__all__ = [
    "NEVER",
    "Play",
    "Quirks",
    "Recorded",
    "Script",
    "ScriptedAnswer",
    "ScriptedCall",
    "ScriptedGateway",
    "ScriptedReply",
    "answer",
    "call",
    "forever",
    "refuse",
    "reply",
    "serve_gateway",
]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    at: float
    """By the clock of the event loop."""
    connection: int
    """Number of the TCP connection: requests over a kept one share it."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """The whole answer was sent."""
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    """The client left before that."""

    @property
    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The chat messages of the body."""
        messages: list[dict[str, Any]] = self.json["messages"]
        return messages


Matcher = Callable[[Recorded], bool]
Script = Sequence[Play] | Callable[[Recorded], Play]


def forever(*plays: Play) -> Callable[[Recorded], Play]:
    """A script that plays these in turn, without end."""
    count = 0

    def play(_: Recorded) -> Play:
        nonlocal count
        count += 1
        return plays[(count - 1) % len(plays)]

    return play


class _Left(Exception):
    """The client left before its answer was whole."""


class _Peer(asyncio.StreamReaderProtocol):
    """A connection that knows at once when its client leaves, not only at the next read."""

    def __init__(self, connected: Callable[["_Peer"], None]) -> None:
        self.left = asyncio.Event()
        self.reader = asyncio.StreamReader(limit=2**20)
        self.writer: asyncio.StreamWriter
        super().__init__(self.reader, lambda _, writer: self._open(writer, connected))

    def _open(self, writer: asyncio.StreamWriter, connected: Callable[["_Peer"], None]) -> None:
        self.writer = writer
        connected(self)

    def eof_received(self) -> bool | None:
        self.left.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.left.set()
        super().connection_lost(exc)

    async def wait(self, wait: Wait) -> None:
        """Let the time pass, or the event come, unless the client leaves."""
        if wait:
            seconds = wait if isinstance(wait, float) and wait != NEVER else None
            waits = {asyncio.ensure_future(self.left.wait())}
            if isinstance(wait, asyncio.Event):
                waits.add(asyncio.ensure_future(wait.wait()))
            try:
                await asyncio.wait(waits, timeout=seconds, return_when="FIRST_COMPLETED")
            finally:
                for task in waits:
                    task.cancel()
        if self.left.is_set():
            raise _Left

    async def write(self, data: bytes) -> None:
        """Send *data*."""
        if self.left.is_set():
            raise _Left
        self.writer.write(data)
        try:
            await self.writer.drain()
        except ConnectionError:
            raise _Left from None


class ScriptedGateway:
    """The gateway while it runs; made by `serve_gateway`."""

    def __init__(
        self, script: Script, title: Matcher | None, title_play: Play, check: Play
    ) -> None:
        self.url = ""
        """The base URL, with `/v1`."""
        self.requests: list[Recorded] = []
        """Chat completions, titles left out, in the order they came."""
        self.titles: list[Recorded] = []
        self.checks: list[Recorded] = []
        """Requests for the list of models."""
        self.faults: list[str] = []
        """Calls too many, and errors of the script itself."""
        self._script = script if callable(script) else iter(script)
        self._title = title
        self._title_play = title_play
        self._check = check
        self._came = asyncio.Condition()
        self._serial = 0
        self._connections = 0
        self._open: dict[asyncio.Task[None], _Peer] = {}

    async def wait_for_requests(self, count: int) -> Recorded:
        """The *count*th chat completion, once it is there."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    def assert_played(self) -> None:
        """Raise unless the script was played to its end and no further."""
        left = [] if callable(self._script) else list(self._script)
        assert not self.faults, self.faults
        assert not left, f"{len(left)} replies were not asked for"

    def connected(self, peer: _Peer) -> None:
        """Serve *peer* until it leaves."""
        self._connections += 1
        task = asyncio.create_task(self._serve(peer, self._connections), name="scripted gateway")
        self._open[task] = peer
        task.add_done_callback(self._open.pop)

    async def close(self) -> None:
        """Cut whatever is still open."""
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _serve(self, peer: _Peer, connection: int) -> None:
        try:
            while True:
                recorded = await _read_request(peer.reader, connection)
                play = await self._next(recorded)
                try:
                    await self._play(play, recorded, peer)
                except _Left:
                    recorded.abandoned.set()
                    return
                recorded.answered.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed a connection that it needs no more
        finally:
            peer.writer.close()
            with suppress(ConnectionError):
                await peer.writer.wait_closed()

    async def _next(self, recorded: Recorded) -> Play:
        """File the request, and choose what to answer."""
        if recorded.method == "GET":
            self.checks.append(recorded)
            return self._check
        if self._title is not None and self._title(recorded):
            self.titles.append(recorded)
            return self._title_play
        async with self._came:
            self.requests.append(recorded)
            self._came.notify_all()
        try:
            return self._script(recorded) if callable(self._script) else next(self._script)
        except StopIteration:
            self.faults.append(f"call {len(self.requests)} was one too many")
        except Exception as error:  # noqa: BLE001 - told to the test by assert_played
            self.faults.append(f"the script raised {error!r}")
        return answer(400, {"error": {"message": "the script is over"}})  # is not tried again

    async def _play(self, play: Play, recorded: Recorded, peer: _Peer) -> None:
        match play:
            case ScriptedAnswer():
                await peer.wait(play.wait)
                await peer.write(_answer_bytes(play))
            case ScriptedReply():
                await self._stream(play, recorded, peer)
            case _:
                assert_never(play)

    async def _stream(self, play: ScriptedReply, recorded: Recorded, peer: _Peer) -> None:
        quirks = play.quirks
        self._serial += 1
        usage = play.usage or self._estimate(play, recorded)
        events = render(play, str(recorded.json.get("model")), usage, self._serial)
        await peer.wait(quirks.before_headers)
        await peer.write(_STREAM_HEAD)
        await peer.wait(quirks.before_body)
        for number, event in enumerate(events):
            if number == quirks.hold_at:
                await _hold(peer, quirks)
            await peer.wait(quirks.pace_seconds)
            if number == quirks.cut_at:
                peer.writer.transport.abort()
                raise ConnectionAbortedError
            if number == quirks.end_at:
                break
            if number == quirks.error_at:
                await _write_body(peer, render_error(quirks), quirks)
                break
            await _write_body(peer, event, quirks)
        await peer.wait(quirks.before_end)
        await peer.write(b"0\r\n\r\n")

    def _estimate(self, play: ScriptedReply, recorded: Recorded) -> Usage:
        """Four bytes a token; cached is what the request before had, less its closing brackets."""
        before = self.requests[-2].body[:-2] if len(self.requests) > 1 else b""
        cached = len(before) if before and recorded.body.startswith(before) else 0
        sent = len(play.text) + sum(len(scripted.arguments) for scripted in play.calls)
        return Usage(len(recorded.body) // 4, cached // 4, sent // 4 + 1)


_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def _answer_bytes(play: ScriptedAnswer) -> bytes:
    fields = {**play.headers, "Content-Length": str(len(play.body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {play.status} Scripted\r\n{head}\r\n".encode() + play.body


async def _hold(peer: _Peer, quirks: Quirks) -> None:
    every = quirks.alive_every_seconds
    if every is None or isinstance(quirks.hold, asyncio.Event):
        await peer.wait(quirks.hold)
        return
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + quirks.hold
    while loop.time() < ends_at:
        await peer.wait(every)
        await _write_body(peer, b": keep-alive\n\n", quirks)


async def _write_body(peer: _Peer, data: bytes, quirks: Quirks) -> None:
    """Send *data* as HTTP chunks; small writes give the reader a turn after each."""
    size = quirks.write_bytes or len(data)
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        await peer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if quirks.write_bytes:
            await asyncio.sleep(0)


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Recorded:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {}
    for line in head[1:-2]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    at = asyncio.get_running_loop().time()
    return Recorded(method, path, headers, body, at, connection)


@asynccontextmanager
async def serve_gateway(
    script: Script,
    *,
    title: Matcher | None = None,
    title_play: Play | None = None,
    check: Play | None = None,
    strict: bool = True,
    port: int = 0,
) -> AsyncIterator[ScriptedGateway]:
    """A gateway that answers by *script*.

    Args:
        script: Replies in order, or a function from the request to its reply.
        title: Which requests ask for a session's title; they take nothing from the script.
        title_play: What those are answered.
        check: What `GET …/models` is answered.
        strict: At the end, fail on a call too many or a reply left over.
        port: 0 takes a free one.
    """
    gateway = ScriptedGateway(
        script, title, title_play or reply("会话标题"), check or answer(200, {"data": []})
    )
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Peer(gateway.connected), "127.0.0.1", port)
    gateway.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield gateway
    finally:
        server.close()
        await gateway.close()
        await server.wait_closed()
    if strict:
        gateway.assert_played()


def _has_no_tools(request: Recorded) -> bool:
    return not request.json.get("tools")


_SAME_SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
_SAME_COMMAND = reply(calls=[call("shell", {"action": "run", "command": "ls missing-folder"})])

SCENARIOS: dict[str, Script] = {
    "hello": forever(reply("你好，我在。")),
    "loop": forever(_SAME_SEARCH),
    "shell-loop": forever(_SAME_COMMAND),
    "list": forever(reply(calls=[call("list_dir", {"path": "."})]), reply("这里有这些文件。")),
    "long": forever(reply("一二三四五六七八" * 500, quirks=Quirks(pace_seconds=0.02))),
    "silent": forever(reply("你好", quirks=Quirks(hold_at=1))),
    "empty": forever(reply()),
    "failing": forever(refuse(500)),
    "cut": forever(reply("这句话不会说完", quirks=Quirks(piece_chars=2, cut_at=3))),
}
"""What the process can play; requests without tools are taken for titles."""


async def _run(port: int, scenario: str) -> None:
    script = SCENARIOS[scenario]
    async with serve_gateway(script, title=_has_no_tools, port=port) as gateway:
        print(gateway.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve one scenario and print the base URL."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="hello")
    chosen = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(chosen.port, chosen.scenario))


if __name__ == "__main__":
    main()
