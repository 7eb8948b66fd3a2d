"""Several answers of an AG-UI client in one request: all count or none, and a retry is a repeat."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.fakes.llm import Quirks, reply, serve_gateway
from tests.house import is_title
from tests.server.ws.place import ANN, Place, open_place
from tests.server.ws.test_approvals import ASK, WRITE, asked, config, resume, start
from tests.wire import open_client

__all__ = ["config"]  # a fixture

BOTH = reply(calls=[*WRITE.calls, *ASK.calls])


async def questions(place: Place, session_id: str) -> list[str]:
    """Ids of what the session waits for: a call, then what the model asks."""
    state = await place.state["inbox"].state_of(session_id)
    return [approval.interrupt.id for approval in state.approvals]


def answers(gate: str, question: str) -> list[dict[str, Any]]:
    """What a client says to both."""
    return [
        {"interruptId": gate, "status": "resolved", "payload": {"approved": True}},
        {"interruptId": question, "status": "resolved", "payload": {"answer": "a"}},
    ]


async def test_answer_that_comes_too_late_leaves_the_other_untaken(
    tmp_path: Path, database_url: str, config: str
) -> None:
    async with (
        serve_gateway([BOTH], title=is_title) as gateway,
        open_place(tmp_path, database_url, gateway.url, HEADWAY_CONFIG=config) as place,
        open_client(place.url, token=ANN) as ann,
    ):
        session_id = await place.session()
        await start(ann, session_id)
        gate, question = await questions(place, session_id)
        async with place.state["store"].write() as db:
            over = datetime.now(UTC) - timedelta(milliseconds=1)
            statement = sa.text("UPDATE approval SET expires_at = :over WHERE id = :id")
            await db.execute(statement, {"over": over, "id": question})
        [error] = await resume(place, asked(session_id, "r1", *answers(gate, question)))
        assert (error["type"], error["code"]) == ("RUN_ERROR", "interrupt_expired")
        async with place.state["store"].read() as db:
            statement = sa.text("SELECT status FROM approval WHERE id = :id")
            assert await db.scalar(statement, {"id": gate}) in ("OPEN", "EXPIRED")
        assert not (place.state["settings"].workspace / "a.txt").exists()


@pytest.mark.parametrize("reverse", [False, True])
async def test_request_that_is_sent_twice_at_once_streams_one_run_twice(
    tmp_path: Path, database_url: str, config: str, reverse: bool
) -> None:
    over = asyncio.Event()
    slow = reply("done", quirks=Quirks(before_headers=over))
    async with (
        serve_gateway([BOTH, slow], title=is_title) as gateway,
        open_place(tmp_path, database_url, gateway.url, HEADWAY_CONFIG=config) as place,
        open_client(place.url, token=ANN) as ann,
    ):
        session_id = await place.session()
        await start(ann, session_id)
        entries = answers(*await questions(place, session_id))
        body = asked(session_id, "r1", *(reversed(entries) if reverse else entries))
        retries = [asyncio.create_task(resume(place, body)) for _ in range(3)]
        await gateway.wait_for_requests(2)
        retries.append(asyncio.create_task(resume(place, body)))
        await ann.event(session_id, "TOOL_CALL_RESULT", 2)
        over.set()
        streams = [[event["type"] for event in await stream] for stream in retries]
        assert streams[0][0] == "RUN_STARTED"
        assert streams == [streams[0]] * 4
        assert len(gateway.requests) == 2


async def test_answer_to_a_question_whose_time_was_over_is_told_so(
    tmp_path: Path, sqlite_url: str, config: str
) -> None:
    async with (
        serve_gateway([BOTH], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config) as place,
        open_client(place.url, token=ANN) as ann,
    ):
        session_id = await place.session()
        await start(ann, session_id)
        entries = answers(*await questions(place, session_id))
        await place.state["approvals"].expire(datetime.now(UTC) + timedelta(hours=25))
        [error] = await resume(place, asked(session_id, "r1", *entries))
        assert error["code"] == "interrupt_expired"


async def test_question_of_another_session_is_no_answer_here(
    tmp_path: Path, sqlite_url: str, config: str
) -> None:
    async with (
        serve_gateway([BOTH, BOTH], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config) as place,
        open_client(place.url, token=ANN) as ann,
    ):
        first, second = await place.session(), await place.session()
        await start(ann, first)
        await start(ann, second)
        own, other = await questions(place, first), await questions(place, second)
        for entries in (
            answers(*other),
            answers(own[0], other[1]),
            [*answers(*own), answers(*own)[0]],
            answers(*own)[:1],
        ):
            [error] = await resume(place, asked(first, "r1", *entries))
            assert error["code"] == "interrupt_mismatch"
        assert await questions(place, first) == own
        assert await questions(place, second) == other
