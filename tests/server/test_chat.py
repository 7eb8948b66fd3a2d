"""The terminal client beside other clients of the same session."""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

from server.chat import chat
from tests.fakes.llm import Quirks, call, reply, serve_gateway
from tests.house import is_title
from tests.server.ws.place import ANN, Place, open_place
from tests.waiting import until
from tests.wire import open_client

ASK = [call("ask_user", {"question": "which?", "options": ["a", "b"]})]


class Terminal:
    """What a person types, and sees."""

    def __init__(self, keys: TextIO) -> None:
        self._keys = keys
        self.out = io.StringIO()

    def type(self, line: str) -> None:
        """Enter *line*."""
        self._keys.write(line + "\n")
        self._keys.flush()

    async def shows(self, words: str, times: int = 1) -> None:
        """Wait until *words* are on the screen so many times."""

        async def is_shown() -> bool:
            return self.out.getvalue().count(words) >= times

        await until(is_shown)


@contextmanager
def pipe() -> Iterator[tuple[TextIO, TextIO]]:
    """Both ends of a pipe; the second is for writing."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "r") as source, os.fdopen(write_end, "w") as keys:
        yield source, keys


@asynccontextmanager
async def open_terminal(place: Place, session_id: str) -> AsyncIterator[Terminal]:
    """The terminal client on a session; leaving ends its lines and waits for its end."""
    with pipe() as (source, keys):
        terminal = Terminal(keys)
        talk = asyncio.create_task(
            chat(place.url, ANN, session_id, "en", source, terminal.out), name="chat"
        )
        try:
            await terminal.shows("leaves.")
            yield terminal
        finally:
            keys.close()
            await asyncio.wait({talk}, timeout=20)
            talk.cancel()
        assert talk.result() is True


async def test_what_another_clients_run_asks_is_shown_to_who_waits_behind_it(
    tmp_path: Path, sqlite_url: str
) -> None:
    gate = asyncio.Event()
    asks = reply("", calls=ASK, quirks=Quirks(before_headers=gate))
    async with (
        serve_gateway(
            [asks, reply("first answer"), reply("second answer")], title=is_title
        ) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
        open_client(place.url, token=ANN) as other,
    ):
        session_id = await place.session()
        await other.request("run.start", session=session_id, clientMsgId="m1", content="go")
        await gateway.wait_for_requests(1)
        async with open_terminal(place, session_id) as terminal:
            terminal.type("and then this")
            await terminal.shows("Queued at position 1.")
            gate.set()
            await terminal.shows("which?")
            terminal.type("the third")
            await terminal.shows("second answer")
        shown = terminal.out.getvalue()
        assert shown.count("first answer") == shown.count("second answer") == 1
        assert shown.index("first answer") < shown.index("second answer")
        assert shown.count("which?") == 1
        assert '"answer": "the third"' in str(gateway.requests[1].messages)


async def test_own_message_goes_on_when_somebody_else_answers(
    tmp_path: Path, sqlite_url: str
) -> None:
    gate = asyncio.Event()
    asks = reply("", calls=ASK, quirks=Quirks(before_headers=gate))
    async with (
        serve_gateway(
            [asks, reply("first"), reply("second"), reply("third")], title=is_title
        ) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
        open_client(place.url, token=ANN) as other,
    ):
        session_id = await place.session()
        await other.subscribe(session_id)
        await other.request("run.start", session=session_id, clientMsgId="m1", content="go")
        await gateway.wait_for_requests(1)
        async with open_terminal(place, session_id) as terminal:
            terminal.type("and then this")
            await terminal.shows("Queued at position 1.")
            gate.set()
            end = await other.event(session_id, "RUN_FINISHED")
            await terminal.shows("which?")
            await other.request(
                "approval.respond",
                session=session_id,
                interruptId=end["outcome"]["interrupts"][0]["id"],
                decision="approve",
                payload="a",
            )
            await terminal.shows("second")
            terminal.type("what is next?")
            await terminal.shows("did not count")
            terminal.type("what is next?")
            await terminal.shows("third")
