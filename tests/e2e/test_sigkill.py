"""Nothing acknowledged is lost, and nothing is done twice, wherever the process is killed."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from server.store.engine import open_store
from tests.e2e.process import ANN, Installation, kill, open_server
from tests.e2e.storm import MOMENTS, Model, Storm
from tests.fakes.llm import NEVER, Quirks, reply, serve_gateway
from tests.house import is_title
from tests.waiting import until
from tests.wire import open_client

SEED = int(os.environ.get("TEST_SEED", "2210"))
"""Chooses the moments; another one looks elsewhere."""


async def weather(folder: Path, database_url: str, kills: int) -> None:
    """Kill as often as told, then let everything end and look at what is left."""
    async with (
        serve_gateway(Model(), title=is_title) as gateway,
        open_store(database_url) as store,
    ):
        place = Installation(folder, gateway.url, {"DATABASE_URL": database_url})
        storm = Storm(place, store, gateway, random.Random(SEED))
        for number in range(kills):
            await storm.kill(MOMENTS[number % len(MOMENTS)])
        await storm.settle()
        await storm.audit()


@pytest.mark.timeout(240)
async def test_nothing_acknowledged_is_lost_or_done_twice_through_25_kills(
    tmp_path: Path, sqlite_url: str
) -> None:
    await weather(tmp_path, sqlite_url, 25)


async def test_nothing_acknowledged_is_lost_or_done_twice_on_postgresql(
    tmp_path: Path, postgres_url: str
) -> None:
    await weather(tmp_path, postgres_url, 5)


async def test_a_stop_that_was_acknowledged_holds_though_the_process_dies_at_once(
    tmp_path: Path, sqlite_url: str
) -> None:
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    async with serve_gateway([hang], title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url, {"DATABASE_URL": sqlite_url})
        async with open_server(place) as server, open_client(server.url, token=ANN) as client:
            await client.request("session.create", session="s")
            await client.request("run.start", session="s", clientMsgId="m1", content="go")
            await gateway.wait_for_requests(1)
            assert (await client.request("run.cancel", session="s"))["state"] == "cancelling"
            await server.sigkill()
        async with open_server(place) as server:

            async def is_stopped() -> bool:
                return bool((await server.session("s"))["status"] == "CANCELLED")

            await until(is_stopped)


async def test_a_first_start_that_was_killed_while_it_made_the_tables_can_be_repeated(
    tmp_path: Path,
) -> None:
    place = Installation(tmp_path)

    async def has_begun() -> bool:
        return await asyncio.to_thread((place.data_dir / "headway.db").exists)

    process = await place.serve()
    try:
        await until(has_begun)
    finally:
        await kill(process)
    async with open_server(place) as server:
        status, _ = await server.get("/readyz")
        assert status == 200
