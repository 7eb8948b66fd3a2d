"""Subagents in the opened application: they work, fail, are stopped and survive like any run."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from server.board import Board
from server.delegate import Delegate
from server.signals import RunSignals
from server.store.sessions import Session, children_of
from server.store.subagents import SubagentExecution, executions_of_run
from server.tools.base import ToolContext
from tests.fakes.llm import (
    NEVER,
    Play,
    Quirks,
    Recorded,
    ScriptedCall,
    call,
    refuse,
    reply,
    serve_gateway,
)
from tests.house import Event, House, assert_prefixes, is_title, open_house, settings_for
from tests.waiting import until

SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
HANG = reply("一二三四五六七八九十", quirks=Quirks(piece_chars=2, hold_at=3, hold=NEVER))
FAILED = "后台子代理执行失败: "


class Parts:
    """A script for each session, chosen by its first message; those of the parent's is `go`."""

    def __init__(self, **parts: Iterable[Play]) -> None:
        self.parts: Mapping[str, Iterator[Play]] = {
            first: iter(plays) for first, plays in parts.items()
        }
        self.requests: dict[str, list[Recorded]] = {first: [] for first in parts}

    def __call__(self, request: Recorded) -> Play:
        words = next(m["content"] for m in request.messages if m["role"] == "user")
        first = next(first for first in self.parts if words.endswith(first))
        self.requests[first].append(request)
        return next(self.parts[first])

    def results(self) -> list[Any]:
        """What the parent's model was told by its tools so far."""
        messages = self.requests["go"][-1].messages
        return [json.loads(m["content"]) for m in messages if m["role"] == "tool"]

    def assert_played(self) -> None:
        left = {first for first, plays in self.parts.items() if next(plays, None) is not None}
        assert not left, f"{left} were not asked for"


def looping() -> Iterator[Play]:
    """The same search without end."""
    while True:
        yield SEARCH


def spawn(task: str, *, background: bool = False) -> ScriptedCall:
    return call("spawn_subagent", {"task": task, "background": background})


def wait(**arguments: object) -> Play:
    return reply(calls=[call("wait_subagents", arguments)])


async def children(house: House, session: Session) -> dict[str, Session]:
    """The session's children by their titles, which are their tasks."""
    async with house.state["store"].read() as db:
        return {child.title or "": child for child in await children_of(db, session.id)}


async def executions(house: House, session: Session) -> list[SubagentExecution]:
    """Those that the session's first run asked for."""
    run = (await house.runs(session))[-1]
    async with house.state["store"].read() as db:
        return await executions_of_run(db, run.id)


async def until_ended(house: House, session: Session, count: int) -> None:
    """Until so many of its subagents are not at work any more."""

    async def is_so() -> bool:
        return sum(one.status != "RUNNING" for one in await executions(house, session)) >= count

    await until(is_so)


def kinds(events: Iterable[Event], prefix: str = "SUBAGENT_") -> list[str]:
    return [event["type"] for event in events if event["type"].startswith(prefix)]


async def test_one_of_three_loops_and_fails_while_the_others_and_the_parent_finish(
    tmp_path: Path, database_url: str
) -> None:
    tasks = [spawn(task, background=True) for task in ("alpha", "omega", "circle")]
    script = Parts(
        go=[reply(calls=tasks), wait(), reply("two of three are done")],
        alpha=[SEARCH, reply("a is 1")],
        omega=[reply("o is 2")],
        circle=looping(),
    )
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")
        assert events[-1]["type"] == "RUN_FINISHED"
        assert events[-1]["outcome"] == {"type": "success"}
        assert len(script.requests["circle"]) == 15

        found = await children(house, session)
        assert {task: child.status for task, child in found.items()} == {
            "alpha": "COMPLETED",
            "omega": "COMPLETED",
            "circle": "FAILED",
        }
        error = found["circle"].execution_error
        assert error is not None
        assert error.code == "no_progress_loop"
        assert "连续 15 轮" in error.message
        left = (await house.messages(found["circle"]))[-1]
        assert (left.role, left.text) == ("assistant", FAILED + error.message)

        ends = {one.child_session_id: one for one in await executions(house, session)}
        assert ends[found["circle"].id].status == "FAILED"
        assert ends[found["alpha"].id].status == ends[found["omega"].id].status == "COMPLETED"
        [*spawned, waited] = script.results()
        assert [one["status"] for one in spawned] == ["running"] * 3
        assert waited["timedOut"] is False
        told = {one["child_session_id"]: one for one in waited["results"]}
        assert told[found["alpha"].id]["result"] == "a is 1"
        assert told[found["circle"].id]["error"] == FAILED + error.message
        assert kinds(events) == []  # each has a log of its own
        assert house.events(found["circle"])[-1]["code"] == "no_progress_loop"


