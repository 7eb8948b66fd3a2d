"""What a scripted gateway answers, and the bytes it makes of it: regular ones, or quirky ones."""

import asyncio
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from server.message import Usage

Wait = float | asyncio.Event
"""Seconds, or until the event is set; a client that leaves ends either."""

NEVER = math.inf
"""Wait until the client leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """How a gateway departs from the usual stream. Chunks are counted from 0."""

    # Time
    before_headers: Wait = 0.0
    before_body: Wait = 0.0
    hold_at: int | None = None
    """The chunk before which `hold` is waited for."""
    hold: Wait = NEVER
    alive_every_seconds: float | None = None
    """Send comments so often while `hold` lasts, which is in seconds then."""
    before_end: Wait = 0.0
    """Between the last event and the end of the body."""
    pace_seconds: float = 0.0
    """Pause before each chunk."""
    # Tool calls
    index: Literal["usual", "missing", "null", "zero"] = "usual"
    ids: Literal["usual", "missing", "empty_later", "each_piece"] = "usual"
    repeat_name: bool = False
    arguments: Literal["pieces", "whole", "object", "null"] = "pieces"
    # Usage
    usage: Literal["last", "none", "each_chunk", "null_choices", "in_choice"] = "last"
    cached: Literal["details", "hit", "top", "none"] = "details"
    # Text
    piece_chars: int = 8
    """Length of the pieces in which text and arguments come."""
    ascii: bool = False
    """Escape everything beyond ASCII."""
    reasoning_field: str = "reasoning_content"
    # Stream
    bare: bool = False
    """Leave out `id`, `object`, `created` and `model`."""
    done: bool = True
    finish: bool = True
    """Whether a finish reason is sent."""
    crlf: bool = False
    tight: bool = False
    """No space after `data:`."""
    single_newline: bool = False
    """No blank line between events."""
    comments: bool = False
    """A keep-alive comment before each event."""
    write_bytes: int | None = None
    """Cut the body into writes of this size, through characters and escapes."""
    # Failures
    cut_at: int | None = None
    """The chunk before which the TCP connection is reset."""
    end_at: int | None = None
    """The chunk before which the body ends as if it were whole."""
    error_at: int | None = None
    """The chunk before which `error` is sent; then the body ends."""
    error: object = field(
        default_factory=lambda: {"message": "secret words of the upstream", "type": "server_error"}
    )


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call of a reply; without an id it gets one that no other call has."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """A streamed reply."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    reasoning: str = ""
    usage: Usage | None = None
    """None: counted from the bytes of the request and what it shares with the one before."""
    finish_reason: str | None = None
    quirks: Quirks = Quirks()


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """Any other answer, sent in one piece."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    wait: Wait = 0.0


Play = ScriptedReply | ScriptedAnswer


def call(
    name: str, arguments: Mapping[str, object] | str | None = None, id: str | None = None
) -> ScriptedCall:
    """A tool call; arguments given as a string are sent as they are."""
    text = (
        arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    )
    return ScriptedCall(name, text, id)


def reply(
    text: str = "",
    calls: Sequence[ScriptedCall] = (),
    *,
    reasoning: str = "",
    usage: Usage | None = None,
    finish_reason: str | None = None,
    quirks: Quirks | None = None,
) -> ScriptedReply:
    """A streamed reply with text, calls or both; nothing at all is an empty reply."""
    return ScriptedReply(text, tuple(calls), reasoning, usage, finish_reason, quirks or Quirks())


def answer(
    status: int,
    body: object = None,
    *,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
    wait: Wait = 0.0,
) -> ScriptedAnswer:
    """An answer that is no stream: *body* as bytes, or as a value to be sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ScriptedAnswer(status, content, {"Content-Type": content_type, **(headers or {})}, wait)


def refuse(
    status: int,
    message: str = "secret words of the upstream",
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    retry_after: str | None = None,
) -> ScriptedAnswer:
    """A refusal with the usual error body."""
    extra = {} if retry_after is None else {"Retry-After": retry_after}
    body = {"error": {"message": message, "type": "error", "code": code}}
    return answer(status, body, headers={**(headers or {}), **extra})


