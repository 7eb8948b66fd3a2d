"""What a run knows after a restart is what it knew before: at every round, under every policy."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from guard import Rules
from guard.policies import POLICIES
from server.agent.acting import last_turn_notice
from server.agent.context import RunContext
from server.agent.history import History
from server.agent.policies import policies_of
from server.agent.record import decision_of
from server.approvals import Word
from server.message import Usage
from server.store.approvals import open_approvals
from server.store.decisions import Decision
from server.store.messages import load_from
from server.store.runs import Run, load_run
from server.store.sessions import Session
from server.tools.base import Registry
from tests.fakes.llm import Play, Quirks, Recorded, call, reply, serve_gateway
from tests.house import House, is_title, notices_in, open_house
from tests.server.agent.test_last_turn import LIST, READ, TWO_FACTS, note
from tests.server.agent.test_policies import governed

CONTRACT = {**TWO_FACTS, "stop_after": 9, "nudge_after": 3, "on_no_progress": "handoff"}
MISSING = reply(calls=[call("read_file", {"path": "missing.txt"})])
BOTH = reply(calls=[READ, call("list_dir", {"path": "."})])
SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
WAIT = reply(calls=[call("wait_subagents", {"timeout_seconds": 0})])
ROUNDS = [LIST, MISSING, SEARCH, LIST, MISSING, WAIT, BOTH, LIST, SEARCH, BOTH, LIST, MISSING]


def is_compaction(request: Recorded) -> bool:
    return "tools" not in request.json and "max_tokens" not in request.json


async def reopened(house: House, session: Session, run_id: str) -> RunContext:
    """The run as a process would take it up that starts now."""
    state = house.state
    history = History(
        store=state["store"],
        blobs=state["blobs"],
        rules=Rules(),
        policies=policies_of(state["settings"].policy),
        workspace=house.workspace,
        registry=Registry([], state["mcp"]),
    )
    async with state["store"].read() as db:
        run = await load_run(db, run_id)
    return await history.open(run, session, asyncio.Event())


def timeless(decision: Decision) -> Decision:
    """The decision as JSON would have it, but for its time."""
    diff = {name: list(values) for name, values in decision.state_diff.items()}
    return replace(decision, created_at=datetime(2026, 1, 1, tzinfo=UTC), state_diff=diff)


async def assert_rebuilt(
    house: House, session: Session, run: Run, requests: Sequence[Recorded], *, settled: int = 0
) -> None:
    """Take the session's last run back round by round: each request and each record is made again.

    Args:
        settled: Rounds that the run before left open.
    """
    recorded = {d.round: d for d in await house.decisions(run.id)}
    async with house.state["store"].read() as db:
        messages = await load_from(db, session.id, 0)
    asked = [m for m in messages if m.role == "assistant" and m.run_id == run.id]
    answers = asked[: len(requests)]  # what the end says by itself comes after them
    for before, (message, request) in reversed(
        list(enumerate(zip(answers, requests, strict=True), settled))
    ):
        async with house.state["store"].write() as db:
            await db.execute(
                sa.text("DELETE FROM message WHERE session_id = :id AND seq >= :seq"),
                {"id": session.id, "seq": message.seq},
            )
            await db.execute(sa.text("UPDATE run SET rounds = :before"), {"before": before})
        context = await reopened(house, session, run.id)
        judged = context.judgement
        notices = list(context.notices)
        if judged is not None and judged.ruling.stop is not None:
            notices.append(last_turn_notice(judged, judged.ruling.stop, session.locale))
        context.prompt.extend(context.messages, notices, context.pictures)
        assert b",".join(context.prompt.fragments) in request.body
        if judged is not None and context.messages[-1].role == "tool":
            assert timeless(decision_of(context, judged)) == timeless(recorded[context.rounds])


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("compacts", [False, True])
async def test_every_request_and_record_is_made_again(
    tmp_path: Path, database_url: str, policy: str, compacts: bool
) -> None:
    played = 0

    def play(request: Recorded) -> Play:
        nonlocal played
        if is_compaction(request):
            return reply("SUMMARY")
        played += 1
        if request.json.get("tool_choice") == "none":
            return reply("that is all")
        made = ROUNDS[(played - 1) % len(ROUNDS)]
        is_full = compacts and played % 5 == 0
        return replace(made, usage=Usage(120_000 if is_full else 1_000, 100, 10))

    shadows = ", ".join(f'"{name}"' for name in POLICIES if name != policy)
    config = f'main = "{policy}"\nshadow = [{shadows}]\nlast_turn = true\n'
    if compacts:
        config += "[compaction]\nkeep_rounds = 2\n"
    async with serve_gateway(play, title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, config)
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract=CONTRACT)
            session = await house.settled(session)
            requests = [r for r in gateway.requests if not is_compaction(r)]
            assert notices_in(requests[-1])
            assert compacts == any(is_compaction(r) for r in gateway.requests)
            [run] = await house.runs(session)
            await assert_rebuilt(house, session, run, requests)


async def test_a_run_that_goes_on_after_an_answer_has_what_its_turn_spent_and_reached(
    tmp_path: Path, database_url: str
) -> None:
    write = call("write_file", {"path": "a.txt", "content": "a"})
    come = asyncio.Event()
    last = replace(LIST, quirks=Quirks(before_headers=come))
    script = [LIST, reply(calls=[READ]), reply(calls=[write]), LIST, MISSING, last, SEARCH, LIST]
    config = (
        'main = "ours@1"\n[policy.define."ours@1"]\nbase = "unattended@1"\n'
        '[policy.define."ours@1".budget]\nrounds = 7\n[approvals]\nweb = "writes"'
    )
    async with serve_gateway([*script, reply("over")], title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, config)
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract={**CONTRACT, "nudge_after": 2})
            async with house.state["store"].read() as db:
                [asked] = await open_approvals(db, session.id)
            await house.state["approvals"].answer(asked.interrupt.id, Word("approve", "ann"))
            await gateway.wait_for_requests(6)
            await house.say(session, "look elsewhere", when_busy="steer")
            come.set()
            await house.ended(session, 2)
            session = await house.settled(session)
            run, before = [r for r in await house.runs(session) if r.rounds]
            decisions = [*await house.decisions(before.id), *await house.decisions(run.id)]
            assert [d.budgets_left["rounds"] for d in decisions] == [6, 5, 4, 3, 2, 1, 6, 5]
            assert run.outcome_code == "completed"
            await assert_rebuilt(house, session, run, gateway.requests[3:], settled=1)
