"""Two server processes on one PostgreSQL database: what one began the other can answer and stop.

Both are started once; the last test kills one of them.
"""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import sqlalchemy as sa

from server.store.engine import Store, open_store
from tests.e2e.process import ADMIN, ANN, Installation, ServerProcess, open_server
from tests.fakes.llm import (
    NEVER,
    Play,
    Quirks,
    Recorded,
    ScriptedGateway,
    call,
    reply,
    serve_gateway,
)
from tests.house import is_title
from tests.postgres import PostgresServer
from tests.waiting import until
from tests.wire import Frame, WireClient, WireError, open_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEAT_SECONDS = 10.0
"""How often a process hears of what another one asked of its runs."""

CONFIG = '[approvals]\nweb = "writes"\nscheduled = "never"\n'
HANG = reply("…", quirks=Quirks(before_headers=NEVER))
_STORY = re.compile(r"\b(write-and-ask|ask|hang|delegate|once|cut) (\w+)")


class Model:
    """Answers by what the request asks for; each story has a word and a name of its own."""

    def __init__(self) -> None:
        self.cut = 0
        """How often the run that is cut was asked for."""

    def __call__(self, request: Recorded) -> Play:
        """The reply to *request*."""
        story, name, results = _asked(request.messages)
        match story:
            case "write-and-ask" if results == 0:
                write = call("write_file", {"path": f"{name}.txt", "content": "kept"})
                return reply(calls=[write, call("ask_user", {"question": "Which?"})])
            case "ask" if results == 0:
                return reply(calls=[call("ask_user", {"question": "Which?"})])
            case "delegate" if results == 0:
                task = {"task": f"hang {name}", "background": False}
                return reply(calls=[call("spawn_subagent", task)])
            case "hang":
                return HANG
            case "cut":
                self.cut += 1
                return HANG if self.cut == 1 else reply("after all")
            case _:
                return reply(f"{story} {name} is done")


def _asked(messages: Sequence[Mapping[str, Any]]) -> tuple[str, str, int]:
    """What the last message of a person asks for, its name, and the results since."""
    results = 0
    for message in reversed(messages):
        if message["role"] == "tool":
            results += 1
        elif message["role"] == "user" and (found := _STORY.search(str(message["content"]))):
            return found[1], found[2], results
    raise AssertionError("nobody asked for anything")


