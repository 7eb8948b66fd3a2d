"""Folding chunks into a reply, without a socket: shapes that the scripted gateway does not make."""

import json

import pytest

from server.errors import LLMBadResponse, LLMContextOverflow, LLMError, LLMRateLimited
from server.llm.port import CallArguments, CallStarted, ModelEvent, Reply, TextDelta
from server.llm.reducer import Reducer
from server.message import Usage
from tests.server.llm.asking import calls_of


def reduce(*chunks: object) -> tuple[list[ModelEvent], Reply]:
    reducer = Reducer()
    events: list[ModelEvent] = []
    for chunk in chunks:
        events += reducer.feed(chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode())
    return events, reducer.reply("m", None, 0)


def delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"delta": fields}]}


def piece(name: str | None = None, arguments: object = None, **fields: object) -> object:
    return delta(tool_calls=[{**fields, "function": {"name": name, "arguments": arguments}}])


STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def test_pieces_without_index_and_id_belong_to_the_last_call() -> None:
    _, reply = reduce(piece("a", '{"x":'), piece(None, "1}"), piece("b", "{}"), STOP)
    assert calls_of(reply) == [("a", '{"x":1}'), ("b", "{}")]


def test_the_same_tool_twice_in_whole_pieces_without_ids_is_two_calls() -> None:
    _, reply = reduce(piece("a", '{"x":1}', index=0), piece("a", '{"x":2}', index=0), STOP)
    assert calls_of(reply) == [("a", '{"x":1}'), ("a", '{"x":2}')]


def test_a_repeated_name_in_the_middle_of_arguments_goes_on_with_the_call() -> None:
    _, reply = reduce(piece("a", '{"x":'), piece("a", "{}"), piece("a", "}"), piece("a", ""), STOP)
    assert calls_of(reply) == [("a", '{"x":{}}')]


def test_one_id_at_two_indexes_is_two_calls() -> None:
    _, reply = reduce(
        piece("a", "{", index=0, id="call_0"),
        piece("b", "{", index=1, id="call_0"),
        piece(None, "}", index=0),
        piece(None, "}", index=1, id="call_0"),
        STOP,
    )
    assert calls_of(reply) == [("a", "{}"), ("b", "{}")]


def test_interleaved_calls_keep_the_order_of_their_beginning() -> None:
    events, reply = reduce(
        piece("b", "", index=1, id="y"),
        piece("a", "{", index=0, id="x"),
        piece(None, "{}", index=1),
        piece(None, "}", index=0),
        STOP,
    )
    assert calls_of(reply) == [("b", "{}"), ("a", "{}")]
    assert events == [
        CallStarted(0, "b"),
        CallStarted(1, "a"),
        CallArguments(1, "{"),
        CallArguments(0, "{}"),
        CallArguments(1, "}"),
    ]


def test_arguments_before_the_name_are_told_after_it() -> None:
    events, _ = reduce(piece(None, '{"x"', index=0), piece("a", ":1}", index=0), STOP)
    assert events == [CallStarted(0, "a"), CallArguments(0, '{"x":1}')]


def test_a_call_without_a_name_spoils_the_reply_but_an_empty_one_is_passed_over() -> None:
    _, reply = reduce(delta(content="x", tool_calls=[{}]), STOP)
    assert (reply.text, reply.calls) == ("x", ())
    with pytest.raises(LLMBadResponse):
        reduce(piece(None, "{}", id="a"), STOP)


