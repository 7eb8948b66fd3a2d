"""A server that is killed again and again while people talk to it, and what must hold then."""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from server.store.engine import Store
from tests.e2e.process import ANN, Installation, ServerProcess, open_server
from tests.fakes.llm import Play, Quirks, Recorded, ScriptedGateway, call, reply
from tests.fakes.llm_wire import ScriptedCall
from tests.waiting import until
from tests.wire import Lost, WireClient, WireError, open_client

LOOP: Final = "loop"
SESSIONS: Final = (LOOP, "talk", "write-a", "write-b")
LEDGER: Final = "ledger"
BOOKS: Final = "books"
WRITES: Final = 3
"""Calls of one writing run, each in a round of its own."""

QUEUED_MOST: Final = 3
"""Messages of one session that wait at once: each costs time in the end."""

_ASKED = re.compile(r"\b(talk|write|loop) (\d+)")
_PACED = Quirks(pace_seconds=0.004)
_SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})], quirks=_PACED)
_TALK = reply("一二三四五六七八" * 12, quirks=_PACED)


class Model:
    """Answers by what the request says; no two writing calls write the same line."""

    def __init__(self) -> None:
        self._serial = 0

    def __call__(self, request: Recorded) -> Play:
        """The reply to *request*."""
        kind, number, answered = _asked(request.messages)
        if kind == "loop":
            return _SEARCH
        if kind == "talk" or answered >= WRITES:
            return _TALK
        self._serial += 1
        return reply(calls=[_write(answered, number, f"line-{self._serial}")], quirks=_PACED)


def _write(answered: int, number: str, line: str) -> ScriptedCall:
    """A line into the ledger, then a book of the message's own, then a line into that.

    Each would be seen if it were done twice, but for the empty book.
    """
    book = f"{BOOKS}/{number}"
    if answered == 0:
        command = f"echo {line} >> {LEDGER}; sleep 0.02"
        return call("shell", {"action": "run", "command": command})
    if answered == 1:
        return call("write_file", {"path": book, "content": "end\n"})
    return call("edit_file", {"path": book, "old_text": "end", "new_text": f"{line}\nend"})


def _asked(messages: Sequence[Mapping[str, Any]]) -> tuple[str, str, int]:
    """What the last message of a person asks for, its number, and the results since."""
    answered = 0
    for message in reversed(messages):
        if message["role"] == "tool":
            answered += 1
        elif message["role"] == "user" and (found := _ASKED.search(str(message["content"]))):
            return found[1], found[2], answered
    raise AssertionError("nobody asked for anything")


@dataclass(frozen=True, slots=True)
class Saying:
    """A message that a client sends until it has an answer."""

    session_id: str
    message_id: str
    text: str
    when_busy: str


@dataclass
class Life:
    """One life of the server, as its client sees it."""

    server: ServerProcess
    client: WireClient
    gateway: ScriptedGateway
    sending: asyncio.Task[None]

    def count(self, kind: str) -> int:
        """How many events of this type came."""
        return self.client.order.count(kind)

    async def another(self, *kinds: str) -> None:
        """Wait for one more event of these types."""
        before = sum(map(self.count, kinds))
        await self.client.until(lambda: sum(map(self.count, kinds)) > before)


Moment = Callable[[Life], Awaitable[float]]
"""Waits for what the kill shall hit; gives the most seconds to let pass after that."""


async def at_the_start(life: Life) -> float:
    """While runs of the dead process are taken up."""
    return 0.2


async def in_a_request(life: Life) -> float:
    """Messages are under way, or being stored."""
    return 0.03


async def after_the_answers(life: Life) -> float:
    """Everything that was sent has just been acknowledged."""
    await life.sending
    return 0.005


async def in_a_stream(life: Life) -> float:
    """The model speaks."""
    await life.gateway.wait_for_requests(len(life.gateway.requests) + 1)
    return 0.12


async def at_a_call(life: Life) -> float:
    """A round is being opened, its tool is started, or runs."""
    await life.another("TOOL_CALL_END")
    return 0.05


async def at_a_result(life: Life) -> float:
    """A round is being closed, and judged."""
    await life.another("TOOL_CALL_RESULT")
    return 0.01


async def before_an_outcome(life: Life) -> float:
    """The last reply of a run is whole, and its end is being written."""
    await life.another("TEXT_MESSAGE_END")
    return 0.01


async def at_an_outcome(life: Life) -> float:
    """The end has just been told."""
    await life.another("RUN_FINISHED", "RUN_ERROR")
    return 0.003


MOMENTS: Final[Sequence[Moment]] = (
    at_a_call,
    in_a_stream,
    at_a_result,
    after_the_answers,
    before_an_outcome,
    at_the_start,
    at_an_outcome,
    in_a_request,
)


