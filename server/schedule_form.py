"""How schedules are written, in requests, by the model and in the store, and what may be wrong.

The texts say what is right; those about times say what time it is now.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, assert_never
from zoneinfo import ZoneInfo

import msgspec

from server.due import (
    MACROS,
    Cron,
    CronFault,
    Every,
    Once,
    Schedule,
    cron_fault,
    instant_of,
    next_after,
)
from server.errors import BadRequest, Locale, text_in

MIN_INTERVAL_SECONDS: Final = 60
"""A run takes about as long, and cron knows nothing shorter."""

MAX_INTERVAL_SECONDS: Final = 366 * 24 * 3600

FIRST_YEAR: Final = 1900
LAST_YEAR: Final = 9000
"""Beyond them a time in another zone may be one that cannot be written."""


class OnceForm(msgspec.Struct, frozen=True, tag="once", tag_field="kind"):
    """One time."""

    at: str
    """ISO 8601; without an offset it is what the clocks of the task's zone show."""


class IntervalForm(
    msgspec.Struct, frozen=True, tag="interval", tag_field="kind", omit_defaults=True
):
    """Again and again."""

    seconds: int
    anchor: str | None = None
    """A time to count from, as `at`; absent, it is the time of asking."""


class CronForm(msgspec.Struct, frozen=True, tag="cron", tag_field="kind"):
    """When the clocks of the task's zone match."""

    expression: str


ScheduleForm = OnceForm | IntervalForm | CronForm

_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "zone": (
        "时区“{given}”不认识，请写 IANA 名称，例如 Asia/Shanghai、Europe/Berlin、UTC。",
        "There is no time zone {given!r}; use an IANA name such as Asia/Shanghai or UTC.",
    ),
    "time": (
        "时间“{given}”看不懂，请写成 2026-12-31T09:00，或带时区偏移的 2026-12-31T09:00:00+08:00。",
        "The time {given!r} cannot be read; write 2026-12-31T09:00 or, with an offset, "
        "2026-12-31T09:00:00+08:00.",
    ),
    "past": (
        "这个时间（{given}）已经过去，现在是 {now}。",
        "This time ({given}) is over; it is {now} now.",
    ),
    "interval": (
        "间隔应为 60 秒到 366 天之间的整数秒。",
        "The interval must be a whole number of seconds, from 60 to 31622400 (366 days).",
    ),
    "macro": (
        "不认识“{given}”。可用的名称有：{macros}。",
        "There is no {given!r}; the names are: {macros}.",
    ),
    "fields": (
        "cron 表达式应有 5 个字段（分 时 日 月 周），例如 0 9 * * 1-5；这里有 {count} 个。",
        "A cron expression has 5 fields (minute, hour, day, month, weekday), as in 0 9 * * 1-5; "
        "this one has {count}.",
    ),
    "minute": (
        "cron 表达式的第 1 个字段“分”不对，应为 0–59，例如 30、0,30、*/15。",
        "The first field of the cron expression, the minute, is wrong: 0-59, as in 30, 0,30 or "
        "*/15.",
    ),
    "hour": (
        "cron 表达式的第 2 个字段“时”不对，应为 0–23，例如 9、9-18、*/2。",
        "The second field of the cron expression, the hour, is wrong: 0-23, as in 9, 9-18 or */2.",
    ),
    "day": (
        "cron 表达式的第 3 个字段“日”不对，应为 1–31，或表示月末的 L。",
        "The third field of the cron expression, the day, is wrong: 1-31, or L for the last one.",
    ),
    "month": (
        "cron 表达式的第 4 个字段“月”不对，应为 1–12，或 JAN–DEC。",
        "The fourth field of the cron expression, the month, is wrong: 1-12 or JAN-DEC.",
    ),
    "weekday": (
        "cron 表达式的第 5 个字段“周”不对，应为 0–7（0 和 7 都是周日），或 SUN–SAT。",
        "The fifth field of the cron expression, the weekday, is wrong: 0-7 (0 and 7 are Sunday) "
        "or SUN-SAT.",
    ),
    "never": (
        "这个 cron 表达式永远不会到期：没有这样的日期。",
        "This cron expression is never due: there is no such date.",
    ),
}


