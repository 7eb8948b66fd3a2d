"""What one result of an authoritative tool says of a run's progress contract."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final, TypeGuard

from guard.canonical import encode
from guard.rounds import Value
from server.contract import Extractor, ProgressContract, StateField
from server.message import clean_text
from server.patterns import NoValue, Source

FACT_CHARACTERS: Final = 200
"""Of a verified fact; longer ones are cut."""

MAX_TEXT_CHARACTERS: Final = 2_000
"""Of a text that is a value, as long as a target may be; a longer one is compared by its digest."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,100}(\.[0-9]{1,100})?([eE][+-]?[0-9]{1,4})?")
_TRUTHS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a result said."""

    values: Mapping[str, Value]
    """By the names of fields, and the ids of items, which are only ever true."""
    facts: Mapping[str, str]
    """By the ids of items: what closes them, on one line."""
    faults: tuple[str, ...] = ()
    """Why values are missing that could have been there: stable words, each once, sorted."""


NOTHING: Final = Extracted({}, {})


def extract(contract: ProgressContract, tool_name: str, content: str, is_error: bool) -> Extracted:
    """What the result *content* of one call says; never raises, and says the same everywhere.

    Takes some ms, but two seconds and more where somebody meant it to: a thread is its place.

    Args:
        is_error: The call failed, so it says nothing.
    """
    if is_error or not contract.reads(tool_name):
        return NOTHING
    source = Source(content)
    values: dict[str, Value] = {}
    facts: dict[str, str] = {}
    faults: set[str] = set()
    for item in contract.items:
        if item.tool != tool_name:
            continue
        try:
            found = _found(source, item.extract)
            if not _is_nothing(found):
                facts[item.id] = _fact(found)
                values[item.id] = True
        except NoValue as missing:
            faults.add(missing.reason)
    for field in contract.fields:
        if field.tool != tool_name:
            continue
        try:
            found = _found(source, field.extract)
            if found is not None:
                values[field.name] = _value(field, found)
        except NoValue as missing:
            faults.add(missing.reason)
    return Extracted(values, facts, tuple(sorted(faults)))


def _found(source: Source, extractor: Extractor) -> object:
    if extractor.regex is not None:
        return source.search(extractor.regex)
    assert extractor.jmespath is not None  # an extractor has one of both
    return source.path(extractor.jmespath)


def _is_nothing(found: object) -> bool:
    if isinstance(found, str):
        return not found.strip() or _number(found) == 0
    return not found


def _fact(found: object) -> str:
    text = found if isinstance(found, str) else _json(found)
    words = " ".join(clean_text(text).split())
    return words if len(words) <= FACT_CHARACTERS else f"{words[: FACT_CHARACTERS - 1]}…"


def _value(field: StateField, found: object) -> Value:
    """*found* as the field compares it.

    Raises:
        NoValue: `no_number`, where it has to be one.
    """
    if field.counts in ("grows", "shrinks"):
        return _measure(found)
    if isinstance(found, str) and isinstance(field.target, bool):
        return _TRUTHS.get(found.strip().lower(), found[:MAX_TEXT_CHARACTERS])
    if isinstance(found, str) and isinstance(field.target, int | float):
        number = _number(found)
        return found[:MAX_TEXT_CHARACTERS] if number is None else number
    if isinstance(found, bool) or _is_finite(found):
        return found
    if isinstance(found, str) and len(found) <= MAX_TEXT_CHARACTERS:
        return found
    return _digest(found)


def _measure(found: object) -> int | float:
    """How much *found* is: a number, one in words, or how many are in it."""
    if isinstance(found, list | dict):
        return len(found)
    number = _number(found) if isinstance(found, str) else found
    if isinstance(number, bool) or not _is_finite(number):
        raise NoValue("no_number")
    return number


def _is_finite(found: object) -> TypeGuard[int | float]:
    """Whether it is a number; an integer may be larger than any float."""
    return isinstance(found, int) or (isinstance(found, float) and isfinite(found))


def _number(text: str) -> int | float | None:
    """The number that *text* is as a whole; None if it is none, or beyond any float."""
    written = _NUMBER.fullmatch(text.strip())
    if written is None:
        return None
    if written[1] is None and written[2] is None:
        return int(written[0])
    number = float(written[0])
    return number if isfinite(number) else None


def _json(found: object) -> str:
    try:
        return json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise NoValue("mismatch") from None


def _digest(found: object) -> str:
    try:
        text = encode(found)
    except (TypeError, ValueError, RecursionError):
        raise NoValue("mismatch") from None
    return hashlib.sha256(text.encode()).hexdigest()[:16]
