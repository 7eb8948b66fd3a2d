"""The two incidents, played against the whole run side: reminded twice, stopped at round 15."""

import json
import logging
from pathlib import Path

import pytest

from tests.fakes.llm import call, forever, reply, serve_gateway
from tests.house import assert_prefixes, is_title, notices_in, open_house, settings_for

SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
LOOP_TEXT = (
    "检测到 Agent 连续 15 轮重复执行同一组工具调用(grep_search)"
    "且结果没有任何变化,已自动中止本次执行以避免无限循环。请调整需求描述后重试。"
)


async def test_incident_of_416_searches_ends_after_15_model_calls(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        serve_gateway(forever(SEARCH), title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "补充飞书机器人文档")
        end = events[-1]
        assert end["type"] == "RUN_ERROR"
        assert end["code"] == "no_progress_loop"
        assert end["message"] == LOOP_TEXT
        assert len(gateway.requests) == 15
        counts = [len(notices_in(request)) for request in gateway.requests]
        assert counts == [0] * 5 + [1] * 5 + [2] * 5
        assert_prefixes(gateway.requests)
        stored = await house.session(session)
        assert stored.status == "FAILED"
        assert stored.execution_error is not None
        assert stored.execution_error.message == LOOP_TEXT
        assert stored.execution_error.code == "no_progress_loop"
        started = [event for event in events if event["type"] == "STEP_STARTED"]
        finished = [event for event in events if event["type"] == "STEP_FINISHED"]
        assert len(started) == len(finished) == 15


async def test_notices_are_in_no_message_and_no_event(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway(forever(SEARCH), title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")
        stored = [message.text for message in await house.messages(session)]
        assert not any("system-notice" in text for text in stored)
        assert "system-notice" not in json.dumps(events)


async def test_decisions_tell_each_round(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway(forever(SEARCH), title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        [run] = await house.runs(session)
        decisions = await house.decisions(run.id)
        assert [d.streak for d in decisions] == list(range(1, 16))
        verdicts = {d.round: d.verdict for d in decisions if d.verdict != "none"}
        assert verdicts == {5: "nudge", 10: "nudge", 15: "abort"}


async def test_shell_loop_is_stopped_though_each_result_names_another_shell(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = forever(reply(calls=[call("shell", {"action": "run", "command": "ls missing"})]))
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")
        assert events[-1]["code"] == "no_progress_loop"
        results = [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
        assert len({json.loads(result)["session_id"] for result in results}) == 15


async def test_changing_result_is_left_alone(tmp_path: Path, sqlite_url: str) -> None:
    poll = call("shell", {"action": "run", "command": "echo x >> log; wc -l log"})
    script = [*[reply(calls=[poll])] * 20, reply("done")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        events = await house.ask(await house.create(), "go")
        assert events[-1]["type"] == "RUN_FINISHED"
        assert not any(notices_in(request) for request in gateway.requests)


async def test_edit_and_test_in_turn_are_left_alone(tmp_path: Path, sqlite_url: str) -> None:
    test = reply(calls=[call("shell", {"action": "run", "command": "grep -c line a.txt"})])
    rounds = [
        round_
        for n in range(12)
        for round_ in (
            reply(calls=[call("write_file", {"path": "a.txt", "content": "line\n" * n})]),
            test,
        )
    ]
    async with (
        serve_gateway([*rounds, reply("done")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        events = await house.ask(await house.create(), "go")
        assert events[-1]["type"] == "RUN_FINISHED"
        assert not any(notices_in(request) for request in gateway.requests)


async def test_log_lines_name_the_round_and_no_arguments(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "s3cr3t-4711"
    search = reply(calls=[call("grep_search", {"pattern": secret, "path": "."})])
    caplog.set_level(logging.DEBUG)
    async with (
        serve_gateway(forever(search), title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        house.workspace.joinpath("found.txt").write_text(f"marker-0815 {secret}\n")
        session = await house.create()
        events = await house.ask(session, "go")
    lines = [line for line in caplog.messages if line.startswith("[no-progress]")]
    assert [line.split()[1] for line in lines] == ["nudge", "nudge", "abort"]
    for line, number in zip(lines, (5, 10, 15), strict=True):
        assert f"session={session.id} round={number} streak={number} tools=grep_search" in line
        assert f"argsLength={len(json.dumps({'pattern': secret, 'path': '.'}))}" in line
    assert secret not in caplog.text
    assert "marker-0815" not in caplog.text
    assert secret not in events[-1]["message"]


@pytest.mark.parametrize(
    ("demo", "tool"), [("/demo loop", "grep_search"), ("/demo shell-loop", "shell")]
)
async def test_newcomer_sees_an_incident_stopped_without_a_key(
    tmp_path: Path, sqlite_url: str, demo: str, tool: str
) -> None:
    async with open_house(settings_for(tmp_path, sqlite_url, None)) as house:
        events = await house.ask(await house.create(), demo)
    assert events[-1]["code"] == "no_progress_loop"
    assert f"({tool})" in events[-1]["message"]
    assert len([e for e in events if e["type"] == "TOOL_CALL_RESULT"]) == 15
