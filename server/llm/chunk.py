"""One chunk of a streamed chat completion, decoded: typed when it is regular, by hand when not.

Every field may be null or missing: gateways differ in all of them.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from server.errors import LLMBadResponse


class CallFunction(msgspec.Struct, gc=False):
    """The named part of a tool call."""

    name: str | None = None
    arguments: str | None = None


class CallDelta(msgspec.Struct, gc=False):
    """A piece of one tool call."""

    index: int | None = None
    id: str | None = None
    function: CallFunction | None = None


class Delta(msgspec.Struct, gc=False):
    """What a chunk adds to the reply."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallDelta] | None = None


class CachedDetails(msgspec.Struct, gc=False):
    """Where OpenAI puts the cached tokens."""

    cached_tokens: int | None = None


class TokenCount(msgspec.Struct, gc=False):
    """Tokens as gateways count them; cached ones stand in one of three places."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: CachedDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None


class Choice(msgspec.Struct, gc=False):
    """One of the alternatives; only the first is ever asked for."""

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    """Instead of `delta` from gateways that answer in one piece."""
    finish_reason: str | None = None
    usage: TokenCount | None = None
    """Beside the chunk's own, from Moonshot."""


class Chunk(msgspec.Struct, gc=False):
    """One line of the stream."""

    choices: list[Choice] | None = None
    usage: TokenCount | None = None
    error: Any = None
    code: Any = None
    message: Any = None


_decode = msgspec.json.Decoder(Chunk).decode


def decode_chunk(line: bytes) -> Chunk:
    """The chunk in *line*.

    Raises:
        LLMBadResponse: It is not a JSON object.
    """
    try:
        return _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return _decode_leniently(line)


def _decode_leniently(line: bytes) -> Chunk:
    """Decode a chunk whose fields have odd types, bad UTF-8 or halves of surrogate pairs."""
    try:
        value: object = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise LLMBadResponse("a chunk of the answer is not JSON") from None
    if not isinstance(value, Mapping):
        raise LLMBadResponse("a chunk of the answer is not an object")
    choices = [_choice(item) for item in _items(value.get("choices"))]
    return Chunk(
        choices=choices or None,
        usage=_token_count(value.get("usage")),
        error=value.get("error"),
        code=value.get("code"),
        message=value.get("message"),
    )


def _choice(value: Mapping[str, object]) -> Choice:
    reason = value.get("finish_reason")
    return Choice(
        index=_integer(value.get("index")),
        delta=_delta(value.get("delta")),
        message=_delta(value.get("message")),
        finish_reason=reason if isinstance(reason, str) else None,
        usage=_token_count(value.get("usage")),
    )


def _delta(value: object) -> Delta | None:
    if not isinstance(value, Mapping):
        return None
    content = value.get("content")
    thought = _joined(content, "thinking") if isinstance(content, list) else None
    return Delta(
        content=_joined(content, "text") if isinstance(content, list) else _text(content),
        reasoning_content=_text(value.get("reasoning_content")) or thought,
        reasoning=_text(value.get("reasoning")),
        tool_calls=[_call(item) for item in _items(value.get("tool_calls"))] or None,
    )


def _joined(parts: list[object], kind: str) -> str | None:
    """The text of those *parts* of a content list that are of one kind (Mistral)."""
    found: list[str] = []
    for part in parts:
        value = part.get(kind) if isinstance(part, Mapping) else None
        text = _joined(value, "text") if isinstance(value, list) else _text(value)
        found.append(text or "")
    return "".join(found) or None


def _call(value: Mapping[str, object]) -> CallDelta:
    function = value.get("function")
    if not isinstance(function, Mapping):
        function = {}
    call_id = value.get("id")
    return CallDelta(
        index=_integer(value.get("index")),
        id=str(call_id) if isinstance(call_id, int) else _text(call_id),
        function=CallFunction(_text(function.get("name")), _arguments(function.get("arguments"))),
    )


def _arguments(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return _text(value)
    return _text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _token_count(value: object) -> TokenCount | None:
    if not isinstance(value, Mapping):
        return None
    details = value.get("prompt_tokens_details")
    cached = _integer(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    return TokenCount(
        prompt_tokens=_integer(value.get("prompt_tokens")),
        completion_tokens=_integer(value.get("completion_tokens")),
        prompt_tokens_details=CachedDetails(cached),
        prompt_cache_hit_tokens=_integer(value.get("prompt_cache_hit_tokens")),
        cached_tokens=_integer(value.get("cached_tokens")),
    )


def _items(value: object) -> list[Mapping[str, object]]:
    """The objects in a list, or the one that stands without its list."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, Mapping)]


def _text(value: object) -> str | None:
    """A string that can be stored and sent again: no half of a surrogate pair is left in it."""
    if not isinstance(value, str):
        return None
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _integer(value: object) -> int | None:
    if isinstance(value, str | int | float):
        try:
            return int(value)
        except (ValueError, OverflowError):
            return None
    return None
