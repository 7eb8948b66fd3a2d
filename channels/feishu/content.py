"""What a message says: its words, its files, and whom it names. Pure."""

import mimetypes
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from channels.feishu import cardwords, fields
from channels.feishu.decode import Mention, Message
from channels.feishu.fields import Fields

ResourceKind = Literal["image", "file"]
"""What the download of a resource asks for; sound and films are files to it."""
FORWARD = "merge_forward"
"""The kind of a message that holds others, of which only the platform's own copy tells."""

_PLACEHOLDER = re.compile(r"(@_(?:user_\d+(?!\d)|all(?!\w)))([ \t]?)", re.ASCII)
"""Whole placeholders only: `@_user_1` begins `@_user_10`, and `@_all_hands` is a word. What is not
ASCII ends one, since Chinese goes on without a blank."""
_AT = re.compile(r"<at\b[^<>]*?id=\"?([^\"<>\s]+)\"?[^<>]*>([^<>]*)</at>[ \t]?")
"""A mention in Markdown."""
_BODIES = ("content", "content_v2", "elements", "files")
"""Where the parts of a post stand, by what has been seen."""
_POST_DEPTH = 3
_NESTED = ("elements", "content", "children", "items")
"""Where an element of a kind that nobody here knows has others."""
_NESTED_DEPTH = 8
_FOLDERS = re.compile(r".*[/\\]", re.DOTALL)
"""What some clients put before the name of a file."""
_FENCES = re.compile(r"`{3,}")
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
    names_bot: bool = False
    is_readable: bool = True
    is_forward: bool = False
    """It holds other messages, or a card, of which only the platform's own copy tells."""


UNREADABLE = Content(is_readable=False)


def read(message: Message, bot_open_id: str) -> Content:
    """Read the content of *message*, whatever shape it has; never raises."""
    content = message.content
    if message.kind == FORWARD:  # what stands in it is a placeholder, which may be no JSON
        return Content(is_forward=True)
    if content is None:
        return UNREADABLE
    mentions = {mention.key: mention for mention in message.mentions if mention.key}
    names = _Names(mentions, bot_open_id)
    match message.kind:
        case "text":
            words = names.written_out(fields.text(content, "text")).strip()
            return Content(words, names_all=names.names_all, names_bot=names.names_bot)
        case "post":
            return _post(content, names)
        case "interactive":
            return _card(content, names)
        case "image" | "file" | "media" | "audio":
            found = tuple(_resources([content], VOICE if message.kind == "audio" else "file"))
            return Content(resources=found, is_readable=bool(found))
        case _:
            return UNREADABLE


class _Names:
    """Whom the placeholders of one message stand for."""

    def __init__(self, mentions: dict[str, Mention], bot_open_id: str) -> None:
        self._mentions = mentions
        self._bot_open_id = bot_open_id
        self.names_all = not _ALL.isdisjoint(mentions)
        self.names_bot = any(self._is_bot(mention.open_id) for mention in mentions.values())

    def written_out(self, text: str) -> str:
        """*text* with names for its placeholders, without the bot and everybody."""

        def name_of(found: re.Match[str]) -> str:
            name = self.of(found[1])
            return name + found[2] if name else ""  # with the blank, so that no gap is left

        return _PLACEHOLDER.sub(name_of, text)

    def written_out_of_markdown(self, text: str) -> str:
        """As `written_out`, with the tags for mentions that Markdown has."""

        def name_of(found: re.Match[str]) -> str:
            name = self.of(found[1], found[2].lstrip("@"))
            return f"{name} " if name else ""

        return self.written_out(_AT.sub(name_of, text))

    def _is_bot(self, open_id: str) -> bool:
        return open_id != "" and open_id == self._bot_open_id

    def of(self, key: str, name: str = "") -> str:
        """The name that stands for *key*; empty for the bot and for everybody."""
        if key in _ALL:
            self.names_all = True
            return ""
        mention = self._mentions.get(key)
        if self._is_bot(mention.open_id if mention else key):
            self.names_bot = True
            return ""
        if mention is None:
            return f"@{name}" if name else key if key.startswith("@") else ""
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
    is_bare = any(fields.text(element, "tag") in ("text", "at") for element in elements)
    is_readable = bool(text or resources or is_bare)
    return Content(text, resources, names.names_all, names.names_bot, is_readable)


