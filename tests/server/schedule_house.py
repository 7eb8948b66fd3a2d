"""An open application whose scheduled tasks go by a clock that the test moves."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from server.schedule_form import CronForm, ScheduleForm
from server.settings import Settings
from server.store.sessions import Session, load_session
from server.store.task_runs import TaskRun, list_task_runs
from server.store.tasks import ScheduledTask, insert_task, load_task
from server.task_form import DeliveryForm, TaskForm, new_task
from tests.fakes.clock import Clock
from tests.house import House, open_house
from tests.waiting import until

EACH_MINUTE = CronForm("* * * * *")

Holds = Callable[[Sequence[TaskRun]], bool]


def set_clock(clock: Clock, at: str) -> None:
    """Let the wall clock show *at*, as if it had been set."""
    clock.jump(datetime.fromisoformat(at).timestamp() - clock.wall())


@dataclass(frozen=True, slots=True)
class TaskHouse:
    """The application, its clock, and what is known of its tasks."""

    house: House
    clock: Clock

    def now(self) -> datetime:
        """What time it is for the tasks."""
        return datetime.fromtimestamp(self.clock.wall(), UTC)

    async def add(
        self,
        schedule: ScheduleForm = EACH_MINUTE,
        *,
        owner: str = "ann",
        prompt: str = "look after it",
        title: str = "the watch",
        told_in: Session | None = None,
        **given: Any,
    ) -> ScheduledTask:
        """A stored task."""
        delivery = None if told_in is None else DeliveryForm(session=told_in.id)
        form = TaskForm(
            prompt=prompt,
            schedule=schedule,
            title=title,
            **{"timezone": "UTC", "delivery": delivery, **given},
        )
        task = new_task(form, owner, "UTC", self.now(), "en")
        async with self.house.state["store"].write() as db:
            await insert_task(db, task)
        self.house.state["scheduler"].wake()
        return task

    async def task(self, task: ScheduledTask) -> ScheduledTask:
        """The task as it is stored now."""
        async with self.house.state["store"].read() as db:
            return await load_task(db, task.id)

    async def task_runs(self, task: ScheduledTask) -> list[TaskRun]:
        """What became of its due times, the earliest first."""
        async with self.house.state["store"].read() as db:
            return (await list_task_runs(db, task.id, limit=1000))[::-1]

    async def until(self, task: ScheduledTask, holds: Holds) -> list[TaskRun]:
        """What became of its due times, once *holds* is true of that."""
        found: list[TaskRun] = []

        async def is_so() -> bool:
            nonlocal found
            found = await self.task_runs(task)
            return holds(found)

        await until(is_so)
        return found

    async def ended(self, task: ScheduledTask, count: int = 1) -> list[TaskRun]:
        """What became of its due times, once so many of them are over."""

        def holds(found: Sequence[TaskRun]) -> bool:
            return sum(one.ended_at is not None for one in found) >= count

        return await self.until(task, holds)

    async def asleep(self, schedulers: int = 1) -> None:
        """Wait until nothing is to be done before the clock moves."""

        async def is_so() -> bool:
            return self.clock.asleep >= schedulers

        await until(is_so)

    async def let_pass(self, seconds: float, schedulers: int = 1) -> None:
        """Let time pass for whoever sleeps by the clock; they have not acted on it yet."""
        await self.asleep(schedulers)
        self.clock.advance(seconds)

    async def session_of(self, task_run: TaskRun) -> Session:
        """The session of a run."""
        assert task_run.session_id is not None
        async with self.house.state["store"].read() as db:
            return await load_session(db, task_run.session_id)

    async def told(self, session: Session, count: int) -> list[str]:
        """What is told in a session, once it is so much."""
        said: list[str] = []

        async def is_told() -> bool:
            nonlocal said
            messages = await self.house.messages(session)
            said = [message.text for message in messages if message.role == "assistant"]
            return len(said) >= count

        await until(is_told)
        return said


@asynccontextmanager
async def open_tasks(settings: Settings, clock: Clock) -> AsyncIterator[TaskHouse]:
    """The application on these settings, its tasks going by *clock*."""
    async with open_house(settings, clock=clock.channels) as house:
        yield TaskHouse(house, clock)
