"""Reading JSON of which nothing is certain: what is absent or of another type reads as empty."""

import json
from collections.abc import Mapping

Fields = Mapping[str, object]


def loaded(text: str) -> object:
    """What *text* holds as JSON; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def fields(value: object) -> Fields:
    """*value* as an object: decoded if it is a JSON text, empty if it is something else."""
    if isinstance(value, str):
        value = loaded(value)
    return dict(value) if isinstance(value, Mapping) else {}


def text(holder: Fields, name: str) -> str:
    """A text that can be stored and sent; numbers become one, anything else is none.

    Half of a surrogate pair, which JSON can escape and UTF-8 cannot hold, becomes U+FFFD.
    """
    value = holder.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return ""
    whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", "")


def number(holder: Fields, name: str) -> int:
    """A whole number, also one in a text; else 0."""
    value = holder.get(name)
    if isinstance(value, bool):
        return 0
    if isinstance(value, int | float):
        return int(value) if abs(value) < 1e18 else 0
    try:
        return int(value) if isinstance(value, str) and len(value) < 20 else 0
    except ValueError:
        return 0
