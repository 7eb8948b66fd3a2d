"""How much of a result stood in an earlier one."""

import re
from collections.abc import Sequence

from guard.noise import masked

MIN_LINES = 4
"""Two results with fewer lines between them are told apart by each: a count, a state, a price."""

_LINE_NUMBER = re.compile(r"\A\s*[0-9]+\s*[:|\t→]")
"""As tools put before each line of a file."""


def overlaps(before: str, after: str) -> bool:
    """Whether *after* shows mostly what *before* showed: half of all their lines stand in both.

    Noise, line numbers and lines without a letter or digit are left out. A result that goes on
    where the other ended, as a log does, is new however much of the other it shows again.
    """
    earlier, later = _lines(before), _lines(after)
    ours, theirs = set(later), set(earlier)
    either = ours | theirs
    if len(either) < MIN_LINES or 2 * len(ours & theirs) < len(either):
        return False
    return not _goes_on(earlier, later)


def _lines(text: str) -> list[str]:
    lines = [_LINE_NUMBER.sub("", line) for line in masked(text).replace("\\n", "\n").split("\n")]
    return [line.strip() for line in lines if any(map(str.isalnum, line))]


def _goes_on(earlier: Sequence[str], later: Sequence[str]) -> bool:
    """Whether *later* begins with the end of *earlier* and has more."""
    for start, line in enumerate(earlier):
        shown = len(earlier) - start
        if line == later[0] and shown < len(later) and earlier[start:] == later[:shown]:
            return True
    return False
