"""The tools `schedule_task` and `list_scheduled_tasks`: what is to be done later, or repeatedly.

They write to the store alone; who starts tasks is woken, and not known here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

from msgspec import Meta
from sqlalchemy.ext.asyncio import AsyncConnection

from guard import ToolContract, drop_fields
from server.due import MissedPolicy
from server.errors import BadRequest, Conflict, NotFound, StoreUnavailable, ToolError
from server.schedule_form import CronForm, IntervalForm, OnceForm, ScheduleForm, form_of, shown
from server.store.chats import chat_of
from server.store.engine import Store
from server.store.sessions import Session, load_session
from server.store.task_runs import last_task_runs
from server.store.tasks import (
    ScheduledTask,
    Target,
    ToChat,
    ToSession,
    count_tasks,
    delete_task,
    find_by_origin,
    insert_task,
    list_tasks,
    load_task,
    save_task,
)
from server.task_form import (
    TaskForm,
    check_count,
    form_of_target,
    new_task,
    paused,
    resumed,
)
from server.tools.arguments import Arguments, decode, schema_of
from server.tools.base import Found, Kind, ToolContext, ToolResult, ToolSpec, json_result

SCHEDULE_TASK: Final = "schedule_task"
LIST_TASKS: Final = "list_scheduled_tasks"

_SHOWN_TASKS: Final = 100
_STORE_SECONDS: Final = 60.0
"""Longer than a locked store takes to say so."""

_NO_PLACE: Final = frozenset({"scheduled", "subagent"})
"""Kinds of sessions that make no tasks: nobody is there who could agree, and one may breed."""

_LOCALE: Final = "en"
"""What the model reads of a fault."""


class ScheduleArguments(Arguments, frozen=True):
    """What `schedule_task` takes."""

    action: Literal["create", "pause", "resume", "remove"]
    task_id: Annotated[
        str, Meta(description="Of pause, resume and remove: from list_scheduled_tasks.")
    ] = ""
    title: Annotated[str, Meta(description="A few words by which the user knows the task.")] = ""
    prompt: Annotated[
        str,
        Meta(
            description=(
                "What is to be done when it is due, as an instruction, without the time. Whoever "
                "does it sees nothing of this conversation; its answer is sent to the user."
            )
        ),
    ] = ""
    at: Annotated[
        str,
        Meta(description="Once: ISO 8601; without an offset, by the clocks of the user."),
    ] = ""
    in_seconds: Annotated[int, Meta(ge=0, description="Once: so many seconds from now.")] = 0
    every_seconds: Annotated[int, Meta(ge=0, description="Again and again; at least 60.")] = 0
    cron: Annotated[
        str,
        Meta(
            description=(
                "Again and again: minute hour day month weekday, by the clocks of the user; "
                "0 and 7 are Sunday. Or @hourly, @daily, @weekly, @monthly, @yearly."
            )
        ),
    ] = ""
    timezone: Annotated[str, Meta(description="IANA name, where it is not the user's own.")] = ""
    missed_policy: Annotated[
        MissedPolicy | Literal[""],
        Meta(description="If the server was down at the time. Best left out."),
    ] = ""
    missed_within_seconds: Annotated[
        int, Meta(ge=0, description="With run_if_within: how late it may still run.")
    ] = 0
    quiet: Annotated[
        bool, Meta(description="For a watch: when there is nothing to report, say nothing.")
    ] = False


class ListArguments(Arguments, frozen=True):
    """`list_scheduled_tasks` takes none."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """What both tools need of the application."""

    store: Store
    now: Callable[[], datetime]
    wake: Callable[[], None]
    """Whoever starts tasks looks at them again."""


@dataclass(frozen=True, slots=True)
class _Asking:
    """Who asks, and what of all tasks is his."""

    session: Session
    target: Target
    """Where he is told, unless he says otherwise."""

    def may_see(self, task: ScheduledTask) -> bool:
        """All chats of a bot have one owner, and each sees its own tasks alone."""
        is_chat = isinstance(self.target, ToChat)
        return task.owner == self.session.owner and (not is_chat or task.target == self.target)


class ScheduleTask:
    """Makes and changes scheduled tasks; a person agrees to each call."""

    spec = ToolSpec(
        name=SCHEDULE_TASK,
        description=(
            "Do something later, or again and again: create a scheduled task with exactly one of "
            "at, in_seconds, every_seconds and cron; or pause, resume or remove one. At its time a "
            "task runs in a session of its own, and its answer is sent here. The user is asked to "
            "agree first."
        ),
        parameters=schema_of(ScheduleArguments),
        kind="write",
        parallel=False,
        timeout_seconds=_STORE_SECONDS,
        # A new id, and a time counted from now, are no progress.
        contract=ToolContract(result=drop_fields("task_id", "next_at")),
        output_cap_bytes=16_000,
        consent="always",
    )

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "write"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        asked = _decoded(arguments)
        with _refusals():
            async with self._tasks.store.write() as db:
                asking = await _asking(db, context)
                if asked.action == "create":
                    result = await self._create(db, asking, asked, context)
                else:
                    result = await self._change(db, asking, asked)
        self._tasks.wake()
        return result

    async def mark(self, arguments: Mapping[str, object], context: ToolContext) -> str:
        _decoded(arguments)
        return ""  # the call's own id is enough

    async def lookup(
        self, arguments: Mapping[str, object], mark: str, context: ToolContext
    ) -> Found:
        """Changing a task twice does no harm; making it twice would."""
        if _decoded(arguments).action != "create":
            return "not_done"
        async with self._tasks.store.read() as db:
            task = await find_by_origin(db, _origin_key(context))
        return "not_done" if task is None else _told(task)

    async def _create(
        self,
        db: AsyncConnection,
        asking: _Asking,
        asked: ScheduleArguments,
        context: ToolContext,
    ) -> ToolResult:
        known = await find_by_origin(db, _origin_key(context))
        if known is not None:
            return _told(known)
        owner, now = asking.session.owner, self._tasks.now()
        form = TaskForm(
            prompt=asked.prompt,
            schedule=_schedule_form(asked, now),
            title=asked.title or None,
            timezone=asked.timezone or None,
            missed_policy=asked.missed_policy or None,
            missed_within_seconds=asked.missed_within_seconds or None,
            delivery=form_of_target(asking.target),
            quiet=asked.quiet,
        )
        key = _origin_key(context)
        task = new_task(form, owner, asking.session.timezone, now, _LOCALE, origin_key=key)
        check_count(await count_tasks(db, owner), _LOCALE)
        await insert_task(db, task)
        return _told(task)

    async def _change(
        self, db: AsyncConnection, asking: _Asking, asked: ScheduleArguments
    ) -> ToolResult:
        before = await load_task(db, asked.task_id, lock=True)
        if not asking.may_see(before):
            raise NotFound("there is no such task")
        if asked.action == "remove":
            await delete_task(db, before.id)
            return json_result({"task_id": before.id, "title": before.title, "status": "REMOVED"})
        change = paused if asked.action == "pause" else resumed
        after = change(before, self._tasks.now(), _LOCALE)
        await save_task(db, before, after)
        return _told(after)


class ListScheduledTasks:
    """Shows the user's scheduled tasks."""

    spec = ToolSpec(
        name=LIST_TASKS,
        description="List the user's scheduled tasks, the newest first, and how each last ended.",
        parameters=schema_of(ListArguments),
        kind="read",
        parallel=True,
        timeout_seconds=_STORE_SECONDS,
        output_cap_bytes=64_000,
    )

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "read"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        decode(arguments, ListArguments)
        with _refusals():
            async with self._tasks.store.read() as db:
                session = await load_session(db, context.session_id)
                asking = await _asking_in(db, session)
                found = await list_tasks(db, session.owner, limit=_SHOWN_TASKS)
                tasks = [task for task in found if asking.may_see(task)]
                last = await last_task_runs(db, [task.id for task in tasks])
        shown_tasks = [
            {
                **_fields(task),
                "prompt": task.prompt[:200],
                "last_status": last[task.id].status if task.id in last else None,
                "last_reason": last[task.id].reason if task.id in last else None,
            }
            for task in tasks
        ]
        return json_result({"tasks": shown_tasks})


