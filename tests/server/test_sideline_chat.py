"""Side questions in chats: two sessions in one conversation, each with cards of its own."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from channels.errors import InboxRefused
from channels.port import ChatAddress, Fetched, RemoteFile
from server.store.chats import bound_session, chat_of
from tests.fakes.llm import NEVER, Quirks, Recorded, reply, serve_gateway
from tests.fakes.llm_wire import Play
from tests.house import House, is_title, settings_for
from tests.server.test_chats import CHAT, SEARCH, Platform, message, open_chats
from tests.waiting import until

HANG = reply("…", quirks=Quirks(before_headers=NEVER))


async def statuses(house: House) -> dict[str, str]:
    """Status of each session by its kind."""
    async with house.state["store"].read() as db:
        rows = await db.execute(sa.text("SELECT kind, status FROM session"))
        return {kind: status for kind, status in rows}


async def test_a_side_question_is_answered_beside_a_run_and_told_under_its_label(
    tmp_path: Path, database_url: str
) -> None:
    platform = Platform()
    gate = asyncio.Event()
    held = reply("main answer", quirks=Quirks(before_headers=gate))
    async with (
        serve_gateway([held, reply("side answer"), reply("next")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, database_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        first = await chats.submit(message("go", reply_to="m1"))
        await gateway.wait_for_requests(1)
        aside = message("how far?", is_sideline=True, reply_to="m2")
        answers = await asyncio.gather(*(chats.submit(aside) for _ in range(3)))
        assert len({answer.run_id for answer in answers}) == 1
        assert answers[0].state == "started"
        assert answers[0].session_id != first.session_id
        [told] = await platform.until_told(1)
        assert (told.answer, told.status) == ("side answer", "finished")
        assert (told.turn.chat, told.turn.reply_to) == (CHAT, "m2")
        assert told.turn.label == "旁路提问"
        assert await statuses(house) == {"chat": "RUNNING", "sideline": "COMPLETED"}
        gate.set()
        [_, told] = await platform.until_told(2)
        assert (told.answer, told.turn.label, told.turn.reply_to) == ("main answer", "", "m1")
        again = await chats.submit(message("next"))
        assert again.session_id == first.session_id, "the chat speaks to the same session"
        await platform.until_told(3)
        said = [m["content"] for m in gateway.requests[2].messages if m["role"] != "system"]
        assert [text.rpartition("\n")[2] for text in said] == ["go", "main answer", "next"]


async def test_a_side_question_that_the_guard_stops_is_told_and_the_main_run_goes_on(
    tmp_path: Path, database_url: str
) -> None:
    platform = Platform()
    gate = asyncio.Event()
    count = 0

    def play(request: Recorded) -> Play:
        nonlocal count
        count += 1
        return reply("main", quirks=Quirks(before_headers=gate)) if count == 1 else SEARCH

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_chats(
            settings_for(tmp_path, database_url, gateway.url, HEADWAY_LOCALE="en"), platform
        ) as house,
    ):
        chats = house.state["chats"]
        await chats.submit(message("go"))
        await gateway.wait_for_requests(1)
        await chats.submit(message("look", is_sideline=True))
        [told] = await platform.until_told(1)
        assert (told.status, told.code) == ("failed", "no_progress_loop")
        assert told.turn.label == "Side question"
        assert await statuses(house) == {"chat": "RUNNING", "sideline": "FAILED"}
        gate.set()
        [_, told] = await platform.until_told(2)
        assert (told.status, told.answer, told.turn.label) == ("finished", "main", "")
        assert await statuses(house) == {"chat": "COMPLETED", "sideline": "FAILED"}


async def test_the_button_of_a_side_questions_card_stops_it_alone(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform()
    async with (
        serve_gateway([HANG, HANG], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        await chats.submit(message("go"))
        aside = await chats.submit(message("look", is_sideline=True))
        await gateway.wait_for_requests(2)
        assert await chats.cancel_run(aside.run_id)
        [told] = await platform.until_told(1)
        assert (told.status, told.turn.run_id) == ("cancelled", aside.run_id)
        assert await statuses(house) == {"chat": "RUNNING", "sideline": "CANCELLED"}


async def test_a_side_question_in_a_chat_goes_on_after_a_restart(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform()
    async with serve_gateway([reply("hello"), HANG, reply("side")], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_chats(settings, platform) as house:
            await house.state["chats"].submit(message("hi"))
            await platform.until_told(1)
            aside = await house.state["chats"].submit(message("why?", is_sideline=True))
            await gateway.wait_for_requests(2)
            await house.state["chats"].keep(aside.run_id, "card-7")
        async with open_chats(settings, platform):
            [_, told] = await platform.until_told(2)
        assert (told.answer, told.turn.handle, told.turn.label) == ("side", "card-7", "旁路提问")


@pytest.mark.parametrize("text", ["", "  \n"])
async def test_nothing_asked_is_refused_with_words_for_the_person(
    text: str, tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform(files={"f": Fetched(b"a,b\n", "a.csv", "text/csv")})
    async with (
        serve_gateway([reply("a table")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        with pytest.raises(InboxRefused) as refused:
            await chats.submit(message(text, "k1", is_sideline=True))
        assert "/side" in refused.value.user_text
        assert await statuses(house) == {}
        file = RemoteFile("f", "a.csv", "text/csv")
        await chats.submit(message(text, "k2", is_sideline=True, remote_files=[file]))
        [told] = await platform.until_told(1)
        assert told.answer == "a table", "a file is something to ask about"


async def test_a_chat_may_begin_with_a_side_question(tmp_path: Path, sqlite_url: str) -> None:
    platform = Platform()
    async with (
        serve_gateway([reply("side"), reply("main")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        aside = await chats.submit(message("hello?", is_sideline=True))
        await platform.until_told(1)
        main = await chats.submit(message("hello"))
        await platform.until_told(2)
        async with house.state["store"].read() as db:
            assert await bound_session(db, CHAT) == main.session_id != aside.session_id
        assert [m["role"] for m in gateway.requests[1].messages] == ["system", "user"]


async def test_the_chat_remembers_how_it_was_last_reached(
    tmp_path: Path, database_url: str
) -> None:
    platform = Platform()
    async with (
        serve_gateway([reply("a"), reply("b"), reply("c")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, database_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]

        async def reach(session_id: str) -> tuple[ChatAddress | None, str | None]:
            async with house.state["store"].read() as db:
                return await chat_of(db, session_id)

        first = message("one", reply_to="m1")
        submitted = await chats.submit(first)
        assert await reach(submitted.session_id) == (CHAT, "m1")
        await chats.submit(message("two", reply_to="m2", is_sideline=True))
        assert await reach(submitted.session_id) == (CHAT, "m2")
        await chats.submit(replace(first, reply_to="m9"))
        assert await reach(submitted.session_id) == (CHAT, "m2"), "it was pushed again"
        await chats.submit(message("three", reply_to=None))
        assert await reach(submitted.session_id) == (CHAT, "m2")
        await platform.until_told(3)


async def test_a_side_question_that_comes_while_the_server_ends_is_answered_after_its_restart(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform()
    async with serve_gateway(lambda _: HANG, title=is_title) as gateway:
        opened = AsyncExitStack()
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        house = await opened.enter_async_context(open_chats(settings, platform))
        chats = house.state["chats"]
        count = 0

        async def is_ending() -> bool:
            nonlocal count
            count += 1
            chat = replace(CHAT, chat_id=f"c{count}")
            if (await chats.submit(message(f"m{count}", chat=chat))).state != "queued":
                return False
            await chats.submit(message("aside", chat=chat, is_sideline=True))
            return True

        assert not await is_ending()  # what runs is given a moment to end
        await gateway.wait_for_requests(1)
        leaving = asyncio.create_task(opened.aclose())
        await until(is_ending)
        await leaving
    async with serve_gateway(lambda _: reply("hello"), title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_chats(settings, platform):
            deliveries = await platform.until_told(count + 1)
    assert [told.answer for told in deliveries if told.turn.label] == ["hello"]


async def test_messages_and_side_questions_of_one_chat_at_once_lock_nobody_out(
    tmp_path: Path, postgres_url: str
) -> None:
    platform = Platform()

    async with (
        serve_gateway(lambda _: reply("fine"), title=is_title) as gateway,
        open_chats(settings_for(tmp_path, postgres_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        await chats.submit(message("first"))
        await asyncio.gather(
            *(
                chats.submit(message(f"m{n}", is_sideline=n % 2 == 0, reply_to=f"r{n}"))
                for n in range(30)
            )
        )
        deliveries = await platform.until_told(31)
        assert {told.status for told in deliveries} == {"finished"}
        assert sum(told.turn.label != "" for told in deliveries) == 15

        async def rests() -> bool:
            return set((await statuses(house)).values()) == {"COMPLETED"}

        await until(rests)
