"""Scheduled tasks in an opened application: what fires, what does not, and what becomes of it."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from server.errors import Conflict, Locale
from server.schedule_form import CronForm, IntervalForm, OnceForm
from server.store.sessions import Session, list_sessions
from server.store.task_runs import TaskRun
from server.store.tasks import ScheduledTask, load_task, save_task
from server.task_form import paused, resumed
from tests.fakes.clock import Clock
from tests.fakes.llm import (
    NEVER,
    Play,
    Quirks,
    Recorded,
    ScriptedReply,
    call,
    forever,
    refuse,
    reply,
    serve_gateway,
)
from tests.house import House, is_title, settings_for
from tests.server.schedule_house import TaskHouse, open_tasks, set_clock

START = "2026-11-30T10:00:00+00:00"
SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
DONE = forever(reply("all is well"))


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    set_clock(clock, START)
    return clock


def outcomes(task_runs: list[TaskRun]) -> list[tuple[str, str, str | None]]:
    """Due time, status, and why not or why it failed."""
    return [(f"{one.due_at:%d %H:%M}", one.status, one.reason) for one in task_runs]


def held(event: asyncio.Event, text: str = "done") -> ScriptedReply:
    return reply(text, quirks=Quirks(before_headers=event))


async def test_each_run_has_a_session_of_its_own_that_begins_with_the_prompt(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add(timezone="Europe/Berlin")
        for minute in (1, 2):
            await tasks.let_pass(60)
            await tasks.ended(task, minute)
        found = await tasks.task_runs(task)
        sessions = [await tasks.session_of(one) for one in found]
        assert outcomes(found) == [("30 10:01", "COMPLETED", None), ("30 10:02", "COMPLETED", None)]
        assert len({session.id for session in sessions}) == 2
        for session in sessions:
            assert (session.kind, session.owner, session.title) == ("scheduled", "ann", "the watch")
            assert (session.timezone, session.status) == ("Europe/Berlin", "COMPLETED")
            said = [message.text for message in await tasks.house.messages(session)]
            assert said == ["look after it", "all is well"]
        [run] = await tasks.house.runs(sessions[0])
        assert (run.trigger, run.id) == ("schedule", found[0].run_id)
        assert found[0].delivery_status is None


async def test_ten_minute_task_of_a_server_down_for_two_days_is_made_up_for_once(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with serve_gateway(DONE) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_tasks(settings, clock) as tasks:
            task = await tasks.add(
                CronForm("*/10 * * * *"), missed_policy="run_if_within", missed_within_seconds=1800
            )
            skipping = await tasks.add(CronForm("*/10 * * * *"))
            await tasks.asleep()
        clock.jump(2 * 24 * 3600 + 5 * 60)
        async with open_tasks(settings, clock) as tasks:
            found = await tasks.ended(task, 2)
            assert outcomes(found) == [
                ("30 10:10", "SKIPPED", "missed"),
                ("02 10:00", "COMPLETED", None),
            ]
            assert outcomes(await tasks.ended(skipping)) == [("30 10:10", "SKIPPED", "missed")]
            for one in (task, skipping):
                assert f"{(await tasks.task(one)).next_at:%d %H:%M}" == "02 10:10"
            await tasks.asleep()
            assert len(gateway.requests) == 1


async def test_evening_task_in_sao_paulo_waits_for_its_evening_over_a_restart(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with serve_gateway(DONE) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_tasks(settings, clock) as tasks:
            task = await tasks.add(
                CronForm("0 21 * * *"), timezone="America/Sao_Paulo", missed_policy="run_once"
            )
        set_clock(clock, "2026-11-30T17:12:00-03:00")
        async with open_tasks(settings, clock) as tasks:
            await tasks.asleep()
            assert await tasks.task_runs(task) == []
            set_clock(clock, "2026-11-30T20:59:57-03:00")
            await tasks.let_pass(2)
            await tasks.asleep()
            assert await tasks.task_runs(task) == []
            await tasks.let_pass(1)
            [found] = await tasks.ended(task)
            assert found.due_at == datetime.fromisoformat("2026-11-30T21:00:00-03:00")


async def test_six_hour_interval_that_ran_at_10_00_is_due_at_16_00_after_a_restart_at_15_50(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    set_clock(clock, "2026-11-30T09:59:00+00:00")
    async with serve_gateway(DONE) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_tasks(settings, clock) as tasks:
            task = await tasks.add(IntervalForm(6 * 3600, "2026-11-30T04:00"))
            await tasks.let_pass(60)
            await tasks.ended(task)
        set_clock(clock, "2026-11-30T15:50:00+00:00")
        async with open_tasks(settings, clock) as tasks:
            await tasks.asleep()
            assert f"{(await tasks.task(task)).next_at:%H:%M}" == "16:00"
            await tasks.let_pass(600)
            found = await tasks.ended(task, 2)
            assert [f"{one.due_at:%H:%M}" for one in found] == ["10:00", "16:00"]


async def test_run_that_outlasts_its_interval_has_no_second_copy_and_the_skips_are_counted(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    over = asyncio.Event()
    async with (
        serve_gateway([held(over), reply("next")]) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add()
        await tasks.let_pass(60)
        await gateway.wait_for_requests(1)
        for count in (1, 2):
            await tasks.let_pass(60)
            await tasks.ended(task, count)
        assert outcomes(await tasks.task_runs(task)) == [
            ("30 10:01", "RUNNING", None),
            ("30 10:02", "SKIPPED", "overlap"),
            ("30 10:03", "SKIPPED", "overlap"),
        ]
        over.set()
        await tasks.ended(task, 3)
        await tasks.let_pass(60)
        found = await tasks.ended(task, 4)
        assert outcomes(found)[3] == ("30 10:04", "COMPLETED", None)
        assert (await tasks.task(task)).failures_in_row == 0


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("skip", [("30 12:00", "SKIPPED", "missed")]),
        ("run_once", [("30 12:00", "SKIPPED", "missed"), ("30 18:00", "COMPLETED", None)]),
    ],
)
async def test_after_ten_hours_asleep_a_task_fires_within_five_seconds_as_its_policy_says(
    tmp_path: Path,
    sqlite_url: str,
    clock: Clock,
    policy: str,
    expected: list[tuple[str, str, str | None]],
) -> None:
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add(CronForm("0 12,18 * * *"), missed_policy=policy)
        await tasks.asleep()
        clock.jump(10 * 3600)  # to 20:00; nobody asks for anything meanwhile
        await tasks.let_pass(5)
        assert outcomes(await tasks.ended(task, len(expected))) == expected


async def test_clock_that_was_an_hour_ahead_and_is_set_back_delays_no_task(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        clock.jump(3600)
        task = await tasks.add()
        await tasks.let_pass(60)
        await tasks.ended(task)
        await tasks.asleep()
        clock.jump(-3660)
        await tasks.let_pass(2)
        await tasks.let_pass(60)
        found = await tasks.ended(task, 2)
        assert [f"{one.due_at:%H:%M}" for one in found] == ["10:01", "11:01"]


async def test_due_time_that_comes_again_because_the_clock_was_set_back_is_not_run_again(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(DONE) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add()
        await tasks.let_pass(60)
        await tasks.ended(task)
        await tasks.asleep()
        clock.jump(-30)
        await tasks.let_pass(2)
        await tasks.asleep()
        assert f"{(await tasks.task(task)).next_at:%H:%M}" == "10:01"
        await tasks.let_pass(30)
        await tasks.asleep()
        assert f"{(await tasks.task(task)).next_at:%H:%M}" == "10:02"
        await tasks.let_pass(60)
        found = await tasks.ended(task, 2)
        assert outcomes(found) == [("30 10:01", "COMPLETED", None), ("30 10:02", "COMPLETED", None)]
        assert len(gateway.requests) == 2


async def test_guard_abort_of_a_task_is_a_failure_with_its_reason_and_is_delivered(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(forever(SEARCH), title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        await tasks.let_pass(60)
        [found] = await tasks.ended(task)
        assert found.status == "FAILED"
        assert found.reason is not None
        assert "(grep_search)" in found.reason
        assert (await tasks.task(task)).failures_in_row == 1
        assert len(gateway.requests) == 15
        session = await tasks.session_of(found)
        assert session.status == "FAILED"
        assert session.execution_error is not None
        assert session.execution_error.code == "no_progress_loop"
        [text] = await tasks.told(told_in, 1)
        assert text == f"定时任务「the watch」执行失败：{found.reason}"


async def test_three_failures_in_a_row_pause_the_task_with_one_notice_and_resume_resets(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(forever(refuse(401)), title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        for count in (1, 2, 3):
            await tasks.let_pass(60)
            await tasks.ended(task, count)
        stopped = await tasks.task(task)
        assert (stopped.status, stopped.failures_in_row, stopped.next_at) == ("PAUSED", 3, None)
        assert stopped.paused_reason is not None
        assert stopped.paused_reason.startswith("连续失败 3 次")
        said = await tasks.told(told_in, 3)
        assert ["现已暂停" in text for text in said] == [False, False, True]
        await tasks.let_pass(600)
        await tasks.asleep()
        assert len(await tasks.task_runs(task)) == 3
        await tasks.house.state["scheduler"].run_now(task.id)  # fails too, with no second notice
        await tasks.ended(task, 4)
        said = await tasks.told(told_in, 4)
        assert ["现已暂停" in text for text in said].count(True) == 1
        again = await change(tasks, task, resumed)
        assert (again.status, again.failures_in_row, again.paused_reason) == ("ACTIVE", 0, None)
        for count in (5, 6):
            await tasks.let_pass(60)
            await tasks.ended(task, count)
        assert (await tasks.task(task)).status == "ACTIVE"


async def test_notice_of_a_task_that_tells_nobody_has_a_session_of_its_own(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(forever(refuse(401)), title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add(failure_limit=1)
        await tasks.let_pass(60)
        [failed] = await tasks.ended(task)
        assert (await tasks.task(task)).status == "PAUSED"
        assert failed.delivery_status is None
        [notice] = await main_sessions(tasks.house)
        assert notice.title == "定时任务「the watch」已暂停"
        [text] = await tasks.told(notice, 1)
        assert "已连续失败 1 次，现已暂停" in text
        assert (await tasks.session_of(failed)).status == "FAILED"


async def main_sessions(house: House) -> list[Session]:
    async with house.state["store"].read() as db:
        return await list_sessions(db, "ann", before=None, limit=10)


async def test_success_forgets_the_failures_before_it_and_a_stop_does_not(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    script: list[Play] = [refuse(401), hang, refuse(401), reply("well again")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        counts = []
        for count in (1, 2, 3, 4):
            await tasks.let_pass(60)
            if count == 2:
                await gateway.wait_for_requests(2)
                [running] = [one for one in await tasks.task_runs(task) if one.ended_at is None]
                assert await tasks.house.state["inbox"].cancel(running.session_id or "", None, "")
            await tasks.ended(task, count)
            counts.append((await tasks.task(task)).failures_in_row)
        assert counts == [1, 1, 2, 0]
        statuses = [one.status for one in await tasks.task_runs(task)]
        assert statuses == ["FAILED", "CANCELLED", "FAILED", "COMPLETED"]
        said = await tasks.told(told_in, 3)
        assert said[2] == "well again"
        assert len(said) == 3  # of the stop nothing is told


async def test_quiet_task_without_news_ends_well_and_tells_nothing(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway([reply(), reply("news!")], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in, quiet=True)
        await tasks.let_pass(60)
        [quiet] = await tasks.ended(task)
        assert (quiet.status, quiet.delivery_status) == ("COMPLETED", None)
        await tasks.let_pass(60)
        await tasks.ended(task, 2)
        assert await tasks.told(told_in, 1) == ["news!"]
        asked = gateway.requests[0].messages[-1]["content"]
        assert "look after it" in asked
        assert "返回空的回复" in asked


async def test_empty_answer_of_an_ordinary_task_is_told_as_no_content(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway(forever(reply()), title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        told_in = await tasks.house.create()
        task = await tasks.add(told_in=told_in)
        await tasks.let_pass(60)
        await tasks.ended(task)
        [text] = await tasks.told(told_in, 1)
        assert "没有返回任何内容" in text


async def test_run_that_raises_does_not_end_the_scheduler(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with (
        serve_gateway([refuse(400), reply("fine")], title=is_title) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add()
        for count in (1, 2):
            await tasks.let_pass(60)
            await tasks.ended(task, count)
        found = await tasks.task_runs(task)
        assert [one.status for one in found] == ["FAILED", "COMPLETED"]


async def test_many_tasks_due_at_once_all_run_though_one_of_them_does_not_end(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    over = asyncio.Event()

    def play(request: Recorded) -> ScriptedReply:
        return held(over) if "slow one" in request.messages[-1]["content"] else reply("done")

    async with (
        serve_gateway(play) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        slow = await tasks.add(prompt="slow one")
        others = [await tasks.add(prompt=f"number {n}") for n in range(60)]
        await tasks.let_pass(60)
        for task in others:
            [found] = await tasks.ended(task)
            assert found.status == "COMPLETED"
        [running] = await tasks.task_runs(slow)
        assert running.status == "RUNNING"
        over.set()
        await tasks.ended(slow)


async def test_start_by_hand_works_while_paused_and_never_beside_another_run(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    over = asyncio.Event()
    async with (
        serve_gateway([held(over), reply("by hand again")]) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add()
        scheduler = tasks.house.state["scheduler"]
        await scheduler.run_now(task.id)
        await gateway.wait_for_requests(1)
        with pytest.raises(Conflict):
            await scheduler.run_now(task.id)
        await tasks.let_pass(60)
        await tasks.ended(task)
        over.set()
        found = await tasks.ended(task, 2)
        assert [(one.trigger, one.status, one.reason) for one in found] == [
            ("manual", "COMPLETED", None),
            ("due", "SKIPPED", "overlap"),
        ]
        await scheduler.run_now(task.id)  # between two due times: the next one stays as it is
        await tasks.ended(task, 3)
        assert f"{(await tasks.task(task)).next_at:%H:%M}" == "10:02"


async def test_one_time_is_done_after_it_and_late_ones_run_once(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    async with serve_gateway(DONE) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_tasks(settings, clock) as tasks:
            task = await tasks.add(OnceForm("2026-11-30T10:05"))
            await tasks.asleep()
        clock.jump(3 * 3600)
        async with open_tasks(settings, clock) as tasks:
            [found] = await tasks.ended(task)
            assert outcomes([found]) == [("30 10:05", "COMPLETED", None)]
            assert (await tasks.task(task)).status == "DONE"
            await tasks.let_pass(3600)
            await tasks.asleep()
            assert len(await tasks.task_runs(task)) == 1


async def test_paused_task_does_not_start_and_what_runs_of_it_goes_on(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    over = asyncio.Event()
    async with (
        serve_gateway([held(over)]) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        task = await tasks.add()
        await tasks.let_pass(60)
        await gateway.wait_for_requests(1)
        await change(tasks, task, paused)
        await tasks.let_pass(120)
        over.set()
        [found] = await tasks.ended(task)
        assert found.status == "COMPLETED"
        await tasks.asleep()
        assert len(await tasks.task_runs(task)) == 1


Change = Callable[[ScheduledTask, datetime, Locale], ScheduledTask]


async def change(tasks: TaskHouse, task: ScheduledTask, how: Change) -> ScheduledTask:
    """Do to the task what a request does."""
    async with tasks.house.state["store"].write() as db:
        before = await load_task(db, task.id)
        after = how(before, tasks.now(), "en")
        await save_task(db, before, after)
    tasks.house.state["scheduler"].wake()
    return after