def render(play: ScriptedReply, model: str, usage: Usage, serial: int) -> list[bytes]:
    """The events of *play*, each with its line ends, in the order they are sent."""
    quirks = play.quirks
    head = {} if quirks.bare else _head(model, serial)
    counts = _counts(usage, quirks)
    chunks: list[dict[str, object]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in _deltas(play, serial)
    ]
    if quirks.finish:
        reason = play.finish_reason or ("tool_calls" if play.calls else "stop")
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    if quirks.usage == "each_chunk":
        chunks = [{**chunk, "usage": counts} for chunk in chunks]
    elif quirks.usage == "in_choice":
        last: dict[str, object] = {"index": 0, "delta": {}, "usage": counts}
        chunks.append({**head, "choices": [last]})
    elif quirks.usage != "none":
        choices: object = None if quirks.usage == "null_choices" else []
        chunks.append({**head, "choices": choices, "usage": counts})
    events = [_event(json.dumps(c, ensure_ascii=quirks.ascii), quirks) for c in chunks]
    return [*events, _event("[DONE]", quirks)] if quirks.done else events


def render_error(quirks: Quirks) -> bytes:
    """The event that carries `quirks.error`."""
    return _event(json.dumps({"error": quirks.error}), quirks)


def _head(model: str, serial: int) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{serial}",
        "object": "chat.completion.chunk",
        "created": 1760000000,
        "model": model,
    }


def _event(payload: str, quirks: Quirks) -> bytes:
    newline = "\r\n" if quirks.crlf else "\n"
    comment = f": keep-alive{newline}{newline}" if quirks.comments else ""
    space = "" if quirks.tight else " "
    end = newline if quirks.single_newline else newline * 2
    return f"{comment}data:{space}{payload}{end}".encode()


def _deltas(play: ScriptedReply, serial: int) -> Iterator[dict[str, object]]:
    quirks = play.quirks
    yield {"role": "assistant", "content": ""}
    for piece in _pieces(play.reasoning, quirks.piece_chars):
        yield {quirks.reasoning_field: piece}
    for piece in _pieces(play.text, quirks.piece_chars):
        yield {"content": piece}
    for place, scripted in enumerate(play.calls):
        call_id = scripted.id or f"chatcmpl-tool-{serial:04d}{place:04d}"
        for number, arguments in enumerate(_argument_pieces(scripted.arguments, quirks)):
            yield {"tool_calls": [_call(scripted, call_id, place, number, arguments, quirks)]}


def _call(
    scripted: ScriptedCall,
    call_id: str,
    place: int,
    number: int,
    arguments: object,
    quirks: Quirks,
) -> dict[str, object]:
    """One piece of a call; *number* counts the pieces, the first has name and id."""
    first = number == 0
    function: dict[str, object] = {"arguments": arguments}
    if first or quirks.repeat_name:
        function["name"] = scripted.name
    piece: dict[str, object] = {"function": function, "type": "function"}
    if quirks.index == "usual":
        piece["index"] = place
    elif quirks.index != "missing":
        piece["index"] = 0 if quirks.index == "zero" else None
    if quirks.ids == "each_piece":
        piece["id"] = f"{call_id}-{number}"
    elif quirks.ids == "empty_later" and not first:
        piece["id"] = ""
    elif quirks.ids != "missing" and (first or quirks.repeat_name):
        piece["id"] = call_id
    return piece


def _argument_pieces(arguments: str, quirks: Quirks) -> Sequence[object]:
    if quirks.arguments == "whole":
        return [arguments]
    if quirks.arguments == "object":
        return [json.loads(arguments)]
    if quirks.arguments == "null":
        return [None]
    return ["", *_pieces(arguments, quirks.piece_chars)]


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _counts(usage: Usage, quirks: Quirks) -> dict[str, object]:
    counts: dict[str, object] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if quirks.cached == "details":
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    elif quirks.cached == "hit":
        counts["prompt_cache_hit_tokens"] = usage.cached_tokens
    elif quirks.cached == "top":
        counts["cached_tokens"] = usage.cached_tokens
    return counts
