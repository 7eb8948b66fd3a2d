"""A text that is told in a session without a model is a run like any other."""

import asyncio
from pathlib import Path

from server.delivery import insert_delivery
from server.store.sessions import Session
from tests.fakes.llm import NEVER, Quirks, call, forever, reply, serve_gateway
from tests.house import House, is_title, open_house, settings_for

SLOW = reply("一二三四五六", quirks=Quirks(piece_chars=2, hold_at=2, hold=NEVER))


async def deliver(house: House, session: Session, text: str, key: str) -> str:
    """Queue a delivery as any part of the application does; the id of its run."""
    async with house.state["store"].write() as db:
        run_id = await insert_delivery(db, session, text, key)
    house.state["signals"].advance(session.id)
    return run_id


async def test_text_is_told_stored_and_asks_no_model(tmp_path: Path, database_url: str) -> None:
    async with (
        serve_gateway([], title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        run_id = await deliver(house, session, "日报在此", "k1")
        events = await house.ended(session)
        assert events[0]["runId"] == run_id
        assert "input" not in events[0]
        assert [e["delta"] for e in events if e["type"] == "TEXT_MESSAGE_CONTENT"] == ["日报在此"]
        assert events[-1]["outcome"] == {"type": "success"}
        [message] = await house.messages(session)
        assert (message.role, message.text) == ("assistant", "日报在此")
        assert gateway.requests == []
        assert (await house.settled(session)).title is None


async def test_same_key_is_told_once(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        first = await deliver(house, session, "一次", "k1")
        await house.ended(session)
        assert await deliver(house, session, "一次", "k1") == first
        assert len(await house.messages(session)) == 1


async def test_deliveries_wait_for_the_run_under_way_and_keep_their_order(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([SLOW], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        await house.until(
            session, lambda events: any(e["type"] == "TEXT_MESSAGE_CONTENT" for e in events)
        )
        for number in (1, 2):
            await deliver(house, session, f"通知 {number}", f"k{number}")
        assert await house.state["inbox"].cancel(session.id, None, "ann")
        await house.ended(session, 3)  # a stop holds the queue, but not what no person queued
        told = [m.text for m in await house.messages(session) if m.role == "assistant"]
        assert told[-2:] == ["通知 1", "通知 2"]


async def test_model_sees_in_the_next_turn_what_was_told(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([reply("好")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await deliver(house, session, "构建失败", "k1")
        await house.ended(session)
        await house.ask(session, "为什么？")
        roles = [(m["role"], m["content"]) for m in gateway.requests[0].messages[-2:]]
        assert roles[0] == ("assistant", "构建失败")


async def test_delivery_that_a_restart_interrupts_is_told_once(
    tmp_path: Path, database_url: str
) -> None:
    async with serve_gateway([], title=is_title) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            async with house.state["store"].write() as db:
                await insert_delivery(db, session, "仍要送达", "k1")
        async with open_house(settings) as house, asyncio.timeout(15):
            await house.ended(session)
            assert [m.text for m in await house.messages(session)] == ["仍要送达"]


async def test_delivery_hides_no_failure(tmp_path: Path, sqlite_url: str) -> None:
    script = forever(reply(calls=[call("grep_search", {"pattern": "x", "path": "."})]))
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        before = await house.settled(session)
        assert before.execution_error is not None
        await deliver(house, session, "日报", "k1")
        await house.ended(session, 2)
        after = await house.settled(session)
        assert (after.status, after.execution_error) == ("FAILED", before.execution_error)
