"""The client against a scripted gateway on a real port: requests, and the streams it must read."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest

from server.errors import (
    LLMBadResponse,
    LLMContextOverflow,
    LLMError,
    LLMRateLimited,
    LLMRejected,
    LLMUnauthorized,
    LLMUnavailable,
)
from server.llm.openai import ModelSettings, endpoint, open_model
from server.llm.port import (
    AttemptFailed,
    CallArguments,
    CallStarted,
    ModelRequest,
    Reply,
    TextDelta,
)
from server.message import Usage
from tests.fakes.llm import (
    NEVER,
    Quirks,
    ScriptedAnswer,
    ScriptedReply,
    answer,
    call,
    refuse,
    reply,
    serve_gateway,
)
from tests.server.llm.asking import (
    KEY,
    Pauses,
    ask,
    asked,
    calls_of,
    events_of,
    message,
    reply_of,
    timing,
)

TEXT = "你好，wörld 😀 a\u2028b\u0085c\nd"
CALLS = (
    call("grep_search", {"pattern": '群"\\名\u2028', "path": "."}),
    call("list_dir", {"path": "src"}),
)
USAGE = Usage(1000, 900, 30)

ONE_OF_EACH: dict[str, Quirks] = {
    "nothing odd": Quirks(),
    "no index": Quirks(index="missing"),
    "a null index": Quirks(index="null"),
    "index 0 for each call": Quirks(index="zero"),
    "no ids": Quirks(ids="missing"),
    "no ids and no index": Quirks(ids="missing", index="missing"),
    "no ids, no index, whole arguments": Quirks(ids="missing", index="missing", arguments="whole"),
    "no ids, index 0, whole arguments": Quirks(ids="missing", index="zero", arguments="whole"),
    "an empty id on continuations": Quirks(ids="empty_later"),
    "an empty id on continuations, index 0": Quirks(ids="empty_later", index="zero"),
    "another id on each piece": Quirks(ids="each_piece"),
    "name and id repeated": Quirks(repeat_name=True),
    "name and id repeated, index 0": Quirks(repeat_name=True, index="zero"),
    "name repeated, neither id nor index": Quirks(repeat_name=True, ids="missing", index="missing"),
    "arguments in one piece": Quirks(arguments="whole"),
    "usage in each chunk": Quirks(usage="each_chunk"),
    "choices null beside usage": Quirks(usage="null_choices"),
    "usage inside the choice": Quirks(usage="in_choice"),
    "cached tokens as DeepSeek has them": Quirks(cached="hit"),
    "cached tokens as StepFun has them": Quirks(cached="top"),
    "no [DONE]": Quirks(done=False),
    "no finish reason": Quirks(finish=False),
    "CRLF": Quirks(crlf=True),
    "no space after the colon": Quirks(tight=True),
    "no blank lines": Quirks(single_newline=True),
    "keep-alive comments": Quirks(comments=True),
    "nothing but choices": Quirks(bare=True),
    "escapes": Quirks(ascii=True),
    "single bytes": Quirks(write_bytes=1),
    "single bytes of escapes": Quirks(write_bytes=1, ascii=True, crlf=True),
    "seven bytes": Quirks(write_bytes=7, comments=True),
    "single characters": Quirks(piece_chars=1),
    "all in one chunk": Quirks(piece_chars=1000),
    "the other name for reasoning": Quirks(reasoning_field="reasoning"),
}


@pytest.mark.parametrize("name", ONE_OF_EACH)
async def test_a_stream_is_read_whatever_is_odd_about_it(name: str) -> None:
    quirks = ONE_OF_EACH[name]
    play = reply(TEXT, CALLS, reasoning="嗯 hm", usage=USAGE, quirks=quirks)
    async with asked(play) as (model, _):
        events = await events_of(model)
    got = events[-1]
    assert isinstance(got, Reply)
    assert got.text == TEXT
    assert calls_of(got) == [(c.name, c.arguments) for c in CALLS]
    assert (got.reasoning, got.reasoning_field) == ("嗯 hm", quirks.reasoning_field)
    assert got.usage == USAGE
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == TEXT


async def test_events_of_calls_carry_their_place_and_all_arguments() -> None:
    async with asked(reply(calls=CALLS, quirks=Quirks(index="zero"))) as (model, _):
        events = await events_of(model)
    assert [e for e in events if isinstance(e, CallStarted)] == [
        CallStarted(0, "grep_search"),
        CallStarted(1, "list_dir"),
    ]
    for place, scripted in enumerate(CALLS):
        pieces = [e.text for e in events if isinstance(e, CallArguments) and e.index == place]
        assert "".join(pieces) == scripted.arguments


async def test_ids_of_the_gateway_are_kept_and_missing_ones_stay_empty() -> None:
    given = (call("a", id="call_0"), call("b", id="call_1"))
    plays = reply(calls=given), reply(calls=given, quirks=Quirks(ids="missing"))
    async with asked(*plays) as (model, _):
        assert [c.provider_id for c in (await reply_of(model)).calls] == ["call_0", "call_1"]
        assert [c.provider_id for c in (await reply_of(model)).calls] == ["", ""]


@pytest.mark.parametrize(
    ("kind", "arguments"), [("object", '{"path":"src","群":[1]}'), ("null", "{}")]
)
async def test_arguments_that_are_no_string_become_one(kind: str, arguments: str) -> None:
    quirks = Quirks(arguments="object") if kind == "object" else Quirks(arguments="null")
    scripted = call("list_dir", '{"path": "src", "群": [1]}')
    async with asked(reply(calls=[scripted], quirks=quirks)) as (model, _):
        assert calls_of(await reply_of(model)) == [("list_dir", arguments)]


async def test_without_usage_the_reply_has_none() -> None:
    async with asked(reply("x", quirks=Quirks(usage="none"))) as (model, _):
        assert (await reply_of(model)).usage is None


async def test_an_empty_reply_is_a_reply() -> None:
    async with asked(reply(), reply("x", finish_reason="length")) as (model, _):
        assert (await reply_of(model)).is_empty
        assert (await reply_of(model)).finish_reason == "length"


async def test_a_line_of_a_megabyte_is_read() -> None:
    text = "长" * 400_000
    play = reply(text, quirks=Quirks(piece_chars=len(text), write_bytes=65_536))
    async with asked(play) as (model, _):
        assert (await reply_of(model)).text == text


async def test_a_gateway_that_ignores_streaming_is_understood() -> None:
    choice = {"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    body = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    async with asked(answer(200, body)) as (model, _):
        got = await reply_of(model)
    assert (got.text, got.usage) == ("x", Usage(3, 0, 1))


async def test_the_request_has_its_messages_last_and_extends_the_one_before() -> None:
    async with asked(reply(calls=[call("list_dir")]), reply("done")) as (model, gateway):
        first = ask(message("system", "s"), "你好")
        first = replace(first, prompt_cache_key="headway-session-1", max_tokens=100)
        more = ask(message("assistant", "x"), message("tool", "y", tool_call_id="1"))
        second = replace(first, messages=[*first.messages, *more.messages])
        await reply_of(model, first)
        await reply_of(model, second)
    one, two = gateway.requests
    assert list(one.json) == [
        "model",
        "stream",
        "stream_options",
        "tools",
        "prompt_cache_key",
        "max_tokens",
        "messages",
    ]
    assert one.json["stream_options"] == {"include_usage": True}
    assert one.json["prompt_cache_key"] == "headway-session-1"
    assert one.body.endswith(b"]}")
    assert two.body.startswith(one.body[:-2])
    assert one.messages[1] == {"role": "user", "content": "你好"}
    assert one.headers["authorization"] == f"Bearer {KEY}"


async def test_a_finished_stream_leaves_its_connection_for_the_next() -> None:
    odd = Quirks(done=False), Quirks(before_end=0.01), Quirks()
    async with asked(*(reply("x", quirks=quirks) for quirks in odd)) as (model, gateway):
        for _ in odd:
            await reply_of(model)
    assert [request.connection for request in gateway.requests] == [1, 1, 1]


async def test_a_body_that_never_ends_does_not_hold_the_reply_back() -> None:
    async with asked(reply("x", quirks=Quirks(before_end=NEVER))) as (model, gateway):
        async with asyncio.timeout(3):
            assert (await reply_of(model)).text == "x"
            await gateway.requests[0].abandoned.wait()


async def test_a_body_above_a_megabyte_is_sent_without_a_warning() -> None:
    async with asked(reply("x")) as (model, gateway):
        await reply_of(model, ask("大" * 700_000))
    assert len(gateway.requests[0].body) > 2_000_000


async def test_without_a_key_no_authorization_is_sent_and_the_request_may_name_its_model() -> None:
    async with serve_gateway([reply("x")]) as gateway:
        async with open_model(ModelSettings(gateway.url, "m"), timing()) as model:
            got = await reply_of(model, replace(ask(), model="other", tools=None))
    assert "authorization" not in gateway.requests[0].headers
    assert gateway.requests[0].json["model"] == got.model == "other"
    assert "tools" not in gateway.requests[0].json


@pytest.mark.parametrize("field", ["stream_options", "prompt_cache_key", "max_tokens"])
async def test_a_field_that_the_gateway_refuses_is_left_out_from_then_on(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = Pauses()
    request = replace(ask(), prompt_cache_key="k", max_tokens=5)
    plays = refuse(400, f"Unrecognized request argument: {field}"), reply("a"), reply("b")
    async with asked(*plays, pauses=pauses) as (model, gateway):
        events = await events_of(model, request)
        await reply_of(model, request)
    assert isinstance(events[0], AttemptFailed)
    assert isinstance(events[-1], Reply)
    assert [field in request.json for request in gateway.requests] == [True, False, False]
    assert pauses.seconds == [0.0]
    assert field in caplog.text


async def test_a_prompt_that_is_too_long_costs_no_field() -> None:
    words = "'max_tokens' is too large: 64. This model's maximum context length is 4096 tokens"
    short = replace(ask(), max_tokens=64)
    async with asked(refuse(400, words), reply("x")) as (model, gateway):
        with pytest.raises(LLMContextOverflow):
            await reply_of(model, short)
        await reply_of(model, short)
        assert [request.json["max_tokens"] for request in gateway.requests] == [64, 64]


async def test_a_field_that_was_not_sent_is_not_left_out_for_a_refusal_that_names_it() -> None:
    refused = refuse(400, "tool_choice and max_tokens: what is that?")
    async with asked(refused, reply("x")) as (model, gateway):
        with pytest.raises(LLMRejected):
            await reply_of(model)
        await reply_of(model, replace(ask(), max_tokens=64, may_call=False))
        assert gateway.requests[1].json["max_tokens"] == 64
        assert gateway.requests[1].json["tool_choice"] == "none"


async def test_a_refusal_of_a_field_that_is_left_out_already_stands() -> None:
    plays = [refuse(400, "unknown field stream_options")] * 2
    async with asked(*plays) as (model, _):
        with pytest.raises(LLMRejected):
            await events_of(model)


@pytest.mark.parametrize(
    "base",
    ["http://h", "http://h/", "http://h/v1", "http://h/v1/", "http://h/v1/chat/completions/"],
)
def test_a_base_url_may_be_spelled_in_any_usual_way(base: str) -> None:
    assert str(endpoint(base, "chat/completions")) == "http://h/v1/chat/completions"
    assert str(endpoint(base, "models")) == "http://h/v1/models"


def test_other_paths_and_a_query_of_a_base_url_are_kept() -> None:
    assert str(endpoint("https://h/api/v3/", "models")) == "https://h/api/v3/models"
    azure = endpoint("https://h/openai/deployments/d/chat/completions?api-version=1", "models")
    assert str(azure) == "https://h/openai/deployments/d/models?api-version=1"


FATAL: dict[str, tuple[ScriptedReply | ScriptedAnswer, type[LLMError]]] = {
    "401": (refuse(401), LLMUnauthorized),
    "403": (refuse(403), LLMUnauthorized),
    "404": (answer(404, b"<html>no</html>", content_type="text/html"), LLMRejected),
    "a redirect": (answer(307, b"", headers={"Location": "http://127.0.0.1:9/"}), LLMRejected),
    "a prompt too long": (refuse(400, code="context_length_exceeded"), LLMContextOverflow),
    "a prompt too long, in words": (
        refuse(413, "This model's maximum context length is 8192 tokens"),
        LLMContextOverflow,
    ),
    "200 with an error of its own status": (
        answer(200, {"error": {"code": 401, "message": "m"}}),
        LLMUnauthorized,
    ),
    "an error in the stream": (
        reply("abc", quirks=Quirks(error_at=1, error={"code": "context_length_exceeded"})),
        LLMContextOverflow,
    ),
}


@pytest.mark.parametrize("name", FATAL)
async def test_what_a_repeat_cannot_mend_is_raised_at_once(name: str) -> None:
    play, error = FATAL[name]
    async with asked(play) as (model, gateway):
        with pytest.raises(error):
            await events_of(model)
    assert len(gateway.requests) == 1


MENDABLE: dict[str, tuple[ScriptedReply | ScriptedAnswer, type[LLMError]]] = {
    "429": (refuse(429), LLMRateLimited),
    "200 with an error": (answer(200, {"error": {"message": "m"}}), LLMBadResponse),
    "200 with a rate limit": (
        answer(200, {"error": {"type": "rate_limit_exceeded"}}),
        LLMRateLimited,
    ),
    "200 with a web page": (
        answer(200, b"<html>log in</html>", content_type="text/html; charset=utf-8"),
        LLMBadResponse,
    ),
    "200 with other JSON": (answer(200, {"detail": "?"}), LLMBadResponse),
    "200 with nothing": (answer(200, b"", content_type="text/event-stream"), LLMBadResponse),
    "200 with half of some JSON": (answer(200, b'{"choices":'), LLMBadResponse),
    "an error in the stream before a delta": (
        reply("abc", quirks=Quirks(error_at=1, error="overloaded")),
        LLMUnavailable,
    ),
    "an end before the beginning": (reply("abc", quirks=Quirks(end_at=0)), LLMBadResponse),
}


@pytest.mark.parametrize("name", MENDABLE)
async def test_what_a_repeat_may_mend_is_tried_three_times(name: str) -> None:
    play, error = MENDABLE[name]
    async with asked(play, play, reply("x")) as (model, _):
        events = await events_of(model)
        assert [type(event) for event in events[:2]] == [AttemptFailed, AttemptFailed]
        assert [e.error for e in events if isinstance(e, AttemptFailed)] == [error.code] * 2
        assert isinstance(events[-1], Reply)
    async with asked(play, play, play) as (model, _):
        with pytest.raises(error):
            await events_of(model)


async def test_neither_key_nor_content_gets_into_errors_or_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with asked(refuse(400), reply("words of the reply")) as (model, _):
        with pytest.raises(LLMRejected) as caught:
            await events_of(model, ask("words of the user"))
        await events_of(model, ask("words of the user"))
    told = "".join([str(caught.value), repr(model), caplog.text, repr(caught.value.__cause__)])
    assert KEY not in told
    assert "words" not in told
    assert KEY not in repr(ModelSettings("http://h", "m", KEY))


@pytest.mark.parametrize("status", [200, 404, 405, 429])
async def test_check_is_content_with_a_gateway_that_answers(status: int) -> None:
    async with serve_gateway([], check=answer(status, {})) as gateway:
        async with open_model(ModelSettings(gateway.url, "m", KEY), timing()) as model:
            assert await model.check() is None
    assert [check.path for check in gateway.checks] == ["/v1/models"]
    assert gateway.checks[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "API_KEY"), (403, "API_KEY"), (502, "server error"), (302, "MODEL_BASE_URL")],
)
async def test_check_says_what_to_do(status: int, advice: str) -> None:
    async with serve_gateway([], check=answer(status, {})) as gateway:
        settings = ModelSettings(gateway.url, "m", KEY, locale="en")
        async with open_model(settings, timing()) as model:
            assert advice in (await model.check() or "")


async def test_check_says_in_the_language_of_the_place_that_nobody_answers() -> None:
    async with serve_gateway([]) as gateway:
        pass
    async with open_model(ModelSettings(gateway.url, "m"), timing()) as model:
        assert (await model.check() or "").startswith("无法连接模型网关")


async def test_streams_run_side_by_side() -> None:
    opened = asyncio.Event()
    plays = [reply("x", quirks=Quirks(before_body=opened)) for _ in range(150)]
    async with asked(*plays) as (model, gateway), asyncio.timeout(20):
        streams = [asyncio.create_task(reply_of(model)) for _ in plays]
        await gateway.wait_for_requests(150)
        opened.set()
        assert {got.text for got in await asyncio.gather(*streams)} == {"x"}


async def test_json_is_what_the_gateway_gets_for_any_model_name() -> None:
    async with asked(reply("x")) as (model, gateway):
        await reply_of(model, ModelRequest([], model='a"b\\c'))
    assert json.loads(gateway.requests[0].body)["model"] == 'a"b\\c'
