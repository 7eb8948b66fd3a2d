"""Answers, stops and restarts that meet at an awkward moment lose nothing and ask nothing twice."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from channels.port import ChatAddress, Command, Inbound, RemoteFile
from server.delivery import insert_delivery
from server.store.sessions import Session
from tests.fakes.llm import NEVER, Play, Quirks, Recorded, call, reply, serve_gateway
from tests.house import House, is_title, open_house, settings_for
from tests.server.agent.reopened import change, reopen_last_round
from tests.server.approvals.test_answers import (
    ASK,
    WRITE,
    ask_to_write,
    asking,
    last_result,
    waiting,
    word,
)
from tests.waiting import until

COMMANDS: tuple[Command, ...] = ("approve", "stop")
CHAT = ChatAddress("feishu", "cli_x", "oc_1")


async def ask_in_chat(house: House) -> Session:
    """The session of a chat whose run asks."""
    inbound = Inbound("feishu", "做", ["k1"], chat=CHAT, reply_to="m1")
    submitted = await house.state["chats"].submit(inbound)
    session = (await house.state["inbox"].state_of(submitted.session_id)).session
    await house.ended(session)
    return session


async def make_overdue(house: House) -> None:
    """Let the time of every question be over."""
    over = datetime.now(UTC) - timedelta(seconds=1)
    async with house.state["store"].write() as db:
        await db.execute(sa.text("UPDATE approval SET expires_at = :over"), {"over": over})


async def test_stop_of_another_run_leaves_the_question_open(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([WRITE], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, approval, _ = await ask_to_write(house)
        assert not await house.state["inbox"].cancel(session.id, "another", "ann")
        assert await waiting(house, session) == [approval]
        assert await house.state["inbox"].cancel(session.id, approval.run_id, "ann")
        assert (await house.settled(session)).status == "CANCELLED"


async def test_message_to_a_question_whose_time_is_just_over_is_not_lost(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([ASK, reply("好")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await ask_in_chat(house)
        await make_overdue(house)
        said = Inbound("feishu", "甲群", ["k2"], chat=CHAT, reply_to="m2")
        await house.state["chats"].submit(said)
        await house.state["approvals"].expire(datetime.now(UTC))
        await house.ended(session, 3)
        assert [m.text for m in await house.messages(session)][-2:] == ["甲群", "好"]


@pytest.mark.parametrize("command", COMMANDS)
async def test_command_for_a_question_whose_time_is_just_over_is_answered(
    tmp_path: Path, sqlite_url: str, command: Command
) -> None:
    async with (
        serve_gateway([WRITE], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await ask_in_chat(house)
        await make_overdue(house)
        assert await house.state["chats"].command(CHAT, command, ["k2"], "安")
        await house.ended(session, 2)
        assert (await house.settled(session)).status == "FAILED"


async def test_session_whose_first_run_asks_is_named_when_it_is_done(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([WRITE, reply("写好了")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, approval, _ = await ask_to_write(house)
        await house.state["approvals"].answer(approval.interrupt.id, word())

        async def is_named() -> bool:
            return (await house.session(session)).title not in (None, "写文件")

        await until(is_named)


async def test_stricter_setting_meanwhile_asks_for_the_rest_and_forgets_no_answer(
    tmp_path: Path, sqlite_url: str
) -> None:
    both = reply(
        calls=[
            call("ask_user", {"question": "哪个？"}),
            call("write_file", {"path": "a.txt", "content": "1"}),
        ]
    )
    async with serve_gateway([both, reply("done")], title=is_title) as gateway:
        async with open_house(asking(tmp_path, sqlite_url, gateway.url, "never")) as house:
            session = await house.create()
            await house.ask(session, "写")
        async with open_house(asking(tmp_path, sqlite_url, gateway.url, "writes")) as house:
            [question] = await waiting(house, session)
            await house.state["approvals"].answer(question.interrupt.id, word(text="甲"))
            await house.ended(session)
            [gate] = await waiting(house, session)
            assert gate.interrupt.reason == "tool_call"
            await house.state["approvals"].answer(gate.interrupt.id, word())
            await house.ended(session, 2)
            assert (await house.settled(session)).status == "COMPLETED"
            assert (house.workspace / "a.txt").exists()
            results = [m["content"] for m in gateway.requests[-1].messages if m["role"] == "tool"]
            assert results[0] == '{"answer": "甲"}'


async def test_message_with_a_file_is_no_answer_and_waits_for_its_turn(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([ASK, reply("好"), reply("看了")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await ask_in_chat(house)
        file = RemoteFile("f1", "a.txt", "text/plain")
        said = Inbound("feishu", "看看这个", ["k2"], chat=CHAT, reply_to="m2", remote_files=[file])
        assert (await house.state["chats"].submit(said)).state == "queued"
        [question] = await waiting(house, session)
        await house.state["approvals"].answer(question.interrupt.id, word(text="甲"))
        await house.ended(session, 3)
        said_texts = [m.text for m in await house.messages(session) if m.role == "user"]
        assert said_texts[0] == "做"
        assert "看看这个" in said_texts[1]


@pytest.mark.parametrize("on_restart", ["resume", "fail"])
async def test_delivery_that_a_crash_cut_is_told_all_the_same(
    tmp_path: Path, sqlite_url: str, on_restart: str
) -> None:
    async with serve_gateway([], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_ON_RESTART=on_restart)
        async with open_house(settings) as house:
            session = await house.create()
            async with house.state["store"].write() as db:
                await insert_delivery(db, session, "日报", "d1")
        await change(
            sqlite_url,
            "UPDATE run SET status='RUNNING', attempt=1, lease_owner='gone', "
            "lease_until='1970-01-01 00:00:00+00:00'",
        )
        async with open_house(settings) as house:
            await house.ended(session)
            assert [m.text for m in await house.messages(session)] == ["日报"]
            assert (await house.settled(session)).status == "IDLE"


def write_then_hang(request: Recorded) -> Play:
    """A reply that writes; after its result, one that never comes."""
    is_answered = request.messages[-1]["role"] == "tool"
    return reply("…", quirks=Quirks(hold_at=1, hold=NEVER)) if is_answered else WRITE


async def test_stop_that_meets_an_answer_ends_the_run_or_the_question(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        serve_gateway(write_then_hang, title=is_title) as gateway,
        open_house(asking(tmp_path, database_url, gateway.url)) as house,
    ):
        for _ in range(8):
            session, approval, _ = await ask_to_write(house)
            stopped, _ = await asyncio.gather(
                house.state["inbox"].cancel(session.id, None, "ann"),
                house.state["approvals"].answer(approval.interrupt.id, word()),
                return_exceptions=True,
            )
            assert stopped is True
            assert (await house.settled(session)).status == "CANCELLED"


async def test_wait_that_stands_beside_a_question_begins_with_the_answer(
    tmp_path: Path, sqlite_url: str
) -> None:
    both = reply(
        calls=[
            call("write_file", {"path": "a.txt", "content": "1"}),
            call("shell", {"action": "await_async", "session_id": "none"}),
        ]
    )
    async with (
        serve_gateway([both, reply("done")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, approval, _ = await ask_to_write(house)
        await house.state["approvals"].answer(approval.interrupt.id, word())
        await house.ended(session, 2)
        result = last_result(gateway.requests[1])
        assert result["error"] != "interrupted"


async def test_run_that_a_restart_ends_says_cancelled_only_of_what_waited_for_a_word(
    tmp_path: Path, sqlite_url: str
) -> None:
    listing = reply(calls=[call("list_dir", {"path": "."})])
    script = [WRITE, listing, reply("ok"), reply("again")]
    async with serve_gateway(script, title=is_title) as gateway:
        asking(tmp_path, sqlite_url, gateway.url)
        config = str(tmp_path / "headway.toml")
        settings = settings_for(
            tmp_path,
            sqlite_url,
            gateway.url,
            HEADWAY_CONFIG=config,
            HEADWAY_ON_RESTART="fail",
        )
        async with open_house(settings) as house:
            session, approval, _ = await ask_to_write(house)
            await house.state["approvals"].answer(approval.interrupt.id, word())
            await house.ended(session, 2)
        await reopen_last_round(sqlite_url)
        async with open_house(settings) as house:
            await house.ended(session)
            await house.ask(session, "再来")
            assert last_result(gateway.requests[-1])["error"] == "interrupted"


async def test_delivery_alone_holds_no_queue_at_a_restart(tmp_path: Path, sqlite_url: str) -> None:
    async with serve_gateway([WRITE, reply("ok"), reply("second")], title=is_title) as gateway:
        settings = asking(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session, approval, _ = await ask_to_write(house)
            async with house.state["store"].write() as db:
                await insert_delivery(db, session, "日报", "d1")
        async with open_house(settings) as house:
            await house.say(session, "另一个问题")
            await house.state["approvals"].answer(approval.interrupt.id, word())
            await house.ended(session, 3)  # the run that goes on, the delivery, the message
            assert [m.text for m in await house.messages(session)][-3:] == [
                "日报",
                "另一个问题",
                "second",
            ]


async def test_run_that_goes_on_may_have_no_more_subagents_than_before(
    tmp_path: Path, sqlite_url: str
) -> None:
    spawn = call("spawn_subagent", {"task": "alpha", "background": True})
    plays = iter([reply(calls=[spawn]), ASK, reply(calls=[spawn]), reply("done")])

    def play(request: Recorded) -> Play:
        words = next(m["content"] for m in request.messages if m["role"] == "user")
        return (
            reply("…", quirks=Quirks(hold_at=1, hold=NEVER))
            if words.endswith("alpha")
            else next(plays)
        )

    async with serve_gateway(play, title=is_title) as gateway:
        asking(tmp_path, sqlite_url, gateway.url, "never")
        config = tmp_path / "headway.toml"
        config.write_text(config.read_text() + "[subagents]\nat_once = 1\n")
        settings = settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=str(config))
        async with open_house(settings) as house:
            session, approval, _ = await ask_to_write(house)
            await house.state["approvals"].answer(approval.interrupt.id, word(text="甲"))
            await house.ended(session, 2)
            parents = [r for r in gateway.requests if "写文件" in str(r.messages)]
            assert last_result(parents[-1])["error"] == "too_many_at_once"
