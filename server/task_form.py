"""Scheduled tasks as people and the model ask for them: checked, and made values."""

from dataclasses import replace
from datetime import datetime
from typing import Final, get_args
from zoneinfo import ZoneInfo

import msgspec

from channels.port import ChatAddress
from server.contract import ProgressContract, stored_contract
from server.due import MissedPolicy, Once, Schedule, next_after
from server.errors import BadRequest, Conflict, Locale, text_in
from server.message import clean_text, title_of
from server.schedule_form import ScheduleForm, read_schedule, read_zone, shown
from server.store.ids import new_id
from server.store.tasks import ScheduledTask, Target, TaskStatus, ToChat, ToSession
from server.task_sentences import damaged

MAX_TITLE_CHARACTERS: Final = 200
MAX_PROMPT_CHARACTERS: Final = 20_000
MAX_FAILURE_LIMIT: Final = 100
MAX_WITHIN_SECONDS: Final = 366 * 24 * 3600
MAX_TASKS: Final = 200
"""Of one owner: far more than a person looks after, far fewer than a loop can make."""

_OVER: Final = (
    "这个任务的时间已经过去，现在是 {now}。请先修改它的时间安排。",
    "The time of this task is over; it is {now} now. Give it another schedule first.",
)
_DONE: Final = ("这个任务已经结束。", "This task is over.")
_NO_SESSION: Final = ("没有这个会话。", "There is no such session.")
_MANY: Final = (
    "定时任务已达上限（{count} 个），请先删除不用的。",
    "There are {count} scheduled tasks already; delete some that are not needed.",
)
_WITHIN: Final = (
    "missedPolicy 为 run_if_within 时，missedWithinSeconds 应为 1 到 31622400 之间的整数。",
    "With missedPolicy run_if_within, missedWithinSeconds must be a whole number from 1 to "
    "31622400.",
)
_LENGTH: Final = ("应有 1 到 {most} 个字符。", "must have 1 to {most} characters")
_LIMIT: Final = ("应为 1 到 {most} 之间的整数。", "must be a whole number from 1 to {most}")
_ONE_TARGET: Final = (
    'delivery 应为 {{"session": …}} 或 {{"chat": …}} 之一。',
    'delivery must be either {{"session": …}} or {{"chat": …}}',
)


