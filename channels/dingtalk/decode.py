"""What DingTalk pushes, as values; pure, and as forgiving as the payloads are various."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from channels.dingtalk.content import read_content
from channels.dingtalk.fields import fields, number, text
from channels.errors import Undecodable
from channels.port import Command, RemoteFile

PLATFORM = "dingtalk"
COMMANDS: Mapping[str, Command] = {
    "/new": "new",
    "/stop": "stop",
    "/status": "status",
    "/compact": "compact",
    "/approve": "approve",
    "/deny": "deny",
    "/help": "help",
}
STOP_ACTIONS = frozenset({"stop", "btn_stop"})
"""Action ids that a template's stop button may have."""

Action = Literal["approve", "deny"]
"""Action ids of the buttons of a question."""

_UNSEEN = "\u200b\u2060\ufeff"
"""Comes along with what was pasted, and is no white space to Python."""
_BLANK = "".join(filter(str.isspace, map(chr, range(0x3001)))) + _UNSEEN
_SIDELINE = re.compile(rf"[/／]side(?!\S)[\s{_UNSEEN}]*", re.IGNORECASE)
_MENTIONS = re.compile(rf"[\s{_UNSEEN}]*(?:@[^\s{_UNSEEN}@]+[\s{_UNSEEN}]*)+")


@dataclass(frozen=True, slots=True)
class Address:
    """Everything that it takes to answer one message, now or after a restart."""

    conversation_id: str
    is_group: bool
    staff_id: str = ""
    """Who asked; empty for people from outside."""
    robot_code: str = ""
    webhook: str = ""
    webhook_until_ms: int = 0
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
    """One message of a person."""

    message_id: str
    address: Address
    sender_id: str
    """The staff id, else the id that the platform makes for people from outside."""
    sender_name: str
    """As others see it; may be empty."""
    is_echo: bool
    """It is the bot's own."""
    sent_at: float | None
    """Seconds since the epoch, by the platform's clock."""
    is_mention: bool
    """False for what the platform pushed although it is not meant for the bot."""
    text: str
    """Without quote and mention, trimmed."""
    quote: str = ""
    files: Sequence[RemoteFile] = ()
    is_readable: bool = True
    """False for kinds of messages that nobody here knows."""
    needs_transcript: bool = False
    """It is speech, and the platform recognised no words in it."""
    has_lost_quote: bool = False
    """It quotes something of which the platform gave nothing; the bot's own words are no loss."""
    is_sideline: bool = False
    """It is a side question; the text is what stands behind the command, and may be empty."""

    @property
    def command(self) -> Command | None:
        """The command that the text is, in any case and after a mention."""
        if self.is_sideline:
            return None
        return COMMANDS.get(strip_mentions(self.text).replace("／", "/").lower())

    @property
    def is_bare(self) -> bool:
        """Nothing was said but the bot's name."""
        is_something = self.is_sideline or self.quote or self.files
        return not (is_something or strip_mentions(self.text))

    @property
    def prompt(self) -> str:
        """What the model reads: the quote, if any, before the text."""
        if not self.quote:
            return self.text
        quoted = "\n".join(f"> {line}" for line in self.quote.splitlines())
        return f"{quoted}\n\n{self.text}".rstrip()


@dataclass(frozen=True, slots=True)
class Click:
    """Somebody pressed a button of a card."""

    card_id: str
    user_id: str
    actions: Sequence[str]
    params: Mapping[str, str]
    conversation_id: str = ""

    @property
    def wants_stop(self) -> bool:
        """It is the stop button, whatever the template calls it."""
        names = {*self.actions, self.params.get("do", ""), self.params.get("act", "")}
        return not names.isdisjoint(STOP_ACTIONS)

    @property
    def decision(self) -> Action | None:
        """What a button of a question says."""
        if "deny" in self.actions:
            return "deny"
        return "approve" if "approve" in self.actions else None


def encode_address(address: Address) -> str:
    """The text that is stored with a run."""
    return json.dumps(asdict(address), separators=(",", ":"))


def decode_address(encoded: str | None) -> Address | None:
    """The other way; None for what is no address of ours."""
    known = fields(encoded)
    try:
        return Address(**known)  # type: ignore[arg-type]  # checked by the constructor's names
    except TypeError:
        return None


def decode_message(raw: str, own_robot_code: str) -> Heard:
    """A message as it was pushed.

    Args:
        raw: The `data` of the frame.
        own_robot_code: Stands in where the payload names no robot.
    Raises:
        Undecodable: It cannot be said who wrote where.
    """
    data = fields(raw)
    message_id, conversation_id = text(data, "msgId"), text(data, "conversationId")
    if not message_id or not conversation_id:
        raise Undecodable("a message without an id or a conversation")
    is_group = text(data, "conversationType") == "2"
    address = Address(
        conversation_id=conversation_id,
        is_group=is_group,
        staff_id=text(data, "senderStaffId"),
        robot_code=text(data, "robotCode") or own_robot_code,
        webhook=text(data, "sessionWebhook"),
        webhook_until_ms=number(data, "sessionWebhookExpiredTime"),
        message_id=message_id,
    )
    created_ms = number(data, "createAt")
    said = read_content(data, address.robot_code)
    words = said.text.strip(_BLANK)
    aside = _SIDELINE.match(strip_mentions(words))
    bot_id = text(data, "chatbotUserId")
    return Heard(
        message_id=message_id,
        address=address,
        sender_id=address.staff_id or text(data, "senderId"),
        sender_name=" ".join(text(data, "senderNick").split()),
        is_echo=text(data, "senderId") != "" and text(data, "senderId") == bot_id,
        sent_at=created_ms / 1000 if created_ms > 0 else None,
        is_mention=not is_group or data.get("isInAtList") is not False,
        text=words if aside is None else strip_mentions(words)[aside.end() :],
        quote=said.quote.strip(),
        files=tuple(said.files),
        is_readable=said.is_readable,
        needs_transcript=said.needs_transcript,
        has_lost_quote=said.has_lost_quote,
        is_sideline=aside is not None,
    )


def decode_click(raw: str) -> Click:
    """A press of a button.

    Raises:
        Undecodable: It cannot be said who pressed on which card.
    """
    data = fields(raw)
    card_id, user_id = text(data, "outTrackId"), text(data, "userId")
    if not card_id or not user_id:
        raise Undecodable("a click without a card or a person")
    told = {**fields(data.get("value")), **fields(data.get("content"))}
    private = fields(told.get("cardPrivateData"))
    params = {name: str(value) for name, value in fields(private.get("params")).items()}
    ids = private.get("actionIds")
    actions = tuple(str(action) for action in ids) if isinstance(ids, list) else ()
    conversation = text(data, "spaceId") if text(data, "spaceType") == "IM_GROUP" else ""
    return Click(card_id, user_id, actions, params, conversation)


def strip_mentions(words: str) -> str:
    """*words* without the names that they begin with."""
    found = _MENTIONS.match(words)
    return words[found.end() if found else 0 :].strip(_BLANK)
