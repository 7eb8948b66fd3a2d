"""Who is answered, and what kind of request a message is. Pure."""

import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from channels.feishu import content
from channels.feishu.content import Content, Resource
from channels.feishu.decode import Message, Person
from channels.port import Command

Ignored = Literal["other_app", "own", "bot", "no_mention", "mention_all"]

_COMMANDS: Mapping[str, Command] = {
    "/new": "new",
    "/stop": "stop",
    "/status": "status",
    "/compact": "compact",
    "/approve": "approve",
    "/deny": "deny",
    "/help": "help",
}
_UNSEEN = f"{string.whitespace}\u00a0\u3000\u200b\u200c\u200d\u2060\ufeff"
"""Around what is typed or pasted, besides what can be seen."""
_SIDELINE = re.compile(r"[/／]side(?!\S)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rules:
    """Of one bot."""

    app_id: str
    bot_open_id: str
    allow: Sequence[str] = ()
    """Ids of people or chats; `*` is everyone, nothing is nobody."""
    respond_to_mention_all: bool = False
    allow_bots: bool = False
    """Other bots are answered where they mention this one."""

    def admits(self, person: Person, chat_id: str) -> bool:
        """Whether *person* may use the bot in that chat."""
        allowed = set(self.allow)
        return "*" in allowed or chat_id in allowed or not allowed.isdisjoint(person.ids)


@dataclass(frozen=True, slots=True)
class Ignore:
    """Not for this bot; nothing is said."""

    reason: Ignored


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """Addressed by somebody who is not on the list."""

    person_id: str


@dataclass(frozen=True, slots=True)
class CannotRead:
    """Addressed with something that has no words."""


@dataclass(frozen=True, slots=True)
class Bare:
    """Addressed without a word."""


@dataclass(frozen=True, slots=True)
class Order:
    """A chat command."""

    command: Command


@dataclass(frozen=True, slots=True)
class Ask:
    """Something to run."""

    text: str
    resources: Sequence[Resource]
    quoted_message_id: str
    """Empty where nothing is quoted."""
    is_forward: bool = False
    """It holds other messages, which the platform has to be asked for."""
    is_sideline: bool = False
    """A side question; the text is what stands behind the command, and may be empty."""


Verdict = Ignore | NotAllowed | CannotRead | Bare | Order | Ask


def judge(message: Message, rules: Rules) -> Verdict:
    """Say what *message* is for the bot of *rules*; its age is not looked at."""
    read = content.read(message, rules.bot_open_id)
    ignored = _ignored(message, read, rules)
    if ignored is not None:
        return Ignore(ignored)
    if not rules.admits(message.sender, message.chat_id):
        return NotAllowed(message.sender.open_id)
    if not read.is_readable:
        return CannotRead()
    if command := command_in(read.text):
        return Order(command)
    quoted = _quoted(message)
    if aside := _SIDELINE.match(read.text):
        text = read.text[aside.end() :]
        return Ask(text, read.resources, quoted, read.is_forward, is_sideline=True)
    if not (read.text or read.resources or quoted or read.is_forward):
        return Bare()
    return Ask(read.text, read.resources, quoted, read.is_forward)


def command_in(text: str) -> Command | None:
    """The command that *text* is, in any case and width, alone in its message."""
    typed = unicodedata.normalize("NFKC", text.strip(_UNSEEN)).casefold()
    return _COMMANDS.get(typed)


def _ignored(message: Message, read: Content, rules: Rules) -> Ignored | None:
    if message.app_id != rules.app_id:
        return "other_app"
    if message.sender.open_id == rules.bot_open_id:
        return "own"
    is_mentioned = read.names_bot or any(
        one.open_id == rules.bot_open_id for one in message.mentions
    )
    if message.sender_type != "user" and not (rules.allow_bots and is_mentioned):
        return "bot"
    if not message.is_group or is_mentioned:
        return None
    if not read.names_all:
        return "no_mention"
    return None if rules.respond_to_mention_all else "mention_all"


def _quoted(message: Message) -> str:
    """In a topic each message names its first one as parent, which quotes nothing."""
    is_topic_root = message.thread_id != "" and message.parent_id == message.root_id
    return "" if is_topic_root else message.parent_id
