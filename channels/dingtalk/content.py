"""What a message says: its words, what it quotes, and the files it brings; pure."""

import json
import mimetypes
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from channels.dingtalk.fields import Fields, fields, loaded, text
from channels.port import RemoteFile

UNKNOWN_TYPE = "application/octet-stream"

_MEDIA = ("picture", "file", "video", "audio")
"""Elements that are named in the text where the platform gives nothing to fetch them by."""
_OPAQUE = re.compile(r"\|\|\d+\|\|\d+\|\|\d+\s*$")
"""How the encrypted text of some quotes ends; no one can read it."""


@dataclass(slots=True)
class Said:
    """The content of one message."""

    text: str = ""
    quote: str = ""
    files: Sequence[RemoteFile] = ()
    is_readable: bool = True
    """False for kinds of messages that nobody here knows."""
    needs_transcript: bool = False
    """It is speech, and the platform recognised no words in it."""
    has_lost_quote: bool = False
    """It quotes something of which the platform gave nothing; the bot's own words are no loss."""


def read_content(data: Fields, robot_code: str) -> Said:
    """The content of a message.

    Args:
        data: All that was pushed of it.
        robot_code: Of the robot that can fetch its files.
    """
    kind = text(data, "msgtype")
    content = fields(data.get("content"))
    said = Said()
    match kind:
        case "text" if isinstance(data.get("text"), Mapping):
            said.text = text(fields(data.get("text")), "content")
        case "richText" if (items := _rich_items(data)) is not None:
            rich = _read_rich(items, robot_code)
            said.text, said.files = rich.text, rich.files
            said.is_readable = not rich.is_lost
        case "picture" | "file" | "video" if code := _code(content):
            said.files = [_media_file(kind, content, code, robot_code)]
        case "audio":
            said.text = text(content, "recognition")
            said.needs_transcript = not said.text.strip()
        case "chatRecord":
            said.quote = _record_text(content)
            said.is_readable = bool(said.quote)
        case _:
            said.is_readable = False
    _add_quote(said, data, robot_code)
    return said


def locator_of(robot_code: str, download_code: str) -> str:
    """What it takes to fetch a file of a message."""
    return json.dumps({"code": download_code, "robot": robot_code})


def decode_locator(locator: str) -> tuple[str, str]:
    """Download code and robot code; empty for what is no locator of ours."""
    known = fields(locator)
    return text(known, "code"), text(known, "robot")


# --- rich texts ---


@dataclass(frozen=True, slots=True)
class _Rich:
    """A rich text, words and files each in order."""

    text: str
    files: Sequence[RemoteFile]
    is_lost: bool
    """There is something in it, and nothing of that can be read."""


def _rich_items(data: Fields) -> list[Fields] | None:
    """The elements of a rich text in any of the shapes seen; None if it is none."""
    content = data.get("content")
    if isinstance(content, str):
        content = loaded(content)
    items = content.get("richText") if isinstance(content, Mapping) else content
    if items is None:
        items = fields(data.get("richText")).get("content")
    if not isinstance(items, list):
        return None
    return list(_flatten(items))


def _flatten(items: list[Any]) -> Iterator[Fields]:
    for item in items:
        if isinstance(item, list):
            yield from _flatten(item)
        elif isinstance(item, Mapping):
            yield item
        elif isinstance(item, str):
            yield {"text": item}


def _read_rich(items: Sequence[Fields], robot_code: str) -> _Rich:
    words: list[str] = []
    files: list[RemoteFile] = []
    is_read = is_lost = False
    for item in items:
        kind = text(item, "type") or text(item, "msgType")
        if code := _code(item):
            files.append(_file(code, text(item, "fileName") or kind or "file", robot_code))
        elif (said := _words(item)) is not None:
            words.append(said)
            is_read = is_read or bool(said.strip())
        else:
            words.append(f"[{kind}]" if kind in _MEDIA else "")
            is_lost = True
    is_lost = is_lost and not (is_read or files)
    return _Rich("" if is_lost else "".join(words), files, is_lost)


