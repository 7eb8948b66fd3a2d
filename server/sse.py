"""A session's log as server-sent events, for clients that hold no socket.

Framed by hand: the AG-UI client takes only an empty line made of two line feeds for a boundary.
"""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from server.eventring import EventRing, Logged

KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = b": keep-alive\n\n"
_READ_BYTES = 128 * 1024
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def event_stream(chunks: AsyncIterator[bytes]) -> StreamingResponse:
    """*chunks* as an answer that no proxy holds back."""
    return StreamingResponse(chunks, media_type="text/event-stream", headers=_HEADERS)


def render_event(event: Logged, instance: str) -> bytes:
    """*event* with its position, which a client that comes back sends as `Last-Event-ID`."""
    return b"id: %s-%d\ndata: %s\n\n" % (instance.encode(), event.seq, event.body)


class _Waker:
    """A listener that a coroutine waits on."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self) -> bool:
        """Whether there was a call since the last one; False after `KEEP_ALIVE_SECONDS`."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


async def follow(
    ring: EventRing, cursor: int, closing: asyncio.Event
) -> AsyncIterator[Logged | None]:
    """The events past *cursor* as they come, and None where there was silence for a while.

    Ends when the server stops, or when the reader is so late that the log let go of what is next.
    """
    waker = _Waker()
    ring.listen(waker)
    stopping = asyncio.create_task(closing.wait(), name="sse-closing")
    stopping.add_done_callback(lambda _: waker.wake())
    try:
        while not closing.is_set() and ring.covers(cursor):
            for event in ring.read(cursor, _READ_BYTES):
                yield event
                cursor = event.seq
            if cursor == ring.head and not await waker.wait():
                yield None
    finally:
        ring.unlisten(waker)
        stopping.cancel()
