"""What AG-UI's own client refuses, as a checker for every event a test sees.

The Python models take `null`, any extra field and integral floats, and know nothing of the order
of events; the client takes none of it. Rules are numbered as they were found by running it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ag_ui.core import Event
from pydantic import BaseModel, TypeAdapter

_EVENT: TypeAdapter[Any] = TypeAdapter(Event)
_FREE = frozenset({"metadata", "value", "content", "snapshot", "rawEvent", "result"})
"""Keys whose values are the producer's own affair."""
_COUNTS = ("inputTokens", "outputTokens", "totalTokens", "cachedInputTokens")

_OPENS = {
    "TEXT_MESSAGE_START": ("text", "messageId"),
    "TOOL_CALL_START": ("call", "toolCallId"),
    "STEP_STARTED": ("step", "stepName"),
    "REASONING_START": ("reasoning", "messageId"),
    "REASONING_MESSAGE_START": ("reasoning message", "messageId"),
    "SUBAGENT_STARTED": ("subagent", "subagentRunId"),
}
_NEEDS = {
    "TEXT_MESSAGE_CONTENT": ("text", "messageId"),
    "TOOL_CALL_ARGS": ("call", "toolCallId"),
    "REASONING_MESSAGE_CONTENT": ("reasoning message", "messageId"),
}
_CLOSES = {
    "TEXT_MESSAGE_END": ("text", "messageId"),
    "TOOL_CALL_END": ("call", "toolCallId"),
    "STEP_FINISHED": ("step", "stepName"),
    "REASONING_END": ("reasoning", "messageId"),
    "REASONING_MESSAGE_END": ("reasoning message", "messageId"),
    "SUBAGENT_FINISHED": ("subagent", "subagentRunId"),
    "SUBAGENT_ERROR": ("subagent", "subagentRunId"),
}


class RuleBroken(AssertionError):
    """The client would refuse the event."""

    def __init__(self, rule: int, event: Mapping[str, Any], why: str) -> None:
        super().__init__(f"AG-UI rule {rule}: {why} at {event.get('type')}")
        self.rule = rule


class AguiRules:
    """Checks one stream of events.

    Args:
        is_midway: The stream goes on in the middle of a run; until the next one begins, only the
            shape of its events is checked, since what is open is not known.
    """

    def __init__(self, *, is_midway: bool = False) -> None:
        self._is_midway = is_midway
        self._is_open = False
        self._ended_by: str | None = None
        self._open: dict[tuple[str, str], str | None] = {}
        """What is open, and the subagent that it belongs to."""
        self._subagents: set[str] = set()

    @property
    def is_between_runs(self) -> bool:
        """No run is open."""
        return not self._is_open

    def check(self, event: Mapping[str, Any]) -> None:
        """Take the next event, or raise `RuleBroken`."""
        check_shape(event)
        kind: str = event["type"]
        if self._is_midway and kind != "RUN_STARTED":
            return
        self._is_midway = False
        self._check_place(kind, event)
        if kind == "RUN_STARTED":
            self._is_open, self._ended_by = True, None
            self._open.clear()
            self._subagents.clear()
        elif kind in ("RUN_FINISHED", "RUN_ERROR"):
            if kind == "RUN_FINISHED" and self._open:
                raise RuleBroken(7, event, f"{next(iter(self._open))} is still open")
            self._is_open, self._ended_by = False, kind
            self._open.clear()
        else:
            self._check_item(kind, event)

    def _check_place(self, kind: str, event: Mapping[str, Any]) -> None:
        if kind == "RUN_STARTED":
            if self._is_open:
                raise RuleBroken(5, event, "a run is open")
        elif self._is_open:
            return
        elif self._ended_by == "RUN_ERROR":
            raise RuleBroken(3, event, "nothing follows RUN_ERROR")
        elif kind == "RUN_ERROR":
            return  # rule 2, and after RUN_FINISHED too
        elif self._ended_by is None:
            raise RuleBroken(1, event, "a stream begins with RUN_STARTED")
        else:
            raise RuleBroken(4, event, "nothing follows RUN_FINISHED")

    def _check_item(self, kind: str, event: Mapping[str, Any]) -> None:
        owner = event.get("subagentRunId") if not kind.startswith("SUBAGENT_") else None
        if kind in _OPENS:
            item = _item(_OPENS[kind], event)
            if item in self._open:
                raise RuleBroken(13 if item[0] == "step" else 8, event, f"{item} is open already")
            if item[0] == "subagent":
                if item[1] in self._subagents:
                    raise RuleBroken(14, event, f"{item} was used before")
                self._subagents.add(item[1])
            self._open[item] = owner
        elif kind in _NEEDS or kind in _CLOSES:
            item = _item((_NEEDS | _CLOSES)[kind], event)
            if item not in self._open:
                raise RuleBroken(13 if item[0] == "step" else 8, event, f"{item} is not open")
            if owner is not None and owner != self._open[item]:
                raise RuleBroken(14, event, f"{item} belongs to another")
            if kind in _CLOSES:
                del self._open[item]


def _item(where: tuple[str, str], event: Mapping[str, Any]) -> tuple[str, str]:
    return where[0], event[where[1]]


def check_sequence(events: Iterable[Mapping[str, Any]]) -> None:
    """The events of a log, from its first on."""
    rules = AguiRules()
    for event in events:
        rules.check(event)


def check_shape(event: Mapping[str, Any]) -> None:
    """The event's fields alone: rules 16 to 19."""
    try:
        model = _EVENT.validate_python(event)
    except ValueError as error:
        raise RuleBroken(19, event, str(error)) from None
    if extra := _unknown_fields(model):
        raise RuleBroken(17, event, f"unknown {extra}")
    if path := _null_in(event):
        raise RuleBroken(18, event, f"null at {path}")
    if "timestamp" in event and type(event["timestamp"]) is not int:
        raise RuleBroken(19, event, "a time that is no integer")
    for entry in event.get("usage", ()):
        if any(type(entry.get(key, 0)) is not int or entry.get(key, 0) < 0 for key in _COUNTS):
            raise RuleBroken(19, event, "a count that is none")


def _unknown_fields(value: object) -> str:
    """Where a field stands that the protocol does not know; empty if nowhere."""
    if isinstance(value, BaseModel):
        if value.model_extra:
            return ", ".join(value.model_extra)
        parts: Sequence[object] = [getattr(value, name) for name in type(value).model_fields]
    elif isinstance(value, list):
        parts = value
    else:
        return ""
    return next((found for part in parts if (found := _unknown_fields(part))), "")


def _null_in(value: object, path: str = "$") -> str:
    """Where a null stands that is not a producer's own; empty if nowhere."""
    if value is None:
        return path
    if isinstance(value, Mapping):
        pairs = [(f"{path}.{key}", item) for key, item in value.items() if key not in _FREE]
    elif isinstance(value, list):
        pairs = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        return ""
    return next((found for where, item in pairs if (found := _null_in(item, where))), "")
