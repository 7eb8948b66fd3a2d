"""Retries, limits of time, and cancelling, against a gateway on a real port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime

import pytest

from server.errors import LLMRateLimited, LLMTimeout, LLMUnavailable
from server.llm.openai import ModelSettings, open_model
from server.llm.port import AttemptFailed, ModelEvent, Reply, TextDelta
from server.message import Usage
from tests.fakes.llm import NEVER, Quirks, answer, call, refuse, reply, serve_gateway
from tests.server.llm.asking import NOW, Pauses, ask, asked, events_of, reply_of, timing

QUICK = ModelSettings(
    "", "m", first_byte_seconds=0.5, between_chunks_seconds=0.3, silent_seconds=1.0, tries=1
)


async def test_each_failed_try_is_told_and_the_pauses_grow() -> None:
    pauses = Pauses()
    async with asked(refuse(500), refuse(529), reply("x"), pauses=pauses) as (model, _):
        events = await events_of(model)
    failed = [event for event in events if isinstance(event, AttemptFailed)]
    assert [(f.error, f.streamed, f.first_token_ms) for f in failed] == [
        ("model_overloaded", False, None)
    ] * 2
    assert pauses.seconds == [2.0, 8.0]


async def test_the_pause_is_drawn_between_half_a_second_and_its_bound() -> None:
    pauses = Pauses()
    async with serve_gateway([refuse(500), refuse(500), reply("x")]) as gateway:
        drawn = timing(pauses, dice=lambda: 0.0)
        async with open_model(ModelSettings(gateway.url, "m"), drawn) as model:
            await reply_of(model)
    assert pauses.seconds == [0.5, 0.5]


async def test_the_third_failure_is_told_and_raised() -> None:
    events: list[ModelEvent] = []

    async def listen(stream: AsyncIterator[ModelEvent]) -> None:
        async for event in stream:
            events.append(event)

    async with asked(refuse(503), refuse(500), refuse(429)) as (model, _):
        with pytest.raises(LLMRateLimited):
            await listen(model.stream(ask()))
    assert [e.error for e in events if isinstance(e, AttemptFailed)] == [
        "model_overloaded",
        "model_overloaded",
        "model_rate_limited",
    ]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        ("600", 30.0),
        (format_datetime(NOW + timedelta(seconds=9), usegmt=True), 9.0),
    ],
)
async def test_retry_after_is_followed_up_to_thirty_seconds(header: str, seconds: float) -> None:
    pauses = Pauses()
    plays = refuse(429, retry_after=header), reply("x")
    async with asked(*plays, pauses=pauses) as (model, _):
        await reply_of(model)
    assert pauses.seconds == [seconds]


BROKEN = {
    "the connection is cut": Quirks(piece_chars=2, cut_at=3),
    "the body ends too soon": Quirks(piece_chars=2, end_at=3),
    "an error comes": Quirks(piece_chars=2, error_at=3),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_reply_that_breaks_off_is_asked_once_more_as_a_whole(name: str) -> None:
    broken = reply("abcdef", quirks=BROKEN[name])
    async with asked(broken, reply("whole", usage=Usage(9, 0, 2))) as (model, gateway):
        events = await events_of(model)
    texts = [e.text if isinstance(e, TextDelta) else type(e) for e in events]
    assert texts == ["ab", "cd", AttemptFailed, "whole", Reply]
    assert isinstance(events[2], AttemptFailed)
    assert events[2].streamed
    assert events[2].first_token_ms is not None
    assert isinstance(events[-1], Reply)
    assert events[-1].text == "whole"
    assert gateway.requests[0].body == gateway.requests[1].body


async def test_a_reply_that_breaks_off_twice_is_given_up() -> None:
    broken = reply("abcdef", quirks=Quirks(piece_chars=2, cut_at=3))
    async with asked(broken, broken) as (model, gateway):
        with pytest.raises(LLMUnavailable):
            await events_of(model)
    assert len(gateway.requests) == 2


async def test_the_repeat_of_a_broken_reply_may_itself_be_refused_for_a_while() -> None:
    broken = reply("abcdef", quirks=Quirks(piece_chars=2, cut_at=3))
    async with asked(broken, refuse(503), refuse(503), reply("x")) as (model, _):
        assert (await reply_of(model)).text == "x"


async def test_what_a_broken_reply_cost_is_told() -> None:
    quirks = Quirks(piece_chars=2, cut_at=3, usage="each_chunk")
    broken = reply("abcdef", usage=Usage(100, 90, 4), quirks=quirks)
    async with asked(broken, reply("x")) as (model, _):
        failed = [e for e in await events_of(model) if isinstance(e, AttemptFailed)]
    assert [f.usage for f in failed] == [Usage(100, 90, 4)]


async def test_a_cut_after_the_finish_reason_loses_nothing() -> None:
    """Chunks are: role, text, finish reason, usage, `[DONE]`."""
    async with asked(reply("abc", quirks=Quirks(cut_at=3))) as (model, _):
        got = await reply_of(model)
    assert (got.text, got.finish_reason, got.usage) == ("abc", "stop", None)


async def test_a_gateway_that_nobody_listens_at_is_unavailable() -> None:
    async with serve_gateway([]) as gateway:
        pass
    async with open_model(ModelSettings(gateway.url, "m"), timing()) as model:
        with pytest.raises(LLMUnavailable) as caught:
            await events_of(model)
    assert caught.value.code == "model_overloaded"


SILENT = {
    "before the answer": Quirks(before_headers=NEVER),
    "before the body": Quirks(before_body=NEVER),
    "between chunks": Quirks(hold_at=2),
}


@pytest.mark.parametrize("name", ["before the answer", "before the body"])
async def test_silence_is_a_timeout_and_closes_the_connection(name: str) -> None:
    play = reply("abc", quirks=SILENT[name])
    async with asked(play, settings=QUICK) as (model, gateway), asyncio.timeout(10):
        with pytest.raises(LLMTimeout):
            await events_of(model)
        await gateway.requests[0].abandoned.wait()


@pytest.mark.parametrize("quirks", [Quirks(hold_at=2), Quirks(hold_at=2, alive_every_seconds=0.1)])
async def test_silence_within_a_reply_breaks_it_off_comments_or_not(quirks: Quirks) -> None:
    plays = reply("abc", quirks=quirks), reply("x")
    async with asked(*plays, settings=QUICK) as (model, gateway), asyncio.timeout(10):
        events = await events_of(model)
        await gateway.requests[0].abandoned.wait()
    assert [e.error for e in events if isinstance(e, AttemptFailed)] == ["model_timeout"]
    assert isinstance(events[-1], Reply)


async def test_keep_alive_comments_are_life() -> None:
    quirks = Quirks(hold_at=0, hold=0.7, alive_every_seconds=0.1)
    async with asked(reply("abc", quirks=quirks), settings=QUICK) as (model, _):
        events = await events_of(model)
    assert [type(event) for event in events] == [TextDelta, Reply]


async def test_a_long_reply_is_not_silence() -> None:
    settings = replace(QUICK, first_byte_seconds=0.2, silent_seconds=0.2)
    play = reply("abcdefghijkl", quirks=Quirks(piece_chars=1, pace_seconds=0.05))
    async with asked(play, settings=settings) as (model, _):
        assert (await reply_of(model)).text == "abcdefghijkl"


async def test_a_stream_that_stays_open_after_its_finish_reason_is_whole() -> None:
    play = reply("abc", quirks=Quirks(hold_at=3))
    async with asked(play, settings=QUICK) as (model, _), asyncio.timeout(10):
        assert (await reply_of(model)).text == "abc"


async def test_a_slow_reader_is_not_taken_for_a_silent_gateway() -> None:
    play = reply("ab", quirks=Quirks(piece_chars=1, hold_at=2, hold=0.1))
    async with asked(play, settings=QUICK) as (model, _), asyncio.timeout(10):
        texts = []
        async for event in model.stream(ask()):
            texts.append(event)
            await asyncio.sleep(QUICK.between_chunks_seconds * 2)  # is what is being tested
    assert isinstance(texts[-1], Reply)


@pytest.mark.parametrize("name", SILENT)
async def test_cancelling_closes_the_connection_at_once(name: str) -> None:
    async with asked(reply("abc", quirks=SILENT[name])) as (model, gateway), asyncio.timeout(10):
        task = asyncio.create_task(events_of(model))
        request = await gateway.wait_for_requests(1)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await request.abandoned.wait()


async def test_closing_the_iterator_closes_the_connection_at_once() -> None:
    play = reply("abcdef", [call("list_dir")], quirks=Quirks(piece_chars=1, pace_seconds=0.02))
    async with asked(play, reply("next")) as (model, gateway), asyncio.timeout(10):
        async with aclosing(model.stream(ask())) as events:
            assert isinstance(await anext(events), TextDelta)
        await gateway.requests[0].abandoned.wait()
        assert (await reply_of(model)).text == "next"
    assert [request.connection for request in gateway.requests] == [1, 2]


async def test_cancelling_during_a_pause_ends_the_tries() -> None:
    class Sleeping:
        def __init__(self) -> None:
            self.began = asyncio.Event()

        async def __call__(self, seconds: float) -> None:
            self.began.set()
            await asyncio.Event().wait()

    sleeping = Sleeping()
    async with serve_gateway([refuse(500)]) as gateway, asyncio.timeout(10):
        waiting = replace(timing(), sleep=sleeping)
        async with open_model(ModelSettings(gateway.url, "m"), waiting) as model:
            task = asyncio.create_task(events_of(model))
            await sleeping.began.wait()
            task.cancel()
            await asyncio.wait({task})
    assert task.cancelled()
    assert len(gateway.requests) == 1


async def test_a_refusal_whose_body_never_comes_is_a_timeout() -> None:
    hanging = answer(500, b"", wait=NEVER)
    async with asked(hanging, settings=QUICK) as (model, _), asyncio.timeout(10):
        with pytest.raises(LLMTimeout):
            await events_of(model)
