"""What Feishu's error codes mean and what to do about them: the one table.

The table of the SDK (`lark_oapi/channel/errors.py` in 1.7.5) takes the rate limit for a missing
permission and a busy chat for a recalled message, so it is not used.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from channels.errors import DeliveryError, DeliveryTrouble


class Meaning(StrEnum):
    """Why the platform refused a call, by what helps."""

    TOKEN = "token"
    """A new token helps."""
    RATE = "rate"
    """Waiting helps, for everybody who shares the budget."""
    BUSY = "busy"
    """A short wait helps."""
    INTERNAL = "internal"
    """Their fault; a repeat with back-off helps."""
    STREAM_OVER = "stream over"
    """The card types no more; replacing it as a whole helps."""
    SEQUENCE = "sequence"
    """The next number helps."""
    DONE = "done"
    """It was done by an earlier try."""
    TOO_LONG = "too long"
    CARD = "card"
    """The content of the card; a simpler one helps."""
    SCOPE = "scope"
    """The operator has to grant a permission."""
    CREDENTIALS = "credentials"
    """The operator has to correct id or secret, or to enable the app."""
    MESSAGE_GONE = "message gone"
    """Recalled or deleted; a new message to the chat helps."""
    CHAT_GONE = "chat gone"
    """Bot or person is out of it, or silenced: final for this chat."""
    AUDIT = "audit"
    """The text is not let through: final for this text."""
    CARD_GONE = "card gone"
    """No such card, too old, or another app's; a new message helps."""
    FILE = "file"
    """The file cannot be had, ever."""
    BUG = "bug"
    """We asked wrongly."""
    UNKNOWN = "unknown"


_CODES: Mapping[Meaning, tuple[int, ...]] = {
    Meaning.TOKEN: (99991663, 99991664, 99991668),
    Meaning.RATE: (99991400, 230020),
    Meaning.BUSY: (230049, 200810, 300313, 300314, 300315),
    Meaning.INTERNAL: (2200, 1663, 300000),
    Meaning.STREAM_OVER: (200850, 300309),
    Meaning.SEQUENCE: (300317,),
    Meaning.DONE: (200770,),
    Meaning.TOO_LONG: (230025, 200860),
    Meaning.CARD: (230099,),
    Meaning.SCOPE: (99991672, 99991679),
    Meaning.CREDENTIALS: (10003, 10014, 10012, 99991543),
    Meaning.MESSAGE_GONE: (230011, 231003, 234040),
    Meaning.CHAT_GONE: (230002, 230013, 230018, 230029, 230035, 230053, 232009),
    Meaning.AUDIT: (230022, 230028),
    Meaning.CARD_GONE: (200740, 200750, 300311),
    Meaning.FILE: (234001, 234003, 234008, 234037, 234043),
    Meaning.BUG: (230001, 230034, 230055, 230017, 99991661, 99991671, 99992402),
}

_MEANINGS: Mapping[int, Meaning] = {
    code: meaning for meaning, codes in _CODES.items() for code in codes
}

_REPEATABLE = frozenset(
    {Meaning.TOKEN, Meaning.RATE, Meaning.BUSY, Meaning.INTERNAL, Meaning.SEQUENCE}
)

_TROUBLES: Mapping[Meaning, DeliveryTrouble] = {
    Meaning.CHAT_GONE: "gone",
    Meaning.SCOPE: "forbidden",
    Meaning.CREDENTIALS: "forbidden",
    Meaning.BUG: "fault",
}
"""The others follow from whether a repeat helps."""

TABLES = 11310
"""The cause inside a 230099 that stands for more tables than a card may hold."""
_CHAT_RATE = 230020

_INNER = re.compile(r"ErrCode:\s*(\d+)")
_SCOPES = re.compile(r"\[([\w:.,\s-]+)\]")
_GONE_WORDS = re.compile(r"\b(withdrawn|recalled|deleted)\b", re.IGNORECASE)
"""Where the platform names no code, as field reports have it for recalled messages."""

_RATE_SECONDS = 1.0
_BUSY_SECONDS = 0.3
_RATE_SECONDS_MAX = 60.0
"""A header that asks for more is not believed."""


class Refused(DeliveryError):
    """The platform said no; its words are not kept, since they may quote a message."""

    def __init__(
        self,
        meaning: Meaning,
        *,
        status: int,
        code: int | None = None,
        inner: int | None = None,
        scopes: tuple[str, ...] = (),
        wait_seconds: float | None = None,
    ) -> None:
        cause = f", cause {inner}" if inner is not None else ""
        super().__init__(
            f"refused: {meaning} (code {code}{cause}, HTTP {status})",
            retryable=meaning in _REPEATABLE,
            retry_after_seconds=wait_seconds,
            trouble=_TROUBLES.get(meaning),
        )
        self.meaning = meaning
        self.code = code
        self.inner = inner
        self.scopes = scopes

    @property
    def is_shared(self) -> bool:
        """The limit is the API's, not one chat's."""
        return self.meaning is Meaning.RATE and self.code != _CHAT_RATE


class Unreachable(DeliveryError):
    """The platform gave no answer, or none that means anything."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


def refusal(status: int, code: int | None, words: str, headers: Mapping[str, str]) -> Refused:
    """Say what a refused call means.

    Args:
        status: Of HTTP; mostly 400 whatever the matter.
        code: From the body; None where it has none.
        words: The body's `msg`; read for the cause of a 230099, for scopes and, without a code,
            for a recalled message.
        headers: With names in any case if the mapping ignores it.
    """
    meaning = _meaning(status, code, words)
    inner = _INNER.search(words)
    return Refused(
        meaning,
        status=status,
        code=code,
        inner=int(inner[1]) if inner else None,
        scopes=_scopes(words) if meaning is Meaning.SCOPE else (),
        wait_seconds=_wait_seconds(meaning, headers),
    )


def _meaning(status: int, code: int | None, words: str) -> Meaning:
    if code is not None and (known := _MEANINGS.get(code)):
        return known
    if status == 429:
        return Meaning.RATE
    if status >= 500:
        return Meaning.INTERNAL
    if _GONE_WORDS.search(words):
        return Meaning.MESSAGE_GONE
    return Meaning.UNKNOWN


def _scopes(words: str) -> tuple[str, ...]:
    found = _SCOPES.search(words)
    return tuple(scope.strip() for scope in found[1].split(",")) if found else ()


def _wait_seconds(meaning: Meaning, headers: Mapping[str, str]) -> float | None:
    if meaning is Meaning.BUSY:
        return _BUSY_SECONDS
    if meaning is not Meaning.RATE:
        return None
    told = headers.get("x-ogw-ratelimit-reset") or headers.get("Retry-After") or ""
    try:
        seconds = float(told)
    except ValueError:
        return _RATE_SECONDS
    return min(max(seconds, _RATE_SECONDS), _RATE_SECONDS_MAX)
