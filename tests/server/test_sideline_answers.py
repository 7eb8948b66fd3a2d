"""Whom a chat's next message is for: the chat's session, or who asks something there."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from channels.errors import InboxRefused, InboxUnavailable
from channels.port import Delivery, Fetched, Inbound, RemoteFile
from server.errors import ServerError
from tests.fakes.llm import NEVER, Play, Quirks, call, reply, serve_gateway
from tests.house import House, is_title, settings_for
from tests.server.approvals.test_answers import last_result
from tests.server.approvals.test_together import REFUSE, execute
from tests.server.test_chats import CHAT, Platform, message, open_chats
from tests.waiting import until

PLAN = reply(
    calls=[
        call(
            "schedule_task",
            {"action": "create", "title": "t", "prompt": "p", "cron": "0 9 * * *"},
        )
    ]
)
"""A call before which somebody is asked, whatever the settings say."""

HANG = reply("…", quirks=Quirks(before_headers=NEVER))


def ask(question: str) -> Play:
    """A reply that asks the person something."""
    return reply(calls=[call("ask_user", {"question": question})])


async def statuses(house: House) -> list[tuple[str, str]]:
    """Kind and status of each session, the oldest first."""
    async with house.state["store"].read() as db:
        rows = await db.execute(sa.text("SELECT kind, status FROM session ORDER BY created_at, id"))
        return [(kind, status) for kind, status in rows]


def asked(delivery: Delivery) -> list[str]:
    """What a waiting run asks."""
    return [question.interrupt.message for question in delivery.questions]


async def test_message_answers_what_a_side_question_asks_while_the_chat_is_busy(
    tmp_path: Path, database_url: str
) -> None:
    platform = Platform()
    async with (
        serve_gateway([HANG, ask("which?"), reply("done")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, database_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        main = await chats.submit(message("go"))
        await gateway.wait_for_requests(1)
        aside = await chats.submit(message("tell them", is_sideline=True))
        [told] = await platform.until_told(1)
        assert asked(told) == ["which?"]
        said = message("the third", sender="bob", reply_to="m3")
        answers = await asyncio.gather(*(chats.submit(said) for _ in range(3)))
        assert {(one.session_id, one.state) for one in answers} == {(aside.session_id, "started")}
        assert len({one.run_id for one in answers}) == 1
        again = await chats.submit(said)
        assert (again.run_id, again.duplicate) == (answers[0].run_id, True)
        deliveries = await platform.until_told(3)
        assert deliveries[1].questions[0].verdict == "bob 已回答"
        assert (deliveries[2].answer, deliveries[2].turn.label) == ("done", "旁路提问")
        assert deliveries[2].turn.reply_to == "m3"
        assert last_result(gateway.requests[2]) == {"answer": "the third"}
        assert await statuses(house) == [("chat", "RUNNING"), ("sideline", "COMPLETED")]
        assert (await house.run(main.run_id)).status == "RUNNING"


async def test_newest_of_several_side_questions_is_answered_first(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform()
    script = [ask("first?"), ask("second?"), reply("second done"), reply("first done")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        await chats.submit(message("one", is_sideline=True))
        await platform.until_told(1)
        await chats.submit(message("two", is_sideline=True))
        await platform.until_told(2)
        await chats.submit(message("to the second"))
        await platform.until_told(4)
        await chats.submit(message("to the first"))
        deliveries = await platform.until_told(6)
        assert [told.answer for told in deliveries if told.status == "finished"] == [
            "second done",
            "first done",
        ]
        assert last_result(gateway.requests[2]) == {"answer": "to the second"}
        assert last_result(gateway.requests[3]) == {"answer": "to the first"}


async def test_while_the_chat_itself_waits_a_message_is_for_that_alone(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform()
    script = [PLAN, ask("which?"), reply("planned"), reply("heard"), reply("done")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        await chats.submit(message("go"))
        await platform.until_told(1)
        await chats.submit(message("tell them", is_sideline=True))
        await platform.until_told(2)
        assert (await chats.submit(message("yes, do it"))).state == "queued"
        assert await statuses(house) == [("chat", "WAITING"), ("sideline", "WAITING")]
        assert "ann" in await chats.command(CHAT, "approve", ["k1"], "ann")
        deliveries = await platform.until_told(5)  # the first one again, its end, the message
        assert [told.answer for told in deliveries if told.status == "finished"] == [
            "planned",
            "heard",
        ]
        await chats.submit(message("the third"))
        await platform.until_told(7)
        assert last_result(gateway.requests[4]) == {"answer": "the third"}


async def test_message_with_a_file_and_a_side_question_are_no_answers(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform(files={"f": Fetched(b"a,b\n", "a.csv", "text/csv")})
    script = [ask("which?"), reply("a table"), reply("aside")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        aside = await chats.submit(message("tell them", is_sideline=True))
        await platform.until_told(1)
        file = RemoteFile("f", "a.csv", "text/csv")
        await chats.submit(message("look", remote_files=[file]))
        await platform.until_told(2)
        await chats.submit(message("how far?", is_sideline=True))
        deliveries = await platform.until_told(3)
        assert [told.answer for told in deliveries[1:]] == ["a table", "aside"]
        assert (await house.run(aside.run_id)).status == "WAITING"


async def test_what_a_page_asked_aside_is_answered_by_no_word_in_the_chat(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform()
    script = [reply("hello"), ask("which?"), PLAN, reply("heard")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        main = await chats.submit(message("hi"))
        await platform.until_told(1)
        for number in (1, 2):
            key = f"ws-side:{number}"
            aside = Inbound("web", "x", [key], session_id=main.session_id, is_sideline=True)
            submitted = await house.state["inbox"].submit(aside)

            async def waits(run_id: str = submitted.run_id) -> bool:
                return (await house.run(run_id)).status == "WAITING"

            await until(waits)
        assert await chats.command(CHAT, "approve", ["k1"], "ann") == "当前没有等待确认的操作。"
        await chats.submit(message("hello again"))
        [_, told] = await platform.until_told(2)
        assert told.answer == "heard"
        assert [status for _, status in await statuses(house)] == [
            "COMPLETED",
            "WAITING",
            "WAITING",
        ]


async def test_word_for_a_side_question_in_a_chat_is_one_fact_with_the_others(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform()
    script = [PLAN, PLAN, reply("planned"), reply("planned too")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        await chats.submit(message("go"))
        await platform.until_told(1)
        aside = await chats.submit(message("and this", is_sideline=True))
        await platform.until_told(2)
        await execute(house, REFUSE.format(f"WHEN OLD.session_id = '{aside.session_id}'"))
        with pytest.raises((ServerError, InboxUnavailable, InboxRefused)):
            await chats.command(CHAT, "approve", ["k1"], "ann")
        assert await statuses(house) == [("chat", "WAITING"), ("sideline", "WAITING")]
        await execute(house, "DROP TRIGGER refuse")
        assert await chats.command(CHAT, "approve", ["k1"], "ann") == "ann 已同意"
        assert await chats.command(CHAT, "approve", ["k1"], "ann") == ""
        await platform.until_told(6)
        assert await statuses(house) == [("chat", "COMPLETED"), ("sideline", "COMPLETED")]
