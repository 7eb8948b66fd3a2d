"""What Feishu pushes, as values: a message, a click, or something that needs no answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from channels.errors import Undecodable
from channels.feishu import fields
from channels.feishu.fields import Fields

MESSAGE = "im.message.receive_v1"
CLICK = "card.action.trigger"


@dataclass(frozen=True, slots=True)
class Person:
    """Who sent or clicked, under the three ids that the platform has for people."""

    open_id: str
    """Of this person for this app; always present, unlike the others."""
    union_id: str = ""
    user_id: str = ""

    @property
    def ids(self) -> frozenset[str]:
        """Those ids that are known."""
        return frozenset({self.open_id, self.union_id, self.user_id}) - {""}


@dataclass(frozen=True, slots=True)
class Mention:
    """Somebody named in a message."""

    key: str
    """What stands for them in the text, `@_user_1`."""
    open_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message as pushed; its content is read by `content.read`."""

    event_id: str
    app_id: str
    message_id: str
    chat_id: str
    is_group: bool
    thread_id: str
    """Of a topic; empty in an ordinary chat, also in a chain of replies."""
    root_id: str
    parent_id: str
    """The message that is quoted."""
    sender: Person
    sender_type: str
    """`user`, or one of the words for programs."""
    sent_at: float
    """Seconds since 1970, by the platform's clock; 0 if it told none."""
    mentions: Sequence[Mention]
    kind: str
    """`text`, `post`, `image`, …"""
    content: Fields | None
    """None if it was no JSON object."""


@dataclass(frozen=True, slots=True)
class Click:
    """Somebody pressed a button of a card."""

    event_id: str
    app_id: str
    operator: Person
    chat_id: str
    message_id: str
    value: Fields
    """What the card carries; anybody who can make a card can put anything here."""
    answer: str = ""
    """What was written into the form of which the button is."""


@dataclass(frozen=True, slots=True)
class Other:
    """An event that is acknowledged and nothing more."""

    event_id: str
    app_id: str
    kind: str


Event = Message | Click | Other


def decode_event(payload: bytes) -> Event:
    """Decode the payload of a data frame, or the decrypted body of a webhook call.

    Raises:
        Undecodable: It is no event, or a message without the ids that an answer needs.
    """
    whole = fields.parse(payload)
    if whole is None:
        raise Undecodable("an event is no JSON object")
    header = fields.under(whole, "header")
    event_id, app_id = fields.text(header, "event_id"), fields.text(header, "app_id")
    kind = fields.text(header, "event_type")
    event = fields.under(whole, "event")
    if kind == MESSAGE:
        return _message(event_id, app_id, event)
    if kind == CLICK:
        return _click(event_id, app_id, event)
    return Other(event_id, app_id, kind)


def _message(event_id: str, app_id: str, event: Fields) -> Message:
    message, sender = fields.under(event, "message"), fields.under(event, "sender")
    message_id, chat_id = fields.text(message, "message_id"), fields.text(message, "chat_id")
    if not message_id or not chat_id:
        raise Undecodable("a message has no id or no chat")
    return Message(
        event_id=event_id,
        app_id=app_id,
        message_id=message_id,
        chat_id=chat_id,
        is_group=fields.text(message, "chat_type") != "p2p",
        thread_id=fields.text(message, "thread_id"),
        root_id=fields.text(message, "root_id"),
        parent_id=fields.text(message, "parent_id"),
        sender=_person(fields.under(sender, "sender_id")),
        sender_type=fields.text(sender, "sender_type"),
        sent_at=(fields.number(message, "create_time") or 0.0) / 1000,
        mentions=mentions_in(message),
        kind=fields.text(message, "message_type"),
        content=fields.parse(fields.text(message, "content")),
    )


def _click(event_id: str, app_id: str, event: Fields) -> Click:
    context = fields.under(event, "context")
    written = fields.under(event, "action", "form_value")
    answers = (fields.text(written, name) for name in written)
    return Click(
        event_id=event_id,
        app_id=app_id,
        operator=_person(fields.under(event, "operator")),
        chat_id=fields.text(context, "open_chat_id"),
        message_id=fields.text(context, "open_message_id"),
        value=fields.under(event, "action", "value"),
        answer=next(filter(None, answers), ""),
    )


def _person(ids: Fields) -> Person:
    return Person(
        fields.text(ids, "open_id"), fields.text(ids, "union_id"), fields.text(ids, "user_id")
    )


def mentions_in(message: Fields) -> tuple[Mention, ...]:
    """Whom a message names, as it was pushed or as it is read again."""
    return tuple(_mention(one) for one in fields.items(message, "mentions"))


def _mention(value: object) -> Mention:
    one = fields.fields(value)
    return Mention(
        key=fields.text(one, "key"),
        open_id=fields.text(fields.under(one, "id"), "open_id") or fields.text(one, "id"),
        name=fields.text(one, "name"),
    )
