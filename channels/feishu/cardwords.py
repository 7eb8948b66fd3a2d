"""The words of a card that somebody sent, as its sender wrote it. Pure."""

from collections.abc import Iterator

from channels.feishu import fields
from channels.feishu.fields import Fields

_WORDS = frozenset({"markdown", "lark_md", "plain_text", "text"})
_INSIDE = ("header", "title", "body", "text", "fields", "columns", "elements")
"""Where a card has its words, from head to foot; buttons and what can be filled in are none."""
_CONTROLS = frozenset({"button", "input", "overflow"})
_DEPTH = 12

_STAND_INS = ("请升级至最新版本客户端，以查看内容", "卡片内容不支持查看，请在飞书客户端查看")
"""What the platform gives for a card of the newer schema to whoever does not ask for it as it was
sent; field reports name both."""


def words_of(card: Fields) -> str:
    """Its title and texts, each on lines of its own."""
    return "\n".join(_lines(card, _DEPTH))


def is_stand_in(words: str) -> bool:
    """Whether *words* of a card are the platform's and not its own."""
    return any(one in words for one in _STAND_INS)


def _lines(value: object, depth: int) -> Iterator[str]:
    if not value or depth == 0:
        return
    if isinstance(value, list):
        for one in value:
            yield from _lines(one, depth - 1)
        return
    element = fields.fields(value)
    tag = fields.text(element, "tag")
    if tag in _CONTROLS:
        return
    words = fields.text(element, "content") if tag in _WORDS else ""
    if words.strip():
        yield words.strip()
    for name in _INSIDE:
        yield from _lines(element.get(name), depth - 1)