@dataclass(frozen=True, slots=True)
class Pair:
    """Both processes, a client on each, and the database that they share."""

    one: ServerProcess
    two: ServerProcess
    on_one: WireClient
    on_two: WireClient
    one_place: Installation
    two_place: Installation
    gateway: ScriptedGateway
    store: Store

    @property
    def workspace(self) -> Path:
        """Where the tools of both work."""
        return self.one_place.folder.parent / "data" / "workspace"

    async def say(self, words: str) -> str:
        """A new session that both clients follow, and in it these words on the first process."""
        session_id = uuid.uuid4().hex
        await self.on_one.request("session.create", session=session_id)
        for client in (self.on_one, self.on_two):
            await client.subscribe(session_id)
        await self.on_one.request("run.start", session=session_id, clientMsgId="m1", content=words)
        return session_id

    async def questions(self, session_id: str) -> list[Frame]:
        """What the session asks, as the second process tells a client that comes there."""
        await self.on_one.event(session_id, "RUN_FINISHED")
        found: list[Frame] = (await self.on_two.subscribe(session_id))["approvals"]
        return found

    async def add_task(self, form: Frame) -> str:
        """Make a task at the first process; its id."""
        headers = {"Authorization": f"Bearer {ANN}"}
        async with (
            aiohttp.ClientSession(self.one.url, headers=headers) as http,
            http.post("/api/tasks", json=form) as response,
        ):
            assert response.ok, await response.text()
            return str((await response.json())["id"])

    async def task_runs(self, server: ServerProcess, task_id: str) -> list[Frame]:
        """What became of a task's due times."""
        status, body = await server.get(f"/api/tasks/{task_id}/runs")
        assert status == 200, body
        found: list[Frame] = body["runs"]
        return found

    async def runs(self, session_id: str) -> list[sa.RowMapping]:
        """The session's runs as they are stored, the first one first."""
        query = sa.text("SELECT * FROM run WHERE session_id = :id ORDER BY created_at, id")
        async with self.store.read() as db:
            return list((await db.execute(query, {"id": session_id})).mappings())

    async def ended(self, session_id: str, status: str, seconds: float = 20) -> None:
        """Wait until the session stands so for whoever asks either process."""

        async def is_so() -> bool:
            found = [await server.session(session_id) for server in (self.one, self.two)]
            return all(one["status"] == status for one in found)

        await until(is_so, seconds)

    async def change(self, statement: str, **values: object) -> None:
        """Move a time that stands in the database, instead of waiting for it."""
        async with self.store.write() as db:
            await db.execute(sa.text(statement), values)

    async def calls(self, tool: str) -> float:
        """How often a tool was called, in both processes together."""
        return await self.counted("headway_tool_calls_total", f'error="no",tool="{tool}"')

    async def counted(self, metric: str, labels: str) -> float:
        """A counter of both processes together."""
        wanted = f"{metric}{{{labels}}} "
        total = 0.0
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {ANN}"}) as http:
            for server in (self.one, self.two):
                if not server.has_ended:
                    async with http.get(f"{server.url}/metrics") as response:
                        lines = (await response.text()).splitlines()
                    total += sum(float(line.split()[-1]) for line in lines if wanted in line)
        return total


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    config = folder / "headway.toml"
    config.write_text(CONFIG)
    async with AsyncExitStack() as opened:
        url = opened.enter_context(postgres.database())
        gateway = await opened.enter_async_context(
            serve_gateway(Model(), title=is_title, strict=False)
        )
        variables = {
            "DATABASE_URL": url,
            "CONFIG": str(config),
            "DATA_DIR": str(folder / "data"),
        }
        places = [Installation(folder / name, gateway.url, variables) for name in ("one", "two")]
        store = await opened.enter_async_context(open_store(url))
        one, two = [await opened.enter_async_context(open_server(place)) for place in places]
        on_one, on_two = [
            await opened.enter_async_context(open_client(server.url, token=token))
            for server, token in ((one, ANN), (two, ADMIN))
        ]
        yield Pair(one, two, on_one, on_two, places[0], places[1], gateway, store)


async def respond(client: WireClient, session_id: str, question: Frame, **given: Any) -> Frame:
    """Answer a question."""
    answer = {"decision": "approve", **given}
    return await client.request(
        "approval.respond", session=session_id, interruptId=question["id"], **answer
    )


def reason(question: Frame) -> str:
    """Of a question."""
    return str(question["reason"])


async def test_question_of_one_process_is_answered_at_the_other_and_the_run_goes_on_once(
    pair: Pair,
) -> None:
    session_id = await pair.say("write-and-ask both")
    [question, write] = sorted(await pair.questions(session_id), key=reason)
    assert (reason(question), reason(write)) == ("input_required", "tool_call")
    first = await respond(pair.on_two, session_id, write)
    assert "runId" not in first
    seen = {one["id"]: one for one in (await pair.on_one.subscribe(session_id))["approvals"]}
    assert (seen[write["id"]]["status"], seen[write["id"]]["answeredBy"]) == ("APPROVED", "admin")
    assert seen[question["id"]]["status"] == "OPEN"
    second = await respond(pair.on_two, session_id, question, payload="the left one")
    await pair.ended(session_id, "COMPLETED")
    asked, went_on = await pair.runs(session_id)
    assert (asked["status"], went_on["status"]) == ("WAITING", "COMPLETED")
    assert (went_on["id"], went_on["attempt"]) == (second["runId"], 1)
    assert await pair.calls("write_file") == 1
    assert (pair.workspace / "both.txt").read_text() == "kept"
    for server in (pair.one, pair.two):
        async with open_client(server.url, token=ANN) as client:
            seen = await client.subscribe(session_id)
        assert [message["role"] for message in seen["messages"]] == [
            "user", "assistant", "tool", "tool", "assistant",
        ]  # fmt: skip
        assert '"the left one"' in seen["messages"][3]["content"]
        assert seen["messages"][-1]["content"] == "write-and-ask both is done"


