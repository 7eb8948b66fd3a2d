"""The agent asks for a person."""

from dataclasses import dataclass

from guard.rounds import NONE, Decision, Event, Round, Turn

HAND_OFF_TOOL = "hand_off"


@dataclass(frozen=True, slots=True)
class HandOff:
    """Stop when the tool for it was called and did not fail."""

    tool_name: str = HAND_OFF_TOOL
    id: str = "hand_off"

    @property
    def start(self) -> None:
        """It remembers nothing."""
        return None

    def advance(self, state: None, event: Event) -> tuple[None, Decision]:
        """See `Rule`."""
        if isinstance(event, Turn) or not hands_over(event, self.tool_name):
            return None, NONE
        return None, Decision("stop", self.id, "handoff", tools=(self.tool_name,))


def hands_over(event: Round, tool_name: str = HAND_OFF_TOOL) -> bool:
    """Whether the task was handed to a person in this round."""
    return any(call.tool_name == tool_name and call.error_class is None for call in event.calls)
