"""How a scheduled run's end is told: in sessions and chats, once, and apart from how it ended."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from channels.errors import DeliveryError
from channels.port import ChatAddress, Inbound
from server.approvals import Word
from server.begin import RESUME
from server.contract import parse_contract
from server.schedule_form import OnceForm
from server.sentences import not_told
from server.store.approvals import open_approvals
from server.store.chats import bound_session
from server.store.sessions import load_session
from server.store.task_runs import TaskRun
from server.store.tasks import ScheduledTask, load_task, save_task
from server.task_form import ChatForm, DeliveryForm, paused, resumed
from tests.fakes.clock import Clock
from tests.fakes.llm import NEVER, Quirks, call, forever, refuse, reply, serve_gateway
from tests.house import is_title, settings_for
from tests.server.schedule_house import TaskHouse, open_tasks, set_clock
from tests.server.test_chats import Platform
from tests.waiting import until

CHAT = ChatAddress("test", "app1", "c1")
TO_CHAT = DeliveryForm(chat=ChatForm("test", "app1", "c1"))
ASK = reply(calls=[call("ask_user", {"question": "Which of both?"})])
SEND = reply(calls=[call("send_message", {"to": "somewhere", "text": "hello"})])
REMOVED = DeliveryError("230002 the bot is not in the chat", retryable=False, trouble="gone")


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    set_clock(clock, "2026-11-30T10:00:00+00:00")
    return clock


async def delivered(tasks: TaskHouse, task: ScheduledTask, status: str) -> TaskRun:
    """The task's latest run, once its delivery stands like this."""

    def holds(found: Sequence[TaskRun]) -> bool:
        return bool(found) and found[-1].delivery_status == status

    return (await tasks.until(task, holds))[-1]


