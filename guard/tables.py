"""Rules with numbers out of a configuration, each checked and named when it is wrong."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from guard.rounds import Kind, Rule
from guard.rules.budget import Budget, Limits

MAY_BE_ZERO = frozenset({"gap_rounds"})
"""All other numbers of rules are positive."""


def with_numbers(rule: Rule[Any], table: Mapping[str, object]) -> Rule[Any]:
    """*rule* with the fields in *table* in place of its own; a budget's are those of its limits.

    Raises:
        ValueError: A field is unknown or has a wrong value; with its name and what is right.
    """
    if isinstance(rule, Budget):
        return replace(rule, limits=_changed(rule.id, rule.limits, Limits, table))
    changed: Rule[Any] = _changed(rule.id, rule, type(rule), table)
    window, stop_at = getattr(changed, "window_rounds", None), getattr(changed, "stop_at", None)
    if window is not None and stop_at is not None and stop_at > window:
        raise ValueError(f"{rule.id}.stop_at: must be at most window_rounds, which is {window}")
    nudge_laps, stop_laps = getattr(changed, "nudge_laps", 0), getattr(changed, "stop_laps", 0)
    if stop_laps < nudge_laps:
        raise ValueError(f"{rule.id}.stop_laps: must be at least nudge_laps, which is {nudge_laps}")
    return changed


def _changed(rule_id: str, value: Any, kind: type, table: Mapping[str, object]) -> Any:
    """Any, since each rule has fields of its own."""
    readers = _readers(kind)
    fields = {}
    for name, given in table.items():
        if name not in readers:
            known = ", ".join(["mode", *readers])
            raise ValueError(f"{rule_id}.{name}: there is no such field; known are {known}")
        try:
            fields[name] = readers[name](name, given)
        except ValueError as error:
            raise ValueError(f"{rule_id}.{name}: {error}") from None
    return replace(value, **fields)


_Reader = Callable[[str, object], object]


def _readers(kind: type) -> dict[str, _Reader]:
    hints = get_type_hints(kind)
    return {name: _READERS[hint] for name, hint in hints.items() if hint in _READERS}


def _count(name: str, given: object) -> int:
    least = 0 if name in MAY_BE_ZERO else 1
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise ValueError(f"must be a whole number from {least}")
    return given


def _steps(name: str, given: object) -> tuple[int, ...]:
    steps = tuple(given) if isinstance(given, list | tuple) else (None,)
    numbers = [step for step in steps if isinstance(step, int) and not isinstance(step, bool)]
    is_rising = all(low < high for low, high in zip([0, *numbers], numbers, strict=False))
    if len(numbers) != len(steps) or not is_rising:
        raise ValueError("must be a list of whole numbers from 1, each above the one before")
    return tuple(numbers)


def _truth(name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise ValueError("must be true or false")
    return given


def _kinds(name: str, given: object) -> frozenset[Kind]:
    known = get_args(Kind)
    if not isinstance(given, list | tuple) or not given or not all(one in known for one in given):
        raise ValueError(f"must be a list of {', '.join(known)}")
    return frozenset(given)


_READERS: Mapping[object, _Reader] = {
    int: _count,
    int | None: _count,
    tuple[int, ...]: _steps,
    bool: _truth,
    frozenset[Kind] | None: _kinds,
}
"""By the type of a field. Others, such as a rule's id, are not for a configuration."""
