"""The agent asks for a person."""

from dataclasses import dataclass

from guard.rounds import NONE, Decision, Event, Round, Turn

HAND_OFF_TOOL = "hand_off"


@dataclass(frozen=True, slots=True)
class HandOff:
    """Stop when the tool for it was called and did not fail."""

    id: str = "hand_off"

    @property
    def start(self) -> None:
        """It remembers nothing."""
        return None

    def advance(self, state: None, event: Event) -> tuple[None, Decision]:
        """See `Rule`."""
        if isinstance(event, Turn) or not hands_over(event):
            return None, NONE
        return None, Decision("stop", self.id, "handoff", tools=(HAND_OFF_TOOL,))


def hands_over(event: Round) -> bool:
    """Whether the task was handed to a person in this round."""
    return any(call.tool_name == HAND_OFF_TOOL and not call.error_class for call in event.calls)
