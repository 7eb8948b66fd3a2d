"""Scheduled tasks over kills of the server: each due time is run, and run once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.process import ANN, Installation, open_server
from tests.fakes.llm import NEVER, Quirks, reply, serve_gateway
from tests.house import is_title
from tests.waiting import until

HANG = reply("…", quirks=Quirks(before_headers=NEVER))


async def ask(url: str, method: str, path: str, body: object = None) -> Any:
    headers = {"Authorization": f"Bearer {ANN}"}
    async with (
        aiohttp.ClientSession(url, headers=headers) as http,
        http.request(method, path, json=body) as response,
    ):
        assert response.ok, await response.text()
        return await response.json()


async def minutely(url: str, first_in_seconds: float, **more: object) -> tuple[str, datetime]:
    """Id of a task that is due in so many seconds and each minute after; and when that is."""
    first = datetime.now(UTC) + timedelta(seconds=first_in_seconds)
    schedule = {"kind": "interval", "seconds": 60, "anchor": first.isoformat()}
    form = {"prompt": "look after it", "schedule": schedule, **more}
    return (await ask(url, "POST", "/api/tasks", form))["id"], first


async def ended(url: str, task_id: str) -> list[Any]:
    """What became of the task's due times, once the earliest is over."""
    runs: list[Any] = []

    async def is_over() -> bool:
        nonlocal runs
        runs = (await ask(url, "GET", f"/api/tasks/{task_id}/runs"))["runs"]
        return bool(runs) and runs[-1]["endedAt"] is not None

    await until(is_over, seconds=50)
    return runs


async def test_run_that_a_kill_cut_goes_on_and_its_due_time_is_not_run_again(
    tmp_path: Path, database_url: str
) -> None:
    async with serve_gateway([HANG, reply("done after all")], title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url, {"DATABASE_URL": database_url})
        async with open_server(place) as server:
            task_id, first = await minutely(server.url, 1.0)
            await gateway.wait_for_requests(1)
            await server.sigkill()
        async with open_server(place) as server:
            runs = await ended(server.url, task_id)
            assert [datetime.fromisoformat(run["dueAt"]) for run in runs] == [first]
            assert runs[0]["status"] == "COMPLETED"
            run = await ask(server.url, "GET", f"/api/runs/{runs[0]['run']}")
            assert (run["attempt"], run["trigger"]) == (2, "schedule")


async def test_due_time_that_passed_while_the_server_was_restarted_is_run(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with serve_gateway([reply("in time")], title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url, {"DATABASE_URL": sqlite_url})
        async with open_server(place) as server:
            task_id, first = await minutely(server.url, 2.0)
            await server.sigkill()
        async with open_server(place) as server:
            runs = await ended(server.url, task_id)
            due = [(datetime.fromisoformat(run["dueAt"]), run["status"]) for run in runs]
            assert due == [(first, "COMPLETED")]
