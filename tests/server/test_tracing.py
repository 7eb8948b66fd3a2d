"""Traces as a collector gets them: their shape, what stands in them, and what never does."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes

from server import trace_names
from server.agent.record import trace_id_of
from server.approvals import Word
from server.tracing import current
from tests.fakes.collector import FakeCollector, TakenSpan, serve_collector
from tests.fakes.llm import (
    NEVER,
    Play,
    Quirks,
    ScriptedGateway,
    call,
    forever,
    refuse,
    reply,
    serve_gateway,
)
from tests.house import ENVIRONMENT, House, is_title, open_house, settings_for
from tests.waiting import until

SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
SECRET = "kumquat"
"""Stands in everything that people, models and tools say."""


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeCollector]:
    """A collector that the process's environment names."""
    async with serve_collector() as opened:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", opened.url)
        yield opened


@asynccontextmanager
async def traced_house(
    folder: Path, url: str, gateway: ScriptedGateway, collector: FakeCollector, **variables: str
) -> AsyncIterator[House]:
    """The application as the process's environment lets it trace."""
    environment = {**ENVIRONMENT, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **variables}
    async with open_house(settings_for(folder, url, gateway.url), environment) as house:
        yield house


def summary(spans: list[TakenSpan]) -> list[tuple[str, object]]:
    """Name and error of each."""
    return [(span.name, span.attributes.get("error.type")) for span in spans]


def decisions(span: TakenSpan) -> list[Mapping[str, Any]]:
    """What the guard decided, by round."""
    return [event.attributes for event in span.events if event.name == "headway.guard.decision"]


async def test_a_run_is_the_root_of_its_requests_and_calls(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector
) -> None:
    script: list[Play] = [
        reply(calls=[call("list_dir", {"path": "."}), call("read_file", {"path": "none.txt"})]),
        refuse(503, retry_after="0"),
        reply("done"),
    ]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        traced_house(tmp_path, sqlite_url, gateway, collector) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        [run] = await house.runs(session)
        [decision] = await house.decisions(run.id)
        [asked] = [m for m in await house.messages(session) if m.tool_calls]
    root = collector.one("invoke_agent main")
    assert {span.trace_id for span in collector.spans} == {decision.trace_id}
    assert root.parent_id == ""
    assert root.attributes["gen_ai.conversation.id"] == session.id
    assert root.attributes["headway.run.id"] == run.id
    assert root.attributes["headway.run.status"] == "finished"
    assert root.attributes["headway.run.code"] == "completed"
    assert root.attributes["headway.run.rounds"] == 2
    assert not root.is_error
    inside = collector.inside(root)
    assert sorted(summary(inside), key=str) == [
        ("chat scripted", "model_overloaded"),
        ("chat scripted", None),
        ("chat scripted", None),
        ("execute_tool list_dir", None),
        ("execute_tool read_file", "not_found"),
    ]
    assert len(inside) + 1 == len(collector.spans)
    assert [span.kind for span in collector.named("chat scripted")] == ["CLIENT"] * 3
    assert [span.is_error for span in collector.named("chat scripted")] == [False, True, False]
    called = [collector.one("execute_tool list_dir"), collector.one("execute_tool read_file")]
    assert [span.attributes["gen_ai.tool.call.id"] for span in called] == [
        call.id for call in asked.tool_calls
    ]
    for span in inside:
        assert root.started_ns - 1_000_000 <= span.started_ns <= span.ended_ns <= root.ended_ns


async def test_a_requests_span_has_model_tokens_and_times(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector
) -> None:
    async with (
        serve_gateway([reply("done")], title=is_title) as gateway,
        traced_house(tmp_path, sqlite_url, gateway, collector) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        [message] = [m for m in await house.messages(session) if m.role == "assistant"]
    span = collector.one("chat scripted")
    usage = message.usage
    assert usage is not None
    assert usage.prompt_tokens > 0
    first = span.attributes["gen_ai.response.time_to_first_chunk"]
    assert isinstance(first, float)
    assert 0 <= first <= (span.ended_ns - span.started_ns) / 1e9
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.conversation.id": session.id,
        "gen_ai.request.model": "scripted",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": first,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "headway.request.purpose": "agent",
    }
    root = collector.one("invoke_agent main")
    assert root.attributes["gen_ai.usage.input_tokens"] == usage.prompt_tokens


