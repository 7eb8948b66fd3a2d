"""The tools that a session's requests carry are those that it began with."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from server.delivery import insert_delivery
from server.store.ids import new_id
from server.store.sessions import insert_session
from tests.fakes.llm import reply, serve_gateway
from tests.house import is_title, open_house, settings_for
from tests.toml import write_config


async def test_first_run_that_asks_the_model_fixes_them(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([reply("hello")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        async with house.state["store"].write() as db:
            await insert_delivery(db, session, "news", "k1")
        house.state["signals"].advance(session.id)
        await house.ended(session)
        assert (await house.session(session)).toolset is None
        await house.ask(session, "hi")
        assert (await house.session(session)).toolset is not None


async def test_sessions_that_begin_alike_share_them(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([reply("one"), reply("two")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        first, second = await house.create(), await house.create()
        await house.ask(first, "hi")
        await house.ask(second, "hi")
        assert (await house.session(first)).toolset == (await house.session(second)).toolset
        one, two = gateway.requests
        assert one.json["tools"] == two.json["tools"]


async def test_child_session_has_those_of_its_parent(tmp_path: Path, sqlite_url: str) -> None:
    async with serve_gateway([reply("one"), reply("two")], title=is_title) as gateway:
        async with open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house:
            parent = await house.create()
            await house.ask(parent, "hi")
            parent = await house.session(parent)
        config = write_config(tmp_path, {"shell": {"enabled": False}})
        settings = settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config)
        async with open_house(settings) as house:
            child = replace(
                parent,
                id=new_id(),
                kind="sideline",
                parent_session_id=parent.id,
                created_at=datetime.now(UTC),
            )
            async with house.state["store"].write() as db:
                await insert_session(db, child)
            await house.ask(child, "hi")
    one, two = gateway.requests
    assert one.json["tools"] == two.json["tools"]
    assert "shell" in [tool["function"]["name"] for tool in two.json["tools"]]
