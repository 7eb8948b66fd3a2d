"""What operators say of MCP tools, as the guard takes it, and whom the log asks to say it."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from guard import NoProgressCall, NoProgressGuard, Rules, is_no_progress_exempt
from guard.digest import evidence
from server.errors import SettingsError
from server.settings import McpSettings
from server.settings_tools import ToolContractSettings
from server.tools.mcp import McpServer, contracts_of
from server.tools.mcp_keeper import RemoteTool
from tests.fakes.docs_server import docs_command
from tests.fakes.llm import call, reply, serve_gateway
from tests.house import is_title, open_house, settings_for
from tests.toml import write_config


def rules(**contract: Any) -> Rules:
    """Rules with this contract for `docs__search`."""
    settings = McpSettings.model_validate({"command": "x", "contracts": {"search": contract}})
    return Rules(contracts=contracts_of({"docs": settings}))


def seen(arguments: object, result: object) -> NoProgressCall:
    return NoProgressCall("docs__search", json.dumps(arguments), json.dumps(result))


def actions(known: Rules, *arguments: object) -> int:
    """How many different actions these arguments make."""
    return len({evidence(seen(one, {}), known).action_digest for one in arguments})


def results(known: Rules, *found: object) -> int:
    """How many different results these are."""
    return len({evidence(seen({}, one), known).result_digest for one in found})


def test_arguments_are_spelled_alike_where_the_contract_says_so() -> None:
    asked = {"query": "Agent  Memory", "tags": ["a", "b"], "limit": 10, "trace": "1"}
    again = {"query": "agent memory", "tags": ["b", "a"], "trace": "2"}
    alike = rules(
        identity=["query", "tags", "limit"],
        fold_case=["query"],
        squeeze_blanks=True,
        ignore_order=True,
        defaults={"limit": 10},
    )
    assert actions(alike, asked, again) == 1
    assert actions(alike, asked, {**again, "limit": 20}) == 2
    assert actions(rules(fold_case=True), asked, again) == 2
    assert actions(Rules(), asked, again) == 2


@pytest.mark.parametrize(
    "contract",
    [
        {"result_ids": "documents.id"},
        {"result_fields": ["documents"]},
        {"result_ignores": ["request"]},
    ],
)
def test_results_are_the_same_when_what_counts_is(contract: dict[str, Any]) -> None:
    known = rules(**contract)
    one = {"documents": [{"id": 1}], "request": "a"}
    assert results(known, one, {**one, "request": "b"}) == 1
    assert results(known, one, {**one, "documents": [{"id": 2}]}) == 2
    assert results(Rules(), one, {**one, "request": "b"}) == 2


def test_a_result_that_says_it_goes_on_is_a_wait() -> None:
    known = rules(waits_while={"state": ["running"]})
    assert is_no_progress_exempt(seen({}, {"state": "running"}), known)
    assert not is_no_progress_exempt(seen({}, {"state": "done"}), known)
    assert not is_no_progress_exempt(seen({}, ["running"]), known)


def test_a_tool_may_have_numbers_of_its_own() -> None:
    guard = NoProgressGuard(rules=rules(nudge_at=[2], stop_at=3))
    said = []
    for number in range(3):
        guard.observe_call(seen({}, {}))
        guard.end_round(f"c{number}")
        said.append(type(guard.take_action()).__name__)
    assert said == ["NoneType", "Nudge", "Abort"]


@pytest.mark.parametrize(
    ("contract", "reason"),
    [
        ({"result_ids": "a", "result_fields": ["b"]}, "takes one of"),
        ({"nudge_at": [5]}, "go together"),
        ({"nudge_at": [5, 3], "stop_at": 9}, "ascend"),
        ({"identitiy": ["a"]}, "identitiy"),
    ],
)
def test_a_wrong_contract_is_refused(contract: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        ToolContractSettings.model_validate(contract)


def test_a_wrong_contract_stops_the_start_and_is_named(tmp_path: Path, sqlite_url: str) -> None:
    sections = {"mcp.docs": docs_command(), "mcp.docs.contracts.search_docs": {"nudge_at": [5]}}
    config = write_config(tmp_path, sections)
    with pytest.raises(SettingsError, match=r"\[mcp\.docs\] contracts search_docs"):
        settings_for(tmp_path, sqlite_url, None, HEADWAY_CONFIG=config)


def _never(_: object) -> Any:
    raise AssertionError("nobody connects")


async def test_tools_are_named_whose_schema_tells_of_ids(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "object", "properties": {"requestId": {}, "rows": {}}}
    listed = [
        RemoteTool("noisy", "", {}, schema),
        RemoteTool("told", "", {}, schema),
        RemoteTool("quiet", "", {}, {"type": "object", "properties": {"rows": {}}}),
    ]
    contracts = {"told": {"result_fields": ["rows"]}}
    settings = McpSettings.model_validate({"command": "x", "contracts": contracts})
    server = McpServer("docs", settings, _never)
    with caplog.at_level(logging.WARNING):
        server.learn(listed)
        server.learn(listed)
    [line] = caplog.messages
    assert "tool=docs__noisy carry requestId" in line


async def test_tools_without_a_schema_are_named_with_their_first_result(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    contracts = {"result_ids": "documents.id"}
    sections = {"mcp.docs": docs_command(), "mcp.docs.contracts.search_docs": contracts}
    look = reply(
        calls=[call("docs__search_docs", {"query": "q"}), call("docs__open_doc", {"id": "A1"})]
    )
    async with serve_gateway([look, look, reply("done")], title=is_title) as gateway:
        config = write_config(tmp_path, sections)
        settings = settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config)
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            [run] = await house.runs(session)
            first, second = await house.decisions(run.id)
    lines = [line for line in caplog.messages if "carry" in line]
    assert len(lines) == 1
    assert "tool=docs__open_doc carry fetched_at,id" in lines[0]
    assert first.action_digest == second.action_digest


async def test_the_record_says_that_the_numbers_are_the_tools_own(
    tmp_path: Path, sqlite_url: str
) -> None:
    numbers = {"result_ids": "documents.id", "nudge_at": [2], "stop_at": 3}
    sections = {"mcp.docs": docs_command(), "mcp.docs.contracts.search_docs": numbers}
    search = reply(calls=[call("docs__search_docs", {"query": "q"})])
    look = reply(calls=[call("list_dir", {"path": "."})])
    async with serve_gateway([look, *[search] * 3], title=is_title) as gateway:
        config = write_config(tmp_path, sections)
        settings = settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config)
        async with open_house(settings) as house:
            session = await house.create()
            events = await house.ask(session, "go")
            [run] = await house.runs(session)
            decisions = await house.decisions(run.id)
    assert events[-1]["code"] == "no_progress_loop"
    assert [(d.verdict, d.threshold_source) for d in decisions] == [
        ("none", "default@1"),
        ("none", "tool:docs__search_docs"),
        ("nudge", "tool:docs__search_docs"),
        ("abort", "tool:docs__search_docs"),
    ]
