"""What DingTalk pushes, as values; pure, and as forgiving as the payloads are various."""

import json
import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from channels.errors import Undecodable
from channels.port import Command, RemoteFile

PLATFORM = "dingtalk"
UNKNOWN_TYPE = "application/octet-stream"
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

_SIDELINE = re.compile(r"/side(?!\S)\s*", re.IGNORECASE)
_MENTION = re.compile(r"^\s*@[^\s@]+\s*")
_OPAQUE = re.compile(r"\|\|\d+\|\|\d+\|\|\d+\s*$")
"""How the encrypted text of some quotes ends; no one can read it."""

Json = Mapping[str, object]


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
        return None if self.is_sideline else COMMANDS.get(strip_mentions(self.text).lower())

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
    return json.dumps(asdict(address), ensure_ascii=False, separators=(",", ":"))


def decode_address(text: str | None) -> Address | None:
    """The other way; None for what is no address of ours."""
    known = _object(text)
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
    data = _object(raw)
    message_id, conversation_id = _text(data, "msgId"), _text(data, "conversationId")
    if not message_id or not conversation_id:
        raise Undecodable("a message without an id or a conversation")
    is_group = _text(data, "conversationType") == "2"
    address = Address(
        conversation_id=conversation_id,
        is_group=is_group,
        staff_id=_text(data, "senderStaffId"),
        robot_code=_text(data, "robotCode") or own_robot_code,
        webhook=_text(data, "sessionWebhook"),
        webhook_until_ms=_number(data, "sessionWebhookExpiredTime"),
        message_id=message_id,
    )
    created_ms = _number(data, "createAt")
    said = _decode_content(data, address)
    text = said.text.strip()
    aside = _SIDELINE.match(strip_mentions(text))
    bot_id = _text(data, "chatbotUserId")
    return Heard(
        message_id=message_id,
        address=address,
        sender_id=address.staff_id or _text(data, "senderId"),
        sender_name=" ".join(_text(data, "senderNick").split()),
        is_echo=_text(data, "senderId") != "" and _text(data, "senderId") == bot_id,
        sent_at=created_ms / 1000 if created_ms > 0 else None,
        is_mention=not is_group or data.get("isInAtList") is not False,
        text=text if aside is None else strip_mentions(text)[aside.end() :],
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
    data = _object(raw)
    card_id, user_id = _text(data, "outTrackId"), _text(data, "userId")
    if not card_id or not user_id:
        raise Undecodable("a click without a card or a person")
    private = _object(_object(data.get("content") or data.get("value")).get("cardPrivateData"))
    params = {name: str(value) for name, value in _object(private.get("params")).items()}
    ids = private.get("actionIds")
    actions = tuple(str(action) for action in ids) if isinstance(ids, list) else ()
    conversation = _text(data, "spaceId") if _text(data, "spaceType") == "IM_GROUP" else ""
    return Click(card_id, user_id, actions, params, conversation)


def strip_mentions(text: str) -> str:
    """*text* without the names that it begins with."""
    while found := _MENTION.match(text):
        text = text[found.end() :]
    return text.strip()


def locator_of(address: Address, download_code: str) -> str:
    """What it takes to fetch a file of a message."""
    return json.dumps({"code": download_code, "robot": address.robot_code})


def decode_locator(locator: str) -> tuple[str, str]:
    """Download code and robot code; empty for what is no locator of ours."""
    known = _object(locator)
    return _text(known, "code"), _text(known, "robot")


@dataclass(slots=True)
class _Said:
    """The content of one message while it is being read."""

    text: str = ""
    quote: str = ""
    files: Sequence[RemoteFile] = ()
    is_readable: bool = True
    needs_transcript: bool = False
    has_lost_quote: bool = False


def _decode_content(data: Json, address: Address) -> _Said:
    kind = _text(data, "msgtype")
    content = _object(data.get("content"))
    said = _Said()
    match kind:
        case "text" if isinstance(data.get("text"), Mapping):
            said.text = _text(_object(data.get("text")), "content")
        case "richText" if (items := _rich_items(data)) is not None:
            said.text, said.files = _read_rich(items, address)
        case "picture" if code := _code(content):
            said.files = [_file(address, code, "picture")]
        case "file" if code := _code(content):
            said.files = [_file(address, code, _text(content, "fileName") or "file")]
        case "video" if code := _code(content):
            ending = _text(content, "videoType") or "mp4"
            said.files = [_file(address, code, f"video.{ending}")]
        case "audio":
            said.text = _text(content, "recognition")
            said.needs_transcript = not said.text.strip()
        case "chatRecord":
            said.quote = _record_text(content)
            said.is_readable = bool(said.quote)
        case _:
            said.is_readable = False
    _add_quote(said, data, address)
    return said


def _rich_items(data: Json) -> list[Json] | None:
    """The elements of a rich text in any of the shapes seen; None if it is none."""
    content = data.get("content")
    if isinstance(content, str):
        content = _loaded(content)
    items = content.get("richText") if isinstance(content, Mapping) else content
    if items is None:
        items = _object(data.get("richText")).get("content")
    if not isinstance(items, list):
        return None
    return list(_flatten(items))


def _flatten(items: list[Any]) -> Iterator[Json]:
    for item in items:
        if isinstance(item, list):
            yield from _flatten(item)
        elif isinstance(item, Mapping):
            yield item
        elif isinstance(item, str):
            yield {"text": item}


def _read_rich(items: Sequence[Json], address: Address) -> tuple[str, list[RemoteFile]]:
    """Text and files of a rich text, both in order."""
    text: list[str] = []
    files: list[RemoteFile] = []
    for item in items:
        code = _code(item)
        words = _text(item, "text") or _text(item, "content")
        link = _text(item, "href") or _text(item, "url")
        if code:
            kind = _text(item, "type") or _text(item, "msgType") or "file"
            files.append(_file(address, code, _text(item, "fileName") or kind))
        elif link:
            text.append(f"[{words}]({link})" if words else link)
        else:
            text.append(words)
    return "".join(text), files


def _add_quote(said: _Said, data: Json, address: Address) -> None:
    """Put what the message answers to before it, as far as it can be read."""
    for holder in map(_object, (data.get("text"), data.get("content"))):
        replied = _object(holder.get("repliedMsg"))
        if replied or holder.get("isReplyMsg") is True:
            said.quote, files = _read_quote(replied, address)
            said.files = [*files, *said.files]
            is_own = _text(replied, "senderId") == _text(data, "chatbotUserId") != ""
            said.has_lost_quote = not (said.quote.strip() or files or is_own)
            return


def _read_quote(replied: Json, address: Address) -> tuple[str, list[RemoteFile]]:
    """Text and files of a quoted message."""
    content = replied.get("content")
    inner = _object(content)
    items = inner.get("richText")
    if isinstance(items, list):
        return _read_rich(list(_flatten(items)), address)
    card = _object(_object(inner.get("cardData")).get("cardParamMap"))
    text = _text(inner, "text") or _text(inner, "markdown") or _text(inner, "recognition")
    text = text or _text(card, "content") or _text(inner, "fileName") or _record_text(inner)
    if not text and isinstance(content, str) and not inner:
        text = content
    kind = _text(replied, "msgType")
    code = _code(inner) if kind in ("picture", "file", "video") else ""
    files = [_file(address, code, _text(inner, "fileName") or kind)] if code else []
    return "" if _OPAQUE.search(text) else text, files


def _record_text(content: Json) -> str:
    """Messages that were forwarded together, one a line; the platform may leave some of them out.

    The record has their whole texts, but mostly only the summary has names.
    """
    summary = [line for line in _items(content.get("summary")) if isinstance(line, str)]
    record = [entry for entry in _items(content.get("chatRecord")) if isinstance(entry, Mapping)]
    if not record:
        return "\n".join(summary)
    known = summary if len(summary) == len(record) else [""] * len(record)
    return "\n".join(map(_record_line, record, known))


def _record_line(entry: Json, summary: str) -> str:
    inner = _object(entry.get("content"))
    text = _text(inner, "text") or _text(inner, "fileName")
    if not inner:
        text = _text(entry, "content")
    name, colon, _ = summary.partition(":")
    name = _text(entry, "senderName") or _text(entry, "senderNick") or (name if colon else "")
    return (f"{name}: " if name else "") + (text or f"[{_text(entry, 'msgType') or '…'}]")


def _items(value: object) -> list[Any]:
    """The elements of a list, also of one in a text; the lines of any other text."""
    if isinstance(value, str):
        found = _loaded(value)
        value = found if isinstance(found, list) else value.splitlines()
    return value if isinstance(value, list) else []


def _file(address: Address, code: str, name: str) -> RemoteFile:
    media_type = mimetypes.guess_type(name)[0] or UNKNOWN_TYPE
    return RemoteFile(locator_of(address, code), name, media_type)


def _code(content: Json) -> str:
    return _text(content, "downloadCode") or _text(content, "pictureDownloadCode")


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _object(value: object) -> dict[str, object]:
    """*value* as an object: decoded if it is a JSON text, empty if it is something else."""
    if isinstance(value, str):
        value = _loaded(value)
    return dict(value) if isinstance(value, Mapping) else {}


def _text(holder: Json, name: str) -> str:
    """A text; numbers become one, anything else is none."""
    value = holder.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return str(value)


def _number(holder: Json, name: str) -> int:
    """A whole number, also one in a text; else 0."""
    value = holder.get(name)
    if isinstance(value, bool):
        return 0
    if isinstance(value, int | float):
        return int(value) if abs(value) < 1e18 else 0
    try:
        return int(value) if isinstance(value, str) and len(value) < 20 else 0
    except ValueError:
        return 0
