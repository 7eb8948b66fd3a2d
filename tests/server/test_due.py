"""When scheduled tasks are due: tables with the right answers, and what holds for any schedule."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.due import (
    MACROS,
    Cron,
    Due,
    Every,
    MissedPolicy,
    Once,
    Schedule,
    cron_fault,
    due_now,
    instant_of,
    next_after,
)

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
SHANGHAI, SAO_PAULO = ZoneInfo("Asia/Shanghai"), ZoneInfo("America/Sao_Paulo")
CAIRO, LORD_HOWE = ZoneInfo("Africa/Cairo"), ZoneInfo("Australia/Lord_Howe")
KOLKATA, UTC_ZONE = ZoneInfo("Asia/Kolkata"), ZoneInfo("UTC")

GRACE = timedelta(seconds=60)


def at(text: str, zone: ZoneInfo | None = None) -> datetime:
    """An instant, by its offset or by the clocks of *zone* (the first of two)."""
    time = datetime.fromisoformat(text)
    return (time if zone is None else time.replace(tzinfo=zone)).astimezone(UTC)


def shown(schedule: Schedule, zone: ZoneInfo, after: datetime, count: int) -> list[str]:
    """The next due times as the clocks of *zone* show them, with their offsets."""
    found = []
    for _ in range(count):
        due_at = next_after(schedule, zone, after)
        assert due_at is not None
        found.append(due_at.astimezone(zone).strftime("%m-%d %H:%M%z"))
        after = due_at
    return found


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # Where the clocks go forward, a fixed time in the gap comes at its end, once.
        ("30 2 * * *", BERLIN, "2026-03-28T12:00", ["03-29 03:00+0200", "03-30 02:30+0200"]),
        ("30 2 * * *", NEW_YORK, "2026-03-07T12:00", ["03-08 03:00-0400", "03-09 02:30-0400"]),
        ("0,30 2 * * *", BERLIN, "2026-03-28T12:00", ["03-29 03:00+0200", "03-30 02:00+0200"]),
        ("30 2,3 * * *", BERLIN, "2026-03-28T12:00", ["03-29 03:00+0200", "03-29 03:30+0200"]),
        ("30 0 * * 5", CAIRO, "2026-04-23T12:00", ["04-24 01:00+0300", "05-01 00:30+0300"]),
        ("15 2 * * *", LORD_HOWE, "2026-10-03T12:00", ["10-04 02:30+1100", "10-05 02:15+1100"]),
        # Where they go back, a fixed time that is shown twice comes the first time, once.
        ("30 2 * * *", BERLIN, "2026-10-24T12:00", ["10-25 02:30+0200", "10-26 02:30+0100"]),
        ("30 1 * * *", NEW_YORK, "2026-10-31T12:00", ["11-01 01:30-0400", "11-02 01:30-0500"]),
        # What follows the time that passes comes in the repeated hour too.
        (
            "*/30 * * * *",
            BERLIN,
            "2026-10-25T01:45",
            ["10-25 02:00+0200", "10-25 02:30+0200", "10-25 02:00+0100", "10-25 02:30+0100"],
        ),
        ("*/30 * * * *", BERLIN, "2026-03-29T01:45", ["03-29 03:00+0200", "03-29 03:30+0200"]),
        # Sunday is 0 and 7.
        ("0 9 * * 0", SHANGHAI, "2026-11-30T00:00", ["12-06 09:00+0800", "12-13 09:00+0800"]),
        ("0 9 * * 7", SHANGHAI, "2026-11-30T00:00", ["12-06 09:00+0800", "12-13 09:00+0800"]),
        ("0 9 * * SUN", SHANGHAI, "2026-11-30T00:00", ["12-06 09:00+0800", "12-13 09:00+0800"]),
        ("0 9 * * 1-5", SHANGHAI, "2026-12-04T10:00", ["12-07 09:00+0800", "12-08 09:00+0800"]),
        # With both day fields given, either is enough.
        (
            "0 0 13 * 5",
            UTC_ZONE,
            "2026-11-01T00:00",
            ["11-06 00:00+0000", "11-13 00:00+0000", "11-20 00:00+0000", "11-27 00:00+0000"],
        ),
        (
            "0 0 13 * 5",
            UTC_ZONE,
            "2026-12-05T00:00",
            ["12-11 00:00+0000", "12-13 00:00+0000", "12-18 00:00+0000"],
        ),
        # One that begins with a star narrows the other, as in cron.
        ("0 0 */2 * 5", UTC_ZONE, "2026-11-01T00:00", ["11-13 00:00+0000", "11-27 00:00+0000"]),
        ("0 21 * * *", SAO_PAULO, "2026-11-30T17:12", ["11-30 21:00-0300", "12-01 21:00-0300"]),
        ("0 9 * * *", KOLKATA, "2026-11-30T09:00", ["12-01 09:00+0530", "12-02 09:00+0530"]),
        ("0 0 29 2 *", UTC_ZONE, "2026-11-30T00:00", ["02-29 00:00+0000"]),
        ("0 0 L * *", UTC_ZONE, "2026-11-30T00:00", ["12-31 00:00+0000", "01-31 00:00+0000"]),
        ("@daily", BERLIN, "2026-11-30T10:00", ["12-01 00:00+0100", "12-02 00:00+0100"]),
        ("@hourly", BERLIN, "2026-11-30T10:00", ["11-30 11:00+0100", "11-30 12:00+0100"]),
        ("@WEEKLY", UTC_ZONE, "2026-11-30T10:00", ["12-06 00:00+0000"]),
    ],
)
def test_cron_expressions_are_due_as_cron_has_it(
    expression: str, zone: ZoneInfo, after: str, expected: list[str]
) -> None:
    assert cron_fault(expression) is None
    assert shown(Cron(expression), zone, at(after, zone), len(expected)) == expected


def test_fixed_time_is_not_due_again_in_the_second_of_two_equal_hours() -> None:
    # 02:10 of winter time, after the first 02:30 but before the second one.
    second_pass = at("2026-10-25T01:10:00+00:00")
    assert shown(Cron("30 2 * * *"), BERLIN, second_pass, 1) == ["10-26 02:30+0100"]


def test_evening_task_of_another_zone_is_not_due_by_the_servers_clock() -> None:
    restart = at("2026-11-30T17:12", SAO_PAULO)
    assert next_after(Cron("0 21 * * *"), SAO_PAULO, restart) == at("2026-11-30T21:00", SAO_PAULO)


def test_interval_counts_from_its_anchor_and_not_from_the_restart() -> None:
    every = Every(6 * 3600, at("2026-11-30T10:00:00+00:00"))
    restart = at("2026-11-30T15:50:00+00:00")
    assert next_after(every, UTC_ZONE, restart) == at("2026-11-30T16:00:00+00:00")


def test_interval_whose_anchor_lies_ahead_begins_there() -> None:
    anchor = at("2026-12-01T10:00:00+00:00")
    every = Every(3600, anchor)
    assert next_after(every, UTC_ZONE, anchor - timedelta(days=3)) == anchor
    assert next_after(every, UTC_ZONE, anchor) == anchor + timedelta(hours=1)


def test_interval_keeps_its_length_where_the_clocks_change() -> None:
    every = Every(12 * 3600, at("2026-03-28T20:00", BERLIN))
    times = shown(every, BERLIN, at("2026-03-28T20:00", BERLIN), 2)
    assert times == ["03-29 09:00+0200", "03-29 21:00+0200"]


def test_one_time_is_due_once() -> None:
    once = Once(at("2026-12-01T10:00:00+00:00"))
    assert next_after(once, UTC_ZONE, once.at - timedelta(seconds=1)) == once.at
    assert next_after(once, UTC_ZONE, once.at) is None


@pytest.mark.parametrize(
    ("local", "zone", "expected"),
    [
        ("2026-12-01T09:00", SHANGHAI, "2026-12-01T01:00:00+00:00"),
        ("2026-03-29T02:30", BERLIN, "2026-03-29T01:00:00+00:00"),
        ("2026-10-25T02:30", BERLIN, "2026-10-25T00:30:00+00:00"),
        ("2026-10-04T02:15", LORD_HOWE, "2026-10-03T15:30:00+00:00"),
        ("2011-12-30T12:00", ZoneInfo("Pacific/Apia"), "2011-12-30T10:00:00+00:00"),
    ],
)
def test_local_time_is_the_first_instant_that_is_not_before_it(
    local: str, zone: ZoneInfo, expected: str
) -> None:
    assert instant_of(datetime.fromisoformat(local), zone) == at(expected)


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("60 * * * *", "minute"),
        ("*/0 * * * *", "minute"),
        ("a * * * *", "minute"),
        ("0 24 * * *", "hour"),
        ("0 9-8 * * *", "hour"),
        ("0 0 0 * *", "day"),
        ("0 0 32 * *", "day"),
        ("0 0 1 13 *", "month"),
        ("0 0 1 JANUARY *", "month"),
        ("0 0 * * 8", "weekday"),
        ("0 0 * * 5-", "weekday"),
        ("0 0 31 2 *", "never"),
        ("0 0 31 4,6,9,11 *", "never"),
        ("0 0 30 2 *", "never"),
        ("* * * *", "fields"),
        ("* * * * * *", "fields"),
        ("", "fields"),
        (f"{'1' * 5000} * * * *", "fields"),
        ("@reboot", "macro"),
        ("@every 5m", "macro"),
    ],
)
def test_bad_cron_text_is_named_by_what_is_wrong(expression: str, fault: str) -> None:
    assert cron_fault(expression) == fault


@given(st.text(max_size=60) | st.text("0123456789*/,-#LWJANMO@ ", max_size=40))
def test_no_text_at_all_breaks_the_check_of_an_expression(expression: str) -> None:
    if cron_fault(expression) is None:
        after = at("2026-11-30T12:00:00+00:00")
        due_at = next_after(Cron(expression), BERLIN, after)
        assert due_at is None or due_at > after


def decide(
    schedule: Schedule,
    zone: ZoneInfo,
    due_at: datetime,
    now: datetime,
    policy: MissedPolicy = "skip",
    within: timedelta = timedelta(0),
) -> Due:
    return due_now(schedule, zone, due_at, now, policy=policy, within=within, grace=GRACE)


TEN_MINUTES = Cron("*/10 * * * *")
DOWN_SINCE = at("2026-11-28T10:00:00+00:00")
UP_AGAIN = at("2026-11-30T10:07:00+00:00")
LAST = at("2026-11-30T10:00:00+00:00")
NEXT = at("2026-11-30T10:10:00+00:00")


@pytest.mark.parametrize(
    ("policy", "within_minutes", "expected"),
    [
        ("skip", 0, Due(None, DOWN_SINCE, NEXT)),
        ("run_once", 0, Due(LAST, DOWN_SINCE, NEXT)),
        ("run_if_within", 30, Due(LAST, DOWN_SINCE, NEXT)),
        ("run_if_within", 5, Due(None, DOWN_SINCE, NEXT)),
    ],
)
def test_two_days_of_missed_times_are_made_up_for_by_one_run_at_most(
    policy: MissedPolicy, within_minutes: int, expected: Due
) -> None:
    within = timedelta(minutes=within_minutes)
    assert decide(TEN_MINUTES, UTC_ZONE, DOWN_SINCE, UP_AGAIN, policy, within) == expected


def test_what_comes_within_the_grace_is_in_time_under_every_policy() -> None:
    now = LAST + timedelta(seconds=59)
    assert decide(TEN_MINUTES, UTC_ZONE, LAST, now) == Due(LAST, None, NEXT)
    assert decide(TEN_MINUTES, UTC_ZONE, DOWN_SINCE, now) == Due(LAST, DOWN_SINCE, NEXT)
    late = LAST + timedelta(seconds=61)
    assert decide(TEN_MINUTES, UTC_ZONE, LAST, late) == Due(None, LAST, NEXT)


def test_missed_one_time_has_no_next_one() -> None:
    once, now = Once(LAST), LAST + timedelta(hours=3)
    assert decide(once, UTC_ZONE, LAST, now) == Due(None, LAST, None)
    assert decide(once, UTC_ZONE, LAST, now, "run_once") == Due(LAST, None, None)


def test_a_year_of_missed_minutes_is_decided_at_once() -> None:
    decided = decide(Cron("* * * * *"), BERLIN, UP_AGAIN - timedelta(days=365), UP_AGAIN)
    assert decided.run_at == UP_AGAIN  # the last of half a million, which is in time


ZONES = st.sampled_from([BERLIN, NEW_YORK, SHANGHAI, SAO_PAULO, CAIRO, KOLKATA, UTC_ZONE])
INSTANTS = st.datetimes(
    datetime(2024, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    datetime(2032, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    timezones=st.just(UTC),
)


def field(lowest: int, highest: int) -> st.SearchStrategy[str]:
    number = st.integers(lowest, highest)
    listed = st.lists(number, min_size=1, max_size=3).map(lambda ns: ",".join(map(str, ns)))
    ranged = st.tuples(number, number).map(lambda ab: f"{min(ab)}-{max(ab)}")
    stepped = st.integers(1, highest).map(lambda n: f"*/{n}")
    return st.just("*") | listed | ranged | stepped


CRONS = (
    st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7))
    .map(lambda fields: Cron(" ".join(fields)))
    .filter(lambda cron: cron_fault(cron.expression) is None)
)
EVERIES = st.builds(Every, st.integers(60, 40 * 24 * 3600), INSTANTS)
SCHEDULES = CRONS | EVERIES | INSTANTS.map(Once)


@given(SCHEDULES, ZONES, INSTANTS)
def test_due_times_rise_and_are_never_over(
    schedule: Schedule, zone: ZoneInfo, after: datetime
) -> None:
    for _ in range(5):
        due_at = next_after(schedule, zone, after)
        if due_at is None:
            return
        assert due_at > after
        assert due_at.utcoffset() == timedelta(0)
        after = due_at


@given(SCHEDULES, ZONES, INSTANTS, st.timedeltas(timedelta(0), timedelta(days=40)))
def test_nothing_is_due_between_a_time_and_its_next_due_time(
    schedule: Schedule, zone: ZoneInfo, after: datetime, pause: timedelta
) -> None:
    due_at = next_after(schedule, zone, after)
    if due_at is not None and after + pause < due_at:
        assert next_after(schedule, zone, after + pause) == due_at


@settings(max_examples=50)
@given(CRONS, ZONES, INSTANTS)
def test_a_match_shows_the_minute_hour_and_month_asked_for_or_stands_at_a_gap(
    cron: Cron, zone: ZoneInfo, after: datetime
) -> None:
    due_at = next_after(cron, zone, after)
    assert due_at is not None
    local = due_at.astimezone(zone)
    minute, hour, _, month, _ = cron.expression.split()
    fits = local.minute in numbers(minute, 0, 59) and local.hour in numbers(hour, 0, 23)
    was_set_forward = (due_at - timedelta(seconds=1)).astimezone(zone).utcoffset()
    assert fits or was_set_forward != local.utcoffset()
    assert local.month in numbers(month, 1, 12)


def numbers(text: str, lowest: int, highest: int) -> set[int]:
    """What a field admits, read by other means than the code under test."""
    if text == "*":
        return set(range(lowest, highest + 1))
    if text.startswith("*/"):
        return set(range(lowest, highest + 1, int(text[2:])))
    if "-" in text:
        first, last = map(int, text.split("-"))
        return set(range(first, last + 1))
    return set(map(int, text.split(",")))


@given(st.integers(0, 59), st.integers(0, 23), ZONES, INSTANTS)
def test_daily_task_is_due_once_on_each_date_of_its_zone(
    minute: int, hour: int, zone: ZoneInfo, after: datetime
) -> None:
    dates = []
    for _ in range(6):
        due_at = next_after(Cron(f"{minute} {hour} * * *"), zone, after)
        assert due_at is not None
        dates.append(due_at.astimezone(zone).date())
        after = due_at
    assert [later - earlier for earlier, later in zip(dates, dates[1:], strict=False)] == (
        [timedelta(days=1)] * 5
    )


POLICIES = st.sampled_from(["skip", "run_once", "run_if_within"])


@given(SCHEDULES, ZONES, INSTANTS, st.timedeltas(timedelta(0), timedelta(days=400)), POLICIES)
def test_of_all_that_was_missed_the_last_one_runs_or_none(
    schedule: Schedule, zone: ZoneInfo, after: datetime, away: timedelta, policy: MissedPolicy
) -> None:
    due_at = next_after(schedule, zone, after)
    now = after + away
    if due_at is None or due_at > now:
        return
    within = timedelta(hours=1)
    decided = decide(schedule, zone, due_at, now, policy, within)
    assert decided.next_at == next_after(schedule, zone, now)
    if decided.run_at is not None:
        assert due_at <= decided.run_at <= now
        following = next_after(schedule, zone, decided.run_at)
        assert following is None or following > now
        assert policy != "skip" or now - decided.run_at <= GRACE
        assert policy != "run_if_within" or now - decided.run_at <= within
    assert policy != "run_once" or decided.run_at is not None
    assert decided.missed_at in (None, due_at)
    assert decided.run_at is not None or decided.missed_at == due_at


def test_every_name_for_an_expression_is_one() -> None:
    assert [name for name in MACROS if cron_fault(name) is not None] == []
