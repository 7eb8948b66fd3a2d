"""A lane of its own for rounds that only wait."""

from dataclasses import dataclass, replace

from guard.rounds import NONE, Asks, Decision, Event, Round, Turn

NUDGE_SHARE = 0.5
"""Of the budget; then the model is told once."""


@dataclass(frozen=True, slots=True)
class WaitState:
    """What waiting has cost since a person spoke."""

    rounds: int = 0
    elapsed_ms: int = 0
    is_nudged: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waits spend a budget of rounds and of time; one half spent, the model is told."""

    rounds: int
    elapsed_ms: int
    """Of rounds that only wait, the model's time included."""
    id: str = "waiting"

    def __post_init__(self) -> None:
        if self.rounds <= 0 or self.elapsed_ms <= 0:
            raise ValueError("a wait budget is positive")

    @property
    def start(self) -> WaitState:
        """Nothing spent."""
        return WaitState()

    def advance(self, state: WaitState, event: Event) -> tuple[WaitState, Decision]:
        """See `Rule`. Other rounds neither spend nor give back."""
        if isinstance(event, Turn):
            return WaitState(), NONE
        if event.counted or not event.calls:
            return state, NONE
        spent = WaitState(
            state.rounds + 1, state.elapsed_ms + event.spent.elapsed_ms, state.is_nudged
        )
        share = max(spent.rounds / self.rounds, spent.elapsed_ms / self.elapsed_ms)
        if share >= 1:
            return replace(spent, is_nudged=True), self._decision("stop", spent, event)
        if share >= NUDGE_SHARE and not state.is_nudged:
            return replace(spent, is_nudged=True), self._decision("nudge", spent, event)
        return spent, NONE

    def _decision(self, asks: Asks, spent: WaitState, event: Round) -> Decision:
        tools = tuple(dict.fromkeys(call.tool_name for call in event.calls))
        limit = self.rounds if asks == "nudge" else 0
        return Decision(asks, self.id, "budget_wait", streak=spent.rounds, tools=tools, limit=limit)
