"""Run events as AG-UI events: what the protocol's own models and client accept."""

import json
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.events import (
    AttachedFile,
    CallArguments,
    CallFinished,
    CallProgress,
    CallResult,
    CallStarted,
    Compaction,
    Discarded,
    Interrupt,
    Outcome,
    OutcomeStatus,
    ReasoningAdded,
    ReasoningFinished,
    ReasoningStarted,
    RoundFinished,
    RoundStarted,
    RunEvent,
    RunStarted,
    SubagentFailed,
    SubagentFinished,
    SubagentStarted,
    TextAdded,
    TextFinished,
    TextStarted,
    UserJoined,
)
from server import agui
from tests.agui_rules import AguiRules, RuleBroken, check_sequence, check_shape

NOW = 1_767_000_000_123

STARTED = RunStarted(
    "r1", "m1", "你好", files=[AttachedFile("f1", "a.txt", "text/plain")], parent_run_id="r0"
)
ENDED = Outcome(
    "r1",
    "failed",
    "no_progress_loop",
    "模型反复执行相同的操作，已停止。",
    retryable=True,
    rounds=15,
    prompt_tokens=100,
    cached_tokens=90,
    completion_tokens=7,
    model="m",
    metadata={"rule": "no_progress"},
)
RUN: Sequence[RunEvent] = (
    STARTED,
    RoundStarted(1),
    ReasoningStarted("t1"),
    ReasoningAdded("t1", "hm"),
    ReasoningFinished("t1"),
    TextStarted("a1"),
    TextAdded("a1", 'two "quoted"\n'),
    TextFinished("a1"),
    CallStarted("c1", "shell", "a1"),
    CallArguments("c1", '{"command":'),
    CallArguments("c1", '"ls"}'),
    CallFinished("c1"),
    CallProgress("c1", "shell", "half"),
    CallResult("x1", "c1", "shell", "out", duration_ms=12, exit_code=1, truncated=True),
    CallResult(
        "x2", "c2", "view_image", "{}", picture_file_id="f2", picture_media_type="image/png"
    ),
    CallResult("x3", "c3", "shell", '{"error":"no"}', is_error=True),
    SubagentStarted("r2", "s2", "c4", "look it up"),
    SubagentFinished("r2"),
    SubagentStarted("r3", "s3", "c5", "look further"),
    SubagentFailed("r3", "no_progress_loop", "stopped"),
    RoundFinished(1),
    UserJoined("m2", "faster"),
    UserJoined("m3", "", [AttachedFile("f1", "a.txt", "text/plain")]),
    Compaction("k1", "started"),
    Compaction("k1", "finished", 12),
    Discarded(["a1"], ["c1"]),
    ENDED,
)


def rendered(*events: RunEvent) -> list[dict[str, Any]]:
    return [json.loads(body) for event in events for body in agui.render(event, "s1", NOW)]


def outcome(status: OutcomeStatus, **given: Any) -> dict[str, Any]:
    (event,) = rendered(Outcome("r1", status, given.pop("code", status), **given))
    return event


def test_every_kind_of_run_event_is_accepted_in_the_order_of_a_run() -> None:
    assert {type(event) for event in RUN} == set(get_args(RunEvent))
    check_sequence(rendered(*RUN))


def test_a_run_begins_with_the_message_that_asked_for_it() -> None:
    (event,) = rendered(STARTED)
    (message,) = event["input"]["messages"]
    assert event["threadId"] == "s1"
    assert event["timestamp"] == NOW
    assert event["protocolVersion"] == "1.0"
    assert message["id"] == "m1"
    assert message["content"][0] == {"type": "text", "text": "你好"}
    assert message["content"][1]["source"] == {
        "type": "url",
        "value": "/api/files/f1",
        "mimeType": "text/plain",
    }


def test_a_run_without_a_message_has_no_input() -> None:
    (event,) = rendered(RunStarted("r1", None, ""))
    assert "input" not in event


def test_a_failed_run_says_why_and_what_it_cost() -> None:
    (event,) = rendered(ENDED)
    assert event["type"] == "RUN_ERROR"
    assert event["code"] == "no_progress_loop"
    assert event["message"] == ENDED.text
    assert event["metadata"] == {
        "rule": "no_progress",
        "rounds": 15,
        "retryable": True,
        "runId": "r1",
    }
    assert event["usage"] == [
        {
            "inputTokens": 100,
            "outputTokens": 7,
            "totalTokens": 107,
            "cachedInputTokens": 90,
            "model": "m",
        }
    ]


