"""When a scheduled task is due: pure, with the time as an argument.

A cron expression is read as cron reads it. Sunday is 0 and 7; where both day fields are given,
either of them is enough. Where the clocks change, an expression with fixed minutes and hours fires
once a day: at the first instant after the gap, and at the first of two equal times. One whose
minute or hour field begins with `*` follows the time that passes. Source: cron(8) of Debian.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, assert_never
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MissedPolicy = Literal["skip", "run_once", "run_if_within"]
"""What becomes of due times that passed while nobody could run them."""

CronFault = Literal["macro", "fields", "minute", "hour", "day", "month", "weekday", "never"]
"""What is wrong with an expression: the name of a field, their number, or that it is never due."""

MACROS: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""Names that cron has for expressions. `@reboot` is none: it is no time."""

_FIELDS: Final = 5
_MAX_CRON_CHARACTERS: Final = 200
"""Beyond any that makes sense: a number of thousands of digits is no number to Python."""

_CRON_FAULTS: Final[Mapping[str, CronFault]] = {
    "Bad minute": "minute",
    "Bad hour": "hour",
    "Bad day-of-month": "day",
    "Bad month": "month",
    "Bad day-of-week": "weekday",
}
_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Once:
    """At one time."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Every:
    """At the anchor and each so many seconds after it, whatever the clocks show."""

    seconds: int
    anchor: datetime


@dataclass(frozen=True, slots=True)
class Cron:
    """When an expression of five fields, or one of `MACROS`, matches the clocks of a zone."""

    expression: str


Schedule = Once | Every | Cron


@dataclass(frozen=True, slots=True)
class Due:
    """What becomes of a task whose time has come."""

    run_at: datetime | None
    """The due time that runs now; at most one does, however many passed."""
    missed_at: datetime | None
    """The first due time that does not; None if there is none."""
    next_at: datetime | None
    """The first due time after now; None if there will be none."""


def next_after(schedule: Schedule, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first due time later than *after*, in UTC; None if there is none (any more)."""
    match schedule:
        case Once(at):
            return at if at > after else None
        case Every(seconds, anchor):
            if after < anchor:
                return anchor
            step = timedelta(seconds=seconds)
            return anchor + step * ((after - anchor) // step + 1)
        case Cron(expression):
            return _next_match(expression, zone, after)
        case _:
            assert_never(schedule)


def due_now(
    schedule: Schedule,
    zone: ZoneInfo,
    due_at: datetime,
    now: datetime,
    *,
    policy: MissedPolicy,
    within: timedelta,
    grace: timedelta,
) -> Due:
    """Decide what becomes of the due times from *due_at* to *now*.

    Args:
        due_at: The first that was not seen to; at most *now*.
        policy: For those that were missed.
        within: How late the last one may still run under `run_if_within`.
        grace: What comes at most so late counts as in time, not as missed.
    """
    last_at = _last_until(schedule, zone, due_at, now)
    is_in_time = now - last_at <= max(grace, _allowance(policy, within))
    return Due(
        run_at=last_at if is_in_time or policy == "run_once" else None,
        missed_at=due_at if due_at < last_at or not (is_in_time or policy == "run_once") else None,
        next_at=next_after(schedule, zone, now),
    )


def instant_of(local: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the clocks of *zone* show *local*.

    The first of two where they are set back; the first after the gap where they are set forward.
    """
    shown = local.replace(tzinfo=zone, fold=0)
    if _is_shown(shown):
        return shown.astimezone(UTC)
    shown = shown.replace(second=0, microsecond=0)
    while not _is_shown(shown):
        shown += _MINUTE
    return shown.astimezone(UTC)


def cron_fault(expression: str) -> CronFault | None:
    """What is wrong with a cron expression, None if nothing is."""
    if expression.startswith("@") and expression.lower() not in MACROS:
        return "macro"
    fields = _fields_of(expression).split()
    if len(fields) != _FIELDS or len(expression) > _MAX_CRON_CHARACTERS:
        return "fields"
    fault = _fault_of(fields)
    # A good day that none of the months has is told as a bad one.
    has_no_month = fault == "day" and _fault_of([*fields[:3], "*", fields[4]]) is None
    return "never" if has_no_month else fault


def _fault_of(fields: Sequence[str]) -> CronFault | None:
    try:
        next(CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        return _CRON_FAULTS[str(error)]
    except StopIteration:
        return "never"
    return None


def _allowance(policy: MissedPolicy, within: timedelta) -> timedelta:
    return within if policy == "run_if_within" else timedelta()


def _next_match(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    for shown in CronSim(_fields_of(expression), after.astimezone(zone)):
        match = shown.astimezone(UTC)
        # Where clocks are set back, a fixed time is given by its first instance, which may be over.
        if match > after:
            return match
    return None


def _last_until(schedule: Schedule, zone: ZoneInfo, due_at: datetime, now: datetime) -> datetime:
    """The last due time up to *now*, of which *due_at* is the first.

    Halves the time between them: a task may have been due a million times since.
    """
    last_at, over = due_at, now
    while over - last_at > _SECOND:
        middle = last_at + (over - last_at) / 2
        found = next_after(schedule, zone, middle)
        if found is not None and found <= now:
            last_at = found
        else:
            over = middle
    found = next_after(schedule, zone, last_at)
    return found if found is not None and found <= now else last_at


def _fields_of(expression: str) -> str:
    return MACROS.get(expression.lower(), expression)


def _is_shown(local: datetime) -> bool:
    """Whether the clocks of its zone ever show it."""
    again = local.astimezone(UTC).astimezone(local.tzinfo)
    return again.replace(tzinfo=None) == local.replace(tzinfo=None)