class ChatForm(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A conversation of a platform."""

    platform: str
    app_id: str
    chat_id: str
    thread_id: str = ""


class DeliveryForm(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a task's answers are told: one of both."""

    session: str | None = None
    chat: ChatForm | None = None


class TaskForm(msgspec.Struct, frozen=True, rename="camel"):
    """A new task."""

    prompt: str
    schedule: ScheduleForm
    title: str | None = None
    timezone: str | None = None
    missed_policy: MissedPolicy | None = None
    """Absent, a task of one time is run late, and one that comes again is not."""
    missed_within_seconds: int | None = None
    delivery: DeliveryForm | None = None
    quiet: bool = False
    failure_limit: int = 3
    contract: ProgressContract | None = None


class TaskPatch(msgspec.Struct, frozen=True, rename="camel"):
    """What of a task is to be different."""

    prompt: str | msgspec.UnsetType = msgspec.UNSET
    schedule: ScheduleForm | msgspec.UnsetType = msgspec.UNSET
    title: str | msgspec.UnsetType = msgspec.UNSET
    timezone: str | msgspec.UnsetType = msgspec.UNSET
    missed_policy: MissedPolicy | msgspec.UnsetType = msgspec.UNSET
    missed_within_seconds: int | None | msgspec.UnsetType = msgspec.UNSET
    delivery: DeliveryForm | None | msgspec.UnsetType = msgspec.UNSET
    quiet: bool | msgspec.UnsetType = msgspec.UNSET
    failure_limit: int | msgspec.UnsetType = msgspec.UNSET
    contract: ProgressContract | None | msgspec.UnsetType = msgspec.UNSET


def new_task(
    form: TaskForm,
    owner: str,
    default_timezone: str,
    now: datetime,
    locale: Locale,
    *,
    origin_key: str | None = None,
) -> ScheduledTask:
    """The task that *form* asks for.

    Args:
        locale: Of the faults.

    Raises:
        BadRequest: Something of it makes no sense.
    """
    zone = read_zone(form.timezone or default_timezone, locale)
    schedule = read_schedule(form.schedule, zone, now, locale)
    prompt = _worded(form.prompt, MAX_PROMPT_CHARACTERS, locale, "prompt")
    title = form.title if form.title is not None else title_of(prompt)
    return _checked(
        ScheduledTask(
            id=new_id(),
            owner=owner,
            title=" ".join(_worded(title, MAX_TITLE_CHARACTERS, locale, "title").split()),
            prompt=prompt,
            schedule=schedule,
            timezone=zone.key,
            created_at=now,
            updated_at=now,
            next_at=_next_at(schedule, zone, now, locale),
            missed_policy=form.missed_policy or _usual_policy(schedule),
            missed_within_seconds=form.missed_within_seconds,
            target=target_of(form.delivery, locale),
            is_quiet=form.quiet,
            origin_key=origin_key,
            failure_limit=form.failure_limit,
            contract_json=stored_contract(form.contract),
        ),
        locale,
    )


def edited(task: ScheduledTask, patch: TaskPatch, now: datetime, locale: Locale) -> ScheduledTask:
    """The task with what *patch* changes; a new schedule or zone has its due time computed anew.

    A schedule brings a task back that was over or damaged, but none that is paused.

    Raises:
        BadRequest: Something of it makes no sense.
    """
    after = replace(task, updated_at=now)
    if patch.prompt is not msgspec.UNSET:
        prompt = _worded(patch.prompt, MAX_PROMPT_CHARACTERS, locale, "prompt")
        after = replace(after, prompt=prompt)
    if patch.title is not msgspec.UNSET:
        title = " ".join(_worded(patch.title, MAX_TITLE_CHARACTERS, locale, "title").split())
        after = replace(after, title=title)
    if patch.missed_policy is not msgspec.UNSET:
        after = replace(after, missed_policy=patch.missed_policy)
    if patch.missed_within_seconds is not msgspec.UNSET:
        after = replace(after, missed_within_seconds=patch.missed_within_seconds)
    if patch.delivery is not msgspec.UNSET:
        after = replace(after, target=target_of(patch.delivery, locale), held_reason=None)
    if patch.quiet is not msgspec.UNSET:
        after = replace(after, is_quiet=patch.quiet)
    if patch.failure_limit is not msgspec.UNSET:
        after = replace(after, failure_limit=patch.failure_limit)
    if patch.contract is not msgspec.UNSET:
        after = replace(after, contract_json=stored_contract(patch.contract))
    return _checked(_rescheduled(after, patch, now, locale), locale)


def paused(task: ScheduledTask, now: datetime, locale: Locale) -> ScheduledTask:
    """The task, not started by itself any more; what runs of it goes on.

    Raises:
        Conflict: It is over or damaged.
    """
    if task.status == "PAUSED":
        return task
    if task.status != "ACTIVE":
        is_over = task.status == "DONE"
        raise Conflict("bad_request", text_in(_DONE, locale) if is_over else damaged(locale))
    return replace(task, status="PAUSED", paused_reason=None, next_at=None, updated_at=now)


def resumed(task: ScheduledTask, now: datetime, locale: Locale) -> ScheduledTask:
    """The task, active again: failures are forgotten, what was due meanwhile is not made up for.

    Raises:
        Conflict: It will never be due, or it is damaged.
    """
    if task.schedule is None:
        raise Conflict("bad_request", damaged(locale))
    next_at = task.next_at or next_after(task.schedule, task.zone, now)
    if next_at is None:
        raise Conflict("bad_request", text_in(_OVER, locale).format(now=shown(now, task.zone)))
    return replace(
        task,
        status="ACTIVE",
        next_at=next_at,
        failures_in_row=0,
        paused_reason=None,
        held_reason=None,
        updated_at=now,
    )


def target_of(form: DeliveryForm | None, locale: Locale) -> Target | None:
    """Where *form* says, None for nowhere; whether it exists is for others to say."""
    match form:
        case None:
            return None
        case DeliveryForm(session=str(session_id), chat=None):
            return ToSession(session_id)
        case DeliveryForm(session=None, chat=ChatForm(platform, app_id, chat_id, thread_id)):
            return ToChat(ChatAddress(platform, app_id, chat_id, thread_id))
        case _:
            raise BadRequest(text_in(_ONE_TARGET, locale).format(), "delivery")


def form_of_target(target: Target | None) -> DeliveryForm | None:
    """*target* as it is shown."""
    match target:
        case ToSession(session_id):
            return DeliveryForm(session=session_id)
        case ToChat(chat):
            form = ChatForm(chat.platform, chat.app_id, chat.chat_id, chat.thread_id)
            return DeliveryForm(chat=form)
        case None:
            return None


def no_session(locale: Locale) -> BadRequest:
    """There is no session of the owner's by that id."""
    return BadRequest(text_in(_NO_SESSION, locale), "delivery.session")


def check_count(count: int, locale: Locale) -> None:
    """Raise `Conflict` if an owner of so many tasks may have no more."""
    if count >= MAX_TASKS:
        raise Conflict("bad_request", text_in(_MANY, locale).format(count=count))


def _rescheduled(
    task: ScheduledTask, patch: TaskPatch, now: datetime, locale: Locale
) -> ScheduledTask:
    if patch.schedule is msgspec.UNSET and patch.timezone is msgspec.UNSET:
        return task
    name = task.timezone if patch.timezone is msgspec.UNSET else patch.timezone
    zone = read_zone(name, locale)
    schedule = task.schedule
    if patch.schedule is not msgspec.UNSET:
        schedule = read_schedule(patch.schedule, zone, now, locale)
    if schedule is None:
        raise BadRequest(damaged(locale), "schedule")
    is_known = task.missed_policy in get_args(MissedPolicy)
    is_back = patch.schedule is not msgspec.UNSET and task.status in ("DONE", "INVALID")
    status: TaskStatus = "ACTIVE" if is_back else task.status
    return replace(
        task,
        schedule=schedule,
        timezone=zone.key,
        missed_policy=task.missed_policy if is_known else _usual_policy(schedule),
        status=status,
        next_at=_next_at(schedule, zone, now, locale) if status == "ACTIVE" else None,
    )


def _next_at(schedule: Schedule, zone: ZoneInfo, now: datetime, locale: Locale) -> datetime:
    next_at = next_after(schedule, zone, now)
    if next_at is None:
        raise BadRequest(text_in(_OVER, locale).format(now=shown(now, zone)), "schedule")
    return next_at


def _usual_policy(schedule: Schedule) -> MissedPolicy:
    return "run_once" if isinstance(schedule, Once) else "skip"


def _checked(task: ScheduledTask, locale: Locale) -> ScheduledTask:
    if not 1 <= task.failure_limit <= MAX_FAILURE_LIMIT:
        raise BadRequest(text_in(_LIMIT, locale).format(most=MAX_FAILURE_LIMIT), "failureLimit")
    is_needed = task.missed_policy == "run_if_within" or task.missed_within_seconds is not None
    if is_needed and not 1 <= (task.missed_within_seconds or 0) <= MAX_WITHIN_SECONDS:
        raise BadRequest(text_in(_WITHIN, locale), "missedWithinSeconds")
    return task


def _worded(text: str, most: int, locale: Locale, path: str) -> str:
    words = clean_text(text).strip()
    if not 1 <= len(words) <= most:
        raise BadRequest(text_in(_LENGTH, locale).format(most=most), path)
    return words
