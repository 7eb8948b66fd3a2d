"""The log as server-sent events, and AG-UI over HTTP without its client."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from ag_ui.core.capabilities import AgentCapabilities

from channels.events import TextAdded, TextFinished, TextStarted
from tests.agui_rules import AguiRules
from tests.server.ws.place import ANN, BOB, Place

SECONDS = 10.0
TALK = (TextStarted("a"), TextAdded("a", "Hel"), TextAdded("a", "lo"), TextFinished("a"))


@dataclass(frozen=True, slots=True)
class Sent:
    """One event of a stream."""

    id: str
    event: dict[str, Any]


class Stream:
    """A stream that is read event by event; AG-UI's rules are held against it."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self._rules = AguiRules()

    async def next(self) -> Sent | None:
        """The next event, None at the end."""
        async with asyncio.timeout(SECONDS):
            while block := await self._block():
                if block.startswith(b":"):
                    continue
                fields = dict(line.split(b": ", 1) for line in block.strip().splitlines())
                event = json.loads(fields[b"data"])
                self._rules.check(event)
                return Sent(fields.get(b"id", b"").decode(), event)
        return None

    async def until(self, kind: str) -> list[Sent]:
        """All events up to the first of this type."""
        found = []
        while (sent := await self.next()) is not None:
            found.append(sent)
            if sent.event["type"] == kind:
                break
        return found

    async def _block(self) -> bytes:
        block = b""
        while not block.endswith(b"\n\n"):
            line = await self.response.content.readline()
            assert b"\r" not in line
            if not line:
                break
            block += line
        return block


@asynccontextmanager
async def open_stream(
    place: Place, path: str, token: str = ANN, **given: Any
) -> AsyncIterator[Stream]:
    method = "POST" if "json" in given else "GET"
    headers = {"Authorization": f"Bearer {token}", **given.pop("headers", {})}
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, place.url + path, headers=headers, **given) as response,
    ):
        yield Stream(response)


async def refusal(stream: Stream) -> tuple[int, str, Mapping[str, str]]:
    error = (await stream.response.json())["error"]
    return stream.response.status, error["code"], error.get("details", {})


async def test_events_are_numbered_by_instance_and_position(place: Place) -> None:
    session_id = await place.session()
    instance = place.state["logs"].instance
    async with open_stream(place, f"/api/sessions/{session_id}/events") as stream:
        assert stream.response.headers["Content-Type"].startswith("text/event-stream")
        assert stream.response.headers["Cache-Control"] == "no-store"
        assert stream.response.headers["X-Accel-Buffering"] == "no"
        place.emit_run(session_id, "r1", *TALK)
        sent = await stream.until("RUN_FINISHED")
    assert sent[0].id == f"{instance}-1"
    assert sent[-1].id == f"{instance}-{place.ring(session_id).head}"


@pytest.mark.parametrize("way", ["header", "query", "number"])
async def test_a_stream_goes_on_after_a_position(place: Place, way: str) -> None:
    session_id = await place.session()
    place.emit_run(session_id, "r1", *TALK)
    head = place.ring(session_id).head
    position = f"{place.state['logs'].instance}-{head}"
    path = f"/api/sessions/{session_id}/events"
    headers = {"Last-Event-ID": position} if way == "header" else {}
    after = {"header": "0", "query": position, "number": str(head)}[way]
    async with open_stream(place, f"{path}?after={after}", headers=headers) as stream:
        place.emit_run(session_id, "r2")
        sent = await stream.next()
        assert sent is not None
        assert sent.event["runId"] == "r2"


async def test_a_position_that_is_gone_is_told(place: Place) -> None:
    session_id = await place.session()
    path = f"/api/sessions/{session_id}/events"
    for after in ("another-0", "99"):
        async with open_stream(place, f"{path}?after={after}") as stream:
            assert (await refusal(stream))[:2] == (409, "resync_required")
    async with open_stream(place, f"{path}?after=x") as stream:
        assert await refusal(stream) == (400, "bad_request", {"path": "after"})
    async with open_stream(place, path, token=BOB) as stream:
        assert (await refusal(stream))[:2] == (404, "not_found")
    async with open_stream(place, path, token="wrong") as stream:
        assert (await refusal(stream))[:2] == (401, "unauthenticated")


async def test_a_server_that_ends_ends_its_streams(place: Place) -> None:
    session_id = await place.session()
    async with open_stream(place, f"/api/sessions/{session_id}/events") as stream:
        place.state["closing"].set()
        assert await stream.next() is None


def agui_input(thread_id: str, run_id: str, **given: Any) -> dict[str, Any]:
    message = {"id": f"m-{run_id}", "role": "user", "content": "hello"}
    return {"threadId": thread_id, "runId": run_id, "messages": [message], **given}


async def test_a_thread_that_is_not_known_becomes_a_session_and_is_found_again(
    place: Place,
) -> None:
    for run_id in ("c1", "c2"):
        async with open_stream(place, "/agui", json=agui_input("thread", run_id)) as stream:
            sent = await stream.until("RUN_FINISHED")
            assert sent[-1].event["outcome"] == {"type": "success"}
            assert await stream.next() is None
        threads = {event.event.get("threadId") for event in sent} - {None}
        assert len(threads) == 1
    async with open_stream(place, "/agui", json=agui_input("thread", "c2")) as stream:
        again = await stream.until("RUN_FINISHED")
    assert [event.event["type"] for event in again][0] == "RUN_STARTED"
    assert again[0].event["runId"] == sent[0].event["runId"]


async def test_what_is_no_input_is_refused(place: Place) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"runId": "r", "messages": []}, "threadId"),
        (agui_input("t", "r", messages=[]), "messages"),
        (agui_input("", "r"), "threadId"),
    ]
    for body, path in wrong:
        async with open_stream(place, "/agui", json=body) as stream:
            assert await refusal(stream) == (400, "bad_request", {"path": path})


async def test_the_capabilities_are_the_protocols_own_object(place: Place) -> None:
    async with open_stream(place, "/agui/capabilities") as stream:
        capabilities = AgentCapabilities.model_validate(await stream.response.json())
    assert capabilities.transport is not None
    assert capabilities.transport.websocket is True
    assert capabilities.transport.resumable is True
    assert not capabilities.model_extra
