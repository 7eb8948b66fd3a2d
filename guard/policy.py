"""The numbers of the guard, and the rules that tools and operators may add to it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType

from guard.model import Evidence, NoProgressCall, Thresholds, Verdict

NO_PROGRESS_NUDGE_AT = (5, 10)
"""Rounds in a row after which the model is reminded. Reading a file or running a command a few
times over is normal; at the 3 s a round of the two incidents, 5 is reached within 20 s."""

NO_PROGRESS_ABORT_AT = 15
"""Rounds in a row after which the run ends: no known task has use for 15 equal results. The two
incidents went on for 144 and 416 rounds."""

NO_PROGRESS_EXEMPT_TOOLS: frozenset[str] = frozenset()
"""Tools of which no call counts. Empty: whole tools are exempted only on good grounds, since a
loop in one of them is then never stopped."""

THRESHOLDS = Thresholds(NO_PROGRESS_NUDGE_AT, NO_PROGRESS_ABORT_AT)
"""Those of every tool that has no others."""

ExemptRule = Callable[[NoProgressCall], bool]
"""True when this call is a declared wait and must not count."""

Normaliser = Callable[[object], object]
"""From arguments or a result to the part that means something.

Of arguments it is given the decoded JSON value. Of a result it is given the decoded object or array
without `VOLATILE_RESULT_KEYS`, or the text itself when the result is neither. It returns the JSON
value or text to be compared instead.
"""


@dataclass(frozen=True, slots=True)
class ToolContract:
    """What of a tool's calls and results matters to the guard. Without one all of it does."""

    identity: tuple[str, ...] | None = None
    """Arguments that alone make the action, by dotted path; None is all. A call that has none of
    them is taken whole."""
    arguments: tuple[Normaliser, ...] = ()
    """Applied to the decoded arguments one after the other, before *identity* is looked for."""
    result: Normaliser | None = None
    """One for `shell` replaces the built-in one."""
    waits: ExemptRule | None = None
    """Which of its calls are waits."""
    thresholds: Thresholds | None = None
    """Its own, for the default rule. In a round of several tools they hold only if each counted
    call has its own; then the most patient ones do."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is added to the built-in rules. Live run and replay must be given the same."""

    exempt_tools: frozenset[str] = NO_PROGRESS_EXEMPT_TOOLS
    exempt_calls: tuple[ExemptRule, ...] = ()
    contracts: Mapping[str, ToolContract] = field(default_factory=lambda: MappingProxyType({}))
    """By the tool's name."""


RULES = Rules()
"""The default: nothing added."""


def thresholds_of(calls: Iterable[Evidence]) -> Thresholds:
    """Those that hold for a round of these calls, see `ToolContract.thresholds`."""
    largest: Thresholds | None = None
    for call in calls:
        own = call.thresholds
        if own is None:
            return THRESHOLDS
        if largest is None or _patience(own) > _patience(largest):
            largest = own
    return largest or THRESHOLDS


def _patience(thresholds: Thresholds) -> tuple[float, tuple[int, ...]]:
    return (thresholds.abort_at or inf, thresholds.nudge_at)


def announced(nudge_at: tuple[int, ...], stop_at: int | None, streak: int) -> int:
    """The end that a reminder at *streak* has to tell of: none before the last one; 0 is none."""
    is_last = bool(nudge_at) and nudge_at[-1] <= streak
    return stop_at if stop_at is not None and is_last and streak < stop_at else 0


def verdict_at(
    streak: int, nudged_at: tuple[int, ...], thresholds: Thresholds = THRESHOLDS
) -> Verdict:
    """The default rule: remind once at each of the first numbers, end from the last one on."""
    if thresholds.abort_at is not None and streak >= thresholds.abort_at:
        return Verdict.ABORT
    if streak in thresholds.nudge_at and streak not in nudged_at:
        return Verdict.NUDGE
    return Verdict.CONTINUE
