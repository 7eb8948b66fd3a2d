"""What is stored of a message and of a card, so that both are found again after a restart."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from channels.feishu import fields
from channels.feishu.api import Place
from channels.feishu.content import Resource
from channels.feishu.decode import Message
from channels.feishu.fields import Fields
from channels.port import RemoteFile, Turn

SEQUENCE_STEP = 1_000_000
"""Numbers that one life of the process may use on a card; 10 per second need 100 000 s for that."""


def reply_to(message: Message) -> str:
    """What an answer to *message* needs."""
    known = {
        "message_id": message.message_id,
        "chat_id": message.chat_id,
        "chat_type": "group" if message.is_group else "p2p",
        "thread_id": message.thread_id,
    }
    return json.dumps(known)


def place_of(message: Message) -> Place:
    """Where *message* is answered: in its topic if it stands in one."""
    return Place(message.chat_id, message.message_id, message.thread_id != "")


def place_for(turn: Turn) -> Place:
    """Where the run of *turn* is shown; a run that no message began goes into the chat.

    Into a topic nothing can be sent but as an answer to one of its messages.
    """
    known = fields.parse(turn.reply_to) if turn.reply_to else None
    if known is None and turn.chat.thread_id:
        known = fields.parse(turn.reach) if turn.reach else None
    if known is None:
        return Place(turn.chat.chat_id)
    chat_id = fields.text(known, "chat_id") or turn.chat.chat_id
    in_thread = fields.text(known, "thread_id") != ""
    return Place(chat_id, fields.text(known, "message_id"), in_thread)


def is_group(turn: Turn) -> bool:
    """Whether others are in the chat, so that the bot has to be mentioned."""
    known = fields.parse(turn.reply_to or turn.reach or "")
    return known is not None and fields.text(known, "chat_type") == "group"


@dataclass(frozen=True, slots=True)
class Handle:
    """A card of a run: kept by the application before anybody can see the card."""

    card_id: str
    message_id: str = ""
    """That shows the card; empty as long as it is not known whether one does."""
    sequence: int = 0
    """Whatever number was used is below the next step."""

    def as_json(self) -> str:
        """For `Inbox.keep`."""
        known = {"card": self.card_id, "message": self.message_id, "sequence": self.sequence}
        return json.dumps(known)


def handle_from(text: str | None) -> Handle | None:
    """The handle that was kept, or None if there is none that makes sense."""
    known = fields.parse(text) if text else None
    card_id = fields.text(known, "card") if known else ""
    if known is None or not card_id:
        return None
    sequence = int(fields.number(known, "sequence") or 0)
    return Handle(card_id, fields.text(known, "message"), sequence)


LocatorKind = Literal["image", "file", "forward"]
_KINDS: Mapping[str, LocatorKind] = {"image": "image", "forward": "forward"}


@dataclass(frozen=True, slots=True)
class Locator:
    """A file that Feishu holds, or a message that is quoted or holds others."""

    message_id: str
    chat_id: str
    resource_key: str = ""
    """Empty: the message itself, as far as it has words or a file."""
    kind: LocatorKind = "file"


def remote_file(message: Message, resource: Resource) -> RemoteFile:
    """A file of *message* for the application to fetch."""
    known: Fields = {
        "message_id": message.message_id,
        "chat_id": message.chat_id,
        "key": resource.key,
        "kind": resource.kind,
    }
    return RemoteFile(json.dumps(known), resource.name, resource.media_type)


def quoted_file(message: Message, quoted_message_id: str) -> RemoteFile:
    """The quoted message as a file: reading it takes a call, which no acknowledgement waits for."""
    known: Fields = {"message_id": quoted_message_id, "chat_id": message.chat_id}
    return RemoteFile(json.dumps(known), QUOTE_NAME, "text/plain")


def forwarded_file(message: Message) -> RemoteFile:
    """The messages that *message* holds as a file, for the same reason."""
    known: Fields = {
        "message_id": message.message_id,
        "chat_id": message.chat_id,
        "kind": "forward",
    }
    return RemoteFile(json.dumps(known), FORWARD_NAME, "text/plain")


QUOTE_NAME = "quoted-message.txt"
FORWARD_NAME = "forwarded-messages.txt"


def locator_from(text: str) -> Locator | None:
    """What `remote_file` or `quoted_file` wrote."""
    known = fields.parse(text)
    if known is None or not fields.text(known, "message_id"):
        return None
    return Locator(
        fields.text(known, "message_id"),
        fields.text(known, "chat_id"),
        fields.text(known, "key"),
        _KINDS.get(fields.text(known, "kind"), "file"),
    )