async def test_answer_is_told_in_the_session_and_its_delivery_is_settled(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway([reply("the news")], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        await tasks.let_pass(60)
        found = await delivered(tasks, task, "DELIVERED")
        assert found.status == "COMPLETED"
        assert await tasks.told(told_in, 1) == ["the news"]
        [run] = await tasks.house.runs(told_in)
        assert (run.trigger, run.id) == ("deliver", found.delivery_run_id)
        assert len(gateway.requests) == 1  # a delivery asks no model


async def test_answer_waits_for_the_run_that_its_session_has(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    over = asyncio.Event()
    slow = reply("your own answer", quirks=Quirks(before_headers=over))
    async with (
        serve_gateway([slow, reply("the news")], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        await tasks.house.say(told_in, "hello")
        await gateway.wait_for_requests(1)
        task = await tasks.add(told_in=told_in)
        await tasks.let_pass(60)
        await tasks.ended(task)
        assert (await tasks.task_runs(task))[0].delivery_status == "PENDING"
        over.set()
        await delivered(tasks, task, "DELIVERED")
        assert await tasks.told(told_in, 2) == ["your own answer", "the news"]


async def test_session_that_is_gone_makes_the_delivery_undeliverable_and_no_failure(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(forever(reply("the news"))) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        await tasks.house.state["inbox"].delete_session(told_in.id)
        for count in (1, 2):
            await tasks.let_pass(60)
            found = await tasks.ended(task, count)
            assert (found[-1].status, found[-1].delivery_status) == ("COMPLETED", "UNDELIVERABLE")
        assert (await tasks.task(task)).failures_in_row == 0


async def test_session_that_its_chat_has_left_is_told_like_any_other(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway([reply("the news")], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        house = tasks.house
        house.state["bots"].surfaces["test:app1"] = platform = Platform()
        chats = house.state["chats"]
        await chats.command(CHAT, "new", ["test:new1"], "ann")
        async with house.state["store"].read() as db:
            bound = await bound_session(db, CHAT)
            assert bound is not None
            left = await load_session(db, bound)
        await chats.command(CHAT, "new", ["test:new2"], "ann")
        task = await tasks.add(owner="admin", told_in=left)
        await tasks.let_pass(60)
        await delivered(tasks, task, "DELIVERED")
        assert await tasks.told(left, 1) == ["the news"]
        assert (await house.session(left)).undelivered is None
        assert (await tasks.task(task)).held_reason is None
        async with house.state["store"].read() as db:
            assert await db.scalar(sa.text("SELECT count(*) FROM outbox")) == 0
        assert platform.delivered == []


async def test_session_of_somebody_else_is_told_nothing(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway([reply("the news")]) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        bobs = await tasks.house.create("bob")
        task = await tasks.add(owner="ann", told_in=bobs)
        await tasks.let_pass(60)
        assert (await delivered(tasks, task, "UNDELIVERABLE")).status == "COMPLETED"
        assert await tasks.house.messages(bobs) == []


async def test_delivery_whose_session_goes_before_it_is_told_is_not_pending_for_ever(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    async with (
        serve_gateway([hang, reply("the news")], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        await tasks.house.say(told_in, "hello")
        await gateway.wait_for_requests(1)
        task = await tasks.add(told_in=told_in)
        await tasks.let_pass(60)
        await delivered(tasks, task, "PENDING")
        await tasks.house.state["inbox"].delete_session(told_in.id)
        scheduler = tasks.house.state["scheduler"]
        async with tasks.house.state["store"].write() as db:
            before = await load_task(db, task.id)
            await save_task(db, before, paused(before, tasks.now(), "en"))
        clock.jump(3600)
        scheduler.wake()
        await delivered(tasks, task, "UNDELIVERABLE")


async def test_chat_is_told_with_the_tasks_title_as_label_though_it_never_spoke(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    platform = Platform()
    async with (
        serve_gateway(forever(reply("the news")), title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        tasks.house.state["bots"].surfaces["test:app1"] = platform
        task = await tasks.add(owner="admin", delivery=TO_CHAT)
        await tasks.let_pass(60)
        found = await delivered(tasks, task, "DELIVERED")
        [delivery] = platform.delivered
        assert (delivery.status, delivery.answer) == ("finished", "the news")
        assert (delivery.turn.chat, delivery.turn.label) == (CHAT, "the watch")
        assert delivery.turn.run_id == found.delivery_run_id
        async with tasks.house.state["store"].read() as db:
            session = await load_session(db, await bound_session(db, CHAT) or "")
        assert (session.kind, session.owner) == ("chat", "test:app1")
        message = Inbound("test", "hello", ["test:1"], chat=CHAT, reply_to="m1")
        submitted = await tasks.house.state["chats"].submit(message)
        assert submitted.session_id == session.id


async def test_chat_is_told_in_the_session_that_it_speaks_to_by_then(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    platform = Platform()
    async with (
        serve_gateway(forever(reply("the news")), title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        tasks.house.state["bots"].surfaces["test:app1"] = platform
        chats = tasks.house.state["chats"]
        await chats.command(CHAT, "new", ["test:new1"], "ann")
        task = await tasks.add(owner="admin", delivery=TO_CHAT)
        await chats.command(CHAT, "new", ["test:new2"], "ann")
        async with tasks.house.state["store"].read() as db:
            newest = await bound_session(db, CHAT)
        await tasks.let_pass(60)
        await delivered(tasks, task, "DELIVERED")
        assert platform.delivered[0].turn.session_id == newest


async def test_chat_that_refuses_for_good_holds_further_deliveries_with_the_reason(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    platform = Platform(refusals=[REMOVED])
    async with (
        serve_gateway(forever(reply("the news")), title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        tasks.house.state["bots"].surfaces["test:app1"] = platform
        task = await tasks.add(owner="admin", delivery=TO_CHAT)
        await tasks.let_pass(60)
        assert (await delivered(tasks, task, "UNDELIVERABLE")).status == "COMPLETED"
        assert (await tasks.task(task)).held_reason == not_told("zh-CN", "gone")
        await tasks.let_pass(60)
        found = await tasks.ended(task, 2)
        assert (found[1].status, found[1].delivery_run_id) == ("COMPLETED", None)
        assert found[1].delivery_status == "UNDELIVERABLE"
        assert (await tasks.task(task)).status == "ACTIVE"
        async with tasks.house.state["store"].write() as db:
            before = await load_task(db, task.id)
            await save_task(db, before, resumed(before, tasks.now(), "en"))
        await tasks.let_pass(60)
        await delivered(tasks, task, "DELIVERED")
        assert len(platform.delivered) == 1


async def test_third_failure_is_told_in_the_chat_once_with_the_pause(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    platform = Platform()
    async with (
        serve_gateway(forever(refuse(401)), title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        tasks.house.state["bots"].surfaces["test:app1"] = platform
        task = await tasks.add(owner="admin", delivery=TO_CHAT)
        for count in (1, 2, 3):
            await tasks.let_pass(60)
            await tasks.ended(task, count)
        told = await platform.until_told(3)
        assert ["现已暂停" in delivery.answer for delivery in told] == [False, False, True]
        assert all(delivery.status == "finished" for delivery in told)  # the telling went well


async def test_how_far_a_stopped_run_came_is_told_where_the_task_says(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    contract = {
        "id": "facts",
        "items": [
            {"id": "f1", "text": "第一项", "tool": "list_dir", "extract": {"regex": "F1"}},
            {"id": "f2", "text": "第二项", "tool": "list_dir", "extract": {"regex": "F2"}},
        ],
    }
    look = reply(calls=[call("list_dir", {"path": "."})])
    async with (
        serve_gateway([look] * 3, title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        (tasks.house.workspace / "F1.txt").write_text("", "utf-8")
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in, contract=parse_contract(contract))
        await tasks.let_pass(60)
        found = await delivered(tasks, task, "DELIVERED")
        assert found.status == "FAILED"
        [told] = await tasks.told(told_in, 1)
        assert "第一项：F1" in told
        assert "第二项" in told
        assert found.reason is not None
        assert found.reason in told


async def test_one_time_that_failed_is_done_and_not_paused(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway([refuse(401)], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(OnceForm("2026-11-30T10:01"), told_in=told_in, failure_limit=1)
        await tasks.let_pass(60)
        [found] = await tasks.ended(task)
        assert found.status == "FAILED"
        assert (await tasks.task(task)).status == "DONE"
        [text] = await tasks.told(told_in, 1)
        assert "现已暂停" not in text


async def test_what_a_scheduled_run_asks_is_told_with_where_to_answer_and_counts_as_no_failure(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway([ASK, reply("the first then")], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        await tasks.let_pass(60)
        [waiting] = await tasks.until(task, lambda found: [o.status for o in found] == ["WAITING"])
        assert waiting.ended_at is None
        [text] = await tasks.told(told_in, 1)
        assert "Which of both?" in text
        assert waiting.session_id is not None
        assert waiting.session_id in text
        await tasks.let_pass(60)
        found = await tasks.ended(task, 1)
        assert [(o.status, o.reason) for o in found] == [("WAITING", None), ("SKIPPED", "waiting")]
        await answer_open(tasks, waiting.session_id, "the first")
        found = await tasks.ended(task, 2)
        assert found[0].status == "COMPLETED"
        assert await tasks.told(told_in, 2) == [text, "the first then"]
        run = await tasks.house.run(found[0].run_id or "")
        assert run.trigger == RESUME
        assert (await tasks.task(task)).failures_in_row == 0


@pytest.mark.parametrize("asks", ["a question", "for a word"])
async def test_run_that_nobody_answers_in_time_is_a_failure_and_the_third_pauses_the_task(
    tmp_path: Path, database_url: str, clock: Clock, asks: str
) -> None:
    config = tmp_path / "headway.toml"
    config.write_text('[approvals]\nscheduled = "sends"\nexpire_minutes = 1\n')
    async with (
        serve_gateway(forever(ASK if asks == "a question" else SEND), title=is_title) as gateway,
        open_tasks(
            settings_for(tmp_path, database_url, gateway.url, HEADWAY_CONFIG=str(config)), clock
        ) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        approvals = tasks.house.state["approvals"]
        for count in (1, 2, 3):
            await tasks.let_pass(60)
            found = await tasks.until(task, lambda found: bool(found) and is_asking(found[-1]))
            late = datetime.now(UTC) + timedelta(minutes=1, seconds=5)
            await asyncio.gather(approvals.expire(late), approvals.expire(late))
            found = await tasks.ended(task, count)
            assert (await tasks.task(task)).failures_in_row == count
        assert [one.status for one in found] == ["FAILED"] * 3
        run = await tasks.house.run(found[-1].run_id or "")
        assert (run.trigger, run.outcome_code) == (RESUME, "interrupt_expired")
        assert found[-1].reason == run.outcome_text
        assert (await tasks.session_of(found[-1])).status == "FAILED"
        assert (await tasks.task(task)).status == "PAUSED"
        said = await tasks.told(told_in, 6)
        assert ["执行失败" in text for text in said] == [False, True] * 3
        assert ["现已暂停" in text for text in said] == [False] * 5 + [True]
        assert len(gateway.requests) == 3


def is_asking(task_run: TaskRun) -> bool:
    return task_run.status == "WAITING"


async def answer_open(tasks: TaskHouse, session_id: str, text: str = "") -> None:
    """Agree to what a session waits for, or say *text*."""
    async with tasks.house.state["store"].read() as db:
        [approval] = await open_approvals(db, session_id)
    word = Word("approve", "ann", text=text)
    await tasks.house.state["approvals"].answer(approval.interrupt.id, word)


async def test_person_who_talks_on_in_a_tasks_session_changes_nothing_of_the_task(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway([refuse(401), reply("because")], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        await tasks.let_pass(60)
        [failed] = await tasks.ended(task)
        await tasks.told(told_in, 1)
        session = await tasks.session_of(failed)
        await tasks.house.say(session, "why?")

        async def is_answered() -> bool:
            return (await tasks.session_of(failed)).status == "COMPLETED"

        await until(is_answered)
        assert (await delivered(tasks, task, "DELIVERED")).status == "FAILED"
        assert (await tasks.task(task)).failures_in_row == 1
        assert len(await tasks.told(told_in, 1)) == 1
