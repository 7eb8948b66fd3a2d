"""The same failure again, however the call is worded."""

from dataclasses import dataclass, replace

from guard.policy import announced
from guard.rounds import LOOP_CODE, NONE, Asks, Decision, Event, Round, Turn

_SEEN = 24
"""Calls with their results that are remembered, to tell news from what is known."""


@dataclass(frozen=True, slots=True)
class SameErrorState:
    """The reason that goes on, and what was seen."""

    reason: str = ""
    streak: int = 0
    """Rounds that failed for it, others between not counted."""
    gap_rounds: int = 0
    """Rounds since the last of them."""
    seen: tuple[str, ...] = ()
    """Keys of the last rounds that did not fail."""


@dataclass(frozen=True, slots=True)
class SameError:
    """Remind after *nudge_at* rounds that fail for one reason, stop after *stop_at*.

    A round counts when every call in it failed. Rounds between that fail for another reason, or
    succeed with what was known already, are passed over up to *gap_rounds* in a row; a round with
    news starts over.
    """

    nudge_at: tuple[int, ...] = (4,)
    stop_at: int | None = None
    gap_rounds: int = 1
    across_tools: bool = False
    """Whether one reason of several tools is one."""
    id: str = "same_error"

    @property
    def start(self) -> SameErrorState:
        """Nothing failed."""
        return SameErrorState()

    def advance(self, state: SameErrorState, event: Event) -> tuple[SameErrorState, Decision]:
        """See `Rule`. A round of waits alone leaves the state as it is."""
        if isinstance(event, Turn):
            return SameErrorState(), NONE
        if not event.counted:
            return state, NONE
        if event.failure is None:
            return self._succeeded(state, event), NONE
        reason = event.failure
        if not self.across_tools:
            reason = f"{'/'.join(event.tools)}: {reason}"
        if reason != state.reason:
            if state.streak > 1 and state.gap_rounds < self.gap_rounds:
                return replace(state, gap_rounds=state.gap_rounds + 1), NONE
            return SameErrorState(reason, 1, 0, state.seen), NONE
        grown = replace(state, streak=state.streak + 1, gap_rounds=0)
        return grown, self._decision(grown.streak, event)

    def _succeeded(self, state: SameErrorState, event: Round) -> SameErrorState:
        if event.key in state.seen:
            if state.gap_rounds < self.gap_rounds:
                return replace(state, gap_rounds=state.gap_rounds + 1)
            return SameErrorState(seen=state.seen)
        return SameErrorState(seen=(event.key, *state.seen)[:_SEEN])

    def _decision(self, streak: int, event: Round) -> Decision:
        is_end = self.stop_at is not None and streak >= self.stop_at
        if not is_end and streak not in self.nudge_at:
            return NONE
        asks: Asks = "stop" if is_end else "nudge"
        limit = announced(self.nudge_at, self.stop_at, streak)
        return Decision(asks, self.id, LOOP_CODE, streak=streak, tools=event.tools, limit=limit)