async def test_a_stop_by_the_guard_can_be_read_from_the_runs_events(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector
) -> None:
    async with (
        serve_gateway(forever(SEARCH), title=is_title) as gateway,
        traced_house(tmp_path, sqlite_url, gateway, collector) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        [run] = await house.runs(session)
        rows = await house.decisions(run.id)
    root = collector.one("invoke_agent main")
    assert root.is_error
    assert root.attributes["error.type"] == "no_progress_loop"
    assert root.attributes["headway.run.status"] == "failed"
    told = decisions(root)
    assert [event["headway.guard.round"] for event in told] == list(range(1, 16))
    assert [event["headway.guard.streak"] for event in told] == list(range(1, 16))
    verdicts = [event["headway.guard.verdict"] for event in told]
    assert [n for n, verdict in enumerate(verdicts, 1) if verdict == "nudge"] == [5, 10]
    assert verdicts[-1] == "abort"
    assert told[-1] == {
        "headway.guard.round": 15,
        "headway.guard.verdict": "abort",
        "headway.guard.rule": "no_progress",
        "headway.guard.policy": rows[-1].policy,
        "headway.guard.streak": 15,
        "headway.guard.stop_reason": "no_progress_loop",
        "headway.guard.action_digest": rows[-1].action_digest,
        "headway.guard.result_digest": rows[-1].result_digest,
    }
    assert {row.trace_id for row in rows} == {root.trace_id}


async def test_a_stop_by_a_contract_names_its_rule_and_none_of_its_words(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector
) -> None:
    left = {
        "name": "left",
        "tool": "shell",
        "extract": {"jmespath": "length(output)"},
        "counts": "shrinks",
        "initial": 100,
    }
    goal = {"id": SECRET, "text": SECRET, "tool": "shell", "extract": {"jmespath": SECRET}}
    contract = {
        "id": SECRET,
        "version": 1,
        "goal": SECRET,
        "items": [goal],
        "fields": [left],
        "stop_after": 2,
    }
    script = [
        reply(calls=[call("shell", {"action": "run", "command": f"echo {n}"})]) for n in range(3)
    ]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        traced_house(tmp_path, sqlite_url, gateway, collector) as house,
    ):
        session = await house.create()
        await house.ask(session, "go", contract=contract)
        metrics = house.state["metrics"].render().decode().splitlines()
    root = collector.one("invoke_agent main")
    assert root.attributes["error.type"] == "no_progress"
    last = decisions(root)[-1]
    assert last["headway.guard.round"] == 3
    assert last["headway.guard.rule"] == "progress_contract"
    assert last["headway.guard.stop_reason"] == "no_progress"
    assert SECRET.encode() not in b"".join(collector.bodies)
    policy = last["headway.guard.policy"]
    assert f'headway_state_changes_total{{policy="{policy}"}} 1.0' in metrics
    assert f'headway_rounds_total{{policy="{policy}"}} 3.0' in metrics
    assert not any(line.startswith("headway_repeated_rounds_total{") for line in metrics)
    assert SECRET not in "".join(metrics)


