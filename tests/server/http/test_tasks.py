"""Scheduled tasks over REST: made, refused with a reason, changed, started, looked at."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from server.store.engine import Store
from tests.server.http.site import ADMIN, ALICE, BOB, Site, add_session, open_site
from tests.waiting import until

YEARLY = {"kind": "cron", "expression": "0 9 1 1 *"}
FORM = {"prompt": "look after it", "schedule": YEARLY, "timezone": "Europe/Berlin"}

Headers = dict[str, str]


async def ask(
    site: Site, method: str, path: str, headers: Headers = ALICE, body: object = None
) -> tuple[int, Any]:
    """Status and JSON of an answer; None where it has none."""
    async with site.http.request(method, f"/api/tasks{path}", json=body, headers=headers) as got:
        return got.status, await got.json() if got.status != 204 else None


async def made(site: Site, headers: Headers = ALICE, **form: object) -> Any:
    status, task = await ask(site, "POST", "", headers, {**FORM, **form})
    assert status == 201, task
    return task


async def refused(site: Site, **form: object) -> tuple[str, str]:
    """The field at fault, and what is said of it."""
    status, answer = await ask(site, "POST", "", body={**FORM, **form})
    assert status == 400, answer
    assert answer["error"]["code"] == "bad_request"
    return answer["error"]["details"]["path"], answer["error"]["message"]


async def test_task_is_made_and_shown_with_all_its_defaults(site: Site) -> None:
    task = await made(site, prompt="  tell me   the weather of tomorrow, in one short sentence  ")
    next_at = datetime.fromisoformat(task["nextAt"])
    assert (next_at.month, next_at.day, next_at.hour) == (1, 1, 8)  # nine in Berlin
    assert task == {
        "id": task["id"],
        "owner": "alice",
        "title": "tell me the weather of tomorrow, in one …",
        "prompt": "tell me   the weather of tomorrow, in one short sentence",
        "schedule": YEARLY,
        "timezone": "Europe/Berlin",
        "missedPolicy": "skip",
        "missedWithinSeconds": None,
        "delivery": None,
        "deliveryHeldReason": None,
        "quiet": False,
        "failureLimit": 3,
        "failuresInRow": 0,
        "contract": None,
        "status": "ACTIVE",
        "pausedReason": None,
        "nextAt": task["nextAt"],
        "lastRun": None,
        "createdAt": task["createdAt"],
        "updatedAt": task["updatedAt"],
    }
    assert await ask(site, "GET", f"/{task['id']}") == (200, task)
    assert await ask(site, "GET", f"/{task['id']}/runs") == (200, {"runs": [], "hasMore": False})


async def test_tasks_of_others_are_like_none_and_the_admin_sees_all(site: Site) -> None:
    mine, his = await made(site), await made(site, BOB)
    for headers, expected in ((ALICE, [mine]), (BOB, [his]), (ADMIN, [his, mine])):
        _, listed = await ask(site, "GET", "", headers)
        assert [task["id"] for task in listed["tasks"]] == [task["id"] for task in expected]
    paths = [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/run"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("GET", "/runs"),
    ]
    for method, path in paths:
        answers = [
            await ask(site, method, f"/{task_id}{path}", BOB, {})
            for task_id in (mine["id"], "there-is-none")
        ]
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
    status, _ = await ask(site, "GET", "", {})
    assert status == 401


async def test_a_long_list_comes_in_pages(site: Site) -> None:
    made_ids = [(await made(site))["id"] for _ in range(3)]
    _, first = await ask(site, "GET", "?limit=2")
    assert [task["id"] for task in first["tasks"]] == made_ids[:0:-1]
    assert first["hasMore"]
    _, second = await ask(site, "GET", f"?limit=2&before={first['tasks'][-1]['id']}")
    assert ([task["id"] for task in second["tasks"]], second["hasMore"]) == ([made_ids[0]], False)


def once(at: datetime | str) -> dict[str, str]:
    return {"kind": "once", "at": at if isinstance(at, str) else at.isoformat()}


async def test_one_time_that_is_over_is_refused_with_the_current_time(site: Site) -> None:
    now = datetime.now(UTC)
    for seconds in (0, 1, 86400):
        path, text = await refused(site, schedule=once(now - timedelta(seconds=seconds)))
        assert path == "schedule.at"
        assert "it is " in text
        assert f"{now.astimezone().astimezone(UTC):%Y-}" in text
        assert "+01:00" in text or "+02:00" in text  # as the clocks of Berlin show it
    local = (now - timedelta(hours=3)).replace(tzinfo=None)
    path, _ = await refused(site, schedule=once(local), timezone="UTC")
    assert path == "schedule.at"


async def test_time_without_an_offset_is_meant_by_the_clocks_of_the_tasks_zone(site: Site) -> None:
    task = await made(site, schedule=once("2099-07-01T09:00"), timezone="Asia/Shanghai")
    assert task["nextAt"] == "2099-07-01T01:00:00Z"
    task = await made(site, schedule=once("2099-07-01T09:00-03:00"), timezone="Asia/Shanghai")
    assert task["nextAt"] == "2099-07-01T12:00:00Z"
    assert task["missedPolicy"] == "run_once"  # else a reminder would be lost with a restart


async def test_time_without_zone_and_offset_is_meant_by_the_servers_zone(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with open_site(sqlite_url, tmp_path, TIMEZONE="America/Sao_Paulo") as site:
        task = await made(site, schedule=once("2099-07-01T09:00"), timezone=None)
    assert (task["timezone"], task["nextAt"]) == ("America/Sao_Paulo", "2099-07-01T12:00:00Z")


CRON = "schedule.expression"


@pytest.mark.parametrize(
    ("form", "path", "words"),
    [
        ({"schedule": {"kind": "cron", "expression": "61 * * * *"}}, CRON, "minute"),
        ({"schedule": {"kind": "cron", "expression": "0 9 * * 8"}}, CRON, "0 and 7 are Sunday"),
        ({"schedule": {"kind": "cron", "expression": "0 9 * *"}}, CRON, "this one has 4"),
        ({"schedule": {"kind": "cron", "expression": "0 0 9 * * *"}}, CRON, "this one has 6"),
        ({"schedule": {"kind": "cron", "expression": "0 0 31 2 *"}}, CRON, "never due"),
        ({"schedule": {"kind": "cron", "expression": "@reboot"}}, CRON, "@daily"),
        ({"schedule": {"kind": "cron", "expression": ""}}, CRON, "this one has 0"),
        ({"schedule": {"kind": "interval", "seconds": 59}}, "schedule.seconds", "from 60"),
        ({"schedule": {"kind": "interval", "seconds": 10**12}}, "schedule.seconds", "366 days"),
        (
            {"schedule": {"kind": "interval", "seconds": 60, "anchor": "noon"}},
            "schedule.anchor",
            "2026-12-31T09:00",
        ),
        ({"schedule": {"kind": "once", "at": "tomorrow"}}, "schedule.at", "2026-12-31T09:00"),
        ({"schedule": {"kind": "once", "at": "9999-12-31T23:59"}}, "schedule.at", "cannot be read"),
        ({"schedule": {"kind": "moon"}}, "schedule.kind", "Invalid value"),
        ({"timezone": "Mars/Base"}, "timezone", "Asia/Shanghai"),
        ({"timezone": "../etc/passwd"}, "timezone", "IANA"),
        ({"timezone": "+08:00"}, "timezone", "IANA"),
        ({"prompt": "  "}, "prompt", "1 to 20000"),
        ({"title": "x" * 201}, "title", "1 to 200"),
        ({"failureLimit": 0}, "failureLimit", "1 to 100"),
        ({"missedPolicy": "later"}, "missedPolicy", "Invalid enum"),
        ({"missedPolicy": "run_if_within"}, "missedWithinSeconds", "run_if_within"),
        ({"missedWithinSeconds": 0}, "missedWithinSeconds", "from 1"),
        ({"delivery": {}}, "delivery", "either"),
        ({"delivery": {"session": "there-is-none"}}, "delivery.session", "no such session"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_the_field_and_what_is_right(
    site: Site, form: dict[str, object], path: str, words: str
) -> None:
    found_path, text = await refused(site, **form)
    assert found_path == path
    assert words in text


async def test_refusals_are_in_the_servers_language(sqlite_url: str, tmp_path: Path) -> None:
    async with open_site(sqlite_url, tmp_path, LOCALE="zh-CN") as site:
        _, text = await refused(site, schedule={"kind": "cron", "expression": "0 25 * * *"})
        assert text == "cron 表达式的第 2 个字段“时”不对，应为 0–23，例如 9、9-18、*/2。"
        _, text = await refused(site, schedule=once("2020-01-01T00:00"))
        assert "已经过去，现在是 " in text


async def test_answers_go_only_where_their_owner_may_speak(site: Site, store: Store) -> None:
    async with store.write() as db:
        await add_session(db, "mine", "alice")
        await add_session(db, "his", "bob")
    task = await made(site, delivery={"session": "mine"})
    assert task["delivery"] == {"session": "mine"}
    path, _ = await refused(site, delivery={"session": "his"})
    assert path == "delivery.session"
    chat = {"platform": "feishu", "appId": "cli_1", "chatId": "oc_1"}
    status, _ = await ask(site, "POST", "", ALICE, {**FORM, "delivery": {"chat": chat}})
    assert status == 403
    task = await made(site, ADMIN, delivery={"chat": chat})
    assert task["delivery"] == {"chat": chat}
    task = await made(site, ADMIN, delivery={"session": "his"})
    status, answer = await ask(site, "PATCH", f"/{task['id']}", ADMIN, {"delivery": None})
    assert (status, answer["delivery"]) == (200, None)


async def test_change_computes_the_due_time_anew_and_leaves_the_rest(site: Site) -> None:
    task = await made(site, quiet=True)
    change = {"schedule": {"kind": "cron", "expression": "30 18 1 1 *"}}
    status, changed = await ask(site, "PATCH", f"/{task['id']}", body=change)
    assert status == 200
    assert datetime.fromisoformat(changed["nextAt"]).hour == 17
    same = {"schedule", "nextAt", "updatedAt"}
    assert {k: v for k, v in changed.items() if k not in same} == {
        k: v for k, v in task.items() if k not in same
    }
    status, answer = await ask(site, "PATCH", f"/{task['id']}", body={"timezone": "Nowhere"})
    assert (status, answer["error"]["details"]) == (400, {"path": "timezone"})
    assert (await ask(site, "GET", f"/{task['id']}"))[1] == changed


async def test_pause_and_resume_are_told_and_can_be_repeated(site: Site) -> None:
    task = await made(site)
    for _ in range(2):
        status, paused = await ask(site, "POST", f"/{task['id']}/pause")
        assert (status, paused["status"], paused["nextAt"]) == (200, "PAUSED", None)
    for _ in range(2):
        status, resumed = await ask(site, "POST", f"/{task['id']}/resume")
        assert (status, resumed["status"], resumed["nextAt"]) == (200, "ACTIVE", task["nextAt"])


async def test_one_time_that_passed_while_paused_cannot_be_resumed(site: Site) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)
    task = await made(site, schedule=once(soon))
    await ask(site, "POST", f"/{task['id']}/pause")

    async def is_refused() -> bool:
        status, answer = await ask(site, "POST", f"/{task['id']}/resume")
        if status == 200:
            await ask(site, "POST", f"/{task['id']}/pause")
            return False
        return status == 409 and "it is " in answer["error"]["message"]

    await until(is_refused)


async def test_start_by_hand_runs_at_once_and_its_end_is_shown(site: Site) -> None:
    task = await made(site, prompt="hello")
    status, started = await ask(site, "POST", f"/{task['id']}/run")
    assert (status, started["trigger"], started["status"]) == (202, "manual", "RUNNING")

    async def has_ended() -> bool:
        _, shown = await ask(site, "GET", f"/{task['id']}")
        return bool(shown["lastRun"]["status"] == "COMPLETED")

    await until(has_ended)
    _, listed = await ask(site, "GET", f"/{task['id']}/runs")
    [run] = listed["runs"]
    assert (run["session"], run["run"]) == (started["session"], started["run"])
    async with site.http.get(f"/api/sessions/{run['session']}", headers=ALICE) as response:
        assert (await response.json())["kind"] == "scheduled"
    async with site.http.get(f"/api/runs/{run['run']}", headers=ALICE) as response:
        assert (await response.json())["trigger"] == "schedule"


async def test_deleting_a_task_stops_what_runs_of_it_and_keeps_its_session(site: Site) -> None:
    task = await made(site, prompt="/demo loop")
    _, started = await ask(site, "POST", f"/{task['id']}/run")
    assert await ask(site, "DELETE", f"/{task['id']}") == (204, None)
    assert (await ask(site, "GET", f"/{task['id']}"))[0] == 404

    async def is_over() -> bool:
        path = f"/api/sessions/{started['session']}"
        async with site.http.get(path, headers=ALICE) as response:
            return (await response.json())["status"] in ("CANCELLED", "FAILED")

    await until(is_over)


async def test_loop_in_a_scheduled_run_is_stopped_and_counted(site: Site) -> None:
    task = await made(site, prompt="/demo loop", failureLimit=1)
    await ask(site, "POST", f"/{task['id']}/run")

    async def is_paused() -> bool:
        _, shown = await ask(site, "GET", f"/{task['id']}")
        return bool(shown["status"] == "PAUSED")

    await until(is_paused, seconds=60)
    _, shown = await ask(site, "GET", f"/{task['id']}")
    assert shown["lastRun"]["status"] == "FAILED"
    assert "grep_search" in shown["lastRun"]["reason"]
    assert shown["lastRun"]["reason"] in shown["pausedReason"]


async def test_an_owner_has_no_more_tasks_than_somebody_can_look_after(site: Site) -> None:
    for _ in range(200):
        await made(site)
    status, answer = await ask(site, "POST", "", body=FORM)
    assert (status, "200 scheduled tasks" in answer["error"]["message"]) == (409, True)
    await made(site, BOB)
