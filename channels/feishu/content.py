"""What a message says: its words, its files, and whom it names. Pure."""

import mimetypes
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from channels.feishu import fields
from channels.feishu.decode import Mention, Message
from channels.feishu.fields import Fields

ResourceKind = Literal["image", "file"]
"""What the download of a resource asks for; sound and films are files to it."""

_PLACEHOLDER = re.compile(r"(@_(?:user_\d+|all))(?!\w)([ \t]?)")
"""Whole placeholders only: `@_user_1` begins `@_user_10`, and `@_all_hands` is a word."""
_ALL = frozenset({"all", "@_all", "@all"})


@dataclass(frozen=True, slots=True)
class Resource:
    """A file of a message that the platform holds."""

    key: str
    kind: ResourceKind
    name: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Content:
    """A message as far as it could be read."""

    text: str = ""
    """Mentions of the bot and of everybody are cut out, others stand by name."""
    resources: Sequence[Resource] = ()
    names_all: bool = False
    is_readable: bool = True
    is_voice: bool = False


UNREADABLE = Content(is_readable=False)


def read(message: Message, bot_open_id: str) -> Content:
    """Read the content of *message*, whatever shape it has; never raises."""
    content = message.content
    if content is None:
        return UNREADABLE
    mentions = {mention.key: mention for mention in message.mentions if mention.key}
    names = _Names(mentions, bot_open_id)
    match message.kind:
        case "text":
            words = names.written_out(fields.text(content, "text")).strip()
            return Content(words, names_all=names.names_all)
        case "post" | "interactive":  # a card is given in the shape of a post
            return _post(content, names)
        case "audio":
            return Content(is_voice=True, names_all=names.names_all)
        case "image" | "file" | "media":
            found = tuple(_resources([content]))
            return Content(resources=found, is_readable=bool(found))
        case _:
            return UNREADABLE


class _Names:
    """Whom the placeholders of one message stand for."""

    def __init__(self, mentions: dict[str, Mention], bot_open_id: str) -> None:
        self._mentions = mentions
        self._bot_open_id = bot_open_id
        self.names_all = not _ALL.isdisjoint(mentions)

    def written_out(self, text: str) -> str:
        """*text* with names for its placeholders, without the bot and everybody."""

        def name_of(found: re.Match[str]) -> str:
            name = self.of(found[1])
            return name + found[2] if name else ""  # with the blank, so that no gap is left

        return _PLACEHOLDER.sub(name_of, text)

    def of(self, key: str, name: str = "") -> str:
        """The name that stands for *key*; empty for the bot and for everybody."""
        if key in _ALL:
            self.names_all = True
            return ""
        mention = self._mentions.get(key)
        if mention is None and key != self._bot_open_id:
            return f"@{name}" if name else key if key.startswith("@") else ""
        if mention is None or mention.open_id == self._bot_open_id:
            return ""
        return f"@{mention.name or name or mention.open_id}"


def _post(content: Fields, names: _Names) -> Content:
    post = _unwrapped(content)
    paragraphs = _paragraphs(post)
    lines = [_line(elements, names) for elements in paragraphs]
    title = fields.text(post, "title").strip()
    text = "\n".join([title, *lines] if title else lines).strip()
    elements = [element for paragraph in paragraphs for element in paragraph]
    attached = [fields.fields(one) for one in fields.items(post, "files")]
    resources = tuple(_resources([*elements, *attached]))
    is_readable = bool(text or resources or elements)
    return Content(text, resources, names.names_all, is_readable)


def _unwrapped(content: Fields) -> Fields:
    """The post itself: without the level of `post`, and without that of a language."""
    post = fields.under(content, "post") or content
    if not {"content", "content_v2", "elements", "title"}.isdisjoint(post):
        return post
    return next((fields.fields(one) for one in post.values() if fields.fields(one)), post)


def _paragraphs(post: Fields) -> list[list[Fields]]:
    """Lists of elements; a flat list of elements counts as one paragraph."""
    for name in ("content", "content_v2", "elements"):
        rows = fields.items(post, name)
        flat = [fields.fields(one) for one in rows if isinstance(one, dict)]
        if flat:
            return [flat]
        nested = [[fields.fields(one) for one in row] for row in rows if isinstance(row, list)]
        if any(nested):
            return nested
    return []


def _line(elements: Iterable[Fields], names: _Names) -> str:
    line = "".join(_words(element, names) for element in elements)
    return line if "```" in line else line.strip()


def _words(element: Fields, names: _Names) -> str:
    tag, text = fields.text(element, "tag"), fields.text(element, "text")
    match tag:
        case "a":
            href = fields.text(element, "href")
            return f"[{text}]({href})" if text and text != href else href
        case "at":
            return names.of(fields.text(element, "user_id"), fields.text(element, "user_name"))
        case "emotion":
            return f"[{fields.text(element, 'emoji_type')}]"
        case "code_block":
            return f"```{fields.text(element, 'language').lower()}\n{text.rstrip()}\n```"
        case "hr":
            return "---"
        case "img" | "media":
            return ""
        case _:
            return names.written_out(text)


def _resources(elements: Iterable[Fields]) -> Iterator[Resource]:
    pictures = 0
    for element in elements:
        file_key, image_key = fields.text(element, "file_key"), fields.text(element, "image_key")
        if file_key:
            name = fields.text(element, "file_name") or "file"
            yield Resource(file_key, "file", name, media_type_of(name))
        elif image_key:
            pictures += 1
            yield Resource(image_key, "image", f"picture-{pictures}", OCTETS)


OCTETS = "application/octet-stream"


def media_type_of(name: str) -> str:
    """By the name's ending."""
    return mimetypes.guess_type(name)[0] or OCTETS
