"""The progress contract of a run: what it has to find out, and which tools' words count for that.

Structs are the form in which a contract is given and stored, so a request that holds one is
checked with the rest of it.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from guard.rules.contract import Contract, Counts, Field, StopCode
from server.errors import BadRequest, ContractUnreadable
from server.message import clean_text
from server.patterns import compile_path, compile_regex
from server.store.codec import to_json

Words = Annotated[str, Meta(min_length=1, max_length=2_000)]
ContractId = Annotated[str, Meta(pattern=r"^[0-9A-Za-z._-]{1,64}$(?!\n)")]
"""Stands in logs; in Python a `$` lets a last line end pass."""
Name = Annotated[str, Meta(pattern=r"^[^\x00-\x20\x7f/]{1,64}$(?!\n)")]
"""Stands in texts, where several are joined by a slash."""
ToolName = Annotated[str, Meta(min_length=1, max_length=128)]
Pattern = Annotated[str, Meta(min_length=1, max_length=500)]
Scalar = Annotated[str, Meta(max_length=2_000)] | int | float | bool
"""What a field of the state may be."""

LABEL_CHARACTERS: Final = 40
"""Of an item's text in a reason; the partial result has it whole."""


class Part(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of a contract's parts: a field with a wrong name is refused, not ignored.

    What is absent from a part has no meaning; the contract itself always tells its numbers, since
    a default may change.
    """


class Extractor(Part, frozen=True):
    """How a value is found in a result: one of both."""

    jmespath: Pattern | None = None
    """In a result that is JSON. `join` and `to_string` are left out."""
    regex: Pattern | None = None
    """RE2's syntax. The first group, or the whole match."""

    def __post_init__(self) -> None:
        if (self.jmespath is None) == (self.regex is None):
            raise ValueError("must have either `jmespath` or `regex`")
        if self.jmespath is not None:
            compile_path(self.jmespath)
        if self.regex is not None:
            compile_regex(self.regex)


class Item(Part, frozen=True):
    """Something to find out; open until its tool has told a value that is none of
    null, false, 0 and nothing. Then it stays closed, and the value is its verified fact."""

    id: Name
    text: Words
    """For people: what it is."""
    tool: ToolName
    """The one whose successful results count."""
    extract: Extractor


class StateField(Part, frozen=True):
    """A value that says how far the run is."""

    name: Name
    tool: ToolName
    """The one whose successful results count."""
    extract: Extractor
    counts: Counts
    initial: Scalar | None = None
    """Before the first call, where known; without it the first value that is told."""
    target: Scalar | None = None
    """What it has to become; with `reaches` only."""

    def __post_init__(self) -> None:
        if (self.counts == "reaches") != (self.target is not None):
            raise ValueError("must have a `target` with `reaches`, and with it only")
        is_number = isinstance(self.initial, int | float) and not isinstance(self.initial, bool)
        is_measured = self.counts in ("grows", "shrinks")
        if is_measured and self.initial is not None and not is_number:
            raise ValueError("must have a number as `initial` with `grows` and `shrinks`")
        if any(isinstance(one, float) and not isfinite(one) for one in (self.initial, self.target)):
            raise ValueError("must have finite numbers")


class ProgressContract(Part, frozen=True, omit_defaults=False):
    """What a run has to find out, how its progress is seen, and when it has made none."""

    id: ContractId
    version: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    goal: Annotated[str, Meta(max_length=2_000)] = ""
    items: Annotated[tuple[Item, ...], Meta(max_length=32)] = ()
    fields: Annotated[tuple[StateField, ...], Meta(max_length=32)] = ()
    stop_after: Annotated[int, Meta(ge=1, le=100)] = 2
    """Rounds in a row without progress."""
    nudge_after: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Rounds in a row without progress after which the model is reminded."""
    on_no_progress: StopCode = "no_progress"
    """The code with which a run ends that makes none."""

    def __post_init__(self) -> None:
        if not self.items and not self.fields:
            raise ValueError("must have `items` or `fields`: there is nothing to verify")
        names = [item.id for item in self.items] + [field.name for field in self.fields]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"must have different names in `items` and `fields`: {twice}")
        if self.nudge_after is not None and self.nudge_after >= self.stop_after:
            raise ValueError("must have a `nudge_after` that is smaller than `stop_after`")

    @property
    def key(self) -> str:
        """Names it in records, with its version."""
        return f"{self.id}@{self.version}"

    def rule(self) -> Contract:
        """The guard's rule for it: an item is a field that has to become true."""
        items = [
            Field(item.id, "reaches", target=True, initial=False, label=_label(item.text))
            for item in self.items
        ]
        fields = [
            Field(field.name, field.counts, target=field.target, initial=field.initial)
            for field in self.fields
        ]
        return Contract(
            (*items, *fields),
            stop_after=self.stop_after,
            nudge_after=self.nudge_after,
            stop_code=self.on_no_progress,
        )

    def reads(self, tool_name: str) -> bool:
        """Whether results of this tool count."""
        tools = (*(item.tool for item in self.items), *(field.tool for field in self.fields))
        return tool_name in tools


def parse_contract(value: object, path: str = "contract") -> ProgressContract:
    """The contract in decoded JSON.

    Args:
        path: Of *value* in what was sent.
    Raises:
        BadRequest: It is none; its path is that of the wrong part.
    """
    try:
        return msgspec.convert(value, ProgressContract)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$")
        raise BadRequest(words, path + place.rstrip("`")) from None
    except RecursionError:
        raise BadRequest("is nested too deeply", path) from None


def contract_json(contract: ProgressContract) -> Mapping[str, Any]:
    """The contract as it is shown and stored; `parse_contract` makes the same of it."""
    found: Mapping[str, Any] = msgspec.to_builtins(contract)
    return found


def stored_contract(contract: ProgressContract | None) -> str | None:
    """The contract as a column keeps it."""
    return None if contract is None else to_json(contract_json(contract))


def read_contract(text: str | None) -> ProgressContract | None:
    """The contract in a column, to be shown; None too for what this version cannot read."""
    if text is None:
        return None
    try:
        return parse_contract(json.loads(text))
    except (BadRequest, ValueError, RecursionError):
        return None


def given_contract(text: str | None) -> Mapping[str, Any] | None:
    """What a run gets of the contract in a column of its session or task.

    It is not looked into: a run whose contract this version cannot read says so, and does not
    work without one.
    """
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def run_contract(given: Mapping[str, Any] | None) -> ProgressContract | None:
    """The contract of a run as it was stored with it.

    Raises:
        ContractUnreadable: Another version stored it, and this one cannot read it.
    """
    if given is None:
        return None
    try:
        return parse_contract(given)
    except BadRequest as error:
        raise ContractUnreadable(error.path or "") from None


def _label(text: str) -> str:
    """An item's text as it stands among others in a sentence."""
    words = " ".join(clean_text(text).split())
    return words if len(words) <= LABEL_CHARACTERS else f"{words[: LABEL_CHARACTERS - 1]}…"
