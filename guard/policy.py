"""The numbers of the guard, and the rules that tools and operators may add to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from guard.model import NoProgressCall, Verdict

NO_PROGRESS_NUDGE_AT = (5, 10)
"""Rounds in a row after which the model is reminded. Reading a file or running a command a few
times over is normal; at the 3 s a round of the two incidents, 5 is reached within 20 s."""

NO_PROGRESS_ABORT_AT = 15
"""Rounds in a row after which the run ends: no known task has use for 15 equal results. The two
incidents went on for 144 and 416 rounds."""

NO_PROGRESS_EXEMPT_TOOLS: frozenset[str] = frozenset()
"""Tools of which no call counts. Empty: whole tools are exempted only on good grounds, since a
loop in one of them is then never stopped."""

ExemptRule = Callable[[NoProgressCall], bool]
"""True when this call is a declared wait and must not count."""

Normaliser = Callable[[object], object]
"""From a result to the part that means progress.

It is given the decoded object or array without `VOLATILE_RESULT_KEYS`, or the text itself when
the result is neither, and returns the JSON value or text to be compared instead.
"""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is added to the built-in rules. Live run and replay must be given the same."""

    exempt_tools: frozenset[str] = NO_PROGRESS_EXEMPT_TOOLS
    exempt_calls: tuple[ExemptRule, ...] = ()
    normalisers: Mapping[str, Normaliser] = field(default_factory=lambda: MappingProxyType({}))
    """By tool name; one for `shell` replaces the built-in one."""


RULES = Rules()
"""The default: nothing added."""


def verdict_at(streak: int, nudged_at: tuple[int, ...]) -> Verdict:
    """The default rule: remind once at each of the numbers above, end from the last one on."""
    if streak >= NO_PROGRESS_ABORT_AT:
        return Verdict.ABORT
    if streak in NO_PROGRESS_NUDGE_AT and streak not in nudged_at:
        return Verdict.NUDGE
    return Verdict.CONTINUE
