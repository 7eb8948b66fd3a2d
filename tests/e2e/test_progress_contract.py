"""Four successful calls, of which the last two change nothing: told by the task's own contract."""

import json
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e import dingtalk_chat
from tests.e2e.feishu_chat import CHAT, card_with, cards, connected, installed, sessions
from tests.e2e.process import ADMIN, ANN, Installation, ServerProcess, open_server
from tests.fakes.docs_server import FACT, docs_command
from tests.fakes.feishu import serve_feishu
from tests.fakes.llm import call, forever, reply, serve_gateway
from tests.house import is_title
from tests.server.test_cli import run
from tests.toml import write_config
from tests.wire import open_client

CONTRACT: dict[str, Any] = {
    "id": "two-sources",
    "version": 3,
    "goal": "找到两项独立证据",
    "items": [
        {
            "id": "source-1",
            "text": "第一个独立来源",
            "tool": "docs__open_doc",
            "extract": {"jmespath": "facts[0].text"},
        },
        {
            "id": "source-2",
            "text": "第二个独立来源",
            "tool": "docs__open_doc",
            "extract": {"jmespath": "facts[1].text"},
        },
    ],
    "fields": [
        {
            "name": "open_gaps",
            "tool": "docs__search_docs",
            "extract": {"jmespath": "open_gaps"},
            "counts": "shrinks",
            "initial": 2,
        },
    ],
    "stop_after": 2,
}

STEPS = [
    reply(calls=[call("docs__search_docs", {"query": "Agent memory update"})]),
    reply(calls=[call("docs__open_doc", {"id": "A1"})]),
    reply(calls=[call("docs__search_docs", {"query": "Agent memory update"})]),
    reply(calls=[call("docs__search_docs", {"query": " agent  memory update"})]),
]

CONTRACTS: dict[str, dict[str, Any]] = {
    "mcp.docs.contracts.search_docs": {
        "identity": ["query"],
        "fold_case": True,
        "squeeze_blanks": True,
        "result_ids": "documents.id",
    },
}


def configured(folder: Path) -> str:
    """A configuration file with the server and its contracts; its path."""
    return write_config(folder, {"mcp.docs": {**docs_command(), "kind": "read"}} | CONTRACTS)


async def rounds_of(server: ServerProcess, run_id: str, token: str) -> list[dict[str, Any]]:
    """What was recorded of the run's rounds."""
    _, answer = await server.get(f"/api/runs/{run_id}/rounds", token)
    rounds: list[dict[str, Any]] = answer["rounds"]
    return rounds


async def change_session(server: ServerProcess, session_id: str, changes: object) -> None:
    """Change a session as the admin."""
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with (
        aiohttp.ClientSession(server.url, headers=headers) as http,
        http.patch(f"/api/sessions/{session_id}", json=changes) as response,
    ):
        assert response.ok, await response.text()


async def test_the_run_ends_at_step_four_with_one_fact_and_one_gap(tmp_path: Path) -> None:
    async with serve_gateway(STEPS, title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url, {"CONFIG": configured(tmp_path)})
        async with open_server(place) as server, open_client(server.url, token=ANN) as client:
            await client.request("session.create", session="s1")
            followed = await client.subscribe("s1")
            started = await client.request(
                "run.start", session="s1", clientMsgId="m1", content="找证据", contract=CONTRACT
            )
            error = await client.event("s1", "RUN_ERROR")
            run_id = str(started["runId"])
            rounds = await rounds_of(server, run_id, ANN)
            session = await server.session("s1")
            _, history = await server.get("/api/sessions/s1/messages")
    assert len(gateway.requests) == 4
    assert (error["code"], session["status"]) == ("no_progress", "FAILED")
    assert session["executionError"]["code"] == "no_progress"
    last = history["messages"][-1]
    assert last["role"] == "assistant"
    assert FACT in last["content"]
    assert "第二个独立来源" in last["content"]
    assert error["message"] in last["content"]
    assert followed is not None
    searches = [rounds[step]["actionDigest"] for step in (0, 2, 3)]
    results = [rounds[step]["resultDigest"] for step in (0, 2, 3)]
    assert len(set(searches)) == len(set(results)) == 1
    assert [r["streaks"]["progress_contract"] for r in rounds] == [0, 0, 1, 2]
    assert [r.get("stateDiff", {}) for r in rounds] == [
        {"open_gaps": [2, 1]},
        {"source-1": [False, True]},
        {},
        {},
    ]
    assert [r["verdict"] for r in rounds] == ["none", "none", "none", "abort"]
    stop = rounds[3]
    assert (stop["rule"], stop["stopReason"]) == ("progress_contract", "no_progress")
    assert (stop["contractId"], stop["contractVersion"]) == ("two-sources", 3)
    assert stop["thresholdSource"] == "contract:two-sources@3"
    recorded = json.dumps(rounds, ensure_ascii=False)
    assert FACT not in recorded
    assert "memory" not in recorded
    code, replayed, error_output = await run(
        place.environment(), "replay", session["id"], "--rounds", folder=tmp_path
    )
    assert (code, error_output) == (0, "")
    assert "default@1     stops after 4 (progress_contract 2, no_progress): 0 rounds" in replayed
    assert f"  run {run_id}: contract two-sources@3, no_progress\n" in replayed
    assert [line.split()[1:] for line in replayed.splitlines() if "  state " in line] == [
        ["state", "1,", "open_gaps", "2", "→", "1"],
        ["state", "2,", "source-1", "false", "→", "true"],
        ["state", "2,", "1", "without", "progress"],
        ["state", "2,", "2", "without", "progress"],
    ]
    assert FACT not in replayed
    assert "memory" not in replayed