async def test_a_subagents_trace_leads_to_that_of_the_run_which_sent_it(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector
) -> None:
    def script(request: Any) -> Any:
        words = next(m["content"] for m in request.messages if m["role"] == "user")
        if words.endswith("look around"):
            return reply("seen")
        if any(m["role"] == "tool" for m in request.messages):
            return reply("done")
        return reply(calls=[call("spawn_subagent", {"task": "look around"})])

    async with (
        serve_gateway(script, title=is_title) as gateway,
        traced_house(tmp_path, sqlite_url, gateway, collector) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
    parent, child = collector.one("invoke_agent main"), collector.one("invoke_agent subagent")
    assert child.trace_id == trace_id_of(str(child.attributes["headway.run.id"]))
    assert child.trace_id != parent.trace_id
    assert child.links == ((parent.trace_id, parent.span_id),)
    assert parent.links == ()
    assert summary(collector.inside(child)) == [("chat scripted", None)]
    [spawned] = collector.named("execute_tool spawn_subagent")
    assert spawned.started_ns <= child.started_ns
    assert child.ended_ns <= spawned.ended_ns


async def test_an_answered_question_goes_on_in_a_trace_that_leads_back(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector
) -> None:
    asking = reply(calls=[call("ask_user", {"question": "which?"})])
    async with (
        serve_gateway([asking, reply("done")], title=is_title) as gateway,
        traced_house(tmp_path, sqlite_url, gateway, collector) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        await house.settled(session)
        [asked] = (await house.state["inbox"].state_of(session.id)).approvals
        word = Word("approve", "ann", text="that one")
        await house.state["approvals"].answer(asked.interrupt.id, word)
        await house.ended(session, 2)
    first, second = collector.named("invoke_agent main")
    assert first.attributes["headway.run.status"] == "waiting"
    assert first.attributes["headway.run.code"] == "needs_input"
    assert second.attributes["headway.run.code"] == "completed"
    assert second.links == ((first.trace_id, first.span_id),)


async def test_nothing_that_was_said_is_sent(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector
) -> None:
    script: list[Play] = [
        reply(
            f"{SECRET} text",
            calls=[
                call("shell", {"action": "run", "command": f"echo {SECRET}; exit 3"}),
                call("read_file", {"path": f"{SECRET}.txt"}),
                call(f"{SECRET}_tool", {SECRET: SECRET}),
                call("grep_search", f"{SECRET} is no JSON"),
            ],
            reasoning=f"{SECRET} thought",
        ),
        refuse(400, f"{SECRET} upstream"),
    ]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        traced_house(tmp_path, sqlite_url, gateway, collector) as house,
    ):
        session = await house.create("bartholomew", title=SECRET)
        await house.ask(session, f"{SECRET} question")
        written = b"".join(request.body for request in gateway.requests)
    assert SECRET.encode() in written
    root = collector.one("invoke_agent main")
    assert summary(collector.inside(root))[-1] == ("chat scripted", "model_bad_response")
    assert collector.one("execute_tool unknown").attributes["error.type"] == "bad_arguments"
    sent = b"".join(collector.bodies)
    assert b"grep_search" in sent
    for word in (SECRET, SECRET.upper(), "exit 3", str(tmp_path), "gateway-key", "bartholomew"):
        assert word.encode() not in sent, word
    assert set(collector.resource) == {
        "service.instance.id",
        "service.name",
        "telemetry.sdk.language",
        "telemetry.sdk.name",
        "telemetry.sdk.version",
    }


async def test_a_persons_stop_ends_every_span(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector
) -> None:
    sleeping = reply(calls=[call("shell", {"action": "run", "command": "touch begun; sleep 300"})])
    async with (
        serve_gateway([sleeping], title=is_title) as gateway,
        traced_house(tmp_path, sqlite_url, gateway, collector) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        await begun(house)
        await house.state["inbox"].cancel(session.id, None, "ann")
        await house.ended(session)
    root = collector.one("invoke_agent main")
    assert root.attributes["headway.run.status"] == "cancelled"
    assert not root.is_error
    assert summary(collector.inside(root)) == [
        ("chat scripted", None),
        ("execute_tool shell", "cancelled"),
    ]


async def test_a_stop_cuts_the_requests_span_too(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector
) -> None:
    half = reply("half a sentence", quirks=Quirks(piece_chars=4, hold_at=3, hold=NEVER))
    async with (
        serve_gateway([half], title=is_title) as gateway,
        traced_house(tmp_path, sqlite_url, gateway, collector) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        await gateway.wait_for_requests(1)
        await house.state["inbox"].cancel(session.id, None, "ann")
        await house.ended(session)
    assert collector.one("chat scripted").attributes["error.type"] == "cancelled"


async def test_a_run_that_a_restart_goes_on_with_stays_in_its_trace(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector
) -> None:
    sleeping = reply(calls=[call("shell", {"action": "run", "command": "touch begun; sleep 300"})])
    async with serve_gateway([sleeping, reply("done")], title=is_title) as gateway:
        async with traced_house(tmp_path, sqlite_url, gateway, collector) as house:
            session = await house.create()
            await house.say(session, "go")
            await begun(house)
        async with traced_house(tmp_path, sqlite_url, gateway, collector) as house:
            await house.ended(session)
            [run] = await house.runs(session)
    first, second = collector.named("invoke_agent main")
    assert first.trace_id == second.trace_id == trace_id_of(run.id)
    assert first.span_id != second.span_id
    assert [one.attributes["headway.run.attempt"] for one in (first, second)] == [1, 2]
    assert first.attributes["error.type"] == "interrupted"
    assert collector.one("execute_tool shell").attributes["error.type"] == "interrupted"
    assert second.attributes["headway.run.status"] == "finished"


async def begun(house: House) -> None:
    """Wait until the command of the run has made its file."""

    async def is_there() -> bool:
        return bool(list(house.workspace.rglob("begun")))

    await until(is_there)


@pytest.mark.parametrize("trouble", ["away", "refuses", "hangs"])
async def test_a_collector_in_trouble_keeps_no_run_and_no_end_up(
    trouble: str,
    tmp_path: Path,
    sqlite_url: str,
    collector: FakeCollector,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    if trouble == "away":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    elif trouble == "refuses":
        collector.status = 401
    else:
        collector.answers.clear()
    async with serve_gateway([SEARCH] * 3 + [reply("done")], title=is_title) as gateway:
        async with traced_house(tmp_path, sqlite_url, gateway, collector) as house:
            session = await house.create()
            events = await house.ask(session, "go")
            assert events[-1]["type"] == "RUN_FINISHED"
            assert (await house.settled(session)).status == "COMPLETED"
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 10
    assert collector.spans == []
    told = [record for record in caplog.records if record.name.startswith("opentelemetry")]
    assert [record.levelname for record in told if record.levelno > 30] == []
    if trouble == "hangs":
        assert "[trace] the collector did not take the last spans" in caplog.text
    if trouble == "refuses":
        assert any("401" in record.getMessage() for record in told)


async def test_service_name_headers_and_sampler_are_the_environments(
    tmp_path: Path, sqlite_url: str, collector: FakeCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat-of-ours")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=seven")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    async with serve_gateway([reply("done")] * 2, title=is_title) as gateway:
        async with traced_house(tmp_path, sqlite_url, gateway, collector) as house:
            await house.ask(await house.create(), "go")
        assert collector.resource["service.name"] == "chat-of-ours"
        assert collector.resource["deployment.environment.name"] == "staging"
        assert collector.headers["x-tenant"] == "seven"
        assert collector.headers["content-encoding"] == "gzip"
        seen = len(collector.spans)
        assert seen == 2
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        async with traced_house(tmp_path, sqlite_url, gateway, collector) as house:
            await house.ask(await house.create(), "go")
        assert len(collector.spans) == seen


def test_outside_of_traced_runs_every_call_gets_the_same_silent_span() -> None:
    assert not current().is_recording
    spans = []
    for _ in range(3):
        with current().calling("shell", "c1") as span:
            span.failed("timeout")
            spans.append(span)
    assert all(span is spans[0] for span in spans)


def test_names_are_those_of_the_conventions() -> None:
    known = {
        value
        for module in (gen_ai_attributes, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {value for name, value in vars(trace_names).items() if re.fullmatch("[A-Z_]+", name)}
    foreign = {name for name in ours if "." in name and not name.startswith("headway.")}
    assert len(foreign) > 10
    assert foreign <= known
