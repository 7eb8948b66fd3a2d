"""A process with nothing but a connection; then another program's use of the SDK, and one more.

Its argument is the address to connect to. Each connection lasts until a line is written to the
process, and is followed by a line from it: the number of modules that the SDK has by then.
"""

import asyncio
import logging
import sys
from importlib import import_module

from channels.feishu.api import Discovered
from channels.feishu.stream import Ack, SdkThread, open_line
from channels.supervise import LineHealth


async def connect(url: str) -> None:
    """Take what is pushed until it is told to end."""

    async def hear(_: bytes) -> Ack:
        return Ack(200)

    thread = SdkThread()
    try:
        async with open_line(thread, Discovered(url, 1), hear, LineHealth(), 30.0):
            await asyncio.to_thread(sys.stdin.readline)
    finally:
        await thread.close()
    print(sum(name.partition(".")[0] == "lark_oapi" for name in sys.modules), flush=True)


def use_whole() -> None:
    """What programs use of the SDK: a client, a handler, a connection with it, its parts."""
    asyncio.set_event_loop(loop := asyncio.new_event_loop())
    lark = import_module("lark_oapi")
    assert lark.Client.builder().app_id("app").app_secret("secret").build().im.v1.message
    handler = lark.EventDispatcherHandler.builder("", "").build()
    assert (
        type(handler) is import_module("lark_oapi.event.dispatcher_handler").EventDispatcherHandler
    )
    assert type(handler) is lark.ws.client.EventDispatcherHandler
    assert lark.ws.Client is lark.ws.client.Client
    assert lark.core.json.JSON is lark.JSON
    assert lark.api.im.v1.P2ImMessageReceiveV1
    assert len(logging.getLogger("Lark").handlers) == 1
    names: dict[str, object] = {}
    exec("from lark_oapi import *", names)
    assert names["JSON"] is lark.JSON
    loop.close()


if __name__ == "__main__":
    asyncio.run(connect(sys.argv[1]))
    use_whole()
    asyncio.run(connect(sys.argv[1]))
