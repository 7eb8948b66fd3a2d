"""Subagents of one run share what they explored: three on one gap count once."""

from pathlib import Path
from typing import Any

from server.store.messages import load_from
from server.store.sessions import Session
from tests.fakes.llm import call, reply, serve_gateway
from tests.house import House, is_title, open_house, settings_for
from tests.server.agent.test_subagents import (
    FAILED,
    Parts,
    children,
    executions,
    spawn,
    until_ended,
    wait,
)

READ = reply(calls=[call("read_file", {"path": "notes.txt"})])
LIST = reply(calls=[call("list_dir", {"path": "."})])

CONTRACT: dict[str, Any] = {
    "id": "facts",
    "items": [
        {"id": "f1", "text": "事实一", "tool": "read_file", "extract": {"regex": "F1: (.+)"}},
        {"id": "f2", "text": "事实二", "tool": "read_file", "extract": {"regex": "F2: (.+)"}},
    ],
    "stop_after": 2,
}


async def known_of(house: House, session: Session) -> list[bool]:
    """Of each result of the session, whether another subagent had it first."""
    async with house.state["store"].read() as db:
        messages = await load_from(db, session.id, 0)
    return [m.evidence.known for m in messages if m.evidence is not None]


async def test_what_one_found_is_no_progress_of_the_next(tmp_path: Path, database_url: str) -> None:
    script = Parts(
        go=[
            reply(calls=[spawn("alpha")]),
            reply(calls=[spawn("omega")]),
            wait(),
            reply("one fact is there"),
        ],
        alpha=[READ, LIST, reply("F1 is there")],
        omega=[READ, LIST],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_house(settings) as house:
            house.workspace.mkdir(parents=True, exist_ok=True)
            (house.workspace / "notes.txt").write_text("F1: 记忆每轮更新\n", "utf-8")
            session = await house.create()
            events = await house.ask(session, "go", contract=CONTRACT)
            by_title = await children(house, session)
            known = {title: await known_of(house, child) for title, child in by_title.items()}
            [*_, run] = await house.runs(session)
            decisions = await house.decisions(run.id)
            ended = {one.child_session_id: one for one in await executions(house, session)}
        assert events[-1]["type"] == "RUN_FINISHED"
        assert known == {"alpha": [False, False], "omega": [True, True]}
        alpha, omega = (ended[by_title[title].id] for title in ("alpha", "omega"))
        assert (alpha.status, omega.status) == ("COMPLETED", "FAILED")
        assert omega.code == "no_progress"
        assert omega.result_text is not None
        assert omega.result_text.startswith(FAILED)
        assert "事实二" in omega.result_text
        assert [d.state_diff for d in decisions][0] == {"f1": [False, True]}
    script.assert_played()


async def test_agents_of_different_runs_share_nothing(tmp_path: Path, sqlite_url: str) -> None:
    script = Parts(
        go=[reply(calls=[spawn("alpha")]), wait(), reply("done")],
        again=[reply(calls=[spawn("omega")]), wait(), reply("done")],
        alpha=[READ, reply("read")],
        omega=[READ, reply("read")],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            house.workspace.mkdir(parents=True, exist_ok=True)
            (house.workspace / "notes.txt").write_text("F1: x\n", "utf-8")
            first, second = await house.create(), await house.create()
            await house.ask(first, "go")
            await house.ask(second, "again")
            await until_ended(house, second, 1)
            for session in (first, second):
                for child in (await children(house, session)).values():
                    assert await known_of(house, child) == [False]
    script.assert_played()
