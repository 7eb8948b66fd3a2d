"""The tools for scheduled tasks: what they make, refuse, find again, and look like to the guard."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from channels.port import ChatAddress
from guard import Abort, NoProgressCall, NoProgressGuard, Rules
from server.store.chats import bind_chat
from server.store.engine import Store, open_store
from server.store.sessions import insert_session
from server.store.task_runs import TaskRun, insert_task_run
from server.store.tasks import ToChat, ToSession, load_task
from server.tools.base import Registry, ToolContext, ToolResult
from server.tools.schedule import (
    SCHEDULE_TASK,
    ListScheduledTasks,
    ScheduleTask,
    Tasks,
)
from tests.fakes.clock import Clock
from tests.fakes.llm import call as calls
from tests.fakes.llm import forever, reply, serve_gateway
from tests.house import is_title, settings_for
from tests.server.schedule_house import open_tasks, set_clock
from tests.server.store.rows import a_session
from tests.server.test_task_ends import answer_open
from tests.server.tools.conftest import decoded, error_of

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
CREATE: dict[str, Any] = {
    "action": "create",
    "title": "tea",
    "prompt": "remind the user of the tea",
}


@dataclass
class Place:
    """The tools on a store, for calls of several sessions."""

    store: Store
    context: ToolContext
    wakes: list[None] = field(default_factory=list)

    def __post_init__(self) -> None:
        tasks = Tasks(self.store, lambda: NOW, lambda: self.wakes.append(None))
        self.registry = Registry([ScheduleTask(tasks), ListScheduledTasks(tasks)])

    async def call(self, session_id: str = "s1", call_id: str = "c1", **given: Any) -> ToolResult:
        context = replace(self.context, session_id=session_id, call_id=call_id)
        return await self.registry.dispatch(SCHEDULE_TASK, json.dumps(given), context)

    async def create(self, session_id: str = "s1", call_id: str = "c1", **given: Any) -> Any:
        result = await self.call(session_id, call_id, **{**CREATE, **given})
        assert not result.is_error, result.content
        return decoded(result)

    async def listed(self, session_id: str = "s1") -> list[Any]:
        context = replace(self.context, session_id=session_id)
        result = await self.registry.dispatch("list_scheduled_tasks", "{}", context)
        tasks: list[Any] = decoded(result)["tasks"]
        return tasks


@pytest.fixture
async def place(sqlite_url: str, context: ToolContext) -> Any:
    async with open_store(sqlite_url) as store:
        async with store.write() as db:
            await insert_session(db, a_session("s1"))
            await insert_session(db, a_session("s2", owner="bob"))
            await insert_session(db, replace(a_session("t1"), kind="scheduled"))
            await insert_session(db, replace(a_session("a1"), kind="subagent"))
            for chat in ("c1", "c2"):
                session = replace(a_session(f"chat-{chat}", owner="feishu:cli_1"), kind="chat")
                await insert_session(db, session)
                await bind_chat(db, ChatAddress("feishu", "cli_1", chat), session.id, NOW)
        yield Place(store, context)


@pytest.mark.parametrize(
    ("given", "schedule", "next_at"),
    [
        ({"at": "2026-12-01T09:00"}, "once", "2026-12-01 09:00:00+08:00"),
        ({"at": "2026-12-01T09:00:00Z"}, "once", "2026-12-01 17:00:00+08:00"),
        ({"in_seconds": 600}, "once", "2026-11-30 18:10:00+08:00"),
        ({"every_seconds": 3600}, "every 3600 seconds", "2026-11-30 19:00:00+08:00"),
        ({"cron": "0 9 * * 7"}, "0 9 * * 7", "2026-12-06 09:00:00+08:00"),
        ({"cron": "@daily", "timezone": "UTC"}, "@daily", "2026-12-01 00:00:00+00:00"),
    ],
)
async def test_task_goes_by_the_users_clocks_and_is_told_where_it_was_asked_for(
    place: Place, given: dict[str, Any], schedule: str, next_at: str
) -> None:
    made = await place.create(**given)
    assert made == {
        "task_id": made["task_id"],
        "title": "tea",
        "schedule": schedule,
        "timezone": given.get("timezone", "Asia/Shanghai"),
        "status": "ACTIVE",
        "next_at": next_at,
    }
    async with place.store.read() as db:
        task = await load_task(db, made["task_id"])
    assert (task.owner, task.target, task.prompt) == ("ann", ToSession("s1"), CREATE["prompt"])
    assert len(place.wakes) == 1


async def test_task_of_a_chat_is_told_in_that_chat_and_shown_in_no_other(place: Place) -> None:
    made = await place.create("chat-c1", in_seconds=600, quiet=True)
    async with place.store.read() as db:
        task = await load_task(db, made["task_id"])
    assert (task.owner, task.is_quiet) == ("feishu:cli_1", True)
    assert task.target == ToChat(ChatAddress("feishu", "cli_1", "c1"))
    assert [one["task_id"] for one in await place.listed("chat-c1")] == [task.id]
    assert await place.listed("chat-c2") == []
    result = await place.call("chat-c2", action="remove", task_id=task.id)
    assert error_of(result) == "not_found"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exactly one of"),
        ({"in_seconds": 60, "cron": "@daily"}, "exactly one of"),
        ({"at": "2026-11-30T17:59:59"}, "it is 2026-11-30 18:00:00+08:00 now"),
        ({"at": "next week"}, "2026-12-31T09:00"),
        ({"every_seconds": 30}, "from 60"),
        ({"in_seconds": -5}, ">= 0"),
        ({"cron": "every day"}, "has 5 fields"),
        ({"cron": "0 9 * * *", "timezone": "Mars"}, "no time zone"),
        ({"cron": "@daily", "prompt": ""}, "1 to 20000"),
        ({"cron": "@daily", "missed_policy": "run_if_within"}, "missedWithinSeconds"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_what_is_right(
    place: Place, given: dict[str, Any], words: str
) -> None:
    result = await place.call(**{**CREATE, **given})
    assert error_of(result) == "bad_arguments"
    assert words in decoded(result)["message"]
    assert await place.listed() == []


@pytest.mark.parametrize("session_id", ["t1", "a1"])
@pytest.mark.parametrize("action", ["create", "pause", "resume", "remove"])
async def test_scheduled_tasks_and_subagents_change_no_tasks(
    place: Place, session_id: str, action: str
) -> None:
    made = await place.create(in_seconds=600)
    given = {**CREATE, "in_seconds": 60, "action": action, "task_id": made["task_id"]}
    assert error_of(await place.call(session_id, "c2", **given)) == "not_here"
    assert len(await place.listed()) == 1


async def test_task_is_paused_resumed_and_removed_by_its_owner_alone(place: Place) -> None:
    made = await place.create(cron="0 9 * * *")
    task_id = made["task_id"]
    for action in ("pause", "resume", "remove"):
        assert error_of(await place.call("s2", "x", action=action, task_id=task_id)) == "not_found"
    paused = decoded(await place.call(call_id="c2", action="pause", task_id=task_id))
    assert (paused["status"], paused["next_at"]) == ("PAUSED", None)
    resumed = decoded(await place.call(call_id="c3", action="resume", task_id=task_id))
    assert resumed == made
    removed = decoded(await place.call(call_id="c4", action="remove", task_id=task_id))
    assert removed["status"] == "REMOVED"
    assert await place.listed() == []
    assert error_of(await place.call(action="pause")) == "bad_arguments"


async def test_same_call_makes_its_task_once_and_finds_it_again(place: Place) -> None:
    made = await place.create(in_seconds=600)
    assert await place.create(in_seconds=900) == made
    context = replace(place.context, call_id="c1")
    arguments = json.dumps({**CREATE, "in_seconds": 600})
    found = await place.registry.lookup(SCHEDULE_TASK, arguments, "", context)
    assert isinstance(found, ToolResult)
    assert decoded(found) == made
    other = replace(place.context, call_id="c2")
    assert await place.registry.lookup(SCHEDULE_TASK, arguments, "", other) == "not_done"
    assert len(await place.listed()) == 1


async def test_list_shows_how_each_task_last_ended(place: Place) -> None:
    made = await place.create(cron="0 9 * * *")
    failed = TaskRun(made["task_id"], NOW, "due", "FAILED", NOW, reason="why", ended_at=NOW)
    async with place.store.write() as db:
        await insert_task_run(db, failed)
    [listed] = await place.listed()
    assert listed == made | {
        "prompt": CREATE["prompt"],
        "last_status": "FAILED",
        "last_reason": "why",
    }


async def test_guard_sees_a_loop_of_equal_tasks_though_each_has_an_id(place: Place) -> None:
    rules = Rules(contracts=place.registry.contracts())

    async def streak_of(make: Callable[[int], Awaitable[ToolResult]]) -> NoProgressGuard:
        guard = NoProgressGuard(rules=rules)
        for number in range(15):
            result = await make(number)
            guard.observe_call(NoProgressCall(SCHEDULE_TASK, "{}", result.content))
            guard.end_round(f"call-{number}")
        return guard

    same = {**CREATE, "in_seconds": 60}
    guard = await streak_of(lambda n: place.call(call_id=f"c{n}", **same))
    assert isinstance(guard.take_action(), Abort)
    guard = await streak_of(lambda n: place.call(call_id=f"d{n}", **(same | {"title": f"{n}"})))
    assert guard.streak == 1
    guard = await streak_of(lambda n: place.call(action="pause", task_id="none"))
    assert isinstance(guard.take_action(), Abort)


async def test_person_is_asked_before_a_task_is_made_and_it_fires(
    tmp_path: Path, sqlite_url: str
) -> None:
    clock = Clock()
    set_clock(clock, NOW.isoformat())
    making = reply(calls=[calls(SCHEDULE_TASK, {**CREATE, "in_seconds": 60})])
    script = forever(making, reply("it will remind you"), reply("tea time"))
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        session = await tasks.house.create()
        await tasks.house.ask(session, "remind me of the tea in a minute")
        assert (await tasks.house.session(session)).status == "WAITING"
        await answer_open(tasks, session.id)
        assert await tasks.told(session, 2) == ["", "it will remind you"]
        await tasks.let_pass(61)
        assert (await tasks.told(session, 3))[2] == "tea time"
        assert clock.wall() == (NOW + timedelta(seconds=61)).timestamp()
