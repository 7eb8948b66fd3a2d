"""One spelling for equal JSON, so that equal calls and equal results have equal digests.

Equal here means equal as JSON values: key order, white space, escapes and the spelling of a
number do not matter. What is not JSON, or is too deep or too long to be read as such on every
interpreter alike, is compared as text.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from guard.model import NoProgressCall

VOLATILE_RESULT_KEYS = frozenset(
    {
        "execution_id",
        "request_id",
        "trace_id",
        "timestamp",
        "duration_ms",
        "elapsed_ms",
        "created_at",
        "updated_at",
    }
)
"""Keys of a result that say nothing about progress in any tool. Ids that can tell one thing from
another (`child_session_id`, `task_id`) are not among them: a key too few delays a stop, a key too
many kills a healthy run."""

MAX_DEPTH = 200
"""Levels of nesting. CPython 3.11 reads depth 600 or fails on it depending on how deep the caller
stands; a fixed limit far below lets a replay agree with the live run."""

MAX_CHARACTERS = 1_000_000
"""Length above which a text is not read as JSON: 16 MB of records would hold the event loop for
0.65 s, while hashing them takes 10 ms."""

_EXACT_BELOW = 2**53
"""Below this a float with no fraction is exactly the integer it shows."""

_NO_BRACKETS = re.compile(r'(?:[^\[\]{}"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"?)++', re.DOTALL)
"""Everything between brackets, whole strings included. The closing quote is optional and no part
backtracks, so even a text of quotes alone is passed over once."""


def canonical_args(raw: str) -> str:
    """The arguments in one spelling: sorted JSON, else the text with white space collapsed."""
    text = text_of(raw)
    try:
        return encode(decode(text))
    except (ValueError, RecursionError):
        return " ".join(text.split())


def decode(text: str) -> object:
    """Read strict JSON within the limits above.

    Raises:
        ValueError: Not JSON; NaN and Infinity are not, nor is a number beyond any float.
    """
    return _decode(text, _PLAIN)


def decode_result(text: str) -> object:
    """Like `decode`, without the volatile keys of every object on every level."""
    return _decode(text, _WITHOUT_VOLATILE)


def encode(value: object) -> str:
    """The canonical text of a JSON value; ASCII only, so lone surrogates stay digestible."""
    return _ENCODER.encode(value)


def without_keys(fields: dict[str, object], keys: frozenset[str]) -> dict[str, object]:
    """The object without *keys*; unchanged when nothing else would be left of it."""
    if keys.isdisjoint(fields):
        return fields
    return {key: value for key, value in fields.items() if key not in keys} or fields


def text_of(content: object) -> str:
    """The text of a message's content, whatever a provider or a caller made of it."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list) and content and all(map(_is_text_part, content)):
        return "".join(part["text"] for part in content)
    try:
        return encode(content)
    except (TypeError, ValueError, RecursionError):
        # Not JSON at all. The type alone is stable; its repr may hold an address or raise.
        return f"<{type(content).__name__}>"


def as_text(call: NoProgressCall) -> NoProgressCall:
    """The call with texts where its type says so; a caller may have passed on a provider's junk."""
    name, arguments, content = call.tool_name, call.arguments_json, call.result_content
    if _is_text(name) and _is_text(arguments) and _is_text(content):
        return call
    return replace(
        call,
        tool_name=text_of(name),
        arguments_json=text_of(arguments),
        result_content=text_of(content),
    )


def _is_text(part: object) -> bool:
    return isinstance(part, str)


def _is_text_part(part: object) -> bool:
    return (
        isinstance(part, Mapping)
        and part.get("type") == "text"
        and isinstance(part.get("text"), str)
    )


def _decode(text: str, decoder: json.JSONDecoder) -> object:
    if len(text) > MAX_CHARACTERS:
        raise ValueError("too long")
    if _is_too_deep(text):
        raise ValueError("too deep")
    try:
        return decoder.decode(text)
    except RecursionError as error:
        raise ValueError("too deep") from error


def _is_too_deep(text: str) -> bool:
    if len(text) <= MAX_DEPTH or text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for bracket in _NO_BRACKETS.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def _number(literal: str) -> int | float:
    """Fold 1.0 and 1e0 into 1, exactly at any size; refuse what no float can hold."""
    value = float(literal)
    if value.is_integer():
        if abs(value) < _EXACT_BELOW:
            return int(value)
        exact = Decimal(literal)
        return int(exact) if int(exact) == exact else value
    if abs(value) == float("inf"):
        raise ValueError("number out of range")
    return value


def _refuse(constant: str) -> object:
    raise ValueError(constant)


def _drop_volatile(fields: dict[str, object]) -> dict[str, object]:
    return without_keys(fields, VOLATILE_RESULT_KEYS)


_PLAIN = json.JSONDecoder(parse_float=_number, parse_constant=_refuse)
_WITHOUT_VOLATILE = json.JSONDecoder(
    parse_float=_number, parse_constant=_refuse, object_hook=_drop_volatile
)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