def _card(content: Fields, names: _Names) -> Content:
    """A card as it was sent, or in the shape of a post, which stands for it otherwise."""
    is_post = any(isinstance(row, list) for row in fields.items(content, "elements"))
    read = _post(content, names) if is_post else Content(cardwords.words_of(content))
    if cardwords.is_stand_in(read.text) or not (read.text or read.resources):
        return Content(is_forward=True)
    return read


def _unwrapped(content: Fields) -> Fields:
    """The post itself: without the level of `post`, and without that of a language."""
    return _inside(content, _has_body) or _inside(content, _has_title) or fields.EMPTY


def _inside(
    outer: Fields, fits: Callable[[Fields], bool], depth: int = _POST_DEPTH
) -> Fields | None:
    """The first object that fits, *outer* or one inside it."""
    if fits(outer):
        return outer
    if depth == 1:
        return None
    found = (_inside(fields.fields(one), fits, depth - 1) for one in outer.values())
    return next((one for one in found if one is not None), None)


def _has_body(post: Fields) -> bool:
    return any(fields.items(post, name) for name in _BODIES)


def _has_title(post: Fields) -> bool:
    return fields.text(post, "title") != ""


def _paragraphs(post: Fields) -> list[list[Fields]]:
    """Lists of elements; elements that stand in no list make a paragraph together."""
    for name in ("content", "content_v2", "elements"):
        paragraphs = _rows(fields.items(post, name))
        if any(paragraphs):
            return paragraphs
    return []


def _rows(rows: Sequence[object]) -> list[list[Fields]]:
    paragraphs: list[list[Fields]] = []
    is_flat = False
    for row in rows:
        elements = list(_elements(row, _NESTED_DEPTH))
        if is_flat and not isinstance(row, list):
            paragraphs[-1] += elements
        else:
            paragraphs.append(elements)
        is_flat = not isinstance(row, list)
    return paragraphs


def _elements(value: object, depth: int) -> Iterator[Fields]:
    """What *value* is or holds, in order."""
    if isinstance(value, str):
        yield {"tag": "text", "text": value}
        return
    element = fields.fields(value)
    inside: Sequence[object] = value if isinstance(value, list) else ()
    for name in _NESTED:
        inside = inside or fields.items(element, name)
    if not inside or depth == 0:
        yield element
        return
    for one in inside:
        yield from _elements(one, depth - 1)


def _line(elements: Iterable[Fields], names: _Names) -> str:
    """The words of a paragraph; a code block in it has lines of its own."""
    line, was_code = "", False
    for element in elements:
        words, is_code = _words(element, names), fields.text(element, "tag") == "code_block"
        if words and line and (is_code or was_code):
            line = line.rstrip() + "\n"
        line += words
        was_code = is_code
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
            return _fenced(text, fields.text(element, "language"))
        case "hr":
            return "---"
        case "img" | "media":
            return ""
        case "md" | "markdown" | "lark_md":
            return names.written_out_of_markdown(text or fields.text(element, "content"))
        case _:
            return names.written_out(text or fields.text(element, "content"))


def _fenced(code: str, language: str) -> str:
    """*code* as a block, between marks longer than any in it."""
    mark = "`" * max([3, *(len(found) + 1 for found in _FENCES.findall(code))])
    return f"{mark}{language.lower()}\n{code.rstrip()}\n{mark}"


def _resources(elements: Iterable[Fields], nameless: str = "file") -> Iterator[Resource]:
    pictures = 0
    for element in elements:
        file_key, image_key = fields.text(element, "file_key"), fields.text(element, "image_key")
        if file_key:
            name = _FOLDERS.sub("", fields.text(element, "file_name")).strip() or nameless
            yield Resource(file_key, "file", name, media_type_of(name))
        elif image_key:
            pictures += 1
            yield Resource(image_key, "image", f"picture-{pictures}", OCTETS)


OCTETS = "application/octet-stream"
VOICE = "voice.opus"
"""What is spoken has no name of its own; it comes as Opus."""


def media_type_of(name: str) -> str:
    """By the name's ending."""
    return mimetypes.guess_type(name)[0] or OCTETS