async def test_a_bot_tells_what_was_verified_and_what_is_missing(tmp_path: Path) -> None:
    script = [reply("你好。"), *STEPS]
    async with (
        serve_feishu() as feishu,
        serve_gateway(script, title=is_title) as gateway,
        open_server(
            installed(tmp_path, gateway.url, feishu, CONFIG=configured(tmp_path))
        ) as server,
    ):
        await connected(feishu)
        feishu.say(CHAT, "在吗")
        await card_with(feishu, "你好。")
        [session] = await sessions(server)
        await change_session(server, session["id"], {"contract": CONTRACT})
        feishu.say(CHAT, "找两项独立证据")
        await feishu.until(lambda: len(cards(feishu)) == 2 and "❌" in cards(feishu)[1].text)
        card = cards(feishu)[1]
        assert "第二个独立来源" in card.text
        assert FACT in card.text
        assert card.buttons == []
        assert card.text.endswith("❌ 任务失败")
        assert len([r for r in gateway.requests if not is_title(r)]) == 5
        [session] = await sessions(server)
        assert session["executionError"]["code"] == "no_progress"
        assert card.text.count(session["executionError"]["message"]) == 1


async def test_a_dingtalk_card_tells_it_as_well(tmp_path: Path) -> None:
    script = [reply("你好。"), *STEPS]
    async with (
        dingtalk_chat.open_platform() as platform,
        serve_gateway(script, title=is_title) as gateway,
        open_server(
            dingtalk_chat.installed(tmp_path, gateway.url, platform, CONFIG=configured(tmp_path))
        ) as server,
    ):
        await platform.connected()
        await platform.say("在吗")
        await dingtalk_chat.ended(platform)
        [session] = await sessions(server)
        await change_session(server, session["id"], {"contract": CONTRACT})
        await platform.say("找两项独立证据")
        _, card = await dingtalk_chat.cards(platform, 2)
        await platform.until(lambda: card.flow == "5")
        shown = card.text + "".join(card.params.values())
        assert FACT in shown
        assert "第二个独立来源" in shown
        [session] = await sessions(server)
        assert session["executionError"]["code"] == "no_progress"


async def test_a_goal_that_is_reached_ends_the_run_though_the_model_would_go_on(
    tmp_path: Path,
) -> None:
    reached = {**CONTRACT, "items": CONTRACT["items"][:1]}
    script = [*STEPS[:2], reply("已确认 F1。", calls=[call("docs__open_doc", {"id": "A1"})])]
    async with serve_gateway(forever(*script), title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url, {"CONFIG": configured(tmp_path)})
        async with open_server(place) as server, open_client(server.url, token=ANN) as client:
            await client.request("session.create", session="s1")
            await client.subscribe("s1")
            started = await client.request(
                "run.start", session="s1", clientMsgId="m1", content="找证据", contract=reached
            )
            finished = await client.event("s1", "RUN_FINISHED")
            rounds = await rounds_of(server, str(started["runId"]), ANN)
            _, history = await server.get("/api/sessions/s1/messages")
    asked = [r for r in gateway.requests if not is_title(r)]
    assert len(asked) == 3
    assert asked[2].json["tool_choice"] == "none"
    assert finished["outcome"]["type"] == "success"
    assert history["messages"][-1]["content"] == "已确认 F1。"
    assert rounds[-1]["stopReason"] == "completed"
