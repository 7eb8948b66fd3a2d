"""Reading JSON of which nothing is certain: what is absent or of another type reads as empty."""

import json
from collections.abc import Mapping, Sequence

Fields = Mapping[str, object]

EMPTY: Fields = {}


def parse(text: str | bytes) -> Fields | None:
    """The object that *text* holds, or None if it holds none."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def fields(value: object) -> Fields:
    """*value* if it is an object."""
    return value if isinstance(value, dict) else EMPTY


def under(outer: Fields, *names: str) -> Fields:
    """The object at the end of a path."""
    for name in names:
        outer = fields(outer.get(name))
    return outer


def items(outer: Fields, name: str) -> Sequence[object]:
    """A list."""
    value = outer.get(name)
    return value if isinstance(value, list) else ()


def text(outer: Fields, name: str) -> str:
    """A string; a number, which some ids are sent as, is written out."""
    value = outer.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def number(outer: Fields, name: str) -> float | None:
    """A number, also one that is sent as a string; None otherwise."""
    value = outer.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
