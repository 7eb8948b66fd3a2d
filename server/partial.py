"""The last words of a run that was stopped before its end: what is verified, what is missing, why.

They are put together from what tools told, never from what the model says of itself.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from guard.rounds import Value
from server.contract import ProgressContract, StateField
from server.errors import Locale
from server.message import clean_text

_VALUE_CHARACTERS: Final = 200
"""Of a field's value as it is shown."""

_VERIFIED: Final = ("**已核实**", "**Verified**")
_MISSING: Final = ("**还缺**", "**Missing**")
_WHY: Final = ("**停止原因**", "**Why it stopped**")
_REASON: Final = ("**转人工原因**", "**Why a person has to take over**")
_GOAL: Final = ("目标：{goal}", "Goal: {goal}")
_FACT: Final = ("{text}：{fact}", "{text}: {fact}")
_NOTHING: Final = ("目前没有", "Nothing so far")
_ALL_THERE: Final = ("清单上的内容都已核实", "Everything on the list is verified")
_UNDECLARED: Final = (
    "这次执行没有设定要核实的清单，所以没有已核实的结果可以列出。",
    "This run had no list of things to verify, so there are no verified results to show.",
)
_NOW: Final = ("{name}：{now}", "{name}: {now}")
_MOVED: Final = ("{name}：{first} → {now}", "{name}: {first} → {now}")
_SHORT: Final = (
    "{name}：现在是 {now}，应为 {target}",
    "{name}: is {now}, should be {target}",
)
_UNKNOWN: Final = ("未知", "unknown")


def partial_result(
    contract: ProgressContract | None,
    verified: Mapping[str, str],
    values: Mapping[str, Value],
    reason: str,
    handed_off_reason: str | None,
    locale: Locale,
) -> str:
    """What was reached, as Markdown that cards render: bold lines and lists.

    Args:
        verified: Of each closed item the fact, by its id.
        values: Of each field what was told last, by its name.
        reason: Why the run was stopped, in the words that people are shown; empty where it was
            not, but reached its goal.
        handed_off_reason: What the model told the person who takes over.
    """
    said = _Said(locale)
    if contract is None:
        parts = [said.of(_UNDECLARED)]
    else:
        parts = _reached(contract, verified, values, said)
    if handed_off_reason:
        parts.append(f"{said.of(_REASON)}\n{handed_off_reason.strip()}")
    if reason:
        parts.append(f"{said.of(_WHY)}\n{reason.strip()}")
    return clean_text("\n\n".join(parts))


class _Said:
    """The texts in one language."""

    def __init__(self, locale: Locale) -> None:
        self._at = 1 if locale == "en" else 0

    def of(self, texts: tuple[str, str], **values: str) -> str:
        """The text with its values put in."""
        return texts[self._at].format(**values)


def _reached(
    contract: ProgressContract,
    verified: Mapping[str, str],
    values: Mapping[str, Value],
    said: _Said,
) -> list[str]:
    facts = [
        said.of(_FACT, text=item.text, fact=verified[item.id])
        for item in contract.items
        if item.id in verified
    ]
    told = [
        _told(field, values, said)
        for field in contract.fields
        if field.name in values and not _is_short(field, values)
    ]
    is_open = [item.text for item in contract.items if item.id not in verified]
    short = [_short(field, values, said) for field in contract.fields if _is_short(field, values)]
    has_targets = bool(contract.items) or any(f.counts == "reaches" for f in contract.fields)
    parts = [said.of(_GOAL, goal=_line(contract.goal))] if contract.goal.strip() else []
    parts.append(f"{said.of(_VERIFIED)}\n{_listed([*facts, *told], said.of(_NOTHING))}")
    if has_targets:
        parts.append(f"{said.of(_MISSING)}\n{_listed([*is_open, *short], said.of(_ALL_THERE))}")
    return parts


def _told(field: StateField, values: Mapping[str, Value], said: _Said) -> str:
    now = _shown(values[field.name])
    if field.initial is None or _shown(field.initial) == now:
        return said.of(_NOW, name=field.name, now=now)
    return said.of(_MOVED, name=field.name, first=_shown(field.initial), now=now)


def _short(field: StateField, values: Mapping[str, Value], said: _Said) -> str:
    now = values.get(field.name, field.initial)
    shown = said.of(_UNKNOWN) if now is None else _shown(now)
    assert field.target is not None  # what reaches has one
    return said.of(_SHORT, name=field.name, now=shown, target=_shown(field.target))


def _is_short(field: StateField, values: Mapping[str, Value]) -> bool:
    """Whether it has a target that it is not at; a truth value is no number."""
    now = values.get(field.name, field.initial)
    is_there = now == field.target and isinstance(now, bool) == isinstance(field.target, bool)
    return field.counts == "reaches" and not is_there


def _listed(lines: Sequence[str], otherwise: str) -> str:
    return "\n".join(f"- {_line(line)}" for line in lines or [otherwise])


def _shown(value: Value) -> str:
    """*value* as people read it: a whole number without a fraction, a text on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    words = _line(str(value))
    return words if len(words) <= _VALUE_CHARACTERS else f"{words[: _VALUE_CHARACTERS - 1]}…"


def _line(text: str) -> str:
    return " ".join(text.split())
