"""Answers that belong together are one fact: all of them count, or none does."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from channels.errors import InboxRefused, InboxUnavailable
from channels.port import Command
from server.approvals import Given
from server.errors import Conflict, NotFound, ServerError
from server.store.approvals import Approval
from server.store.sessions import Session
from tests.fakes.llm import NEVER, Play, Quirks, Recorded, call, reply, serve_gateway
from tests.house import House, is_title, open_house
from tests.server.approvals.test_answers import (
    ASK,
    WRITE,
    ask_to_write,
    asking,
    waiting,
    word,
)
from tests.server.approvals.test_races import CHAT, COMMANDS, ask_in_chat
from tests.waiting import until

BOTH = reply(calls=[*WRITE.calls, *ASK.calls])

REFUSE = "CREATE TRIGGER refuse BEFORE UPDATE ON approval {} BEGIN SELECT RAISE(ABORT, 'no'); END"
"""The database takes no answer; on SQLite."""


async def ask_both(house: House) -> tuple[Session, Approval, Approval]:
    """A session that waits for a word and for an answer."""
    session = await house.create()
    await house.ask(session, "写")
    gate, question = await waiting(house, session)
    return session, gate, question


async def execute(house: House, statement: str, **values: object) -> None:
    """Change the database as somebody else would."""
    async with house.state["store"].write() as db:
        await db.execute(sa.text(statement), values)


async def test_one_answer_that_comes_too_late_leaves_the_others_untaken(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        serve_gateway([BOTH], title=is_title) as gateway,
        open_house(asking(tmp_path, database_url, gateway.url)) as house,
    ):
        session, gate, question = await ask_both(house)
        await execute(
            house,
            "UPDATE approval SET expires_at = :over WHERE id = :id",
            over=datetime.now(UTC) - timedelta(milliseconds=1),
            id=question.interrupt.id,
        )
        words = {gate.interrupt.id: word(), question.interrupt.id: word(text="甲")}
        with pytest.raises(Conflict) as refused:
            await house.state["approvals"].answer_all(session.id, words, ["k"])
        assert refused.value.code == "approval_expired"
        assert not (house.workspace / "a.txt").exists()


async def test_answers_to_less_than_what_is_open_count_for_nothing(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([BOTH], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, gate, question = await ask_both(house)
        approvals = house.state["approvals"]
        with pytest.raises(Conflict) as refused:
            await approvals.answer_all(session.id, {gate.interrupt.id: word()}, ["k"])
        assert refused.value.code == "interrupt_mismatch"
        assert await waiting(house, session) == [gate, question]


async def test_answers_that_come_twice_at_once_begin_one_run(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        serve_gateway([BOTH, reply("done")], title=is_title) as gateway,
        open_house(asking(tmp_path, database_url, gateway.url)) as house,
    ):
        session, gate, question = await ask_both(house)
        words = {gate.interrupt.id: word(), question.interrupt.id: word(text="甲")}
        given = await asyncio.gather(
            *(house.state["approvals"].answer_all(session.id, words, ["k"]) for _ in range(4))
        )
        assert len({resumed.run_id for resumed in given}) == 1
        assert sum(resumed.is_repeat for resumed in given) == 3
        await house.ended(session, 2)
        assert (house.workspace / "a.txt").exists()


async def test_one_answer_that_cancels_cancels_all(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([BOTH], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, gate, question = await ask_both(house)
        words = {gate.interrupt.id: word(), question.interrupt.id: word("cancel")}
        await house.state["approvals"].answer_all(session.id, words, ["k"])
        await house.ended(session, 2)
        assert (await house.settled(session)).status == "CANCELLED"
        assert not (house.workspace / "a.txt").exists()


@pytest.mark.parametrize("command", COMMANDS)
async def test_command_that_a_crash_cut_off_is_done_when_it_comes_again(
    command: Command, tmp_path: Path, sqlite_url: str
) -> None:
    script = [WRITE] if command == "stop" else [WRITE, reply("写好了")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await ask_in_chat(house)
        chats = house.state["chats"]
        await execute(house, REFUSE.format(""))
        with pytest.raises((ServerError, InboxUnavailable, InboxRefused)):
            await chats.command(CHAT, command, ["k2"], "安")
        await execute(house, "DROP TRIGGER refuse")
        assert await chats.command(CHAT, command, ["k2"], "安")
        await house.ended(session, 2)
        assert await waiting(house, session) == []
        assert (house.workspace / "a.txt").exists() == (command == "approve")


async def test_word_for_all_that_is_open_is_taken_for_all_or_for_nothing(
    tmp_path: Path, sqlite_url: str
) -> None:
    two = reply(
        calls=[
            call("write_file", {"path": "a.txt", "content": "1"}),
            call("write_file", {"path": "b.txt", "content": "2"}),
        ]
    )
    async with (
        serve_gateway([two, reply("写好了")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await ask_in_chat(house)
        chats = house.state["chats"]
        second = (await waiting(house, session))[1]
        await execute(house, REFUSE.format(f"WHEN OLD.id = '{second.interrupt.id}'"))
        with pytest.raises((ServerError, InboxUnavailable, InboxRefused)):
            await chats.command(CHAT, "approve", ["k2"], "安")
        assert len(await waiting(house, session)) == 2
        await execute(house, "DROP TRIGGER refuse")
        assert "安 已同意" in await chats.command(CHAT, "approve", ["k2"], "安")
        await house.ended(session, 2)
        assert (house.workspace / "b.txt").exists()


STUBBORN = "trap 'touch told-to-end' TERM; touch ready; while :; do sleep 0.1; done"
"""A command that goes on after a TERM, so that a deletion waits for its KILL."""


def write_beside_a_command(request: Recorded) -> Play:
    """Starts a command, then wants to write; what would follow never comes."""
    match sum(message["role"] == "tool" for message in request.messages):
        case 0:
            arguments = {"action": "run", "command": STUBBORN, "run_async": True}
            return reply(calls=[call("shell", arguments)])
        case 1:
            return WRITE
        case _:
            return reply("…", quirks=Quirks(hold_at=1, hold=NEVER))


async def is_there(house: House, name: str) -> bool:
    """Whether the command made this file."""
    return (house.workspace / name).exists()


async def test_answer_that_meets_a_deletion_leaves_no_run_behind(
    tmp_path: Path, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serve_gateway(write_beside_a_command, title=is_title) as gateway,
        open_house(asking(tmp_path, database_url, gateway.url)) as house,
    ):
        approvals = house.state["approvals"]
        session, command, _ = await ask_to_write(house)
        await approvals.answer(command.interrupt.id, word())
        await house.ended(session, 2)
        [approval] = await waiting(house, session)
        await until(partial(is_there, house, "ready"))
        deleting = asyncio.create_task(house.state["inbox"].delete_session(session.id))
        await until(partial(is_there, house, "told-to-end"))
        await approvals.answer(approval.interrupt.id, word())
        await deleting
        tasks = {task.get_name() for task in asyncio.all_tasks()}
        assert {name for name in tasks if name.startswith("run-")} == {"run-leases", "run-signals"}
        with pytest.raises(NotFound):
            await approvals.answer(approval.interrupt.id, word())
        with pytest.raises(NotFound):
            await house.session(session)
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_answers_and_a_deletion_at_once_end_in_one_of_two_ways(
    tmp_path: Path, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def play(request: Recorded) -> Play:
        is_answered = request.messages[-1]["role"] == "tool"
        return reply("…", quirks=Quirks(hold_at=1, hold=NEVER)) if is_answered else WRITE

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(asking(tmp_path, database_url, gateway.url)) as house,
    ):
        for _ in range(8):
            session, approval, _ = await ask_to_write(house)
            deleted, answer = await asyncio.gather(
                house.state["inbox"].delete_session(session.id),
                house.state["approvals"].answer(approval.interrupt.id, word()),
                return_exceptions=True,
            )
            assert deleted is None
            assert isinstance(answer, Given | NotFound)
            tasks = {task.get_name() for task in asyncio.all_tasks()}
            running = {name for name in tasks if name.startswith("run-")}
            assert running == {"run-leases", "run-signals"}
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []
