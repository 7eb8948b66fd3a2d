"""Markdown as DingTalk takes it: how much, with what around tables, under what title; pure."""

import re

from channels.markdown import plain, split
from channels.port import Locale

TEXT_BYTES = 18_000
"""Of one card or message; the platform takes about 20 000 with everything around it."""
TITLE_CHARACTERS = 20
"""Of a message; it is what a phone's notification shows."""
LABEL_CHARACTERS = 80
UNLIMITED_BYTES = 1 << 30

_TABLE_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)+\|?\s*")


def title_of(text: str, locale: Locale) -> str:
    """The title that a message needs: the beginning of its text."""
    for line in plain(text).splitlines():
        if words := line.strip():
            return words[:TITLE_CHARACTERS]
    return "Reply" if locale == "en" else "回复"


def headed(label: str, text: str) -> str:
    """*text* under what its run is about, if that is no ordinary answer."""
    words = " ".join(label.replace("*", "").split())[:LABEL_CHARACTERS]
    return f"**{words}**\n\n{text}" if words else text


def space_tables(text: str) -> str:
    """*text* with an empty line before each table; without one DingTalk shows bare characters."""
    lines: list[str] = []
    fence = ""
    source = text.split("\n")
    for number, line in enumerate(source):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        begins_table = (
            not fence
            and "|" in line
            and number + 1 < len(source)
            and _TABLE_RULE.fullmatch(source[number + 1]) is not None
        )
        if begins_table and lines and lines[-1].strip() and "|" not in lines[-1]:
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def closed(text: str) -> str:
    """*text* whose last code block does not swallow what is put under it."""
    return "".join(split(text, UNLIMITED_BYTES))


def is_visible(text: str) -> bool:
    """Whether a reader would see anything of *text*."""
    return any(character.isprintable() and character != " " for character in text)
