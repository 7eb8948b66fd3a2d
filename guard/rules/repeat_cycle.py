"""The same tools with the same arguments again, whatever came of it."""

from dataclasses import dataclass

from guard.rounds import LOOP_CODE, NONE, Asks, Decision, Event, Kind, RoundCall, Turn

DEFAULT_LIMIT = 3
"""Rounds in a row at which the run ends; one earlier the model is warned."""


@dataclass(frozen=True, slots=True)
class RepeatState:
    """How often the last action came in a row; it counts its own round."""

    action_key: str = ""
    streak: int = 0


@dataclass(frozen=True, slots=True)
class RepeatCycle:
    """Warn one round before *limit*, stop at it. Failures count, results do not matter.

    Raises:
        ValueError: The limit is no positive number.
    """

    limit: int = DEFAULT_LIMIT
    kinds: frozenset[Kind] | None = None
    """Look only at calls of these kinds; a round without any ends the streak."""
    with_waits: bool = False
    """Whether exempt calls count too."""
    id: str = "repeat_cycle"

    def __post_init__(self) -> None:
        if self.limit <= 0:
            raise ValueError("the limit of a repeat cycle is a positive number of rounds")

    @property
    def start(self) -> RepeatState:
        """Nothing was done yet."""
        return RepeatState()

    def advance(self, state: RepeatState, event: Event) -> tuple[RepeatState, Decision]:
        """See `Rule`."""
        if isinstance(event, Turn):
            return RepeatState(), NONE
        calls = event.calls if self.with_waits else event.counted
        looked_at = [call for call in calls if self.kinds is None or call.kind in self.kinds]
        if not looked_at:
            return RepeatState(), NONE
        key = " ".join([call.action_digest for call in looked_at])
        streak = state.streak + 1 if state.action_key == key else 1
        return RepeatState(key, streak), self._decision(streak, looked_at)

    def _decision(self, streak: int, calls: list[RoundCall]) -> Decision:
        is_end = streak >= self.limit
        if not is_end and not (streak == self.limit - 1 and streak > 1):
            return NONE  # a first sighting is no repetition, whatever the limit
        asks: Asks = "stop" if is_end else "nudge"
        tools = tuple(dict.fromkeys(call.tool_name for call in calls))
        limit = 0 if is_end else self.limit
        return Decision(asks, self.id, LOOP_CODE, streak=streak, tools=tools, limit=limit)
