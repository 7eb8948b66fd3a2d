"""JSON columns: values to text and back, exact on every database."""

import json
from typing import TypeVar

import msgspec

T = TypeVar("T")


def to_json(value: object) -> str:
    """*value* as compact JSON in ASCII.

    ASCII, since a text column of PostgreSQL takes neither NUL nor a lone surrogate, and both may
    stand in a tool call's arguments, which must come back as they were.
    """
    builtins = msgspec.to_builtins(value)
    return json.dumps(builtins, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def from_json(text: str, kind: type[T]) -> T:
    """The value of *kind* that `to_json` wrote as *text*."""
    return msgspec.convert(json.loads(text), kind)
