"""Reading JSON of which nothing is certain: what is absent or of another type reads as empty."""

import json
import math
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
    """A string that can be stored and sent; a number, which some ids are sent as, is written out.

    Half of a surrogate pair, which JSON can escape and UTF-8 cannot hold, becomes U+FFFD.
    """
    value = outer.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return ""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def number(outer: Fields, name: str) -> float | None:
    """A finite number, also one that is sent as a string; None otherwise."""
    value = outer.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
