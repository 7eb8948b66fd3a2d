"""The same result however the arguments are changed."""

from dataclasses import dataclass

from guard.rounds import LOOP_CODE, NONE, Decision, Event, Turn


@dataclass(frozen=True, slots=True)
class SameResultState:
    """Rounds in a row with one tool and one result, and the actions of the last two."""

    key: str = ""
    streak: int = 0
    different: int = 0
    """Of them, rounds whose action was another one than the round's before."""
    action_key: str = ""


@dataclass(frozen=True, slots=True)
class SameResult:
    """Remind after *nudge_at* rounds in which other arguments changed nothing. It never stops:
    fourteen edits that all "succeeded" have the same result too."""

    nudge_at: tuple[int, ...] = (8, 16)
    id: str = "same_result"

    @property
    def start(self) -> SameResultState:
        """No round yet."""
        return SameResultState()

    def advance(self, state: SameResultState, event: Event) -> tuple[SameResultState, Decision]:
        """See `Rule`. A round of waits alone leaves the state as it is."""
        if isinstance(event, Turn):
            return SameResultState(), NONE
        if not event.counted:
            return state, NONE
        key = " ".join([f"{call.tool_name}:{call.result_digest}" for call in event.counted])
        if key != state.key:
            return SameResultState(key, 1, 1, event.action_key), NONE
        is_other = event.action_key != state.action_key
        grown = SameResultState(key, state.streak + 1, state.different + is_other, event.action_key)
        if is_other and grown.different in self.nudge_at:
            return grown, Decision(
                "nudge", self.id, LOOP_CODE, streak=grown.streak, tools=event.tools
            )
        return grown, NONE
