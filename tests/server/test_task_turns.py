"""Many tasks that are due at once: a few run at the same time, the others in their turn."""

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from server.schedule import AT_ONCE
from server.schedule_form import OnceForm
from server.store.tasks import ScheduledTask, delete_task
from tests.fakes.clock import Clock
from tests.fakes.llm import Play, Quirks, Recorded, ScriptedGateway, reply, serve_gateway
from tests.house import settings_for
from tests.server.schedule_house import TaskHouse, open_tasks, set_clock
from tests.server.test_metrics import samples


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    set_clock(clock, "2026-11-30T08:59:00+00:00")
    return clock


class Model:
    """Answers each task when it is let go."""

    def __init__(self) -> None:
        self._over: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def __call__(self, request: Recorded) -> Play:
        """The answer to a task's prompt, once that is let go."""
        return reply("done", quirks=Quirks(before_headers=self._over[_prompt(request)]))

    def let_go(self, *prompts: str) -> None:
        """These may end, whenever they begin."""
        for prompt in prompts:
            self._over[prompt].set()


def _prompt(request: Recorded) -> str:
    """Of the task; the note of the day stands above it."""
    return str(request.messages[-1]["content"]).splitlines()[-1]


def prompts(gateway: ScriptedGateway) -> list[str]:
    """Of the tasks that began, in their order."""
    return [_prompt(request) for request in gateway.requests]


async def add_in_a_row(tasks: TaskHouse, count: int) -> list[ScheduledTask]:
    """Tasks that are due one second after the other from 09:00 on, the first one added last."""
    added = [
        await tasks.add(OnceForm(f"2026-11-30T09:00:{n:02}"), prompt=f"number {n}")
        for n in reversed(range(count))
    ]
    return added[::-1]


async def all_are_due(tasks: TaskHouse, schedulers: int = 1) -> None:
    """All of them are, and the scheduler has seen it."""
    await tasks.let_pass(110, schedulers)
    await tasks.asleep(schedulers)


async def test_a_few_run_at_once_and_the_others_in_the_order_in_which_they_were_due(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    model, count = Model(), AT_ONCE + 4
    names = [f"number {n}" for n in range(count)]
    async with (
        serve_gateway(model) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        added = await add_in_a_row(tasks, count)
        await all_are_due(tasks)
        await gateway.wait_for_requests(AT_ONCE)
        assert sorted(prompts(gateway)) == names[:AT_ONCE]
        metrics = tasks.house.state["metrics"]
        assert samples(metrics)['headway_task_runs_total{trigger="due"}'] == count
        assert samples(metrics)["headway_task_runs_waiting"] == count - AT_ONCE
        await tasks.let_pass(timedelta(hours=2).total_seconds())  # late by now, and not missed
        await tasks.asleep()
        for n in range(4):
            assert len(gateway.requests) == AT_ONCE + n
            model.let_go(names[n])
            await gateway.wait_for_requests(AT_ONCE + n + 1)
        assert prompts(gateway)[AT_ONCE:] == names[AT_ONCE:]
        model.let_go(*names)
        for task in added:
            [found] = await tasks.ended(task)
            assert found.status == "COMPLETED"
        assert len(gateway.requests) == count
        assert samples(metrics)["headway_task_runs_waiting"] == 0
        assert samples(metrics)['headway_task_ends_total{status="COMPLETED"}'] == count


async def test_those_that_wait_keep_their_turn_over_a_restart(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    model, count = Model(), AT_ONCE + 2
    names = [f"number {n}" for n in range(count)]
    async with serve_gateway(model) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_tasks(settings, clock) as tasks:
            added = await add_in_a_row(tasks, count)
            await all_are_due(tasks)
            await gateway.wait_for_requests(AT_ONCE)
        clock.jump(timedelta(hours=2).total_seconds())
        async with open_tasks(settings, clock) as tasks:
            await gateway.wait_for_requests(2 * AT_ONCE)
            await tasks.asleep()
            assert sorted(prompts(gateway)) == sorted(names[:AT_ONCE] * 2)
            model.let_go(*names)
            for task in added:
                [found] = await tasks.ended(task)
                run = await tasks.house.run(found.run_id or "")
                is_late = added.index(task) >= AT_ONCE
                assert (found.status, run.attempt) == ("COMPLETED", 1 if is_late else 2)
        assert len(gateway.requests) == 2 * AT_ONCE + 2


async def test_task_that_is_deleted_before_its_turn_does_not_run(
    tmp_path: Path, database_url: str, clock: Clock
) -> None:
    model, count = Model(), AT_ONCE + 2
    names = [f"number {n}" for n in range(count)]
    async with (
        serve_gateway(model) as gateway,
        open_tasks(settings_for(tmp_path, database_url, gateway.url), clock) as tasks,
    ):
        added = await add_in_a_row(tasks, count)
        await all_are_due(tasks)
        [waiting] = await tasks.task_runs(added[AT_ONCE])
        async with tasks.house.state["store"].write() as db:
            await delete_task(db, added[AT_ONCE].id)
        model.let_go(*names)
        await tasks.ended(added[-1])
        assert names[AT_ONCE] not in prompts(gateway)
        assert await tasks.house.runs(await tasks.session_of(waiting)) == []


async def test_run_that_a_person_starts_takes_no_turn(
    tmp_path: Path, sqlite_url: str, clock: Clock
) -> None:
    model = Model()
    names = [f"number {n}" for n in range(AT_ONCE + 1)]
    async with (
        serve_gateway(model) as gateway,
        open_tasks(settings_for(tmp_path, sqlite_url, gateway.url), clock) as tasks,
    ):
        added = await add_in_a_row(tasks, AT_ONCE + 1)
        await all_are_due(tasks)
        by_hand = await tasks.add(prompt="by hand")
        await tasks.house.state["scheduler"].run_now(by_hand.id)
        await gateway.wait_for_requests(AT_ONCE + 1)
        assert prompts(gateway)[-1] == "by hand"
        model.let_go("by hand", *names)
        for task in (*added, by_hand):
            await tasks.ended(task)


async def test_two_processes_share_what_waits_and_begin_each_run_once(
    tmp_path: Path, postgres_url: str, clock: Clock
) -> None:
    model, count = Model(), 2 * AT_ONCE + 2
    names = [f"number {n}" for n in range(count)]
    async with serve_gateway(model) as gateway, AsyncExitStack() as opened:
        houses = [
            await opened.enter_async_context(
                open_tasks(settings_for(tmp_path / name, postgres_url, gateway.url), clock)
            )
            for name in ("one", "two")
        ]
        tasks = houses[0]
        added = await add_in_a_row(tasks, count)
        await all_are_due(tasks, 2)
        await tasks.let_pass(2, 2)
        await gateway.wait_for_requests(2 * AT_ONCE)
        await tasks.asleep(2)
        assert sorted(prompts(gateway)) == names[: 2 * AT_ONCE]
        model.let_go(*names)
        for task in added:
            [found] = await tasks.ended(task)
            run = await tasks.house.run(found.run_id or "")
            assert (found.status, run.attempt) == ("COMPLETED", 1)
        assert sorted(prompts(gateway)) == sorted(names)