def test_other_outcomes_finish_the_run() -> None:
    assert outcome("finished")["outcome"] == {"type": "success"}
    assert outcome("cancelled")["outcome"] == {"type": "cancelled"}
    asked = Interrupt("i1", "c1", "ask_user", "input_required", "which?", options=("a",))
    waiting = outcome("waiting", code="needs_input", text="which?", interrupts=[asked])["outcome"]
    assert waiting["type"] == "interrupt"
    assert waiting["interrupts"] == [
        {
            "id": "i1",
            "reason": "input_required",
            "message": "which?",
            "toolCallId": "c1",
            "responseSchema": agui.RESPONSE_SCHEMAS["input_required"],
            "metadata": {"toolName": "ask_user", "options": ["a"]},
        }
    ]
    assert "usage" not in outcome("finished")


def test_a_message_that_joins_has_its_files_and_no_empty_text() -> None:
    start, end = rendered(UserJoined("m2", "", [AttachedFile("f1", "a.txt", "text/plain")]))
    (begun,) = rendered(STARTED)
    assert start["type"] == "TEXT_MESSAGE_START"
    assert start["metadata"]["files"] == begun["input"]["messages"][0]["content"][1:]
    assert end["type"] == "TEXT_MESSAGE_END"
    assert "metadata" not in rendered(UserJoined("m2", "faster"))[0]


def test_a_result_names_its_picture_by_url_and_never_carries_it() -> None:
    (event,) = rendered(RUN[14])
    assert event["content"] == [
        {"type": "text", "text": "{}"},
        {
            "type": "image",
            "source": {"type": "url", "value": "/api/files/f2", "mimeType": "image/png"},
        },
    ]


def test_a_withdrawn_text_is_recognised_in_its_bytes() -> None:
    (body,) = agui.render(Discarded(["a1"], []), "s1", NOW)
    assert agui.is_discarded(body)
    assert not any(agui.is_discarded(b) for b in agui.render(STARTED, "s1", NOW))


@given(st.lists(st.text(st.characters(codec=None)), max_size=5), st.text(min_size=1, max_size=20))
def test_escaped_texts_joined_are_the_escaped_join(texts: list[str], key: str) -> None:
    head = agui.delta_head(TextAdded(key, ""))
    body = head + b"".join(map(agui.escape, texts)) + agui.DELTA_TAIL
    decoded = json.loads(body)
    check_shape(decoded)
    expected = "".join(
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts
    )
    assert decoded["delta"] == expected


@pytest.mark.parametrize(
    ("rule", "events"),
    [
        (1, [{"type": "CUSTOM", "name": "n", "value": None}]),
        (3, [{"type": "RUN_ERROR", "message": "m"}, {"type": "CUSTOM", "name": "n", "value": 1}]),
        (4, ["start", "finish", {"type": "CUSTOM", "name": "n", "value": 1}]),
        (5, ["start", "start"]),
        (7, ["start", {"type": "STEP_STARTED", "stepName": "s"}, "finish"]),
        (8, ["start", {"type": "TEXT_MESSAGE_CONTENT", "messageId": "a", "delta": "d"}]),
        (8, ["start", *[{"type": "TOOL_CALL_START", "toolCallId": "a", "toolCallName": "t"}] * 2]),
        (13, ["start", *[{"type": "STEP_STARTED", "stepName": "s"}] * 2]),
        (
            14,
            [
                "start",
                {"type": "TEXT_MESSAGE_START", "messageId": "a", "subagentRunId": "x"},
                {"type": "TEXT_MESSAGE_END", "messageId": "a", "subagentRunId": "y"},
            ],
        ),
        (17, ["start", {"type": "STEP_STARTED", "stepName": "s", "seq": 4}]),
        (18, ["start", {"type": "TEXT_MESSAGE_START", "messageId": "a", "name": None}]),
        (19, ["start", {"type": "STEP_STARTED", "stepName": "s", "timestamp": 1.0}]),
        (19, ["start", {"type": "CUSTOM", "name": "n"}]),
        (19, ["start", {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "content": "x"}]),
    ],
)
def test_the_checker_refuses_what_the_client_refuses(rule: int, events: list[Any]) -> None:
    short = {
        "start": {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        "finish": {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    }
    *before, last = [short[event] if isinstance(event, str) else event for event in events]
    rules = AguiRules()
    for event in before:
        rules.check(event)
    with pytest.raises(RuleBroken) as broken:
        rules.check(last)
    assert broken.value.rule == rule


def test_the_checker_takes_what_the_client_takes() -> None:
    check_sequence([{"type": "RUN_ERROR", "message": "m"}])
    start = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
    opened = {"type": "TEXT_MESSAGE_START", "messageId": "a"}
    check_sequence([start, opened, {"type": "RUN_ERROR", "message": "m"}, start])
    finish = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
    check_sequence([start, finish, {"type": "RUN_ERROR", "message": "m"}])
