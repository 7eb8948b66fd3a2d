"""What people do while a run is under way, and to what was said before."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.errors import BadRequest, Conflict, NotFound
from tests.fakes.llm import Quirks, call, reply, serve_gateway
from tests.house import House, is_title, open_house, settings_for


def _held(gate: asyncio.Event, text: str = "first") -> Any:
    return reply(text, quirks=Quirks(before_headers=gate))


async def test_message_for_a_busy_session_waits_its_turn(tmp_path: Path, database_url: str) -> None:
    gate = asyncio.Event()
    script = [_held(gate), reply("second"), reply("third")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        assert (await house.say(session, "one")).state == "started"
        await gateway.wait_for_requests(1)
        two, three = await house.say(session, "two"), await house.say(session, "three")
        assert [(s.state, s.position) for s in (two, three)] == [("queued", 1), ("queued", 2)]
        state = await house.state["inbox"].state_of(session.id)
        assert [item.text for item in state.queue] == ["two", "three"]
        gate.set()
        await house.ended(session, 3)
        said = [(m.role, m.text) for m in await house.messages(session)]
        assert said == [
            ("user", "one"),
            ("assistant", "first"),
            ("user", "two"),
            ("assistant", "second"),
            ("user", "three"),
            ("assistant", "third"),
        ]


async def test_same_message_again_is_the_same_run(tmp_path: Path, database_url: str) -> None:
    async with (
        serve_gateway([reply("hello")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        answers = await asyncio.gather(*(house.say(session, "one", key="k") for _ in range(5)))
        assert len({answer.run_id for answer in answers}) == 1
        await house.ended(session)
        again = await house.say(session, "one", key="k")
        assert again.run_id == answers[0].run_id
        assert again.duplicate
        assert len(await house.runs(session)) == 1


async def test_busy_session_can_refuse(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate)], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "one")
        with pytest.raises(Conflict) as refused:
            await house.say(session, "two", when_busy="reject")
        assert refused.value.code == "busy"
        gate.set()
        await house.ended(session)
        assert len(await house.runs(session)) == 1


async def test_queue_that_is_full_says_so(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate)], title=is_title, strict=False) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "one")
        for n in range(20):
            await house.say(session, f"more {n}")
        with pytest.raises(Conflict) as refused:
            await house.say(session, "too many")
        assert refused.value.code == "queue_full"


async def test_steered_message_joins_at_the_next_round_and_ends_the_streak(
    tmp_path: Path, sqlite_url: str
) -> None:
    gate = asyncio.Event()
    search = reply(calls=[call("grep_search", {"pattern": "x"})])
    held = reply(calls=[call("grep_search", {"pattern": "x"})], quirks=Quirks(before_headers=gate))
    script = [*[search] * 3, held, *[search] * 4, reply("done")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        await gateway.wait_for_requests(4)
        steered = await house.say(session, "look elsewhere", when_busy="steer", message_id="m2")
        assert steered.state == "steered"
        gate.set()
        events = await house.ended(session)
        assert gateway.requests[4].messages[-1]["content"] == "look elsewhere"
        joined = [e for e in events if e["type"] == "TEXT_MESSAGE_START" and e["role"] == "user"]
        assert [e["messageId"] for e in joined] == ["m2"]
        run = (await house.runs(session))[-1]
        streaks = [d.streak for d in await house.decisions(run.id)]
        assert streaks == [1, 2, 3, 4, 1, 2, 3, 4]
        assert (await house.run(steered.run_id)).status == "JOINED"


async def test_steered_message_that_comes_too_late_is_next(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate), reply("second"), reply("third")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "one")
        await gateway.wait_for_requests(1)
        await house.say(session, "queued")
        await house.say(session, "late", when_busy="steer")
        gate.set()
        await house.ended(session, 3)
        said = [m.text for m in await house.messages(session) if m.role == "user"]
        assert said == ["one", "late", "queued"]


async def test_stop_holds_the_queue_until_it_is_resumed(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate), reply("second")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        inbox = house.state["inbox"]
        session = await house.create()
        await house.say(session, "one")
        await gateway.wait_for_requests(1)
        await house.say(session, "two")
        await inbox.cancel(session.id, None, "ann")
        await house.ended(session)
        await house.settled(session)
        [held] = (await inbox.state_of(session.id)).queue
        assert held.paused
        await inbox.resume_queue(session.id)
        await house.ended(session, 2)


async def test_queue_survives_a_restart_and_waits_for_a_person(
    tmp_path: Path, sqlite_url: str
) -> None:
    gate = asyncio.Event()
    async with serve_gateway([_held(gate)], title=is_title, strict=False) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "one")
            await gateway.wait_for_requests(1)
            await house.say(session, "two")
        async with open_house(settings) as house:
            [item] = (await house.state["inbox"].state_of(session.id)).queue
            assert (item.text, item.paused) == ("two", True)


async def test_queued_message_can_be_changed_and_removed(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate), reply("ok")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        inbox = house.state["inbox"]
        session = await house.create()
        await house.say(session, "one")
        two, three = await house.say(session, "two"), await house.say(session, "three")
        await inbox.update_queued(session.id, two.run_id, "deux")
        await inbox.remove_queued(session.id, three.run_id)
        with pytest.raises(NotFound):
            await inbox.remove_queued(session.id, three.run_id)
        gate.set()
        await house.ended(session, 2)
        assert [m.text for m in await house.messages(session) if m.role == "user"] == [
            "one",
            "deux",
        ]


async def _two_turns(house: House) -> Any:
    session = await house.create()
    await house.ask(session, "one", message_id="m1")
    await house.ask(session, "two", message_id="m2")
    return session


async def test_edit_begins_anew_from_the_message(tmp_path: Path, sqlite_url: str) -> None:
    script = [reply("a"), reply("b"), reply("c")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await _two_turns(house)
        events = await house.ask(session, "uno", edit_of="m1", message_id="m3")
        [withdrawn] = [e for e in events if e["type"] == "CUSTOM"]
        assert {"m1", "m2"} <= set(withdrawn["value"]["messageIds"])
        assert [m["content"][-3:] for m in gateway.requests[2].messages[1:]] == ["uno"]
        assert [m.id for m in await house.messages(session) if m.role == "user"] == ["m3"]


async def test_retry_of_an_unknown_message_changes_nothing(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([reply("a"), reply("b")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await _two_turns(house)
        with pytest.raises(NotFound):
            await house.say(session, "", key="r", retry_of="nothing")
        answer = (await house.messages(session))[-1]
        with pytest.raises(BadRequest):
            await house.say(session, "", key="r2", retry_of=answer.id)
        with pytest.raises(BadRequest):
            await house.say(session, "  ", key="empty")
        assert len(await house.messages(session)) == 4


async def test_hundred_sessions_of_fourteen_rounds_share_no_streak(
    tmp_path: Path, sqlite_url: str
) -> None:
    def play(request: Any) -> Any:
        done = sum(m["role"] == "tool" for m in request.messages)
        if done >= 14:
            return reply("done")
        return reply(calls=[call("list_dir", {"path": "."})])

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        sessions = [await house.create() for _ in range(100)]
        await asyncio.gather(*(house.say(session, "go") for session in sessions))
        for session in sessions:
            events = await house.ended(session)
            assert events[-1]["type"] == "RUN_FINISHED"
