"""The state machine: fold finished rounds into a tail, and the guard that holds it in a run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from guard.canonical import text_of
from guard.digest import DIGEST_DIGITS, evidence, round_key
from guard.model import (
    Abort,
    Evidence,
    Locale,
    NoProgressCall,
    NoProgressTail,
    Nudge,
    Thresholds,
    Verdict,
)
from guard.notice import build_loop_text, loop_notice
from guard.policy import RULES, THRESHOLDS, Rules, announced, thresholds_of, verdict_at

MAX_FAULTS = 32
"""Different faults a guard remembers; more say nothing new."""


class NoProgressLoopError(Exception):
    """The run repeated the same calls with the same results until the guard ended it."""

    def __init__(self, tool_names: Sequence[str], streak: int, locale: Locale = "zh-CN") -> None:
        super().__init__(build_loop_text(streak, tool_names, locale))
        self.tool_names = tuple(dict.fromkeys(tool_names))
        self.streak = streak


def advance(
    tail: NoProgressTail | None, calls: Sequence[Evidence]
) -> tuple[NoProgressTail | None, Verdict]:
    """Fold one finished round into *tail*; to None when it has no call that counts."""
    counted = [call for call in calls if not call.exempt]
    if not counted:
        return None, Verdict.CONTINUE
    key = round_key(counted)
    if tail is not None and tail.last_round_key == key:
        grown = NoProgressTail(tail.streak + 1, key, tail.nudged_at)
    else:
        grown = NoProgressTail(1, key, ())
    verdict = verdict_of(grown, thresholds_of(counted))
    if verdict is Verdict.NUDGE:
        grown = replace(grown, nudged_at=(*grown.nudged_at, grown.streak))
    return grown, verdict


def verdict_of(tail: NoProgressTail | None, thresholds: Thresholds = THRESHOLDS) -> Verdict:
    """What the round that led to *tail* still asks for; a run resumed after a crash asks first."""
    if tail is None:
        return Verdict.CONTINUE
    return verdict_at(tail.streak, tail.nudged_at, thresholds)


@dataclass(frozen=True, slots=True)
class _Observed:
    tool_name: str
    args_length: int
    evidence: Evidence


class NoProgressGuard:
    """The guard of one run: told of each call, asked after each round. Never raises."""

    def __init__(
        self, tail: NoProgressTail | None = None, rules: Rules = RULES, locale: Locale = "zh-CN"
    ) -> None:
        self._rules = rules
        self._locale = locale
        self._faults: dict[str, None] = {}
        self.reset_from(tail)

    def reset_from(self, tail: NoProgressTail | None) -> None:
        """Go on from *tail* and forget all else; None when a real user message joins."""
        self._tail = tail
        self._verdict = Verdict.CONTINUE
        self._anchor_tool_call_id = ""
        self._observed: list[_Observed] = []
        self._counted: tuple[_Observed, ...] = ()

    def observe_call(self, call: NoProgressCall, known: Evidence | None = None) -> None:
        """Add a call to the open round; *known* spares computing its evidence again."""
        found = known or evidence(call, self._rules)
        contract = self._rules.contracts.get(text_of(call.tool_name))
        if contract is not None:
            found = replace(found, thresholds=contract.thresholds)  # *known* may come of a store
        for fault in found.faults:
            if len(self._faults) < MAX_FAULTS:
                self._faults[fault] = None
        arguments = text_of(call.arguments_json)
        self._observed.append(_Observed(text_of(call.tool_name), len(arguments), found))

    def end_round(self, anchor_tool_call_id: str) -> None:
        """Close the round. Not to be called for a reply without calls or a cancelled round."""
        round_ = tuple(self._observed)
        tail, verdict = advance(self._tail, [seen.evidence for seen in round_])
        self.reset_from(tail)
        self._verdict = verdict
        self._anchor_tool_call_id = anchor_tool_call_id
        self._counted = tuple(seen for seen in round_ if not seen.evidence.exempt)

    def take_action(self) -> Nudge | Abort | None:
        """What the last round asks for; a nudge is handed out once."""
        if self._verdict is Verdict.ABORT:
            return Abort()
        if self._verdict is Verdict.CONTINUE:
            return None
        self._verdict = Verdict.CONTINUE
        thresholds = thresholds_of(seen.evidence for seen in self._counted)
        limit = announced(thresholds.nudge_at, thresholds.abort_at, self.streak)
        text = loop_notice(self.streak, self.tool_names, limit, self._locale)
        return Nudge(self._anchor_tool_call_id, text)

    @property
    def verdict(self) -> Verdict:
        """What the last round asks for and nobody has taken yet."""
        return self._verdict

    @property
    def tail(self) -> NoProgressTail | None:
        """Where the streak stands; None at streak 0."""
        return self._tail

    @property
    def streak(self) -> int:
        """Rounds in a row that were the same, the last one included."""
        return self._tail.streak if self._tail else 0

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Tools of the last round that counted, each once, in the model's order."""
        return tuple(dict.fromkeys(seen.tool_name for seen in self._counted))

    @property
    def digest(self) -> str:
        """16 digits that name the repeated round in a log; "" at streak 0."""
        return self._tail.last_round_key[:DIGEST_DIGITS] if self._tail else ""

    @property
    def args_length(self) -> int:
        """Characters of all arguments in the last round that counted; their text is never told."""
        return sum(seen.args_length for seen in self._counted)

    @property
    def faults(self) -> tuple[str, ...]:
        """Rules that raised, each once, for the caller to log."""
        return tuple(self._faults)