def read_zone(name: str, locale: Locale, path: str = "timezone") -> ZoneInfo:
    """The zone of this name.

    Raises:
        BadRequest: There is none.
    """
    zone = find_zone(name)
    if zone is None:
        raise BadRequest(_text("zone", locale, given=name[:60]), path)
    return zone


def find_zone(name: str) -> ZoneInfo | None:
    """The zone of this name, None if there is none."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return None


def read_schedule(
    form: ScheduleForm, zone: ZoneInfo, now: datetime, locale: Locale, path: str = "schedule"
) -> Schedule:
    """The schedule that somebody asks for.

    Args:
        path: Of the form in the request; faults name a field below it.

    Raises:
        BadRequest: It makes no sense, or its only time is not in the future.
    """
    match form:
        case OnceForm(at):
            once = Once(_read_time(at, zone, locale, f"{path}.at"))
            if next_after(once, zone, now) is None:
                given, shown_now = shown(once.at, zone), shown(now, zone)
                raise BadRequest(_text("past", locale, given=given, now=shown_now), f"{path}.at")
            return once
        case IntervalForm(seconds, anchor):
            if not MIN_INTERVAL_SECONDS <= seconds <= MAX_INTERVAL_SECONDS:
                raise BadRequest(_text("interval", locale), f"{path}.seconds")
            if anchor is None:
                return Every(seconds, now)
            return Every(seconds, _read_time(anchor, zone, locale, f"{path}.anchor"))
        case CronForm(expression):
            words = " ".join(expression.split())
            fault = cron_fault(words)
            if fault is not None:
                raise BadRequest(_cron_text(fault, words, locale), f"{path}.expression")
            return Cron(words)
        case _:
            assert_never(form)


def form_of(schedule: Schedule) -> ScheduleForm:
    """*schedule* as it is shown and stored; `schedule_of` is the way back."""
    match schedule:
        case Once(at):
            return OnceForm(at.isoformat())
        case Every(seconds, anchor):
            return IntervalForm(seconds, anchor.isoformat())
        case Cron(expression):
            return CronForm(expression)
        case _:
            assert_never(schedule)


def schedule_of(form: ScheduleForm) -> Schedule:
    """The schedule that was stored.

    Raises:
        ValueError: It cannot have been stored like this.
    """
    match form:
        case OnceForm(at):
            return Once(_stored_time(at))
        case IntervalForm(seconds, anchor):
            if anchor is None or not MIN_INTERVAL_SECONDS <= seconds <= MAX_INTERVAL_SECONDS:
                raise ValueError("an interval needs its length and its anchor")
            return Every(seconds, _stored_time(anchor))
        case CronForm(expression):
            if cron_fault(expression) is not None:
                raise ValueError("not a cron expression")
            return Cron(expression)
        case _:
            assert_never(form)


def shown(at: datetime, zone: ZoneInfo) -> str:
    """*at* as the clocks of *zone* show it, with its offset."""
    return at.astimezone(zone).isoformat(sep=" ", timespec="seconds")


def _read_time(text: str, zone: ZoneInfo, locale: Locale, path: str) -> datetime:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        time = datetime.min  # noqa: DTZ901 - stands for none
    if not FIRST_YEAR <= time.year <= LAST_YEAR:
        raise BadRequest(_text("time", locale, given=text[:60]), path)
    return instant_of(time, zone) if time.tzinfo is None else time.astimezone(UTC)


def _stored_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a stored time needs its offset")
    return time.astimezone(UTC)


def _cron_text(fault: CronFault, expression: str, locale: Locale) -> str:
    count, macros = len(expression.split()), ", ".join(MACROS)
    return _text(fault, locale, given=expression[:60], count=count, macros=macros)


def _text(key: str, locale: Locale, **values: object) -> str:
    return text_in(_TEXTS[key], locale).format(**values)
