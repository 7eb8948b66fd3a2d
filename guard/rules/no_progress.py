"""The default rule, for a policy that has others beside it: the same code, the same verdicts."""

from dataclasses import dataclass

from guard.model import NoProgressTail, Verdict
from guard.policy import announced, thresholds_of
from guard.rounds import LOOP_CODE, NONE, Asks, Decision, Event, Turn
from guard.streak import advance


@dataclass(frozen=True, slots=True)
class NoProgress:
    """The same calls with the same results, round after round: remind at 5 and 10, stop at 15.

    Tools may have numbers of their own, see `ToolContract.thresholds`.
    """

    id: str = "no_progress"

    @property
    def start(self) -> NoProgressTail | None:
        """No tail."""
        return None

    def advance(
        self, state: NoProgressTail | None, event: Event
    ) -> tuple[NoProgressTail | None, Decision]:
        """See `Rule`."""
        if isinstance(event, Turn):
            return None, NONE
        tail, verdict = advance(state, event.counted)
        if tail is None or verdict is Verdict.CONTINUE:
            return tail, NONE
        asks: Asks = "stop" if verdict is Verdict.ABORT else "nudge"
        thresholds = thresholds_of(event.counted)
        limit = announced(thresholds.nudge_at, thresholds.abort_at, tail.streak)
        return tail, Decision(
            asks, self.id, LOOP_CODE, streak=tail.streak, tools=event.tools, limit=limit
        )
