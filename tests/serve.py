"""Run an application on a free local port, in the test's own event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from server.serve import listen, server_for, url_of

START_SECONDS = 20
STOP_SECONDS = 20


@asynccontextmanager
async def serve(app: ASGIApp, grace_seconds: int = 2) -> AsyncIterator[str]:
    """Serve *app* as the command line does; gives its address, `http://127.0.0.1:…`.

    Leaving ends the server as a signal would: connections first, then the lifespan.
    """
    listener = listen("127.0.0.1", 0)
    url = url_of(listener)
    started = asyncio.Event()
    server = server_for(app, on_started=started.set, grace_seconds=grace_seconds)
    running = asyncio.create_task(server.serve(sockets=[listener]), name="serve")
    starting = asyncio.create_task(started.wait(), name="started")
    try:
        async with asyncio.timeout(START_SECONDS):
            await asyncio.wait({running, starting}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
            raise RuntimeError("the application did not start")
        yield url
    finally:
        starting.cancel()
        server.should_exit = True
        async with asyncio.timeout(STOP_SECONDS):
            await asyncio.wait({running, starting})
        listener.close()
