"""A model gateway that streams to many at once, each delta at its own time and on its own write.

It waits until as many have asked as it was told, prints `go`, and sends each of them 50 deltas a
second at irregular times; now and then a stream pauses, as models do. Each delta holds when it was
sent, by the clock that all processes of a machine share.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Iterator
from typing import TypeAlias

TICK_SECONDS = 0.001
TICKS_PER_SLOT = 20
"""A stream sends in one tick of each slot."""
SLOTS_PER_SECOND = 50
CYCLE_SLOTS = 100
PAUSE_SLOTS = 10
"""Of each cycle nothing is sent in so many slots."""
ORDINARY, AFTER_PAUSE = "d", "p"

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_CHUNK = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1760000000,'
    b'"model":"bench","choices":[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n'
)
_USAGE = b'{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}'


def _sse(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


_FIRST = _sse(_CHUNK % (b'{"role":"assistant","content":""}', b"null"))
_LAST = (
    _sse(_CHUNK % (b"{}", b'"stop"'))
    + _sse(b'data: {"choices":[],"usage":%b}\n\n' % _USAGE)
    + _sse(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


_Tick: TypeAlias = "list[tuple[Peer, bytes]]"
"""Who is sent something at once, and which kind of delta; no kind is the end."""


class Schedule:
    """Streams to so many, for so long."""

    def __init__(self, sessions: int, slots: int) -> None:
        self._sessions = sessions
        self._slots = slots
        self._asked: list[Peer] = []
        self._dice = random.Random(2210)

    def add(self, peer: "Peer") -> None:
        """Count one more who asked; the last of them lets all begin."""
        self._asked.append(peer)
        if len(self._asked) == self._sessions:
            peers, self._asked = self._asked, []
            print("go", flush=True)
            ticks = self._ticks(peers)
            self._send_due(ticks, asyncio.get_running_loop().time())

    def _ticks(self, peers: "list[Peer]") -> Iterator[_Tick]:
        """All that is sent, tick by tick."""
        for slot in range(self._slots):
            ticks: list[_Tick] = [[] for _ in range(TICKS_PER_SLOT)]
            for number, peer in enumerate(peers):
                place = (slot + number) % CYCLE_SLOTS
                if place >= PAUSE_SLOTS:
                    kind = AFTER_PAUSE if place == PAUSE_SLOTS and slot else ORDINARY
                    ticks[self._dice.randrange(TICKS_PER_SLOT)].append((peer, kind.encode()))
            yield from ticks
        yield [(peer, b"") for peer in peers]

    def _send_due(self, ticks: Iterator[_Tick], due_at: float) -> None:
        """Send all that is due, and come again."""
        loop = asyncio.get_running_loop()
        while due_at <= loop.time():
            tick = next(ticks, None)
            if tick is None:
                return
            for peer, kind in tick:
                peer.write(_delta(kind) if kind else _LAST)
            due_at += TICK_SECONDS
        loop.call_at(due_at, self._send_due, ticks, due_at)


def _delta(kind: bytes) -> bytes:
    content = b'{"content":"~%b%013x"}' % (kind, time.monotonic_ns() // 1000)
    return _sse(_CHUNK % (content, b"null"))


class Peer(asyncio.Protocol):
    """A connection that asks and is answered, again and again."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._received = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Send, unless the other side has left."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self._received = b""
        self.write(_HEAD + _FIRST)
        if b'"tools"' in body:
            self._schedule.add(self)
        else:
            self.write(_LAST)  # a check, or a question beside the run


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def _serve(sessions: int, slots: int) -> None:
    schedule = Schedule(sessions, slots)
    server = await asyncio.get_running_loop().create_server(lambda: Peer(schedule), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    given = parser.parse_args()
    asyncio.run(_serve(given.sessions, given.slots))


if __name__ == "__main__":
    main()