async def test_children_tell_nobody_but_the_pages(tmp_path: Path, sqlite_url: str) -> None:
    script = Parts(go=[reply(calls=[spawn("alpha")]), reply("done")], alpha=[reply("1")])
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create(kind="chat", origin="feishu")
        await house.ask(session, "go")
        child = (await children(house, session))["alpha"]
        assert child.origin == "feishu"

        assert (await house.settled(child)).status == "COMPLETED"
        async with house.state["store"].read() as db:
            assert await db.scalar(sa.text("SELECT count(*) FROM outbox")) == 0
        assert len(gateway.titles) <= 1  # for the parent


async def test_streaks_of_children_and_parent_do_not_add_up(
    tmp_path: Path, sqlite_url: str
) -> None:
    same = [*[SEARCH] * 14, reply("nothing")]
    script = Parts(
        go=[*[SEARCH] * 14, reply(calls=[spawn("alpha"), spawn("omega")]), reply("done")],
        alpha=same,
        omega=same,
    )
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")
        assert events[-1]["type"] == "RUN_FINISHED"
        found = await children(house, session)
        assert [child.status for child in found.values()] == ["COMPLETED"] * 2
        for child in found.values():
            [run] = await house.runs(child)
            streaks = [decision.streak for decision in await house.decisions(run.id)]
            assert streaks == list(range(1, 15))
        script.assert_played()