def test_odd_types_are_understood() -> None:
    _, reply = reduce(
        {"choices": {"delta": {"content": [{"type": "text", "text": "he"}]}}, "usage": {}},
        {"choices": [{"delta": {"content": "y", "tool_calls": {"id": 7, "index": "0"}}}]},
        piece("a", {"x": [1, "群"]}, index=0.0),
        {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": "12.0"}},
        {"choices": [], "usage": {"prompt_tokens": "12", "completion_tokens": 3.0}},
        STOP,
    )
    assert reply.text == "hey"
    assert calls_of(reply) == [("a", '{"x":[1,"群"]}')]
    assert reply.calls[0].provider_id == "7"
    assert reply.usage == Usage(12, 0, 3)


def test_thinking_parts_of_a_content_list_are_reasoning() -> None:
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    _, reply = reduce(delta(content=thought), delta(content="x"), STOP)
    assert (reply.text, reply.reasoning) == ("x", "hm")


def test_think_tags_stay_in_the_text() -> None:
    _, reply = reduce(delta(content="<think>a</think>b"), STOP)
    assert (reply.text, reply.reasoning) == ("<think>a</think>b", None)


def test_the_same_reasoning_under_two_names_counts_once() -> None:
    _, reply = reduce(delta(reasoning_content="a", reasoning="a"), delta(reasoning="b"), STOP)
    assert (reply.reasoning, reply.reasoning_field) == ("a", "reasoning_content")


def test_halves_of_surrogate_pairs_and_bad_utf8_become_replacement_characters() -> None:
    events, reply = reduce(
        b'{"choices":[{"delta":{"content":"a\\ud83d"}}]}',
        b'{"choices":[{"delta":{"content":"b\xff"}}]}',
        b'{"choices":[{"delta":{"content":"\\ud83d\\ude00"}}]}',
        STOP,
    )
    assert reply.text == "a\ufffdb\ufffd😀"
    assert all(event.text.encode() for event in events if isinstance(event, TextDelta))


def test_cached_tokens_are_never_more_than_the_prompt() -> None:
    _, reply = reduce({"usage": {"prompt_tokens": 5, "cached_tokens": 9}}, STOP)
    assert reply.usage == Usage(5, 5, 0)


def test_usage_without_counts_does_not_replace_the_one_before() -> None:
    counted = {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    _, reply = reduce(counted, {"usage": {}}, {"usage": None}, STOP)
    assert reply.usage == Usage(5, 0, 1)


def test_an_empty_finish_reason_is_none() -> None:
    with pytest.raises(LLMBadResponse):
        reduce({"choices": [{"delta": {"content": "x"}, "finish_reason": ""}]})


def test_done_without_a_finish_reason_ends_the_reply() -> None:
    _, reply = reduce(delta(content="x"), b"[DONE]")
    assert (reply.text, reply.finish_reason) == ("x", None)


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls"])
def test_any_finish_reason_makes_a_valid_reply(reason: str) -> None:
    _, reply = reduce(delta(content="x"), {"choices": [{"finish_reason": reason}]})
    assert reply.finish_reason == reason


def test_other_alternatives_than_the_first_are_left_aside() -> None:
    two = {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {}}]}
    two["choices"][1]["delta"] = {"content": "b"}
    assert reduce(two, STOP)[1].text == "a"


def test_a_reply_in_one_piece_needs_no_end() -> None:
    message = {"content": "x", "tool_calls": [{"id": "c", "function": {"name": "a"}}]}
    _, reply = reduce({"choices": [{"message": message}]})
    assert (reply.text, calls_of(reply)) == ("x", [("a", "{}")])


@pytest.mark.parametrize(
    ("chunk", "error"),
    [
        ({"error": {"code": "context_length_exceeded", "message": "m"}}, LLMContextOverflow),
        ({"error": {"code": 429, "message": "m"}}, LLMRateLimited),
        ({"error": "something"}, LLMBadResponse),
        ({"code": "Throttling", "message": "m"}, LLMRateLimited),
        ({"choices": [{"delta": {}, "finish_reason": "error"}]}, LLMBadResponse),
        (b"not json", LLMBadResponse),
        (b"[1]", LLMBadResponse),
        (b'{"choices":' + b"[" * 100_000, LLMBadResponse),
    ],
)
def test_errors_inside_a_stream_are_raised(chunk: object, error: type[LLMError]) -> None:
    with pytest.raises(error):
        reduce(chunk)


def test_null_errors_and_unknown_chunks_are_passed_over() -> None:
    ping = {"type": "ping", "code": None, "message": "pong"}
    _, reply = reduce({"error": None, **delta(content="x")}, ping, {}, STOP)
    assert reply.text == "x"
