"""A scheduled run that asks, and is answered by nobody, in a server that people run."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import sqlalchemy as sa

from server.store.engine import open_store
from server.store.tables import ApprovalRow, table_of
from tests.e2e.process import ANN, Installation, open_server
from tests.fakes.llm import call, reply, serve_gateway
from tests.house import is_title
from tests.waiting import until
from tests.wire import open_client

ASK = reply(calls=[call("ask_user", {"question": "Which of both?"})])
SEND = reply(calls=[call("send_message", {"to": "somewhere", "text": "hello"})])
TOLD_IN = "told"
APPROVAL = table_of(ApprovalRow)
CONFIG = '[approvals]\nscheduled = "sends"\nexpire_minutes = 1\n'


class Tasks:
    """The tasks of a server over REST."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of an answer."""
        async with self._http.request(method, path, json=body) as response:
            assert response.ok, await response.text()
            return await response.json()

    async def metrics(self) -> str:
        """All that the server counted."""
        async with self._http.get("/metrics") as response:
            return await response.text()

    async def run(self, task_id: str, status: str) -> Any:
        """The task's latest run, once it stands so."""
        found: Any = None

        async def is_so() -> bool:
            nonlocal found
            found = (await self.ask("GET", f"/api/tasks/{task_id}/runs"))["runs"][0]
            return bool(found["status"] == status)

        await until(is_so)
        return found

    async def told(self, session_id: str, count: int) -> list[str]:
        """What is told in a session, once it is so much."""
        texts: list[str] = []

        async def is_told() -> bool:
            nonlocal texts
            body = await self.ask("GET", f"/api/sessions/{session_id}/messages?limit=50")
            texts = [message["content"] for message in body["messages"]]
            return len(texts) >= count

        await until(is_told)
        return texts


async def test_task_whose_questions_expire_fails_is_paused_and_says_so_once(
    tmp_path: Path, sqlite_url: str
) -> None:
    config = tmp_path / "headway.toml"
    config.write_text(CONFIG)
    variables = {"DATABASE_URL": sqlite_url, "CONFIG": str(config)}
    async with serve_gateway([ASK, SEND], title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url, variables)
        async with (
            open_server(place) as server,
            open_store(sqlite_url) as store,
            aiohttp.ClientSession(server.url, headers={"Authorization": f"Bearer {ANN}"}) as http,
        ):
            tasks = Tasks(http)
            async with open_client(server.url, token=ANN) as client:
                await client.request("session.create", session=TOLD_IN)
            form = {
                "prompt": "look after it",
                "schedule": {"kind": "interval", "seconds": 86400},
                "delivery": {"session": TOLD_IN},
                "failureLimit": 2,
            }
            task_id = (await tasks.ask("POST", "/api/tasks", form))["id"]
            for _ in range(2):
                await tasks.ask("POST", f"/api/tasks/{task_id}/run")
                waiting = await tasks.run(task_id, "WAITING")
                async with store.write() as db:  # its minute, without waiting for it
                    over = datetime.now(UTC) - timedelta(seconds=1)
                    await db.execute(sa.update(APPROVAL).values(expires_at=over))
                failed = await tasks.run(task_id, "FAILED")
                assert failed["session"] == waiting["session"]
                assert failed["run"] != waiting["run"]
                run = await tasks.ask("GET", f"/api/runs/{failed['run']}")
                assert run["outcome"]["code"] == "interrupt_expired"
                assert run["outcome"]["text"] == failed["reason"]
            task = await tasks.ask("GET", f"/api/tasks/{task_id}")
            assert (task["status"], task["failuresInRow"]) == ("PAUSED", 2)
            said = await tasks.told(TOLD_IN, 4)
            assert ["Which of both?" in text for text in said] == [True, False, False, False]
            assert ["现已暂停" in text for text in said] == [False, False, False, True]
            assert place.log.count("[approval] expired") == 2
            counted = await tasks.metrics()
            assert 'headway_task_ends_total{status="FAILED"} 2.0' in counted
            assert 'headway_task_ends_total{status="WAITING"} 2.0' in counted
            assert "headway_task_pauses_total 1.0" in counted
