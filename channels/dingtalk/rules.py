"""Who may talk to a bot, and as whom it answers; pure."""

from dataclasses import dataclass

from channels.dingtalk.decode import PLATFORM, Address, Heard
from channels.port import ChatAddress, Locale

EVERYONE = "*"


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may talk to the bot, and as whom it answers."""

    client_id: str
    robot_code: str
    allow: frozenset[str]
    locale: Locale

    def allows(self, person_id: str, conversation_id: str) -> bool:
        """Whether a person, by staff id or else by the platform's own, may talk to the bot.

        An id of a conversation lets in everybody who is in it.
        """
        return not self.allow.isdisjoint({EVERYONE, person_id, conversation_id} - {""})

    def is_for_us(self, heard: Heard) -> bool:
        """The message is addressed to this very robot."""
        return heard.address.robot_code in (self.robot_code, self.client_id)

    def chat(self, address: Address) -> ChatAddress:
        """The conversation as the application knows it."""
        return ChatAddress(PLATFORM, self.client_id, address.conversation_id)

    def keys(self, message_id: str) -> tuple[str, ...]:
        """What makes a message known; the frame's own id changes with each push."""
        return (f"{PLATFORM}:{self.robot_code}:msg:{message_id}",)