def _decoded(arguments: Mapping[str, object]) -> ScheduleArguments:
    asked = decode(arguments, ScheduleArguments)
    if asked.action != "create" and not asked.task_id:
        raise ToolError("bad_arguments", f"{asked.action} needs a task_id")
    return asked


def _schedule_form(asked: ScheduleArguments, now: datetime) -> ScheduleForm:
    in_seconds = timedelta(seconds=min(asked.in_seconds, 10**9))
    forms: list[ScheduleForm] = []
    if asked.at:
        forms.append(OnceForm(asked.at))
    if asked.in_seconds:
        forms.append(OnceForm((now + in_seconds).isoformat()))
    if asked.every_seconds:
        forms.append(IntervalForm(asked.every_seconds))
    if asked.cron:
        forms.append(CronForm(asked.cron))
    if len(forms) != 1:
        raise ToolError(
            "bad_arguments", "give exactly one of at, in_seconds, every_seconds and cron"
        )
    return forms[0]


async def _asking(db: AsyncConnection, context: ToolContext) -> _Asking:
    session = await load_session(db, context.session_id)
    if session.kind in _NO_PLACE:
        raise ToolError("not_here", "a scheduled task and a subagent cannot change scheduled tasks")
    return await _asking_in(db, session)


async def _asking_in(db: AsyncConnection, session: Session) -> _Asking:
    chat, _ = await chat_of(db, session.id)
    return _Asking(session, ToSession(session.id) if chat is None else ToChat(chat))


def _origin_key(context: ToolContext) -> str:
    return f"{context.session_id}:{context.call_id}"


def _told(task: ScheduledTask) -> ToolResult:
    return json_result(_fields(task))


def _fields(task: ScheduledTask) -> dict[str, object]:
    next_at = None if task.next_at is None else shown(task.next_at, task.zone)
    schedule = None if task.schedule is None else _words(form_of(task.schedule))
    return {
        "task_id": task.id,
        "title": task.title,
        "schedule": schedule,
        "timezone": task.timezone,
        "status": task.status,
        "next_at": next_at,
    }


def _words(form: ScheduleForm) -> str:
    match form:
        case OnceForm():
            return "once"
        case IntervalForm(seconds):
            return f"every {seconds} seconds"
        case CronForm(expression):
            return expression


@contextmanager
def _refusals() -> Iterator[None]:
    """Say what went wrong as the model reads it."""
    try:
        yield
    except BadRequest as error:
        raise ToolError("bad_arguments", str(error)) from None
    except NotFound:
        raise ToolError(
            "not_found", "there is no such task; list_scheduled_tasks shows them"
        ) from None
    except Conflict as error:
        raise ToolError("conflict", str(error)) from None
    except StoreUnavailable:
        raise ToolError(
            "unavailable",
            f"the store does not answer, so whether it was done is unknown; {LIST_TASKS} tells",
        ) from None
