"""Whether the state of a task moves: what counts as progress, by values that tools told."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from guard.rounds import NONE, Decision, Event, Round, Turn, Value
from guard.rules.hand_off import hands_over

Counts = Literal["grows", "shrinks", "changes", "reaches"]
"""What a value has to do to be progress: pass its best so far, fall below it, be one that was not
there before, or become the target."""

StopCode = Literal["no_progress", "handoff"]
"""How a run ends whose task does not move: with what it has, or with a person."""

Outcome = Literal["progress", "no_progress", "completed"]

MAX_SEEN = 64
"""Values of one field that are remembered; going round among more of them looks like progress."""


@dataclass(frozen=True, slots=True)
class Field:
    """A named state value, and what of it is progress."""

    name: str
    counts: Counts
    target: Value | None = None
    """What it has to reach; the task is done when every field with one has reached it."""
    initial: Value | None = None
    """Before the first call, where known; without it the first value seen is the start."""
    label: str = ""
    """What texts call it, where that is not its name."""

    def __post_init__(self) -> None:
        if (self.counts == "reaches") != (self.target is not None):
            raise ValueError(f"field {self.name}: a target goes with reaches, and with it only")


@dataclass(frozen=True, slots=True)
class ContractState:
    """The best of each field so far, in the contract's order, and the rounds since it moved."""

    seen: tuple[tuple[Value, ...], ...]
    """Of each field the values that were progress, the newest first."""
    last: tuple[Value | None, ...]
    """Of each field what was told last."""
    streak: int = 0
    """Rounds in a row without progress."""
    version: int = 0
    """Rounds that made progress."""
    is_done: bool = False
    """All targets were reached; what comes then is not judged by the contract any more."""


@dataclass(frozen=True, slots=True)
class Contract:
    """Stop after *stop_after* rounds in a row without progress, or when all targets are reached."""

    fields: tuple[Field, ...]
    stop_after: int = 2
    nudge_after: int | None = None
    stop_code: StopCode = "no_progress"
    id: str = "progress_contract"

    @property
    def start(self) -> ContractState:
        """Every field at its initial value."""
        initial = tuple(part.initial for part in self.fields)
        return ContractState(tuple(() if one is None else (one,) for one in initial), initial)

    def advance(self, state: ContractState, event: Event) -> tuple[ContractState, Decision]:
        """See `Rule`.

        A person's message starts the count anew, not what was reached. A round of waits alone, or
        one that hands the task over, may move the state, but never counts against it.
        """
        if isinstance(event, Turn):
            return replace(state, streak=0), NONE
        if state.is_done:
            return state, NONE
        after, outcome = compare(self.fields, state, _values(event))
        if outcome == "completed":
            return after, Decision("stop", self.id, "completed", tools=event.tools)
        if outcome == "progress":
            return after, NONE
        if all(call.waits for call in event.counted) or hands_over(event):
            return replace(after, streak=state.streak), NONE
        return after, self._stalled(after, event)

    def learn(self, state: ContractState, values: Mapping[str, Value]) -> ContractState:
        """The state after *values* were told by a round that is not judged."""
        if state.is_done or not values:
            return state
        after, outcome = compare(self.fields, state, values)
        return replace(after, streak=state.streak) if outcome == "no_progress" else after

    def _stalled(self, state: ContractState, event: Round) -> Decision:
        is_end = state.streak >= self.stop_after
        if not is_end and state.streak != self.nudge_after:
            return NONE
        return Decision(
            "stop" if is_end else "nudge",
            self.id,
            self.stop_code,
            streak=state.streak,
            tools=event.tools,
            limit=0 if is_end else self.stop_after,
            fields=self._open(state),
        )

    def _open(self, state: ContractState) -> tuple[str, ...]:
        """What texts call the fields that are not at their target; all of those without one."""
        pairs = zip(self.fields, state.last, strict=True)
        return tuple(
            dict.fromkeys(
                part.label or part.name
                for part, now in pairs
                if part.target is None or not _same(now, part.target)
            )
        )


def compare(
    fields: tuple[Field, ...], state: ContractState, values: Mapping[str, Value]
) -> tuple[ContractState, Outcome]:
    """The state after *values* became known, and what that means. A missing one did not change."""
    told = tuple(_told(values.get(part.name)) for part in fields)
    seen = tuple(map(_grown, fields, state.seen, told))
    last = tuple(old if new is None else new for old, new in zip(state.last, told, strict=True))
    reached = [
        _same(now, part.target)
        for part, now in zip(fields, last, strict=True)
        if part.counts == "reaches"
    ]
    if reached and all(reached):
        return ContractState(seen, last, 0, state.version + 1, True), "completed"
    if any(map(_moved, fields, state.seen, seen)):
        return ContractState(seen, last, 0, state.version + 1), "progress"
    return ContractState(seen, last, state.streak + 1, state.version), "no_progress"


def _moved(field: Field, before: tuple[Value, ...], after: tuple[Value, ...]) -> bool:
    """Whether the field made progress.

    The first sight of a value that had no initial one is where it starts; a target that stands
    there already is reached all the same.
    """
    if not before:
        return bool(after) and field.counts == "reaches" and _same(after[0], field.target)
    return after != before


def _values(event: Round) -> Mapping[str, Value]:
    """What the round tells of the state.

    What a refused or failed call says is nothing that it did, and what another run found before is
    nothing that this one did.
    """
    is_known = bool(event.counted) and all(call.known for call in event.counted)
    return {} if is_known or event.failure is not None else event.values or {}


def _told(value: Value | None) -> Value | None:
    """The value; what is not equal to itself is none."""
    return value if value == value else None


def _grown(field: Field, seen: tuple[Value, ...], value: Value | None) -> tuple[Value, ...]:
    """The values of the field with *value*, if that is progress or where it starts."""
    if value is None or (seen and not _is_progress(field, seen, value)):
        return seen
    return (value, *seen)[:MAX_SEEN]


def _is_progress(field: Field, seen: tuple[Value, ...], value: Value) -> bool:
    match field.counts:
        case "grows":
            return _exceeds(value, seen[0])
        case "shrinks":
            return _exceeds(seen[0], value)
        case "changes":
            return not any(_same(value, other) for other in seen)
        case "reaches":
            return _same(value, field.target) and not any(_same(value, one) for one in seen)


def _exceeds(left: Value, right: Value) -> bool:
    """Whether both are numbers, and the first is the greater."""
    if isinstance(left, str | bool) or isinstance(right, str | bool):
        return False
    return left > right


def _same(left: Value | None, right: Value | None) -> bool:
    """Equal, where a truth value is no number."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)