def _words(item: Fields) -> str | None:
    """What an element says; None for what has no words, and is none that are empty."""
    said = text(item, "text") or text(item, "content")
    if link := text(item, "href") or text(item, "url"):
        return f"[{said}]({link})" if said else link
    return said if said or isinstance(item.get("text"), str) else None


# --- quotes and records ---


def _add_quote(said: Said, data: Fields, robot_code: str) -> None:
    """Put what the message answers to before it, as far as it can be read."""
    for holder in map(fields, (data.get("text"), data.get("content"))):
        replied = fields(holder.get("repliedMsg"))
        if replied or holder.get("isReplyMsg") is True:
            said.quote, files = _read_quote(replied, robot_code)
            said.files = [*files, *said.files]
            is_own = text(replied, "senderId") == text(data, "chatbotUserId") != ""
            is_own = is_own or bool(text(data, "originalProcessQueryKey"))  # that robots' have
            said.has_lost_quote = not (said.quote.strip() or files or is_own)
            return


def _read_quote(replied: Fields, robot_code: str) -> tuple[str, Sequence[RemoteFile]]:
    """Text and files of a quoted message."""
    content = replied.get("content")
    inner = fields(content)
    items = content if isinstance(content, list) else inner.get("richText")
    if isinstance(items, list):
        rich = _read_rich(list(_flatten(items)), robot_code)
        return rich.text, rich.files
    card = fields(fields(inner.get("cardData")).get("cardParamMap"))
    said = text(inner, "text") or text(inner, "markdown") or text(inner, "recognition")
    said = said or text(card, "content") or _record_text(inner)
    said = said or (_file_name(name) if (name := text(inner, "fileName")) else "")
    said = said or text(inner, "title") or text(fields(replied.get("text")), "content")
    if not said and isinstance(content, str) and not inner:
        said = text(replied, "content")
    kind = text(replied, "msgType")
    code = _code(inner) if kind in ("picture", "file", "video") else ""
    files = [_media_file(kind, inner, code, robot_code)] if code else []
    return "" if _OPAQUE.search(said) else said, files


def _record_text(content: Fields) -> str:
    """Messages that were forwarded together, one a line; the platform may leave some of them out.

    The record has their whole texts, but mostly only the summary has names.
    """
    summary = [line for line in _items(content.get("summary")) if isinstance(line, str)]
    record = [entry for entry in _items(content.get("chatRecord")) if isinstance(entry, Mapping)]
    if not record:
        return "\n".join(summary)
    known = summary if len(summary) == len(record) else [""] * len(record)
    return "\n".join(map(_record_line, record, known))


def _record_line(entry: Fields, summary: str) -> str:
    inner = fields(entry.get("content"))
    said = text(inner, "text") or text(inner, "fileName")
    if not inner:
        said = text(entry, "content")
    name, colon, _ = summary.partition(":")
    name = text(entry, "senderName") or text(entry, "senderNick") or (name if colon else "")
    return (f"{name}: " if name else "") + (said or f"[{text(entry, 'msgType') or '…'}]")


def _items(value: object) -> list[Any]:
    """The elements of a list, also of one in a text; the lines of any other text."""
    if isinstance(value, str):
        found = loaded(value)
        value = found if isinstance(found, list) else value.splitlines()
    return value if isinstance(value, list) else []


# --- files ---


def _media_file(kind: str, content: Fields, code: str, robot_code: str) -> RemoteFile:
    """The file that a message of this kind is."""
    told = text(content, "fileName")
    if kind == "video":
        told = told or f"video.{text(content, 'videoType') or 'mp4'}"
    return _file(code, told or kind, robot_code)


def _file(code: str, told: str, robot_code: str) -> RemoteFile:
    name = _file_name(told)
    media_type = mimetypes.guess_type(name)[0] or UNKNOWN_TYPE
    return RemoteFile(locator_of(robot_code, code), name, media_type)


def _file_name(told: str) -> str:
    """The last part of what may be a path, without what nobody could see in it."""
    name = re.split(r"[/\\]", told)[-1]
    name = "".join(one for one in name if unicodedata.category(one)[0] != "C").strip()
    return name if name.strip(".") else "file"


def _code(content: Fields) -> str:
    return text(content, "downloadCode") or text(content, "pictureDownloadCode")
