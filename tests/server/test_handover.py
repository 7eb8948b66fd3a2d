"""A run that another process took over while this one had it, which was slow or cut off."""

import asyncio
from pathlib import Path

import sqlalchemy as sa

from tests.fakes.llm import Quirks, reply, serve_gateway
from tests.house import is_title, open_house, settings_for


async def test_run_that_another_process_took_over_ends_in_the_log_of_the_one_that_had_it(
    tmp_path: Path, postgres_url: str
) -> None:
    too_late = asyncio.Event()
    script = [reply("too late", quirks=Quirks(before_headers=too_late)), reply("in time")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path / "one", postgres_url, gateway.url)) as one,
    ):
        session = await one.create()
        await one.say(session, "hello")
        await gateway.wait_for_requests(1)
        async with one.state["store"].write() as db:
            await db.execute(sa.text("UPDATE run SET lease_until = now() - interval '1 second'"))
        async with open_house(settings_for(tmp_path / "two", postgres_url, gateway.url)) as two:
            await two.settled(session)
            too_late.set()
            events = await one.ended(session)
            assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "server_restart")
            assert one.state["logs"].of(session.id).active is None  # a client gets what is stored
            assert [message.text for message in await one.messages(session)] == ["hello", "in time"]
            [run] = await one.runs(session)
            assert (run.status, run.attempt) == ("COMPLETED", 2)
            assert (await one.session(session)).status == "COMPLETED"
