"""The class of a result, computed where two of them are compared and nowhere else."""

from guard.reason import result_class

MAX_KEPT_CHARACTERS = 64_000
"""A result up to this length is kept until it is compared; the class of a longer one is computed
at once, which costs little beside its digest."""


class ResultClass:
    """Equal for results that differ in clocks, durations, addresses and the order of lines.

    Most rounds are told apart, or found equal, by their actions and digests alone; reading the
    class costs more than all the rest of a round.
    """

    __slots__ = ("_digest", "_text", "_value")
    __hash__ = None  # type: ignore[assignment]  # would compute what is to be spared

    def __init__(self, text: str, digest: str) -> None:
        is_kept = len(text) <= MAX_KEPT_CHARACTERS
        self._text = text if is_kept else ""
        self._digest = digest
        self._value = None if is_kept else result_class(text, digest)

    @property
    def value(self) -> str:
        """See `guard.reason.result_class`."""
        if self._value is None:
            self._value = result_class(self._text, self._digest)
        return self._value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResultClass):
            return NotImplemented
        mine, others = self._value, other._value
        if mine is None or others is None:
            if self._text == other._text and self._digest == other._digest:
                return True
            mine, others = self.value, other.value
        return mine == others
