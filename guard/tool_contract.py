"""Ready-made parts of tool contracts: how arguments are spelled alike, what of a result counts.

All of them are pure, take any JSON value, and leave alone what they do not understand. Fields are
named by dotted path, `query.text`; on the way through a list every item is looked at.
"""

from collections.abc import Callable, Iterable, Mapping

from guard.canonical import encode
from guard.policy import Normaliser


def fold_case(*paths: str) -> Normaliser:
    """Texts in these fields, or everywhere if none is named, without regard to upper case."""
    return _at(paths, lambda value: value.casefold() if isinstance(value, str) else value)


def squeeze_blanks(*paths: str) -> Normaliser:
    """Texts in these fields, or everywhere if none is named, with single blanks between words."""
    return _at(paths, lambda value: " ".join(value.split()) if isinstance(value, str) else value)


def ignore_order(*paths: str) -> Normaliser:
    """Lists in these fields, or everywhere if none is named, in one order."""
    return _at(paths, lambda value: sorted(value, key=encode) if isinstance(value, list) else value)


def fill_defaults(defaults: Mapping[str, object]) -> Normaliser:
    """An object in which these fields are as given where they are missing."""
    return lambda value: {**defaults, **value} if isinstance(value, dict) else value


def id_set(path: str) -> Normaliser:
    """A result that is compared by the set of values at *path* alone, in whatever order.

    One without the field, such as an error, is compared whole; an empty list is an empty set.
    """
    parts = tuple(path.split("."))

    def ids(value: object) -> object:
        found = _values(value, parts)
        if found is None:
            return value
        lists = [values if isinstance(values, list) else [values] for values in found]
        return {"ids": sorted({encode(one) for values in lists for one in values})}

    return ids


def pick(value: object, paths: Iterable[str]) -> object:
    """An object of these fields alone; *value* as it is when it has none of them."""
    found = {path: _values(value, tuple(path.split("."))) for path in paths}
    return {path: values for path, values in found.items() if values is not None} or value


def _at(paths: tuple[str, ...], change: Callable[[object], object]) -> Normaliser:
    if not paths:
        return lambda value: _everywhere(value, change)
    ways = [tuple(path.split(".")) for path in paths]

    def changed(value: object) -> object:
        for parts in ways:
            value = _along(value, parts, change)
        return value

    return changed


def _everywhere(value: object, change: Callable[[object], object]) -> object:
    if isinstance(value, dict):
        return {key: _everywhere(field, change) for key, field in value.items()}
    if isinstance(value, list):
        return change([_everywhere(item, change) for item in value])
    return change(value)


def _along(value: object, parts: tuple[str, ...], change: Callable[[object], object]) -> object:
    if not parts:
        return change(value)
    if isinstance(value, list):
        return [_along(item, parts, change) for item in value]
    if not isinstance(value, dict) or parts[0] not in value:
        return value
    return {**value, parts[0]: _along(value[parts[0]], parts[1:], change)}


def _values(value: object, parts: tuple[str, ...]) -> list[object] | None:
    """The values at the end of the path; None if it is not there at all."""
    if not parts:
        return [value]
    if isinstance(value, list):
        found = [_values(item, parts) for item in value]
        there = [values for values in found if values is not None]
        return [one for values in there for one in values] if there or not value else None
    if not isinstance(value, dict) or parts[0] not in value:
        return None
    return _values(value[parts[0]], parts[1:])
