"""How much of a result stood in an earlier one."""

import re
from collections.abc import Sequence

from guard.noise import masked

MIN_LINES = 8
"""Two results with fewer lines between them are told apart by each: a count, a step, a price."""

_LINE_NUMBER = re.compile(r"\A\s*[0-9]+\s*[:|\t→]")
"""As tools put before each line of a file."""


def lines_of(text: str) -> tuple[str, ...]:
    """The lines by which results are compared: with words, without noise and line numbers."""
    lines = [_LINE_NUMBER.sub("", line) for line in masked(text).replace("\\n", "\n").split("\n")]
    return tuple([line.strip() for line in lines if any(map(str.isalnum, line))])


def overlaps(earlier: Sequence[str], later: Sequence[str]) -> bool:
    """Whether *later* shows mostly what *earlier* did: half of all their lines stand in both.

    A result that goes on where the other ended, as a log does, is new however much of the other
    it shows again.
    """
    before, after = set(earlier), set(later)
    either = before | after
    if len(either) < MIN_LINES or 2 * len(before & after) < len(either):
        return False
    shown = _border(earlier, later)
    return not len(later) // 2 <= shown < len(later)


def _border(earlier: Sequence[str], later: Sequence[str]) -> int:
    """How many lines at the end of *earlier* are those at the beginning of *later*.

    Source: Knuth, Morris and Pratt, "Fast pattern matching in strings", 1977.
    """
    borders = [0] * len(later)
    """Of each beginning of *later*: the longest one that is also its end."""
    known = 0
    for place in range(1, len(later)):
        known = _grown(later, borders, known, later[place])
        borders[place] = known
    known = 0
    for line in earlier:
        known = _grown(later, borders, borders[known - 1] if known == len(later) else known, line)
    return known


def _grown(later: Sequence[str], borders: Sequence[int], known: int, line: str) -> int:
    while known and later[known] != line:
        known = borders[known - 1]
    return known + 1 if later[known] == line else 0