async def test_children_that_are_waited_for_are_events_of_the_run(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = Parts(
        go=[reply(calls=[spawn("alpha"), spawn("omega")]), reply("done")],
        alpha=[SEARCH, reply("a is 1")],
        omega=[refuse(401)],
    )
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")  # checked by the client's rules on the way
        found = await children(house, session)
        started = {event["name"]: event for event in events if event["type"] == "SUBAGENT_STARTED"}
        assert started["alpha"]["metadata"] == {"sessionId": found["alpha"].id}
        calls = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
        assert [started[name]["parentToolCallId"] for name in ("alpha", "omega")] == calls
        [finished] = [event for event in events if event["type"] == "SUBAGENT_FINISHED"]
        assert finished["subagentRunId"] == started["alpha"]["subagentRunId"]
        [failed] = [event for event in events if event["type"] == "SUBAGENT_ERROR"]
        assert failed["subagentRunId"] == started["omega"]["subagentRunId"]
        assert failed["code"] == "model_auth"
        assert failed["message"].startswith(FAILED + "模型网关拒绝了密钥")
        [alpha, omega] = script.results()
        assert (alpha["status"], alpha["result"]) == ("completed", "a is 1")
        assert (omega["status"], omega["error"]) == ("failed", failed["message"])


@pytest.mark.parametrize("background", [True, False])
async def test_stop_of_the_parent_stops_its_children_within_a_second(
    tmp_path: Path, database_url: str, background: bool
) -> None:
    tasks = [spawn("alpha", background=background), spawn("omega", background=background)]
    script = Parts(go=[reply(calls=tasks), HANG], alpha=[HANG], omega=[HANG])
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        await gateway.wait_for_requests(4 if background else 3)
        found = await children(house, session)
        for child in found.values():
            await house.until(child, lambda events: bool(kinds(events, "TEXT_MESSAGE_CONTENT")))
        assert [child.status for child in found.values()] == ["RUNNING"] * 2
        shown = (await house.state["inbox"].state_of(session.id)).children
        assert {child.id for child in shown} == {child.id for child in found.values()}
        assert await house.state["inbox"].cancel(session.id, None, "ann")
        async with asyncio.timeout(1):
            for task in ("alpha", "omega"):
                await script.requests[task][0].abandoned.wait()
        events = await house.ended(session)
        assert events[-1]["outcome"] == {"type": "cancelled"}
        await until_ended(house, session, 2)
        for child in found.values():
            assert (await house.settled(child)).status == "CANCELLED"
        assert [one.status for one in await executions(house, session)] == ["CANCELLED"] * 2


async def test_children_of_a_run_that_fails_are_stopped(tmp_path: Path, sqlite_url: str) -> None:
    script = Parts(go=[reply(calls=[spawn("alpha", background=True)]), refuse(401)], alpha=[HANG])
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")
        assert events[-1]["code"] == "model_auth"
        await until_ended(house, session, 1)
        child = (await children(house, session))["alpha"]
        assert (await house.settled(child)).status == "CANCELLED"


async def test_child_outlives_a_run_that_finished_and_the_next_one_gets_its_result(
    tmp_path: Path, sqlite_url: str
) -> None:
    goes_on = asyncio.Event()
    slow = reply("a is 1", quirks=Quirks(before_headers=goes_on))
    script = Parts(
        go=[
            reply(calls=[spawn("alpha", background=True)]),
            reply("alpha works"),
            wait(timeout_seconds=0),
            wait(),
            reply("it is 1"),
        ],
        alpha=[slow],
    )
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        await house.say(session, "and now?")

        async def has_timed_out() -> bool:
            return len(script.requests["go"]) == 4

        await until(has_timed_out)
        goes_on.set()
        await house.ended(session, 2)
        [_, early, late] = script.results()
        assert early["timedOut"] is True
        assert [one["status"] for one in early["results"]] == ["running"]
        assert late["timedOut"] is False
        assert [one["result"] for one in late["results"]] == ["a is 1"]


async def test_person_stops_one_child_and_the_parent_goes_on(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = Parts(
        go=[reply(calls=[spawn("alpha"), spawn("omega")]), reply("one of two")],
        alpha=[HANG],
        omega=[reply("o is 2")],
    )
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        await gateway.wait_for_requests(3)
        child = (await children(house, session))["alpha"]
        assert await house.state["inbox"].cancel(child.id, None, "ann")
        events = await house.ended(session)
        assert events[-1]["outcome"] == {"type": "success"}
        [alpha, omega] = script.results()
        assert (alpha["status"], omega["status"]) == ("cancelled", "completed")
        assert alpha["error"] == "it was stopped before it was done"


async def test_subagent_cannot_start_another_unless_it_is_allowed(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = Parts(
        go=[reply(calls=[spawn("alpha")]), reply("done")],
        alpha=[reply(calls=[spawn("below")]), reply("did it myself")],
    )
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        refused = json.loads(script.requests["alpha"][-1].messages[-1]["content"])
        assert refused["error"] == "too_deep"
        assert script.results()[0]["result"] == "did it myself"


async def test_stop_reaches_every_generation(tmp_path: Path, sqlite_url: str) -> None:
    config = tmp_path / "headway.toml"
    config.write_text("[subagents]\ndepth = 2\n")
    script = Parts(
        go=[reply(calls=[spawn("alpha")])],
        alpha=[reply(calls=[spawn("below", background=True)]), HANG],
        below=[HANG],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=str(config))
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(4)
            assert await house.state["inbox"].cancel(session.id, None, "ann")
            async with asyncio.timeout(1):
                await script.requests["below"][0].abandoned.wait()
            child = (await children(house, session))["alpha"]
            await until_ended(house, child, 1)
            below = (await children(house, child))["below"]
            assert (await house.settled(below)).status == "CANCELLED"


async def test_without_depth_there_are_no_such_tools(tmp_path: Path, sqlite_url: str) -> None:
    config = tmp_path / "headway.toml"
    config.write_text("[subagents]\ndepth = 0\n")
    async with serve_gateway([reply("hi")], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=str(config))
        async with open_house(settings) as house:
            await house.ask(await house.create(), "go")
        assert b"subagent" not in gateway.requests[0].body


@pytest.mark.parametrize("background", [True, False])
async def test_restart_goes_on_with_parent_and_child(
    tmp_path: Path, database_url: str, background: bool
) -> None:
    asks = [reply(calls=[spawn("alpha", background=background)])]
    script = Parts(
        go=[*asks, *([wait()] if background else []), reply("it is 1")],
        alpha=[SEARCH, HANG, SEARCH, reply("a is 1")],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(4 if background else 3)
            [before] = (await children(house, session)).values()
        async with open_house(settings) as house:
            events = await house.ended(session)
            assert events[-1]["outcome"] == {"type": "success"}
            [after] = (await children(house, session)).values()
            assert after.id == before.id
            assert after.status == "COMPLETED"
            [run] = await house.runs(after)
            assert run.attempt == 2
            told = script.results()[-1]
            [result] = told["results"] if background else [told]
            assert (result["status"], result["result"]) == ("completed", "a is 1")
        script.assert_played()
        assert_prefixes(script.requests["alpha"])
        assert_prefixes(script.requests["go"])


async def test_child_whose_process_died_before_it_began_begins_after_a_restart(
    tmp_path: Path, database_url: str
) -> None:
    script = Parts(go=[HANG, wait(), reply("it is 1")], alpha=[reply("a is 1")])
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(1)
            [run] = await house.runs(session)
            context = ToolContext(
                session_id=session.id,
                run_id=run.id,
                call_id="c1",
                workspace=house.workspace,
                locale="zh-CN",
                progress=lambda line: None,
                emit=lambda event: None,
            )
            unheard = Delegate(
                store=house.state["store"],
                signals=RunSignals(),
                board=Board(),
                limits=settings.subagents,
            )
            await unheard.spawn(context, "alpha", background=True)
        async with open_house(settings) as house:
            await house.ended(session)
            [told] = script.results()
            assert [one["result"] for one in told["results"]] == ["a is 1"]


async def test_restart_that_fails_runs_fails_children_by_the_same_rule(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = Parts(
        go=[reply(calls=[spawn("alpha", background=True)]), reply("alpha works")], alpha=[HANG]
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_ON_RESTART="fail")
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            await script_reached(script, "alpha")
        async with open_house(settings) as house:
            await until_ended(house, session, 1)
            [execution] = await executions(house, session)
            child = await house.settled((await children(house, session))["alpha"])
            assert (execution.status, child.status) == ("FAILED", "FAILED")
            assert child.execution_error is not None
            assert child.execution_error.code == "server_restart"
            left = (await house.messages(child))[-1].text
            assert left == execution.result_text == FAILED + child.execution_error.message


async def script_reached(script: Parts, first: str) -> None:
    async def is_so() -> bool:
        return bool(script.requests[first])

    await until(is_so)


async def test_model_that_only_spawns_is_stopped_by_its_limit_and_the_guard(
    tmp_path: Path, sqlite_url: str
) -> None:
    def script(request: Recorded) -> Play:
        words = next(m["content"] for m in request.messages if m["role"] == "user")
        return reply("42") if words.endswith("count") else reply(calls=[spawn("count")])

    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")
        assert events[-1]["code"] == "no_progress_loop"
        assert len(await executions(house, session)) == 12
        assert (await house.runs(session))[0].rounds == 12 + 15
