"""A person's stop wins, wherever the run is; what was stored stays."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from server.store.usage import session_usage
from tests.fakes.llm import NEVER, Quirks, call, forever, reply, serve_gateway
from tests.house import House, is_title, open_house, settings_for
from tests.waiting import until

SEARCH = reply(calls=[call("grep_search", {"pattern": "x", "path": "."})])


def _has(kind: str) -> Any:
    return lambda events: any(event["type"] == kind for event in events)


def _is_cancelled(events: list[dict[str, Any]]) -> bool:
    end = events[-1]
    return bool(end["type"] == "RUN_FINISHED" and end["outcome"]["type"] == "cancelled")


async def test_stop_closes_the_models_stream_and_keeps_what_was_said(
    tmp_path: Path, sqlite_url: str
) -> None:
    slow = reply("一二三四五六七八九十", quirks=Quirks(piece_chars=2, hold_at=3, hold=NEVER))
    async with (
        serve_gateway([slow, reply("next")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        await house.until(session, _has("TEXT_MESSAGE_CONTENT"))
        assert await house.state["inbox"].cancel(session.id, None, "ann")
        events = await house.ended(session)
        assert _is_cancelled(events)
        async with asyncio.timeout(1):
            await gateway.requests[0].abandoned.wait()
        stored = await house.settled(session)
        assert stored.status == "CANCELLED"
        assert stored.execution_error is None
        said = (await house.messages(session))[-1]
        assert said.role == "assistant"
        assert "一二三四五六七八九十".startswith(said.text)
        await house.ask(session, "go on")
        assert gateway.requests[1].messages[-2]["content"] == said.text


async def test_request_that_a_stop_cut_is_in_the_accounts(tmp_path: Path, sqlite_url: str) -> None:
    half = reply("half a sentence", quirks=Quirks(piece_chars=4, hold_at=3))
    async with (
        serve_gateway([half], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        await house.until(session, _has("TEXT_MESSAGE_CONTENT"))
        await house.state["inbox"].cancel(session.id, None, "ann")
        assert _is_cancelled(await house.ended(session))
        async with house.state["store"].read() as db:
            errors = list(await db.scalars(sa.text("SELECT error FROM llm_call")))
        assert errors == ["cancelled"]


async def test_stop_kills_the_tools_process_group(tmp_path: Path, sqlite_url: str) -> None:
    command = "echo $$ > pid; sleep 300 & sleep 300"
    script = [reply(calls=[call("shell", {"action": "run", "command": command})])]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        pid = await _pid(house)
        await house.state["inbox"].cancel(session.id, None, "ann")
        async with asyncio.timeout(2):
            events = await house.ended(session)
        assert _is_cancelled(events)
        assert not _is_alive(pid)
        [answer] = [m for m in await house.messages(session) if m.role == "tool"]
        assert json.loads(answer.text) == {"error": "cancelled"}
        assert answer.evidence is not None
        assert answer.evidence.harness


async def _pid(house: House) -> int:
    path = house.workspace / "pid"

    async def is_written() -> bool:
        return await asyncio.to_thread(lambda: path.exists() and bool(path.read_text().strip()))

    await until(is_written)
    return int(await asyncio.to_thread(path.read_text))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def test_stop_during_the_fifteenth_call_is_no_failure(
    tmp_path: Path, sqlite_url: str
) -> None:
    slow = "test -e go && sleep 300; touch go; rm -f nothing"
    run = reply(calls=[call("shell", {"action": "run", "command": "true"})])
    hang = reply(calls=[call("shell", {"action": "run", "command": slow})])
    async with (
        serve_gateway([*[run] * 14, hang], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        house.workspace.joinpath("go").touch()
        session = await house.create()
        await house.say(session, "go")
        await house.until(
            session, lambda events: sum(e["type"] == "TOOL_CALL_END" for e in events) == 15
        )
        await house.state["inbox"].cancel(session.id, None, "ann")
        assert _is_cancelled(await house.ended(session))


async def test_stop_between_the_verdict_and_its_consequence_wins(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway(forever(SEARCH), title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        stopper = asyncio.create_task(_stop_when_call_15_is_answered(house, session.id))
        await house.say(session, "go")
        events = await house.ended(session)
        await stopper
        assert len(gateway.requests) == 15
        assert _is_cancelled(events)
        stored = await house.settled(session)
        assert stored.status == "CANCELLED"
        assert len([m for m in await house.messages(session) if m.role == "tool"]) == 15
        async with house.state["store"].read() as db:
            usage = await session_usage(db, session.id)
        assert usage.prompt_tokens > 0


async def _stop_when_call_15_is_answered(house: House, session_id: str) -> None:
    """Stop while the round is being stored: its verdict is known by then, and not acted upon."""
    ring = house.state["logs"].of(session_id)

    class Stopper:
        def __init__(self) -> None:
            self.done = asyncio.Event()

        def wake(self) -> None:
            bodies = [entry.body for entry in ring.read(0, 10_000_000)]
            answered = sum(b'"TOOL_CALL_RESULT"' in body for body in bodies)
            if answered == 15 and not self.done.is_set():
                self.done.set()
                self.task = asyncio.ensure_future(
                    house.state["inbox"].cancel(session_id, None, "ann")
                )

    stopper = Stopper()
    ring.listen(stopper)
    await stopper.done.wait()
    await stopper.task
    ring.unlisten(stopper)


async def test_stop_without_a_run_says_so(tmp_path: Path, sqlite_url: str) -> None:
    async with open_house(settings_for(tmp_path, sqlite_url, None)) as house:
        session = await house.create()
        assert not await house.state["inbox"].cancel(session.id, None, "ann")
