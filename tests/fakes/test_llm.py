"""The scripted gateway itself: what it records, and when it fails a test."""

import asyncio
import sys

import pytest

from server.errors import LLMRejected
from server.llm.openai import ModelSettings, open_model
from tests.fakes.llm import Script, answer, call, forever, reply, serve_gateway
from tests.server.llm.asking import ask, calls_of, events_of, message, reply_of, timing


async def ask_in_vain(script: Script) -> None:
    async with serve_gateway(script) as gateway:
        async with open_model(ModelSettings(gateway.url, "m"), timing()) as model:
            with pytest.raises(LLMRejected):
                await events_of(model)


async def test_a_reply_left_over_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="1 replies were not asked for"):
        async with serve_gateway([reply("x")]):
            pass


async def test_a_call_too_many_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="call 1 was one too many"):
        await ask_in_vain([])


async def test_an_error_of_the_script_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="KeyError"):
        await ask_in_vain(lambda request: reply(request.json["missing"]))


async def test_a_failure_inside_the_block_is_not_hidden_by_what_is_left_over() -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve_gateway([reply("x")]):
            raise ZeroDivisionError


async def test_titles_take_nothing_from_the_script() -> None:
    def is_title(request: object) -> bool:
        return "title" in str(request)

    async with serve_gateway([reply("x")], title=is_title, title_play=reply("t")) as gateway:
        async with open_model(ModelSettings(gateway.url, "m"), timing()) as model:
            assert (await reply_of(model, ask("make a title"))).text == "t"
            assert (await reply_of(model)).text == "x"
    assert (len(gateway.requests), len(gateway.titles)) == (1, 1)


async def test_a_script_may_be_a_function_or_go_on_for_ever() -> None:
    async with serve_gateway(lambda request: reply(str(len(request.messages)))) as gateway:
        async with open_model(ModelSettings(gateway.url, "m"), timing()) as model:
            assert (await reply_of(model, ask("a", message("user", "b")))).text == "2"
    loop = forever(reply(calls=[call("list_dir")]), reply("done"))
    async with serve_gateway(loop) as gateway:
        async with open_model(ModelSettings(gateway.url, "m"), timing()) as model:
            replies = [await reply_of(model) for _ in range(4)]
    assert [(calls_of(r), r.text) for r in replies] == [
        ([("list_dir", "{}")], ""),
        ([], "done"),
    ] * 2
    assert replies[0].calls[0].provider_id != replies[2].calls[0].provider_id


async def test_other_answers_are_sent_as_they_are() -> None:
    async with serve_gateway([answer(418, {"a": 1})]) as gateway:
        async with open_model(ModelSettings(gateway.url, "m"), timing()) as model:
            with pytest.raises(LLMRejected, match="418"):
                await events_of(model)


async def test_as_a_process_it_prints_its_address_and_plays_its_scenario() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.llm", "--scenario", "loop",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            url = (await process.stdout.readline()).decode().strip()
            async with open_model(ModelSettings(url, "m"), timing()) as model:
                got = await reply_of(model)
        assert calls_of(got) == [("grep_search", '{"pattern": "群名", "path": "."}')]
    finally:
        process.kill()
        await process.wait()