@dataclass
class Storm:
    """One database through many lives of its server."""

    place: Installation
    store: Store
    gateway: ScriptedGateway
    luck: random.Random
    acknowledged: set[str] = field(default_factory=set)
    """Messages that the server said it has."""
    ends: list[tuple[str, str]] = field(default_factory=list)
    """Runs and terminal events as clients were told, over all lives."""
    _open: list[Saying] = field(default_factory=list)
    _count: int = 0

    async def kill(self, moment: Moment) -> None:
        """Let a server live until *moment*, then kill it."""
        async with AsyncExitStack() as opened:
            life = await self._begin(opened)
            try:
                seconds = await moment(life)
                await asyncio.sleep(self.luck.uniform(0, seconds))  # the moment, not a wait
            finally:
                await life.server.sigkill()
                await asyncio.wait({life.sending})
            life.sending.result()
        await self._age_leases()

    async def settle(self) -> None:
        """Let a last server live until all is done that was asked for, and stop it."""
        async with AsyncExitStack() as opened:
            life = await self._begin(opened)
            await life.sending
            assert self._open == [], "everything was acknowledged in the end"
            await until(lambda: self._has_rested(life.client), seconds=120)
            await life.server.sigterm()

    async def _begin(self, opened: AsyncExitStack) -> Life:
        server = await opened.enter_async_context(open_server(self.place))
        client = await opened.enter_async_context(open_client(server.url, token=ANN))
        opened.callback(self._note_ends, client)
        for session_id in SESSIONS:
            await client.request("session.create", session=session_id)
            await client.subscribe(session_id)
        await self._think_of_more()
        sending = asyncio.create_task(self._send(client), name="send")
        return Life(server, client, self.gateway, sending)

    async def _think_of_more(self) -> None:
        """One new message for each session that is not far behind; a loop at a time."""
        busy = await self._busy()
        for session_id in SESSIONS:
            most = 1 if session_id == LOOP else QUEUED_MOST
            waiting = sum(saying.session_id == session_id for saying in self._open)
            if busy[session_id] + waiting < most:
                self._count += 1
                kind = session_id.partition("-")[0]
                joins = kind == "write" and self.luck.random() < 0.5
                self._open.append(
                    Saying(
                        session_id,
                        f"message-{self._count}",
                        f"{kind} {self._count}",
                        "steer" if joins else "queue",
                    )
                )

    async def _send(self, client: WireClient) -> None:
        """Send what has no answer yet, and let queues go on that the restart held."""
        try:
            for session_id in SESSIONS:
                await client.request("queue.resume", session=session_id)
            for saying in list(self._open):
                await self._say(client, saying)
                self.acknowledged.add(saying.message_id)
                self._open.remove(saying)
        except Lost:
            pass  # killed; the next life hears of it again

    async def _say(self, client: WireClient, saying: Saying) -> None:
        """Send one message; where there is nothing to join, to the queue."""
        message = {
            "session": saying.session_id,
            "clientMsgId": saying.message_id,
            "content": saying.text,
        }
        try:
            await client.request("run.start", whenBusy=saying.when_busy, **message)
        except WireError as error:
            if error.code != "steer_unavailable":
                raise
            await client.request("run.start", **message)

    async def _has_rested(self, client: WireClient) -> bool:
        """No run is under way and none waits; a queue that a failure held is let go on."""
        busy = await self._busy()
        for session_id in busy:
            if not await self._rows(
                "SELECT id FROM run WHERE session_id=:id AND status='RUNNING'", id=session_id
            ):
                await client.request("queue.resume", session=session_id)
        return not busy

    async def _busy(self) -> Counter[str]:
        rows = await self._rows("SELECT session_id FROM run WHERE status IN ('RUNNING','QUEUED')")
        return Counter(row["session_id"] for row in rows)

    async def _age_leases(self) -> None:
        """Where several processes may be alive, let the time pass that leases last."""
        if self.store.dialect == "postgresql":
            statement = "UPDATE run SET lease_until = now() WHERE status = 'RUNNING'"
            async with self.store.write() as db:
                await db.execute(sa.text(statement))

    def _note_ends(self, client: WireClient) -> None:
        for followed in client.followed.values():
            for event in followed.events:
                if event["type"] in ("RUN_FINISHED", "RUN_ERROR"):
                    run_id = event.get("runId") or event["metadata"]["runId"]
                    self.ends.append((run_id, event["type"]))

    async def _rows(self, query: str, **values: str) -> list[Mapping[str, Any]]:
        async with self.store.read() as db:
            return [dict(row) for row in (await db.execute(sa.text(query), values)).mappings()]

    # What must hold in the end

    async def audit(self) -> None:
        """Raise unless the store is what it would be if nothing had been killed."""
        runs = await self._rows("SELECT * FROM run ORDER BY ended_at")
        messages = await self._rows("SELECT * FROM message ORDER BY session_id, seq")
        self._audit_history(messages)
        await self._audit_runs(runs)
        self._audit_ends({run["id"]: run for run in runs})
        lines = await asyncio.to_thread(_lines_of, self.place.workspace)
        _audit_calls(messages, lines)
        await self._audit_actions(messages)
        for run in runs:
            if run["session_id"] == LOOP:
                await self._audit_loop(run, [m for m in messages if m["run_id"] == run["id"]])

    def _audit_history(self, messages: Sequence[Mapping[str, Any]]) -> None:
        for session_id in SESSIONS:
            numbers = [m["seq"] for m in messages if m["session_id"] == session_id]
            assert numbers == list(range(1, len(numbers) + 1)), session_id
        said = Counter(m["id"] for m in messages if m["role"] == "user")
        assert said == Counter(self.acknowledged)

    async def _audit_runs(self, runs: Sequence[Mapping[str, Any]]) -> None:
        assert Counter(run["message_id"] for run in runs) == Counter(self.acknowledged)
        assert max(run["attempt"] for run in runs) > 1, "the kills hit nothing"
        codes = {LOOP: ("FAILED", "no_progress_loop")}
        of_their_own = [run for run in runs if run["status"] != "JOINED"]
        for run in of_their_own:
            ended = run["status"], run["outcome_code"]
            assert ended == codes.get(run["session_id"], ("COMPLETED", "completed"))
            assert (run["lease_owner"], run["lease_until"]) == (None, None)
        assert await self._rows("SELECT id FROM outbox") == [], "no chat has to be told"
        for session in await self._rows("SELECT * FROM session"):
            [*_, last] = [run for run in of_their_own if run["session_id"] == session["id"]]
            error = json.loads(session["runtime_status_json"]).get("executionError")
            assert session["status"] == last["status"]
            assert (error or {}).get("runId") == (last["id"] if session["id"] == LOOP else None)

    def _audit_ends(self, runs: Mapping[str, Mapping[str, Any]]) -> None:
        """No run's end was told twice, nor otherwise than it is stored."""
        assert max(Counter(run_id for run_id, _ in self.ends).values()) == 1
        for run_id, kind in self.ends:
            assert (kind == "RUN_ERROR") == (runs[run_id]["status"] == "FAILED")

    async def _audit_actions(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Each call that began is known to be done, unless its result says that nobody knows."""
        rows = await self._rows("SELECT call_id, state FROM action")
        known = {row["call_id"]: row["state"] for row in rows}
        for result in (m for m in messages if m["role"] == "tool" and m["session_id"] != LOOP):
            state = "UNKNOWN" if _is_cut(result) else None if _is_refused(result) else "DONE"
            assert known.pop(result["tool_call_id"], None) == state
        assert known == {}

    async def _audit_loop(
        self, run: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]
    ) -> None:
        """Fifteen closed rounds, counted through all the kills."""
        decisions = await self._rows(
            "SELECT * FROM decision WHERE run_id=:id ORDER BY round", id=run["id"]
        )
        assert [one["streak"] for one in decisions] == list(range(1, 16))
        assert decisions[-1]["verdict"] == "abort"
        assert [m["role"] for m in messages] == ["user", *["assistant", "tool"] * 15]


def _lines_of(workspace: Path) -> list[str]:
    written = [workspace / LEDGER, *(workspace / BOOKS).glob("*")]
    lines = [line for path in written if path.exists() for line in path.read_text().split()]
    return [line for line in lines if line != "end"]


def _is_cut(result: Mapping[str, Any]) -> bool:
    return bool(json.loads(result["content"]).get("error") == "interrupted")


def _is_refused(result: Mapping[str, Any]) -> bool:
    return "error" in json.loads(result["content"]) and not _is_cut(result)


def _audit_calls(messages: Sequence[Mapping[str, Any]], lines: Collection[str]) -> None:
    """Each call has one result; each writing one ran once, or at most once if it was cut.

    One that was refused, since its book was cut before, did not run at all.
    """
    results = {m["tool_call_id"]: m for m in messages if m["role"] == "tool"}
    assert len(results) == sum(m["role"] == "tool" for m in messages)
    calls = [
        one for m in messages if m["tool_calls_json"] for one in json.loads(m["tool_calls_json"])
    ]
    assert Counter(one["id"] for one in calls) == Counter(results.keys())
    written = Counter(lines)
    assert set(written.values()) <= {1}
    asked = set[str]()
    for one in calls:
        found = re.search(r"line-\d+", one["function"]["arguments"])
        if found is not None:
            asked.add(found[0])
            result = results[one["id"]]
            times = 0 if _is_refused(result) else 1
            assert _is_cut(result) or written[found[0]] == times, found[0]
    assert set(written) <= asked, "a call ran that is not in the history"
