"""The offline stand-in."""

import asyncio
import json
from dataclasses import replace

import pytest

from server.llm.builtin import BuiltinModel
from server.llm.port import CallArguments, CallStarted, Reply, TextDelta
from tests.server.llm.asking import ask, calls_of, events_of, message, reply_of

MODEL = BuiltinModel(pace_seconds=0)
CHINESE, ENGLISH = "（内置离线模型", "(Built-in offline model"


def round_of(name: str, result: str, serial: int = 1) -> list[dict[str, object]]:
    """The two messages of a finished round."""
    call = {"id": f"c{serial}", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [
        message("assistant", "", tool_calls=[call]),
        message("tool", result, tool_call_id=f"c{serial}"),
    ]


@pytest.mark.parametrize(
    ("text", "first", "word"),
    [
        ("help", ENGLISH, "/demo loop"),
        ("帮助", CHINESE, "/demo loop"),
        ("你好", CHINESE, "帮助"),
        ("hello", ENGLISH, "help"),
        ("echo good day", ENGLISH, "good day"),
        ("复述 早上好", CHINESE, "早上好"),
        ("what time is it?", ENGLISH, "no clock"),
        ("现在几点了？", CHINESE, "没有时钟"),
        ("why is the sky blue", ENGLISH, "cannot answer"),
        ("天为什么是蓝的", CHINESE, "不会回答"),
        ("/demo", CHINESE, "/demo shell-loop"),
    ],
)
async def test_it_says_what_it_is_and_answers_simple_requests(
    text: str, first: str, word: str
) -> None:
    got = await reply_of(MODEL, ask(text))
    assert got.text.startswith(first)
    assert word in got.text.split("\n\n", 1)[1]
    assert not got.calls


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("list files", "list_dir", {"path": "."}),
        ("List the files in src", "list_dir", {"path": "src"}),
        ("列出文件", "list_dir", {"path": "."}),
        ("查看当前目录", "list_dir", {"path": "."}),
        ("read `README.md`", "read_file", {"path": "README.md"}),
        ("读取README.md", "read_file", {"path": "README.md"}),
        ("查看文件 a b.txt", "read_file", {"path": "a b.txt"}),
        ("search TODO", "grep_search", {"pattern": "TODO", "path": "."}),
        ("搜索群名", "grep_search", {"pattern": "群名", "path": "."}),
        ("run ls -la | wc", "shell", {"action": "run", "command": "ls -la | wc"}),
        ("运行命令：ls", "shell", {"action": "run", "command": "ls"}),
    ],
)
async def test_a_plain_wish_for_a_tool_becomes_a_call(
    text: str, name: str, arguments: dict[str, str]
) -> None:
    got = await reply_of(MODEL, ask(text))
    assert [(n, json.loads(a)) for n, a in calls_of(got)] == [(name, arguments)]
    assert got.text.startswith((CHINESE, ENGLISH))
    assert got.finish_reason == "tool_calls"


async def test_a_question_that_begins_like_a_command_runs_nothing() -> None:
    assert not (await reply_of(MODEL, ask("运行结果是什么"))).calls


async def test_a_tool_that_the_session_lacks_is_not_called() -> None:
    got = await reply_of(MODEL, replace(ask("run ls"), tools=None))
    assert not got.calls
    assert "no tool `shell`" in got.text


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ('{"error":"not_found","message":"m"}', "failed: not_found"),
        ('{"success":true,"total_matches":3,"matches":[]}', "3 matches"),
        ('{"exit_code":2,"output":"no such file"}', "exit code 2\n\n      no such file"),
        ("a\nb", "2 lines\n\n      a\n      b"),
        ("\n".join("abcdefgh"), "8 lines"),
        ("", "0 lines"),
    ],
)
async def test_results_are_summed_up(result: str, told: str) -> None:
    got = await reply_of(MODEL, ask("list files", *round_of("list_dir", result)))
    assert not got.calls
    assert f"- `list_dir`: {told}" in got.text


@pytest.mark.parametrize(
    ("demo", "call"),
    [
        ("/demo loop", ("grep_search", '{"pattern":"群名","path":"."}')),
        ("/demo shell-loop", ("shell", '{"action":"run","command":"ls missing-folder"}')),
    ],
)
async def test_a_demo_repeats_its_call_whatever_comes_back(
    demo: str, call: tuple[str, str]
) -> None:
    messages = [message("system", "你是助手"), message("user", demo)]
    ids = set()
    for serial in range(1, 21):
        got = await reply_of(MODEL, ask(*messages))
        assert calls_of(got) == [call]
        assert got.text.startswith(CHINESE) == (serial == 1)
        ids.add(got.calls[0].provider_id)
        messages += round_of(call[0], '{"error":"x"}', serial)
        if serial in (5, 10):
            messages.append(message("user", "<system-notice>no progress</system-notice>"))
    assert len(ids) == 20


async def test_after_a_demo_the_next_text_is_answered() -> None:
    got = await reply_of(MODEL, ask("/demo loop", *round_of("grep_search", "{}"), "帮助"))
    assert not got.calls


async def test_a_demo_speaks_the_language_of_the_prompt() -> None:
    got = await reply_of(MODEL, ask(message("system", "You are an agent"), "/demo loop"))
    assert got.text.startswith(ENGLISH)


async def test_texts_in_parts_are_read() -> None:
    parts = [{"type": "text", "text": "echo hi"}, {"type": "image_url", "image_url": {"url": "u"}}]
    got = await reply_of(MODEL, ask({"role": "user", "content": parts}))
    assert got.text.endswith("hi")


async def test_pieces_and_the_call_add_up_to_the_reply() -> None:
    events = await events_of(MODEL, ask("列出文件 src"))
    got = events[-1]
    assert isinstance(got, Reply)
    pieces = [e.text for e in events if isinstance(e, TextDelta)]
    assert "".join(pieces) == got.text
    assert len(pieces) > 10
    assert events[-3:-1] == [CallStarted(0, "list_dir"), CallArguments(0, '{"path":"src"}')]


async def test_usage_grows_with_the_request_and_the_request_before_is_cached() -> None:
    first = await reply_of(MODEL, ask("list files"))
    second = await reply_of(MODEL, ask("list files", *round_of("list_dir", "a\n" * 500)))
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens == first.usage.prompt_tokens
    assert second.usage.prompt_tokens > 250


async def test_titles_and_summaries_are_made() -> None:
    title = await reply_of(
        MODEL, ask("please list all the files that were changed", purpose="title")
    )
    assert title.text == "please list all the"
    chinese = await reply_of(MODEL, ask("请" * 40, purpose="title"))
    assert chinese.text == "请" * 24
    history = ask("一", *round_of("shell", "{}"), "列出文件", purpose="compaction")
    summary = await reply_of(MODEL, history)
    assert "2 条消息" in summary.text
    assert "1 次工具" in summary.text
    assert "列出文件" in summary.text


async def test_a_request_without_any_text_is_answered_too() -> None:
    assert (await reply_of(MODEL, ask(message("user", "")))).text.startswith(CHINESE)
    assert (await reply_of(MODEL, replace(ask(), messages=[]))).text.startswith(CHINESE)


async def test_it_can_always_be_asked_and_cancelled() -> None:
    assert await MODEL.check() is None
    slow = BuiltinModel(pace_seconds=60)
    task = asyncio.create_task(reply_of(slow))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
