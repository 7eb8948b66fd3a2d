"""Scheduled tasks in trouble: damaged rows, deletions, several processes, stores that go away."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from server.errors import Conflict, NotFound
from server.schedule import KEPT_SESSIONS
from server.schedule_form import CronForm, IntervalForm, OnceForm
from server.store.sessions import insert_session, load_session
from server.store.task_runs import TaskRun, insert_task_run
from server.store.tasks import ScheduledTask, delete_task, load_task, save_task
from server.task_form import TaskPatch, edited
from tests.fakes.clock import Clock
from tests.fakes.llm import NEVER, Quirks, forever, reply, serve_gateway
from tests.house import is_title, settings_for
from tests.server.schedule_house import TaskHouse, open_tasks, set_clock
from tests.waiting import until

DONE = forever(reply("all is well"))
HANG = reply("…", quirks=Quirks(before_headers=NEVER))


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    set_clock(clock, "2026-11-30T10:00:00+00:00")
    return clock


async def damage(tasks: TaskHouse, task: ScheduledTask, column: str, value: str) -> None:
    """Leave a row as a torn write or a wrong hand would."""
    statement = sa.text(f"UPDATE scheduled_task SET {column} = :value WHERE id = :id")
    async with tasks.house.state["store"].write() as db:
        await db.execute(statement, {"value": value, "id": task.id})


async def stored(tasks: TaskHouse, task: ScheduledTask, column: str) -> object:
    statement = sa.text(f"SELECT {column} FROM scheduled_task WHERE id = :id")
    async with tasks.house.state["store"].read() as db:
        return await db.scalar(statement, {"id": task.id})


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("schedule_json", '{"kind":"cron","expre'),
        ("schedule_json", ""),
        ("schedule_json", '{"kind":"cron","expression":"61 * * * *"}'),
        ("schedule_json", '{"kind":"interval","seconds":60}'),
        ("schedule_json", '{"kind":"moon"}'),
        ("schedule_json", "[1, 2]"),
        ("timezone", "Europe/Berl"),
        ("missed_policy", "run_"),
        ("delivery_json", '{"session": '),
        ("delivery_json", '{"session": 7}'),
    ],
)
async def test_damaged_task_is_marked_invalid_others_run_and_nothing_is_overwritten(
    tmp_path: Path, sqlite_url: str, clock: Clock, column: str, value: str
) -> None:
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        bad, good = await tasks.add(), await tasks.add()
        await damage(tasks, bad, column, value)
        await tasks.let_pass(60)
        await tasks.ended(good)
        await tasks.asleep()
        assert await stored(tasks, bad, "status") == "INVALID"
        assert await stored(tasks, bad, column) == value
        assert await tasks.task_runs(bad) == []
        with pytest.raises(Conflict):
            await tasks.house.state["scheduler"].run_now(bad.id)
        await tasks.let_pass(60)
        await tasks.ended(good, 2)


@pytest.mark.parametrize("column", ["next_at", "created_at", "updated_at"])
async def test_time_that_is_none_damages_its_own_task_alone(
    tmp_path: Path, sqlite_url: str, clock: Clock, column: str
) -> None:
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        bad, good = await tasks.add(), await tasks.add()
        await damage(tasks, bad, column, "2026-11-3")
        await tasks.let_pass(60)
        await tasks.ended(good)
        await tasks.asleep()
        assert await stored(tasks, bad, "status") == "INVALID"
        assert await stored(tasks, bad, column) == "2026-11-3"


async def test_damaged_task_is_found_at_the_start_and_mended_by_an_edit(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with serve_gateway(DONE) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_tasks(settings, clock) as tasks:
            bad = await tasks.add()
            await damage(tasks, bad, "schedule_json", "{")
            await damage(tasks, bad, "missed_policy", "?")
        async with open_tasks(settings, clock) as tasks:
            await tasks.asleep()
            assert (await tasks.task(bad)).status == "INVALID"
            await edit(tasks, bad, TaskPatch(schedule=CronForm("* * * * *")))
            await tasks.let_pass(60)
            [found] = await tasks.ended(bad)
            assert found.status == "COMPLETED"


async def edit(tasks: TaskHouse, task: ScheduledTask, patch: TaskPatch) -> ScheduledTask:
    async with tasks.house.state["store"].write() as db:
        before = await load_task(db, task.id)
        after = edited(before, patch, tasks.now(), "en")
        await save_task(db, before, after)
    tasks.house.state["scheduler"].wake()
    return after


async def test_edit_computes_the_next_due_time_anew_and_the_old_one_does_not_fire(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add(CronForm("5 10 * * *"))
        await tasks.asleep()
        after = await edit(tasks, task, TaskPatch(schedule=CronForm("30 18 * * *")))
        assert f"{after.next_at:%H:%M}" == "18:30"
        after = await edit(tasks, task, TaskPatch(timezone="Asia/Shanghai"))
        assert f"{after.next_at:%H:%M}" == "10:30"  # half past six in the evening, there
        after = await edit(tasks, task, TaskPatch(title="another"))
        assert f"{after.next_at:%H:%M}" == "10:30"
        await tasks.let_pass(600)
        await tasks.asleep()
        assert await tasks.task_runs(task) == []
        await tasks.let_pass(1200)
        [found] = await tasks.ended(task)
        assert f"{found.due_at:%H:%M}" == "10:30"
        assert (await tasks.session_of(found)).title == "another"
        after = await edit(tasks, task, TaskPatch(schedule=IntervalForm(3600)))
        assert after.next_at == tasks.now() + timedelta(hours=1)


async def test_session_that_is_deleted_while_its_run_goes_on_frees_the_task(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway([HANG, reply("next")], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        await tasks.let_pass(60)
        await gateway.wait_for_requests(1)
        [running] = await tasks.task_runs(task)
        await tasks.house.state["inbox"].delete_session(running.session_id or "")
        [ended] = await tasks.ended(task)
        assert (ended.status, ended.delivery_status) == ("CANCELLED", None)
        await tasks.let_pass(60)
        found = await tasks.ended(task, 2)
        assert found[1].status == "COMPLETED"
        assert await tasks.told(told_in, 1) == ["next"]


async def test_run_whose_row_says_running_though_nothing_runs_hinders_no_later_one(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add()
        lost = TaskRun(task.id, tasks.now(), "due", "RUNNING", tasks.now(), "gone", "gone")
        async with tasks.house.state["store"].write() as db:
            await insert_task_run(db, lost)
        await tasks.let_pass(60)
        found = await tasks.ended(task, 2)
        assert [one.status for one in found] == ["CANCELLED", "COMPLETED"]
        assert found[0].reason


async def test_task_that_is_deleted_while_it_runs_is_told_to_nobody(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    over = asyncio.Event()
    slow = reply("too late", quirks=Quirks(before_headers=over))
    async with (
        serve_gateway([slow], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        await tasks.let_pass(60)
        await gateway.wait_for_requests(1)
        [running] = await tasks.task_runs(task)
        async with tasks.house.state["store"].write() as db:
            await delete_task(db, task.id)
        over.set()
        session = await tasks.session_of(running)
        assert (await tasks.house.settled(session)).status == "COMPLETED"
        assert await tasks.house.messages(told_in) == []
        with pytest.raises(NotFound):
            await tasks.house.state["scheduler"].run_now(task.id)
        await tasks.let_pass(60)
        await tasks.asleep()


async def test_run_that_was_cut_by_a_stop_of_the_server_goes_on_and_is_counted_once(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with serve_gateway([HANG, reply("done after all")], title=is_title) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_tasks(settings, clock) as tasks:
            told_in = await tasks.house.create()
            task = await tasks.add(told_in=told_in)
            await tasks.let_pass(60)
            await gateway.wait_for_requests(1)
        clock.jump(20)
        async with open_tasks(settings, clock) as tasks:
            [found] = await tasks.ended(task)
            assert (found.status, f"{found.due_at:%H:%M}") == ("COMPLETED", "10:01")
            run = await tasks.house.run(found.run_id or "")
            assert run.attempt == 2
            assert await tasks.told(told_in, 1) == ["done after all"]
            await tasks.asleep()
            assert len(await tasks.task_runs(task)) == 1


async def test_two_schedulers_on_one_database_fire_each_due_time_once(
    tmp_path: Path, postgres_url: str, clock: Clock
) -> None:
    async with serve_gateway(DONE) as gateway, AsyncExitStack() as opened:
        houses = [
            await opened.enter_async_context(
                open_tasks(settings_for(tmp_path / name, postgres_url, gateway.url), clock)
            )
            for name in ("one", "two")
        ]
        tasks = houses[0]
        added = [await tasks.add(prompt=f"number {n}") for n in range(12)]
        once = await tasks.add(OnceForm("2026-11-30T10:02:00"), prompt="just once")
        for minute in (1, 2, 3, 4):
            await tasks.let_pass(60, schedulers=2)
            for task in added:
                await tasks.ended(task, minute)
        said = [request.messages[-1]["content"] for request in gateway.requests]
        asked = Counter(text.splitlines()[-1] for text in said)  # below the note of the day
        assert asked == Counter({f"number {n}": 4 for n in range(12)}) + Counter(["just once"])
        for task in added:
            found = await tasks.task_runs(task)
            assert [one.status for one in found] == ["COMPLETED"] * 4
        assert (await tasks.task(once)).status == "DONE"


async def test_session_of_an_old_run_goes_and_what_became_of_it_stays(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add()
        like = await tasks.house.create()
        async with tasks.house.state["store"].write() as db:
            for number in range(KEPT_SESSIONS + 2):
                session = replace(like, id=f"old-{number:03}", kind="scheduled")
                await insert_session(db, session)
                due_at = tasks.now() - timedelta(days=200 - number)
                old = TaskRun(
                    task.id, due_at, "due", "FAILED", due_at, session.id, f"r{number}", "why"
                )
                await insert_task_run(db, replace(old, ended_at=due_at))
        await tasks.let_pass(60)
        await tasks.ended(task, KEPT_SESSIONS + 3)

        async def is_tidy() -> bool:
            found = await tasks.task_runs(task)
            return [one.session_id for one in found[:3]] == [None, None, "old-002"]

        await until(is_tidy)
        found = await tasks.task_runs(task)
        assert (found[0].status, found[0].reason) == ("FAILED", "why")
        async with tasks.house.state["store"].read() as db:
            assert (await load_session(db, "old-002")).kind == "scheduled"
            for gone in ("old-000", "old-001"):
                with pytest.raises(NotFound):
                    await load_session(db, gone)


async def test_store_that_is_away_delays_a_task_and_forgets_none(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add()
        await tasks.asleep()
        await rename_table(tasks, "scheduled_task", "away")
        await tasks.let_pass(60)
        await tasks.asleep()
        await rename_table(tasks, "away", "scheduled_task")
        await tasks.let_pass(2)
        [found] = await tasks.ended(task)
        assert (found.status, f"{found.due_at:%H:%M}") == ("COMPLETED", "10:01")


async def test_task_that_the_store_refuses_to_start_stops_no_other_and_is_tried_again(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    refusal = (
        "CREATE TRIGGER refusal BEFORE INSERT ON session WHEN NEW.title = 'bad' "
        "BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        bad = await tasks.add(title="bad")
        good = await tasks.add()
        async with tasks.house.state["store"].write() as db:
            await db.execute(sa.text(refusal))
        await tasks.let_pass(60)
        await tasks.ended(good)
        assert await tasks.task_runs(bad) == []
        async with tasks.house.state["store"].write() as db:
            await db.execute(sa.text("DROP TRIGGER refusal"))
        await tasks.let_pass(60)
        await tasks.ended(good, 2)
        found = await tasks.ended(bad, 2)
        assert [one.status for one in found] == ["SKIPPED", "COMPLETED"]


async def rename_table(tasks: TaskHouse, name: str, other: str) -> None:
    async with tasks.house.state["store"].write() as db:
        await db.execute(sa.text(f"ALTER TABLE {name} RENAME TO {other}"))
