"""The class of a result, computed where two of them are compared and nowhere else."""

from hashlib import sha256
from zlib import crc32

from guard.noise import masked
from guard.overlap import lines_of, overlaps

MAX_SHORT_CHARACTERS = 600
"""Up to here a result is looked at as a whole, and the order of its lines does not matter."""

ENDS_CHARACTERS = 300
"""Of a longer result, at its beginning and at its end, where it may have volatile parts."""

MAX_KEPT_CHARACTERS = 64_000
"""A result up to this length is kept until it is compared; the class of a longer one is computed
at once, which costs little beside its digest."""


class ResultClass:
    """Equal for results that differ in clocks, durations, addresses and the order of lines.

    Most rounds are told apart, or found equal, by their actions and digests alone; reading the
    class costs more than all the rest of a round.
    """

    __slots__ = ("_digest", "_lines", "_text", "_value")
    __hash__ = None  # type: ignore[assignment]  # would compute what is to be spared

    def __init__(self, text: str, digest: str) -> None:
        is_kept = len(text) <= MAX_KEPT_CHARACTERS
        self._text = text if is_kept else ""
        self._digest = digest
        self._lines: tuple[str, ...] | None = None
        self._value = None if is_kept else result_class(text, digest)

    @property
    def value(self) -> str:
        """See `result_class`."""
        if self._value is None:
            self._value = result_class(self._text, self._digest)
        return self._value

    def overlaps(self, before: "ResultClass") -> bool:
        """See `guard.overlap`; a result that is too long to be kept overlaps with none."""
        return overlaps(before.lines, self.lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """See `lines_of`; none of a result that is not kept."""
        if self._lines is None:
            self._lines = lines_of(self._text)
        return self._lines

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResultClass):
            return NotImplemented
        mine, others = self._value, other._value
        if mine is None or others is None:
            if self._text == other._text and self._digest == other._digest:
                return True
            mine, others = self.value, other.value
        return mine == others


def result_class(text: str, result_digest: str) -> str:
    """*result_digest*, or what is left of the result without its volatile parts and line order.

    Volatile are clocks, durations, addresses and counters of tries; plain numbers are not: a line,
    a page or a count that changes is progress. Neither is a result that consists of nothing else.
    It may set apart what *result_digest* does not, so rules take two results for one when either
    is the same.
    """
    if len(text) > MAX_SHORT_CHARACTERS:
        tail_at = _tail_at(text)
        ends = f"{text[:ENDS_CHARACTERS]}\0{text[tail_at:]}"
        plain = masked(ends)
        if plain == ends:
            return result_digest
        middle = _bytes(text[ENDS_CHARACTERS:tail_at])
        return _hash(f"{plain}{len(middle)} {crc32(middle)}")
    plain = masked(text)
    lines = plain.replace("\\n", "\n").split("\n")
    if len(lines) > 1:
        return _hash("\n".join(sorted(set(lines))))
    if plain == text or not any(map(str.isalpha, plain)):
        return result_digest
    return _hash(plain)


def _tail_at(text: str) -> int:
    """Where the part at the end begins: at a break, so that a longer number does not move it."""
    latest = len(text) - ENDS_CHARACTERS
    for sign in "\n,":
        found = text.rfind(sign, ENDS_CHARACTERS, latest)
        if found > latest - ENDS_CHARACTERS:
            return found
    return latest


def _hash(text: str) -> str:
    return sha256(_bytes(text)).hexdigest()[:16]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
