"""Scheduled tasks: made, looked at, changed, started, and what became of each due time."""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server.auth import User
from server.contract import ProgressContract, read_contract
from server.errors import Locale, NotFound
from server.rest import Refused, answer, body_of, locale_of, number_in, signed_in, time_in
from server.schedule_form import ScheduleForm, form_of
from server.settings import ADMIN
from server.state import State
from server.store.sessions import load_session
from server.store.task_runs import TaskRun, last_task_runs, list_task_runs, task_runs_under_way
from server.store.tasks import (
    ScheduledTask,
    ToSession,
    count_tasks,
    delete_task,
    insert_task,
    list_tasks,
    load_task,
    save_task,
)
from server.task_form import (
    DeliveryForm,
    TaskForm,
    TaskPatch,
    check_count,
    edited,
    form_of_target,
    new_task,
    no_session,
    paused,
    resumed,
)

_UNTOLD_KINDS = frozenset({"scheduled", "subagent"})
"""Sessions that belong to a run: nobody reads on in them."""


Change = Callable[[ScheduledTask, datetime, Locale], ScheduledTask]
"""What becomes of a task, at a time and with the language of faults."""


class TaskRunObject(msgspec.Struct, rename="camel"):
    """One due time, or one start by hand, and what became of it."""

    due_at: datetime
    trigger: str
    status: str
    reason: str | None
    session: str | None
    run: str | None
    delivery_status: str | None
    created_at: datetime
    ended_at: datetime | None


class TaskObject(msgspec.Struct, rename="camel"):
    """A scheduled task."""

    id: str
    owner: str
    title: str
    prompt: str
    schedule: ScheduleForm | None
    """None if what is stored is damaged."""
    timezone: str
    missed_policy: str
    missed_within_seconds: int | None
    delivery: DeliveryForm | None
    delivery_held_reason: str | None
    """Why nothing is told there any more, until the task is resumed or sent elsewhere."""
    quiet: bool
    failure_limit: int
    failures_in_row: int
    contract: ProgressContract | None
    status: str
    paused_reason: str | None
    next_at: datetime | None
    last_run: TaskRunObject | None
    created_at: datetime
    updated_at: datetime


class TaskList(msgspec.Struct, rename="camel"):
    """A page of tasks, the newest first; `before` takes the last one's id."""

    tasks: Sequence[TaskObject]
    has_more: bool


class TaskRunList(msgspec.Struct, rename="camel"):
    """A page of due times, the latest first; `before` takes the last one's `dueAt`."""

    runs: Sequence[TaskRunObject]
    has_more: bool


async def get_tasks(request: Request[State]) -> Response:
    """Whoever asks' tasks, the admin's being all; `limit` and `before` narrow them."""
    user = signed_in(request)
    limit = number_in(request, "limit", 50, 200)
    owner = None if user.is_admin else user.name
    before_id = request.query_params.get("before")
    async with request.state["store"].read() as db:
        found = await list_tasks(db, owner, before_id=before_id, limit=limit + 1)
        last = await last_task_runs(db, [task.id for task in found])
    shown = [_task_object(task, last.get(task.id)) for task in found[:limit]]
    return answer(TaskList(shown, len(found) > limit))


async def post_task(request: Request[State]) -> Response:
    """Make a task for whoever asks."""
    user = signed_in(request)
    form = await body_of(request, TaskForm)
    settings, scheduler = request.state["settings"], request.state["scheduler"]
    locale = locale_of(request)
    task = new_task(form, user.name, settings.timezone, scheduler.now(), locale)
    async with request.state["store"].write() as db:
        check_count(await count_tasks(db, user.name), locale)
        await _check_target(db, user, task, locale)
        await insert_task(db, task)
    scheduler.wake()
    return answer(_task_object(task, None), 201)


async def get_task(request: Request[State]) -> Response:
    """One task as it stands now."""
    user = signed_in(request)
    async with request.state["store"].read() as db:
        task = await _task_of(db, user, request)
        last = await last_task_runs(db, [task.id])
    return answer(_task_object(task, last.get(task.id)))


async def patch_task(request: Request[State]) -> Response:
    """Change it; a new schedule or time zone has its next due time computed anew."""
    patch = await body_of(request, TaskPatch)
    return await _change(request, lambda task, now, locale: edited(task, patch, now, locale))


async def delete_a_task(request: Request[State]) -> Response:
    """Forget it and stop what runs of it; the sessions of its runs stay."""
    user = signed_in(request)
    async with request.state["store"].write() as db:
        task = await _task_of(db, user, request, lock=True)
        under_way = await task_runs_under_way(db, task.id)
        await delete_task(db, task.id)
    for task_run in under_way:
        if task_run.session_id is not None:
            await request.state["inbox"].cancel(task_run.session_id, None, user.name)
    return Response(status_code=204)


