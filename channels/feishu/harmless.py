"""Texts without what a card or a message would act upon; pure."""

import re
from collections.abc import Callable

_PICTURE = re.compile(r"!\[([^\]\n]*)\]\((?!img_)([^)\n]*)\)")
_TAG = re.compile(r"<(?=/?\s*(?:at|person)\b)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def harmless(text: str) -> str:
    """Take from *text* what a card would act upon or choke on; code stays as it is.

    A model's `<at id=all>` would call everybody, and a picture that is no upload of ours makes the
    platform refuse the whole card, so it becomes a link.
    """
    text = _CONTROL.sub("", text)
    return _outside_code(text, lambda line: _PICTURE.sub(r"[\1](\2)", _TAG.sub("&#60;", line)))


def without_mentions(text: str) -> str:
    """A text message knows no entities: a blank of no width keeps the tag from being one."""
    return _TAG.sub("<\u200b", _CONTROL.sub("", text))


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    fence = ""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence:
            lines[number] = change(line)
    return "\n".join(lines)
