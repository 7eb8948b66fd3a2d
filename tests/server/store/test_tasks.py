"""Scheduled tasks in the store: what is claimed is claimed once, and nothing is written over."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa

from channels.port import ChatAddress
from server.due import Cron, Every, Once, Schedule
from server.errors import Duplicate, NotFound
from server.store.chats import bind_free_chat, bound_session
from server.store.engine import Store, open_store
from server.store.runs import insert_run
from server.store.sessions import set_status
from server.store.task_runs import (
    TaskRun,
    close_task_run,
    find_task_run,
    forget_session,
    has_task_run,
    insert_task_run,
    is_alive,
    last_task_runs,
    list_task_runs,
    prune_task_runs,
    set_delivery,
    settle_delivery,
    settle_lost_deliveries,
    spent_sessions,
    task_runs_under_way,
    tasks_under_way,
)
from server.store.tasks import (
    ScheduledTask,
    ToChat,
    ToSession,
    active_task_ids,
    claim_due,
    count_tasks,
    delete_task,
    due_task_ids,
    find_by_origin,
    insert_task,
    list_tasks,
    load_task,
    next_due_at,
    save_task,
    set_next_at,
)
from tests.server.store.rows import NOON, a_run, later, make_session

CHAT = ChatAddress("feishu", "cli_1", "oc_1", "omt_1")


def a_task(task_id: str = "t1", **given: object) -> ScheduledTask:
    """A task that is due at noon."""
    task = ScheduledTask(
        id=task_id,
        owner="ann",
        title="the watch",
        prompt="look after it",
        schedule=Cron("0 12 * * *"),
        timezone="Europe/Berlin",
        created_at=NOON,
        updated_at=NOON,
        next_at=NOON,
    )
    return replace(task, **given)  # type: ignore[arg-type] # whatever the test gives


def a_task_run(due_seconds: float = 0, status: str = "RUNNING", **given: object) -> TaskRun:
    """What became of a due time of the task `t1`."""
    due_at = later(due_seconds)
    ended_at = None if status in ("RUNNING", "WAITING") else due_at
    task_run = TaskRun("t1", due_at, "due", "RUNNING", NOON)
    return replace(task_run, status=status, ended_at=ended_at, **given)  # type: ignore[arg-type] # as above


async def kept(store: Store, *tasks: ScheduledTask) -> None:
    async with store.write() as db:
        for task in tasks:
            await insert_task(db, task)


@pytest.mark.parametrize(
    "schedule",
    [Cron("*/5 9-17 * * 1-5"), Cron("@daily"), Every(21_600, NOON), Once(later(0.5))],
)
async def test_task_comes_back_as_it_was_stored(store: Store, schedule: Schedule) -> None:
    task = a_task(
        schedule=schedule,
        missed_policy="run_if_within",
        missed_within_seconds=1800,
        target=ToChat(CHAT),
        held_reason="refused",
        is_quiet=True,
        origin_key="s1:c1",
        failure_limit=5,
        failures_in_row=2,
        status="PAUSED",
        paused_reason="why",
    )
    other = a_task("t2", target=ToSession("s1"), next_at=None)
    await kept(store, task, other)
    async with store.read() as db:
        assert await load_task(db, "t1") == task
        assert await load_task(db, "t2") == other
        assert await find_by_origin(db, "s1:c1") == task
        assert await find_by_origin(db, "s1:c2") is None
        with pytest.raises(NotFound):
            await load_task(db, "t3")


async def test_same_call_makes_its_task_once(store: Store) -> None:
    await kept(store, a_task(origin_key="s1:c1"))
    with pytest.raises(Duplicate):
        await kept(store, a_task("t2", origin_key="s1:c1"))
    await kept(store, a_task("t3"), a_task("t4"))  # any number was made by no call


async def test_lists_are_the_owners_and_the_newest_come_first(store: Store) -> None:
    await kept(store, a_task("t1"), a_task("t2", owner="bob"), a_task("t3"))
    async with store.read() as db:
        assert [task.id for task in await list_tasks(db, "ann", limit=9)] == ["t3", "t1"]
        assert [task.id for task in await list_tasks(db, None, limit=2)] == ["t3", "t2"]
        older = await list_tasks(db, None, before_id="t3", limit=9)
        assert [task.id for task in older] == ["t2", "t1"]
        assert (await count_tasks(db, "ann"), await count_tasks(db, "eve")) == (2, 0)


async def test_due_are_the_active_ones_whose_time_has_come(store: Store) -> None:
    await kept(
        store,
        a_task("now"),
        a_task("before", next_at=later(-60)),
        a_task("soon", next_at=later(60)),
        a_task("paused", status="PAUSED", next_at=later(-60)),
        a_task("done", status="DONE", next_at=None),
    )
    async with store.read() as db:
        assert await due_task_ids(db, NOON, 9) == ["before", "now"]
        assert await due_task_ids(db, NOON, 1) == ["before"]
        assert await due_task_ids(db, NOON, 9, but=["before"]) == ["now"]
        assert await next_due_at(db, NOON) == later(60)
        assert await next_due_at(db, later(60)) is None
        assert sorted(await active_task_ids(db)) == ["before", "now", "soon"]


async def test_due_time_is_claimed_by_one_of_many(store: Store, database_url: str) -> None:
    task = a_task()
    await kept(store, task)

    async def claim(opened: Store) -> bool:
        async with opened.write() as db:
            return await claim_due(db, task, later(60), NOON)

    async with open_store(database_url) as other:
        claims = await asyncio.gather(*(claim(opened) for opened in (store, other) * 5))
    assert claims.count(True) == 1
    async with store.read() as db:
        assert (await load_task(db, "t1")).next_at == later(60)


async def test_claim_fails_where_the_task_was_changed_meanwhile(store: Store) -> None:
    task = a_task()
    await kept(store, task)
    for changed in (replace(task, next_at=later(5)), replace(task, status="PAUSED")):
        async with store.write() as db:
            await save_task(db, task, changed)
        async with store.write() as db:
            assert not await claim_due(db, task, later(60), NOON)
            await set_next_at(db, task, later(70))
        async with store.write() as db:
            assert await load_task(db, "t1") == changed
            await save_task(db, changed, task)


async def test_task_without_a_next_time_is_done(store: Store) -> None:
    await kept(store, a_task())
    async with store.write() as db:
        assert await claim_due(db, a_task(), None, NOON)
    async with store.read() as db:
        done = await load_task(db, "t1")
    assert (done.status, done.next_at) == ("DONE", None)


async def test_saving_writes_only_what_is_different(store: Store) -> None:
    task = a_task()
    await kept(store, task)
    async with store.write() as db:
        await db.execute(sa.text("UPDATE scheduled_task SET schedule_json = '{', title = 'other'"))
    async with store.write() as db:
        damaged = await load_task(db, "t1", lock=True)
        assert damaged.schedule is None
        await save_task(db, damaged, replace(damaged, prompt="something else"))
    async with store.read() as db:
        rows = await db.execute(sa.text("SELECT schedule_json, title, prompt FROM scheduled_task"))
        assert tuple(rows.one()) == ("{", "other", "something else")
    async with store.write() as db:
        await save_task(db, damaged, replace(damaged, schedule=Cron("@daily")))
    async with store.read() as db:
        assert (await load_task(db, "t1")).schedule == Cron("@daily")


async def test_due_time_of_a_task_has_one_row(store: Store) -> None:
    await kept(store, a_task(), a_task("t2"))
    async with store.write() as db:
        await insert_task_run(db, a_task_run())
        await insert_task_run(db, replace(a_task_run(), task_id="t2"))
    with pytest.raises(Duplicate):
        async with store.write() as db:
            await insert_task_run(db, a_task_run(status="SKIPPED"))
    async with store.read() as db:
        assert await has_task_run(db, "t1", NOON)
        assert not await has_task_run(db, "t1", later(1))


async def test_task_goes_with_all_that_became_of_it(store: Store) -> None:
    await kept(store, a_task())
    async with store.write() as db:
        await insert_task_run(db, a_task_run(run_id="r1"))
        await delete_task(db, "t1")
    async with store.read() as db:
        assert await find_task_run(db, ["r1"]) is None
    with pytest.raises(NotFound):
        async with store.write() as db:
            await delete_task(db, "t1")


async def test_run_is_found_by_the_run_that_goes_on_with_it(store: Store) -> None:
    await kept(store, a_task())
    task_run = a_task_run(session_id="s1", run_id="r1")
    async with store.write() as db:
        await insert_task_run(db, task_run)
        assert await find_task_run(db, ["r2", "r1"]) == task_run
        await close_task_run(db, task_run, "WAITING", None, later(5), run_id="r1")
        assert [one.status for one in await task_runs_under_way(db, "t1")] == ["WAITING"]
        assert await tasks_under_way(db) == ["t1"]
        await close_task_run(db, task_run, "FAILED", "why", later(9), run_id="r2")
        found = await find_task_run(db, ["r2"])
        assert found == replace(
            task_run, status="FAILED", reason="why", run_id="r2", ended_at=later(9)
        )
        assert await task_runs_under_way(db, "t1") == []


async def test_last_due_time_of_each_task_is_the_latest(store: Store) -> None:
    await kept(store, a_task(), a_task("t2"), a_task("t3"))
    async with store.write() as db:
        for seconds in (0, 120, 60):
            await insert_task_run(db, a_task_run(seconds, "COMPLETED"))
        await insert_task_run(db, replace(a_task_run(30, "SKIPPED"), task_id="t2"))
        last = await last_task_runs(db, ["t1", "t2", "t3"])
        assert {task_id: one.due_at for task_id, one in last.items()} == {
            "t1": later(120),
            "t2": later(30),
        }
        listed = await list_task_runs(db, "t1", limit=2)
        assert [one.due_at for one in listed] == [later(120), later(60)]
        older = await list_task_runs(db, "t1", before=later(60), limit=2)
        assert [one.due_at for one in older] == [NOON]


async def test_session_is_alive_while_something_runs_waits_or_is_asked_in_it(store: Store) -> None:
    await make_session(store, "s1")
    async with store.write() as db:
        assert not await is_alive(db, "s1")
        assert not await is_alive(db, "gone")
        assert not await is_alive(db, None)
        await set_status(db, "s1", "WAITING", error=None, now=NOON)
        assert await is_alive(db, "s1")
        await set_status(db, "s1", "COMPLETED", error=None, now=NOON)
        await insert_run(db, a_run("r1"))
        assert await is_alive(db, "s1")


async def test_delivery_is_settled_by_its_run_and_a_lost_one_by_its_absence(store: Store) -> None:
    await make_session(store, "s1")
    await kept(store, a_task())
    first, second = a_task_run(0, "COMPLETED"), a_task_run(60, "COMPLETED")
    async with store.write() as db:
        await insert_run(db, a_run("r1"))
        for task_run, run_id in ((first, "r1"), (second, "dropped")):
            await insert_task_run(db, task_run)
            await set_delivery(db, task_run, run_id, "PENDING")
        assert await settle_lost_deliveries(db) == 1
        assert await settle_delivery(db, "r1", "DELIVERED") == "t1"
        assert await settle_delivery(db, "of no task", "DELIVERED") is None
        latest, earliest = await list_task_runs(db, "t1", limit=2)
        assert (earliest.delivery_status, latest.delivery_status) == ("DELIVERED", "UNDELIVERABLE")


async def test_sessions_of_old_runs_are_spent_and_skips_do_not_count(store: Store) -> None:
    await kept(store, a_task())
    async with store.write() as db:
        await insert_task_run(db, a_task_run(0, "RUNNING", session_id="old but at work"))
        for number in range(1, 5):
            ended = a_task_run(number * 60, "FAILED", session_id=f"s{number}", reason="why")
            await insert_task_run(db, ended)
            await insert_task_run(db, a_task_run(number * 60 + 1, "SKIPPED"))
        assert await spent_sessions(db, "t1", keep=2) == ["s2", "s1"]
        await forget_session(db, "t1", "s1")
        assert await spent_sessions(db, "t1", keep=2) == ["s2"]
        [forgotten] = [o for o in await list_task_runs(db, "t1", limit=9) if o.due_at == later(60)]
        assert (forgotten.session_id, forgotten.status, forgotten.reason) == (None, "FAILED", "why")
        await prune_task_runs(db, "t1", keep=3)
        left = [one.due_at for one in await list_task_runs(db, "t1", limit=9)]
        assert left == [later(241), later(240), later(181), NOON]


async def test_chat_is_bound_once_and_the_transaction_stays_whole(store: Store) -> None:
    for session_id in ("s1", "s2"):
        await make_session(store, session_id)
    async with store.write() as db:
        assert await bind_free_chat(db, CHAT, "s1", NOON) == "s1"
    async with store.write() as db:
        assert await bind_free_chat(db, CHAT, "s2", NOON) == "s1"
        await insert_task(db, a_task())
    async with store.read() as db:
        assert await bound_session(db, CHAT) == "s1"
        assert (await load_task(db, "t1")).target is None