async def pause_task(request: Request[State]) -> Response:
    """Start it no more by itself; what runs of it goes on."""
    return await _change(request, paused)


async def resume_task(request: Request[State]) -> Response:
    """Go on with it, its failures forgotten; what was due meanwhile is not made up for."""
    return await _change(request, resumed)


async def run_task(request: Request[State]) -> Response:
    """Start it now, whatever its schedule says and even if it is paused."""
    user = signed_in(request)
    async with request.state["store"].read() as db:
        task = await _task_of(db, user, request)
    task_run = await request.state["scheduler"].run_now(task.id)
    return answer(_run_object(task_run), 202)


async def get_task_runs(request: Request[State]) -> Response:
    """What became of its due times, the latest page first."""
    user = signed_in(request)
    limit = number_in(request, "limit", 50, 200)
    before = time_in(request, "before")
    async with request.state["store"].read() as db:
        task = await _task_of(db, user, request)
        found = await list_task_runs(db, task.id, before=before, limit=limit + 1)
    return answer(TaskRunList([_run_object(one) for one in found[:limit]], len(found) > limit))


async def _task_of(
    db: AsyncConnection, user: User, request: Request[State], *, lock: bool = False
) -> ScheduledTask:
    """The task, if *user* may see it; of somebody else's it is not told that it is there."""
    task = await load_task(db, request.path_params["task_id"], lock=lock)
    if not user.may_see(task.owner):
        raise NotFound("no such task")
    return task


async def _check_target(
    db: AsyncConnection, user: User, task: ScheduledTask, locale: Locale
) -> None:
    """Refuse to tell a task's answers where its owner, or whoever asks, may not speak."""
    owner, target = task.owner, task.target
    if target is None:
        return
    if not isinstance(target, ToSession):
        if not user.is_admin or owner not in (ADMIN, target.chat.surface):
            raise Refused(403, "only the admin's own tasks may tell a chat")
        return
    try:
        session = await load_session(db, target.session_id)
    except NotFound:
        raise no_session(locale) from None
    is_open = user.may_see(session.owner) and owner in (session.owner, ADMIN)
    if not is_open or session.kind in _UNTOLD_KINDS:
        raise no_session(locale)


async def _change(request: Request[State], change: Change) -> Response:
    """Write what *change* makes of the task, and show that."""
    user = signed_in(request)
    scheduler, locale = request.state["scheduler"], locale_of(request)
    async with request.state["store"].write() as db:
        before = await _task_of(db, user, request, lock=True)
        after = change(before, scheduler.now(), locale)
        if after.target != before.target:
            await _check_target(db, user, after, locale)
        await save_task(db, before, after)
        last = await last_task_runs(db, [after.id])
    scheduler.wake()
    return answer(_task_object(after, last.get(after.id)))


def _task_object(task: ScheduledTask, last: TaskRun | None) -> TaskObject:
    return TaskObject(
        id=task.id,
        owner=task.owner,
        title=task.title,
        prompt=task.prompt,
        schedule=None if task.schedule is None else form_of(task.schedule),
        timezone=task.timezone,
        missed_policy=task.missed_policy,
        missed_within_seconds=task.missed_within_seconds,
        delivery=form_of_target(task.target),
        delivery_held_reason=task.held_reason,
        quiet=task.is_quiet,
        failure_limit=task.failure_limit,
        failures_in_row=task.failures_in_row,
        contract=read_contract(task.contract_json),
        status=task.status if task.schedule is not None else "INVALID",
        paused_reason=task.paused_reason,
        next_at=task.next_at,
        last_run=None if last is None else _run_object(last),
        created_at=task.created_at,
        updated_at=task.updated_at,
    )


def _run_object(task_run: TaskRun) -> TaskRunObject:
    return TaskRunObject(
        due_at=task_run.due_at,
        trigger=task_run.trigger,
        status=task_run.status,
        reason=task_run.reason,
        session=task_run.session_id,
        run=task_run.run_id,
        delivery_status=task_run.delivery_status,
        created_at=task_run.created_at,
        ended_at=task_run.ended_at,
    )


ROUTES = (
    Route("/api/tasks", get_tasks),
    Route("/api/tasks", post_task, methods=["POST"]),
    Route("/api/tasks/{task_id}", get_task),
    Route("/api/tasks/{task_id}", patch_task, methods=["PATCH"]),
    Route("/api/tasks/{task_id}", delete_a_task, methods=["DELETE"]),
    Route("/api/tasks/{task_id}/run", run_task, methods=["POST"]),
    Route("/api/tasks/{task_id}/pause", pause_task, methods=["POST"]),
    Route("/api/tasks/{task_id}/resume", resume_task, methods=["POST"]),
    Route("/api/tasks/{task_id}/runs", get_task_runs),
)
