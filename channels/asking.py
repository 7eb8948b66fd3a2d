"""What cards of both platforms say of a question: what a call is to do, and options as buttons."""

import json
import unicodedata
from typing import Final

from channels import sentences
from channels.port import Locale

ARGUMENTS_BYTES: Final = 3_000
"""At most, of the arguments of one call."""

BUTTON_CHARACTERS: Final = 40
"""Of an option on its button; a press answers with all of it."""

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Kinds of characters that nobody can see, or that turn lines around."""


def arguments_block(raw: str, room: int, locale: Locale) -> str:
    """What a call is to do, as a code block out of which no argument can break.

    JSON has no line of its own for what stands in a text, and what is no JSON becomes one text.

    Args:
        room: Bytes at most, or `ARGUMENTS_BYTES` if that is less.
    """
    if not raw.strip():
        return ""
    room = min(room, ARGUMENTS_BYTES)
    try:
        pretty = json.dumps(json.loads(raw), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        pretty = json.dumps(raw, ensure_ascii=False)
    honest = "".join(_honest(character) for character in pretty[:room])
    shown = honest.encode()[:room].decode("utf-8", "ignore")
    is_cut = len(pretty) > room or shown != honest
    return f"```json\n{shown}\n```" + (sentences.cut(locale) if is_cut else "")


def in_one_line(text: str) -> str:
    """*text* without its line ends."""
    return " ".join(text.split())


def shortened(option: str) -> str:
    """An option as its button shows it."""
    text = in_one_line(option)
    return text if len(text) <= BUTTON_CHARACTERS else text[: BUTTON_CHARACTERS - 1] + "…"


def _honest(character: str) -> str:
    """*character*, written out if nobody could see it."""
    is_unseen = character != "\n" and unicodedata.category(character) in _UNSEEN
    return f"\\u{ord(character):04x}" if is_unseen else character
