"""A run that needs a person's word ends with a question, and goes on with the answer."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from channels.port import ChatAddress, Inbound
from server.approvals import Word
from server.delivery import insert_delivery
from server.errors import BadRequest, Conflict, NotFound
from server.settings import Settings
from server.store.approvals import Approval
from server.store.sessions import Session
from tests.fakes.llm import call, reply, serve_gateway
from tests.house import House, is_title, open_house, settings_for

WRITE = reply(calls=[call("write_file", {"path": "a.txt", "content": "kept"})])
ASK = reply(calls=[call("ask_user", {"question": "哪个群？", "options": ["甲", "乙"]})])


def asking(folder: Path, url: str, gateway_url: str, mode: str = "writes") -> Settings:
    """Settings under which a person is asked before anything is written."""
    config = folder / "headway.toml"
    config.write_text(f'[approvals]\nweb = "{mode}"\nfeishu = "{mode}"\n')
    return settings_for(folder, url, gateway_url, HEADWAY_CONFIG=str(config))


async def waiting(house: House, session: Session) -> list[Approval]:
    """What the session waits for."""
    return list((await house.state["inbox"].state_of(session.id)).approvals)


def last_result(request: Any) -> Any:
    """The newest tool result in a request, decoded."""
    results = [message for message in request.messages if message["role"] == "tool"]
    return json.loads(results[-1]["content"])


def word(decision: str = "approve", **given: Any) -> Word:
    """An answer of ann's."""
    return Word(decision, given.pop("by", "ann"), **given)  # type: ignore[arg-type]


async def ask_to_write(house: House) -> tuple[Session, Approval, Mapping[str, Any]]:
    """A session whose run waits for its write; the question, and the run's last event."""
    session = await house.create()
    events = await house.ask(session, "写文件")
    [approval] = await waiting(house, session)
    return session, approval, events[-1]


async def test_call_that_needs_a_word_ends_the_run_with_an_interrupt(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        serve_gateway([WRITE, reply("写好了")], title=is_title) as gateway,
        open_house(asking(tmp_path, database_url, gateway.url)) as house,
    ):
        session, approval, end = await ask_to_write(house)
        assert end["type"] == "RUN_FINISHED"
        [interrupt] = end["outcome"]["interrupts"]
        assert interrupt["id"] == approval.interrupt.id
        assert interrupt["reason"] == "tool_call"
        assert interrupt["toolCallId"] == approval.interrupt.call_id
        assert "expiresAt" in interrupt
        assert (await house.settled(session)).status == "WAITING"
        assert not (house.workspace / "a.txt").exists()
        given = await house.state["approvals"].answer(approval.interrupt.id, word())
        events = await house.ended(session, 2)
        started = [event for event in events if event["type"] == "RUN_STARTED"][1]
        assert started["runId"] == given.run_id
        assert started["parentRunId"] == approval.run_id
        assert (house.workspace / "a.txt").read_text() == "kept"
        assert (await house.settled(session)).status == "COMPLETED"
        assert len(gateway.requests) == 2