async def test_of_two_answers_at_once_the_first_counts_and_the_other_is_told_whose_it_is(
    pair: Pair,
) -> None:
    session_id = await pair.say("ask race")
    [question] = await pair.questions(session_id)
    answers = await asyncio.gather(
        respond(pair.on_one, session_id, question, payload="said by ann"),
        respond(pair.on_two, session_id, question, payload="said by admin"),
        return_exceptions=True,
    )
    [refusal] = [answer for answer in answers if isinstance(answer, WireError)]
    assert refusal.code == "approval_already_resolved"
    first = "admin" if answers[0] is refusal else "ann"
    assert refusal.details["by"] == first
    await pair.ended(session_id, "COMPLETED")
    assert [run["trigger"] for run in await pair.runs(session_id)] == ["message", "resume"]
    messages = await pair.one.messages(session_id)
    [result] = [message for message in messages if message["role"] == "tool"]
    assert f"said by {first}" in result["content"]


async def test_stop_at_one_process_reaches_runs_and_subagents_of_the_other_within_a_beat(
    pair: Pair,
) -> None:
    count = len(pair.gateway.requests)
    plain = await pair.say("hang plain")
    parent = await pair.say("delegate child")
    [spawn] = await pair.questions(parent)
    await respond(pair.on_one, parent, spawn)
    await pair.gateway.wait_for_requests(count + 3)
    [child] = [one["id"] for one in (await pair.on_two.subscribe(parent))["children"]]
    for session_id in (plain, child):
        answer = await pair.on_two.request("run.cancel", session=session_id)
        assert answer == {"state": "cancelling"}
    for session_id in (plain, child):
        await pair.ended(session_id, "CANCELLED", BEAT_SECONDS + 5)
    await pair.ended(parent, "COMPLETED")
    end = await pair.on_one.event(plain, "RUN_FINISHED")
    assert end["outcome"] == {"type": "cancelled"}
    again = await pair.on_two.request("run.cancel", session=plain)
    assert again == {"state": "not_running"}


async def test_question_whose_time_is_over_fails_its_run_once(pair: Pair) -> None:
    session_id = await pair.say("ask nobody")
    [question] = await pair.questions(session_id)
    await pair.change(
        "UPDATE approval SET expires_at = :at WHERE id = :id",
        at=datetime.now(UTC) - timedelta(seconds=1),
        id=question["id"],
    )
    await pair.ended(session_id, "FAILED")
    _, ended = await pair.runs(session_id)
    assert (ended["outcome_code"], ended["attempt"]) == ("interrupt_expired", 1)
    log = pair.one_place.log + pair.two_place.log
    assert log.count(f"[approval] expired session={session_id}") == 1


async def test_killed_process_leaves_its_task_to_the_other_which_tells_the_answer_once(
    pair: Pair,
) -> None:
    count = len(pair.gateway.requests)
    [known] = await pair.runs(await pair.say("hang known"))
    owner_of_one = known["lease_owner"]
    told_in = uuid.uuid4().hex
    await pair.on_one.request("session.create", session=told_in)
    form = {
        "prompt": "cut off",
        "schedule": {"kind": "once", "at": (datetime.now(UTC) + timedelta(seconds=1)).isoformat()},
        "delivery": {"session": told_in},
    }
    task_id = await pair.add_task(form)
    await pair.gateway.wait_for_requests(count + 2)
    [fired] = await pair.task_runs(pair.two, task_id)
    [cut] = await pair.runs(fired["session"])
    is_mine = cut["lease_owner"] == owner_of_one
    dying, other = (pair.one, pair.two) if is_mine else (pair.two, pair.one)
    await dying.sigkill()
    await pair.change(
        "UPDATE run SET lease_until = :at WHERE id = :id",
        at=datetime.now(UTC) - timedelta(seconds=1),
        id=fired["run"],
    )

    async def is_told() -> bool:
        [found] = await pair.task_runs(other, task_id)
        return bool(found["deliveryStatus"] == "DELIVERED")

    await until(is_told, BEAT_SECONDS + 10)
    [found] = await pair.task_runs(other, task_id)
    assert (found["status"], found["run"]) == ("COMPLETED", fired["run"])
    [run] = await pair.runs(fired["session"])
    assert run["attempt"] == 2
    assert [run["trigger"] for run in await pair.runs(told_in)] == ["deliver"]
    assert [message["content"] for message in await other.messages(told_in)] == ["after all"]
