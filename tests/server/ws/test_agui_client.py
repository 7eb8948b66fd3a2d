"""The protocol's own client against a running server, and against our checker of its rules."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from channels.events import (
    CallArguments,
    CallFinished,
    CallResult,
    CallStarted,
    Compaction,
    ReasoningAdded,
    ReasoningFinished,
    ReasoningStarted,
    RoundFinished,
    RoundStarted,
    TextAdded,
    TextFinished,
    TextStarted,
    UserJoined,
)
from tests.agui_client import AguiClient, installed_client
from tests.agui_rules import RuleBroken, check_sequence
from tests.fakes.llm import NEVER, Quirks, call, reply, serve_gateway
from tests.house import is_title
from tests.server.ws.place import ANN, Place, open_place
from tests.wire import open_client

START = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISH = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
TEXT = {"type": "TEXT_MESSAGE_START", "messageId": "a"}


@pytest.fixture
async def agui(request: pytest.FixtureRequest) -> AguiClient:
    """The real client."""
    return await installed_client(Path(request.config.cache.mkdir("agui_client")))


SEQUENCES: list[tuple[str, list[dict[str, Any]]]] = [
    ("a text first", [TEXT]),
    ("only an error", [{"type": "RUN_ERROR", "message": "m"}]),
    ("something after an error", [START, {"type": "RUN_ERROR", "message": "m"}, FINISH]),
    ("something after the end", [START, FINISH, {"type": "CUSTOM", "name": "n", "value": 1}]),
    ("two starts", [START, START]),
    ("an error with a text open", [START, TEXT, {"type": "RUN_ERROR", "message": "m"}]),
    ("an end with a text open", [START, TEXT, FINISH]),
    ("an end with a step open", [START, {"type": "STEP_STARTED", "stepName": "s"}, FINISH]),
    ("content of nothing", [START, {"type": "TEXT_MESSAGE_END", "messageId": "x"}, FINISH]),
    ("a text opened twice", [START, TEXT, TEXT]),
    ("a step opened twice", [START, *[{"type": "STEP_STARTED", "stepName": "s"}] * 2]),
    ("a run after a run", [START, FINISH, START, FINISH]),
    ("a null", [START, {**TEXT, "name": None}]),
    ("a time with a fraction", [START, {**TEXT, "timestamp": 1.5}]),
    ("a value that is missing", [START, {"type": "CUSTOM", "name": "n"}]),
    ("a value that is null", [START, {"type": "CUSTOM", "name": "n", "value": None}, FINISH]),
    ("a result without a message", [START, {"type": "TOOL_CALL_RESULT", "toolCallId": "c",
                                            "content": "x"}]),
    ("a negative count", [START, {**FINISH, "usage": [{"inputTokens": -1}]}]),
]  # fmt: skip


async def test_our_checker_and_the_client_agree(agui: AguiClient) -> None:
    replayed = await agui.replay(*(events for _, events in SEQUENCES))
    for (name, events), turn in zip(SEQUENCES, replayed["turns"], strict=True):
        try:
            check_sequence(events)
        except RuleBroken:
            assert turn["failure"] is not None, f"the client takes {name}"
        else:
            assert turn["failure"] is None, f"the client refuses {name}: {turn['failure']}"


async def test_the_client_takes_whatever_a_log_can_hold(agui: AguiClient, place: Place) -> None:
    session_id = await place.session()
    place.emit_run(
        session_id,
        "r1",
        RoundStarted(1),
        ReasoningStarted("t1"),
        ReasoningAdded("t1", "hm"),
        ReasoningFinished("t1"),
        TextStarted("a1"),
        TextAdded("a1", "let me 看"),
        TextFinished("a1"),
        CallStarted("c1", "shell", "a1"),
        CallArguments("c1", '{"command":'),
        CallArguments("c1", '"ls"}'),
        CallFinished("c1"),
        CallResult("x1", "c1", "shell", "out", duration_ms=3, exit_code=0),
        RoundFinished(1),
        UserJoined("m2", "faster"),
        Compaction("k1", "finished", 3),
        RoundStarted(2),
        TextStarted("a2"),
        TextAdded("a2", "done"),
        TextFinished("a2"),
        RoundFinished(2),
    )
    async with open_client(place.url, token=ANN) as client:
        await client.subscribe(session_id, after=0)
        await client.event(session_id, "RUN_FINISHED")
        result = await agui.replay(client.followed[session_id].events)
    [turn] = result["turns"]
    assert turn["failure"] is None
    assert result["warnings"] == []
    roles = [message["role"] for message in turn["messages"]]
    assert roles == ["user", "reasoning", "assistant", "tool", "user", "activity", "assistant"]
    texts = {message["id"]: message.get("content") for message in turn["messages"]}
    assert texts["a1"] == "let me 看"
    assert texts["m2"] == "faster"


async def test_a_conversation_over_http(agui: AguiClient, tmp_path: Path, sqlite_url: str) -> None:
    script = [reply("", [call("list_dir", {"path": "."})]), reply("first answer"), reply("second")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
    ):
        turns = [
            {"id": "m1", "text": "one", "runId": "c1"},
            {"id": "m2", "text": "two", "runId": "c2"},
        ]
        result = await agui.converse(place.url, ANN, "my thread", turns)
        first, second = result["turns"]
        assert result["warnings"] == []
        assert first["failure"] is second["failure"] is None
        assert first["types"][-1] == second["types"][-1] == "RUN_FINISHED"
        roles = [message["role"] for message in second["messages"]]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert second["messages"][-1]["content"] == "second"


async def test_a_failed_run_says_why(agui: AguiClient, tmp_path: Path, sqlite_url: str) -> None:
    loop = [reply("", [call("list_dir", {"path": "."})]) for _ in range(15)]
    async with (
        serve_gateway(loop, title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
    ):
        turns = [{"id": "m1", "text": "one", "runId": "c1"}]
        (turn,) = (await agui.converse(place.url, ANN, "t", turns))["turns"]
        assert turn["failure"] is None
        assert turn["runError"]["code"] == "no_progress_loop"
        assert turn["runError"]["message"]
        assert turn["types"].count("STEP_STARTED") == 15


async def test_a_text_that_broke_off_is_taken_back(
    agui: AguiClient, tmp_path: Path, sqlite_url: str
) -> None:
    cut = reply("this one breaks off", quirks=Quirks(cut_at=2))
    async with (
        serve_gateway([reply("hello"), cut, reply("whole")], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
    ):
        turns = [
            {"id": "m1", "text": "one", "runId": "c1"},
            {"id": "m2", "text": "two", "runId": "c2"},
        ]
        result = await agui.converse(place.url, ANN, "t", turns)
        turn = result["turns"][1]
        assert turn["failure"] is None
        assert "MESSAGES_SNAPSHOT" in turn["types"]
        assert [message["content"] for message in turn["messages"]] == [
            "one",
            "hello",
            "two",
            "whole",
        ]


async def test_the_same_message_again_is_run_again(
    agui: AguiClient, tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([reply("first"), reply("better")], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
    ):
        turns = [{"id": "m1", "text": "one", "runId": "c1"}, {"runId": "c2"}]
        result = await agui.converse(place.url, ANN, "t", turns)
        turn = result["turns"][1]
        assert turn["failure"] is None
        assert [message["content"] for message in turn["messages"]] == ["one", "better"]


async def test_a_busy_thread_is_refused_before_the_stream(
    agui: AguiClient, tmp_path: Path, sqlite_url: str
) -> None:
    held = reply("never", quirks=Quirks(before_body=NEVER))
    async with (
        serve_gateway([held], title=is_title, strict=False) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
        open_client(place.url, token=ANN) as client,
    ):
        session = await client.request("session.create")
        await client.request("run.start", session=session["id"], clientMsgId="m0", content="hi")
        turns = [{"id": "m1", "text": "one", "runId": "c1"}]
        (turn,) = (await agui.converse(place.url, ANN, session["id"], turns))["turns"]
        assert turn["failure"]["status"] == 409
        assert turn["failure"]["payload"]["error"]["code"] == "busy"
        await client.request("run.cancel", session=session["id"])


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_client_that_leaves_stops_its_run_only_if_it_said_so(
    agui: AguiClient, tmp_path: Path, sqlite_url: str, cancels: bool
) -> None:
    gate = asyncio.Event()
    held = reply("the answer", quirks=Quirks(before_body=gate))
    async with (
        serve_gateway([held], title=is_title, strict=False) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
        open_client(place.url, token=ANN) as client,
    ):
        session = await client.request("session.create")
        await client.subscribe(session["id"])
        turn: dict[str, object] = {
            "id": "m1",
            "text": "one",
            "runId": "c1",
            "abortAfter": "STEP_STARTED",
            "forwardedProps": {"cancelOnDisconnect": cancels},
        }
        await agui.converse(place.url, ANN, session["id"], [turn])
        if not cancels:
            gate.set()
        ended = await client.event(session["id"], "RUN_FINISHED")
        assert ended["outcome"]["type"] == ("cancelled" if cancels else "success")