async def test_refusal_is_an_ordinary_result_with_the_persons_note(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([WRITE, reply("好的，不写")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, approval, _ = await ask_to_write(house)
        await house.state["approvals"].answer(
            approval.interrupt.id, word("deny", text="别动这个文件")
        )
        await house.ended(session, 2)
        result = last_result(gateway.requests[1])
        assert result["error"] == "denied"
        assert "别动这个文件" in result["message"]
        assert not (house.workspace / "a.txt").exists()


async def test_refused_call_that_is_tried_again_and_again_is_stopped_at_round_15(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([WRITE] * 15, title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "写文件")
        for number in range(1, 16):
            await house.ended(session, number)
            [approval] = await waiting(house, session)
            await house.state["approvals"].answer(approval.interrupt.id, word("deny"))
        events = await house.ended(session, 16)
        assert events[-1]["code"] == "no_progress_loop"
        assert len(gateway.requests) == 15


async def test_edited_arguments_are_run_and_the_model_is_told(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([WRITE, reply("好")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, approval, _ = await ask_to_write(house)
        edited = json.dumps({"path": "b.txt", "content": "other"})
        await house.state["approvals"].answer(
            approval.interrupt.id, word(edited_arguments=edited, text="换个名字")
        )
        await house.ended(session, 2)
        assert (house.workspace / "b.txt").read_text() == "other"
        assert not (house.workspace / "a.txt").exists()
        result = last_result(gateway.requests[1])
        assert result["edited_arguments"] == {"path": "b.txt", "content": "other"}
        assert result["note_of_user"] == "换个名字"
        assert "b.txt" in result["result"]


async def test_model_gets_what_it_asked_the_person_for(tmp_path: Path, database_url: str) -> None:
    async with (
        serve_gateway([ASK, reply("发到甲")], title=is_title) as gateway,
        open_house(asking(tmp_path, database_url, gateway.url, "never")) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "发通知")
        [interrupt] = events[-1]["outcome"]["interrupts"]
        assert interrupt["reason"] == "input_required"
        assert interrupt["message"] == "哪个群？"
        assert interrupt["metadata"]["options"] == ["甲", "乙"]
        with pytest.raises(BadRequest):
            await house.state["approvals"].answer(interrupt["id"], word(text=" "))
        await house.state["approvals"].answer(interrupt["id"], word(text="甲"))
        await house.ended(session, 2)
        assert last_result(gateway.requests[1]) == {"answer": "甲"}


async def test_round_waits_as_a_whole_and_runs_in_the_models_order(
    tmp_path: Path, sqlite_url: str
) -> None:
    both = reply(
        calls=[
            call("list_dir", {"path": "."}),
            call("write_file", {"path": "a.txt", "content": "1"}),
            call("write_file", {"path": "b.txt", "content": "2"}),
        ]
    )
    async with (
        serve_gateway([both, reply("done")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "写两个")
        first, second = await waiting(house, session)
        given = await house.state["approvals"].answer(second.interrupt.id, word("deny"))
        assert given.run_id is None
        assert (await house.settled(session)).status == "WAITING"
        await house.state["approvals"].answer(first.interrupt.id, word())
        await house.ended(session, 2)
        results = [m for m in gateway.requests[1].messages if m["role"] == "tool"]
        assert len(results) == 3
        assert "denied" in results[2]["content"]
        assert (house.workspace / "a.txt").exists()
        assert not (house.workspace / "b.txt").exists()


async def test_first_of_two_answers_at_once_counts(tmp_path: Path, database_url: str) -> None:
    async with (
        serve_gateway([WRITE, reply("ok")], title=is_title) as gateway,
        open_house(asking(tmp_path, database_url, gateway.url)) as house,
    ):
        session, approval, _ = await ask_to_write(house)
        answers = await asyncio.gather(
            *(
                house.state["approvals"].answer(approval.interrupt.id, word(by=name))
                for name in ("ann", "bob", "cyd")
            ),
            return_exceptions=True,
        )
        lost = [answer for answer in answers if isinstance(answer, Conflict)]
        [won] = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert len(lost) == 2
        assert {error.code for error in lost} == {"approval_already_resolved"}
        assert {error.details["by"] for error in lost} == {won.approval.answered_by}
        await house.ended(session, 2)
        assert len(gateway.requests) == 2


async def test_question_that_nobody_answers_in_time_fails_the_run(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        serve_gateway([WRITE, reply("again")], title=is_title) as gateway,
        open_house(asking(tmp_path, database_url, gateway.url)) as house,
    ):
        session, approval, _ = await ask_to_write(house)
        await house.state["approvals"].expire(datetime.now(UTC) + timedelta(hours=23))
        assert (await house.settled(session)).status == "WAITING"
        await house.state["approvals"].expire(datetime.now(UTC) + timedelta(hours=25))
        events = await house.ended(session, 2)
        assert events[-1]["code"] == "interrupt_expired"
        stored = await house.settled(session)
        assert stored.status == "FAILED"
        assert stored.execution_error is not None
        assert stored.execution_error.code == "interrupt_expired"
        with pytest.raises(Conflict) as late:
            await house.state["approvals"].answer(approval.interrupt.id, word())
        assert late.value.code == "approval_expired"
        assert len(gateway.requests) == 1
        await house.ask(session, "再来")
        assert last_result(gateway.requests[1]) == {"error": "cancelled"}


async def test_stop_of_a_waiting_session_cancels_it(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([WRITE], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, _, _ = await ask_to_write(house)
        assert await house.state["inbox"].cancel(session.id, None, "ann")
        events = await house.ended(session, 2)
        assert events[-1]["outcome"]["type"] == "cancelled"
        assert (await house.settled(session)).status == "CANCELLED"
        assert await waiting(house, session) == []
        assert not (house.workspace / "a.txt").exists()
        assert not await house.state["inbox"].cancel(session.id, None, "ann")
        assert len(gateway.requests) == 1


async def test_message_meanwhile_waits_behind_the_question(tmp_path: Path, sqlite_url: str) -> None:
    script = [WRITE, reply("written"), reply("second")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, approval, _ = await ask_to_write(house)
        submitted = await house.say(session, "另一个问题")
        assert submitted.state == "queued"
        with pytest.raises(Conflict) as refused:
            await house.say(session, "第三个", when_busy="reject")
        assert refused.value.code == "interrupts_pending"
        await house.state["approvals"].answer(approval.interrupt.id, word())
        await house.ended(session, 3)
        assert [m.text for m in await house.messages(session) if m.role == "user"] == [
            "写文件",
            "另一个问题",
        ]
        assert len(gateway.requests) == 3


async def test_restart_forgets_no_question(tmp_path: Path, database_url: str) -> None:
    async with serve_gateway([WRITE, reply("ok")], title=is_title) as gateway:
        settings = asking(tmp_path, database_url, gateway.url)
        async with open_house(settings) as house:
            session, approval, _ = await ask_to_write(house)
        async with open_house(settings) as house:
            assert await waiting(house, session) == [approval]
            await house.state["approvals"].answer(approval.interrupt.id, word())
            await house.ended(session)
            assert (await house.settled(session)).status == "COMPLETED"
            assert (house.workspace / "a.txt").exists()


async def test_answer_to_a_question_of_another_session_is_refused(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([WRITE], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        _, approval, _ = await ask_to_write(house)
        other = await house.create("bob")
        with pytest.raises(NotFound):
            await house.state["approvals"].answer(approval.interrupt.id, word(), other.id)
        with pytest.raises(NotFound):
            await house.state["approvals"].answer("nothing", word())


@pytest.mark.parametrize(("mode", "asks"), [("never", 0), ("sends", 0), ("writes", 1)])
async def test_setting_says_which_kinds_need_a_word(
    tmp_path: Path, sqlite_url: str, mode: str, asks: int
) -> None:
    async with (
        serve_gateway([WRITE, reply("ok")][: 2 - asks], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url, mode)) as house,
    ):
        session = await house.create()
        await house.ask(session, "写文件")
        assert len(await waiting(house, session)) == asks


async def test_subagent_asks_nobody_and_is_told_so(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([WRITE, ASK, reply("ok")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create(kind="subagent")
        await house.ask(session, "写文件")
        assert last_result(gateway.requests[1])["error"] == "approval_required"
        assert last_result(gateway.requests[2])["error"] == "nobody_to_ask"
        assert not (house.workspace / "a.txt").exists()


async def test_task_does_not_wait_for_a_word_that_is_refused_in_any_case(
    tmp_path: Path, sqlite_url: str
) -> None:
    plan = call(
        "schedule_task", {"action": "create", "title": "t", "prompt": "p", "cron": "* * * * *"}
    )
    async with (
        serve_gateway([reply(calls=[plan]), reply("ok")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create(kind="scheduled")
        events = await house.ask(session, "再建一个任务")
        assert events[-1]["outcome"] == {"type": "success"}
        assert last_result(gateway.requests[1])["error"] == "approval_required"


async def test_no_argument_of_a_question_reaches_the_log(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serve_gateway([WRITE, reply("ok")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, approval, _ = await ask_to_write(house)
        await house.state["approvals"].answer(approval.interrupt.id, word("deny", text="秘密"))
        await house.ended(session, 2)
        assert "a.txt" not in caplog.text
        assert "秘密" not in caplog.text


async def test_chat_that_was_asked_hears_the_answer_once_more_by_the_outbox(
    tmp_path: Path, sqlite_url: str
) -> None:
    chat = ChatAddress("feishu", "cli_x", "oc_1")
    async with (
        serve_gateway([ASK, reply("好")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        chats = house.state["chats"]
        asked = Inbound("feishu", "发通知", ["k1"], chat=chat, sender="安", reply_to="m1")
        submitted = await chats.submit(asked)
        session = (await house.state["inbox"].state_of(submitted.session_id)).session
        await house.ended(session)
        said = Inbound("feishu", "甲群", ["k2"], chat=chat, sender="波", reply_to="m2")
        answered = await chats.submit(said)
        assert answered.run_id != submitted.run_id
        again = await chats.submit(said)
        assert (again.run_id, again.duplicate) == (answered.run_id, True)
        await house.ended(session, 2)
        assert last_result(gateway.requests[1]) == {"answer": "甲群"}
        async with house.state["store"].read() as db:
            kinds = await db.execute(
                sa.text("SELECT run_id, payload_json FROM outbox ORDER BY created_at")
            )
            told = [(row.run_id, json.loads(row.payload_json)["code"]) for row in kinds]
        assert told == [
            (submitted.run_id, "needs_input"),
            (submitted.run_id, "answered"),
            (answered.run_id, "completed"),
        ]


async def test_word_in_a_chat_approves_or_refuses(tmp_path: Path, sqlite_url: str) -> None:
    chat = ChatAddress("feishu", "cli_x", "oc_1")
    async with (
        serve_gateway([WRITE, reply("好")], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        chats = house.state["chats"]
        submitted = await chats.submit(Inbound("feishu", "写", ["k1"], chat=chat, reply_to="m1"))
        session = (await house.state["inbox"].state_of(submitted.session_id)).session
        await house.ended(session)
        assert "安 已同意" in await chats.command(chat, "approve", ["k2"], "安")
        await house.ended(session, 2)
        assert (house.workspace / "a.txt").exists()
        assert "没有等待" in await chats.command(chat, "deny", ["k3"], "安")


async def test_stop_in_a_chat_cancels_what_is_asked_and_leaves_deliveries(
    tmp_path: Path, sqlite_url: str
) -> None:
    chat = ChatAddress("feishu", "cli_x", "oc_1")
    async with (
        serve_gateway([WRITE], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        chats = house.state["chats"]
        submitted = await chats.submit(Inbound("feishu", "写", ["k1"], chat=chat, reply_to="m1"))
        session = (await house.state["inbox"].state_of(submitted.session_id)).session
        await house.ended(session)
        await chats.submit(Inbound("feishu", "再写", ["k2"], chat=chat, reply_to="m2"))
        async with house.state["store"].write() as db:
            await insert_delivery(db, session, "日报", "d1")
        said = await chats.command(chat, "stop", ["k3"], "安")
        assert "正在停止" in said
        assert "1 条" in said
        await house.ended(session, 3)  # the one that waited, its end, and the delivery
        assert (await house.messages(session))[-1].text == "日报"
        assert await waiting(house, session) == []


async def test_word_that_is_pushed_again_counts_once(tmp_path: Path, sqlite_url: str) -> None:
    chat = ChatAddress("feishu", "cli_x", "oc_1")
    async with (
        serve_gateway([WRITE, WRITE], title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        chats = house.state["chats"]
        submitted = await chats.submit(Inbound("feishu", "写", ["k1"], chat=chat, reply_to="m1"))
        session = (await house.state["inbox"].state_of(submitted.session_id)).session
        await house.ended(session)
        await chats.command(chat, "deny", ["k2"], "安")
        await house.ended(session, 2)  # it asks again
        assert await chats.command(chat, "deny", ["k2"], "安") == ""
        assert len(await waiting(house, session)) == 1
