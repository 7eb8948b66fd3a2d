"""A finished round as rules see it, and what a rule is.

Evidence is computed once, from the call itself or from what the store kept of it, so that rules
cost little and a replay judges as the live run did.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar, get_args

from guard.alike import ResultClass
from guard.canonical import as_text
from guard.digest import DIGEST_DIGITS, evidence, round_key
from guard.model import Attachment, Evidence, Message, NoProgressCall
from guard.policy import RULES, Rules
from guard.reason import error_class, says_it_waits, sleeps
from guard.scan import answered, groups, is_real_user, stored_call

Kind = Literal["read", "write", "send", "wait", "unknown"]
"""What a call does to the world; unknown where nobody says."""

_KINDS: tuple[Kind, ...] = get_args(Kind)

Value = int | float | str | bool
"""A state value that an authoritative tool gave."""

Asks = Literal["none", "nudge", "stop"]
"""What a rule asks for; the policy decides what becomes of it."""

KindOf = Callable[[str, str], Kind]
"""From a tool's name and the arguments' text to the kind of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCall(Evidence):
    """The evidence of one call, and what the rules beside the default one need."""

    tool_name: str
    args_length: int
    """Characters of the arguments, for a log that must not show them."""
    error_class: str | None = None
    """The normalised reason of a failure."""
    result_class: ResultClass = field(repr=False)
    kind: Kind = "unknown"
    waits: bool = False
    """It lets time pass, or its result says that what was asked about goes on."""
    harness: bool = False
    """Written by the harness, which says nothing about the model."""
    known: bool = False
    """Another run that works on the same task made this call, with this result, before."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a round has cost; calls are counted from the round itself."""

    elapsed_ms: int = 0
    """The model's time and the tools'."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_micros: int = 0
    """Millionths of the currency in which the prices are given."""


NOTHING_SPENT = Spent()


@dataclass(frozen=True, slots=True)
class Round:
    """One model reply and the results of its calls."""

    calls: tuple[RoundCall, ...]
    counted: tuple[RoundCall, ...]
    """Without the waits; empty for a round that only waits."""
    key: str
    """Actions and results of `counted`, in the model's order."""
    action_key: str
    """Actions of `counted`, in the model's order."""
    failure: str | None
    """The reasons, if every counted call failed."""
    tools: tuple[str, ...]
    """The tools of the counted calls, each once, in the model's order."""
    spent: Spent = NOTHING_SPENT
    values: Mapping[str, Value] | None = None
    """The named state after the round, as far as tools told it."""

    @property
    def digest(self) -> str:
        """16 digits that name the round in a log, as `NoProgressGuard.digest`; "" for waits."""
        return round_key(self.counted)[:DIGEST_DIGITS] if self.counted else ""

    @property
    def alike(self) -> tuple[tuple[str, str], ...]:
        """Actions and classes: equal for rounds of the same calls, in any order."""
        classes = [(call.action_digest, call.result_class.value) for call in self.counted]
        return tuple(sorted(classes))


@dataclass(frozen=True, slots=True)
class Turn:
    """A person spoke: what was before is over."""


TURN = Turn()

Event = Round | Turn
"""What a rule is told of, in order."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a rule makes of an event, with the figures that led to it."""

    asks: Asks
    rule: str = ""
    code: str = ""
    """Why the run would stop."""
    streak: int = 0
    """Rounds that count towards it, this one included."""
    laps: int = 0
    """Complete laps of a cycle."""
    period: int = 0
    """Rounds in a lap."""
    tools: tuple[str, ...] = ()
    limit: int = 0
    """Of a reminder that announces the end of the run: the streak, or lap, at which it comes."""
    fields: tuple[str, ...] = ()
    """State values that did not move."""


NONE = Decision("none")

LOOP_CODE = "no_progress_loop"
"""Why a run ends that goes round in circles, whichever rule saw it."""

State = TypeVar("State")


class Rule(Protocol[State]):
    """A frozen value that folds events into a state; it never raises."""

    @property
    def id(self) -> str:
        """Names the rule in records and texts."""

    @property
    def start(self) -> State:
        """The state before the first event."""

    def advance(self, state: State, event: Event) -> tuple[State, Decision]:
        """The state after *event*, and what the rule asks for."""


def round_call(
    call: NoProgressCall,
    rules: Rules = RULES,
    kind: Kind = "unknown",
    *,
    failed_for: str | None = None,
    harness: bool = False,
    known: bool = False,
) -> RoundCall:
    """The evidence of *call*. Never raises; stored evidence is believed.

    Args:
        failed_for: The reason of a failure as it was stored, "" for none; None is computed.
        known: See `RoundCall.known`.
    """
    call = as_text(call)
    found = evidence(call, rules)
    content = call.result_content
    reason = error_class(content, call.arguments_json) if failed_for is None else failed_for
    return RoundCall(
        action_digest=found.action_digest,
        result_digest=found.result_digest,
        exempt=found.exempt,
        faults=found.faults,
        thresholds=found.thresholds,
        tool_name=call.tool_name,
        args_length=len(call.arguments_json),
        error_class=reason or None,
        result_class=ResultClass(content, found.result_digest),
        kind=kind,
        waits=kind == "wait" or (kind != "send" and _waits(call)),
        harness=harness,
        known=known,
    )


def _waits(call: NoProgressCall) -> bool:
    """Whether the call looks like a wait; what is sent is `queued` and no wait for that."""
    return sleeps(call.arguments_json) or says_it_waits(call.result_content)


def round_of(
    calls: Sequence[RoundCall],
    spent: Spent = NOTHING_SPENT,
    values: Mapping[str, Value] | None = None,
    *,
    with_told_waits: bool = True,
) -> Round:
    """The round of these calls.

    Args:
        with_told_waits: Whether a call counts that is a wait by its result's words alone.
    """
    counted = tuple(
        call for call in calls if not call.exempt and (with_told_waits or not call.waits)
    )
    actions = " ".join([call.action_digest for call in counted])
    results = " ".join([call.result_digest for call in counted])
    reasons = [call.error_class for call in counted if call.error_class is not None]
    failure = " | ".join(sorted(set(reasons))) if reasons and len(reasons) == len(counted) else None
    return Round(
        calls=tuple(calls),
        counted=counted,
        key=f"{actions} {results}",
        action_key=actions,
        failure=failure,
        tools=tuple(dict.fromkeys([call.tool_name for call in counted])),
        spent=spent,
        values=values,
    )


def is_alike(one: Round, other: Round) -> bool:
    """Whether both have the same `alike`; computes no class that is not needed for it."""
    mine, others = one.counted, other.counted
    if one.action_key == other.action_key:
        pairs = zip(mine, others, strict=True)
        if all([left.result_class == right.result_class for left, right in pairs]):
            return True
    if len(mine) != len(others) or len(mine) == 1 or _actions(mine) != _actions(others):
        return False
    return one.alike == other.alike


def was_seen(call: RoundCall, seen: Iterable[Sequence[RoundCall]]) -> bool:
    """Whether the call had this result among *seen*, by its digest or by its class."""
    action, result = call.action_digest, call.result_digest
    same: list[RoundCall] = []
    for calls in seen:
        for one in calls:
            if one.action_digest == action:
                if one.result_digest == result:
                    return True
                same.append(one)
    return any(one.result_class == call.result_class for one in same)


def _actions(calls: Sequence[RoundCall]) -> list[str]:
    return sorted([call.action_digest for call in calls])


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A finished round of a stored history."""

    calls: tuple[RoundCall, ...]
    spent: Spent
    anchor: str
    """The id of its last call."""
    values: Mapping[str, Value] | None = None
    """What its calls told of the named state, a later one over an earlier one."""


def stored_events(
    messages: Iterable[Message],
    attachments: Mapping[str, Attachment] | None = None,
    rules: Rules = RULES,
    kind_of: KindOf | None = None,
) -> Iterator[StoredRound | Turn]:
    """The rounds and turns of *messages*, as `scan_no_progress_notices` reads them.

    An assistant message may carry `usage` and `model_ms`, a tool message `error_class` ("" for
    none), `kind`, `elapsed_ms`, `known` and `values` beside what the scan reads. A round that
    lacks a result is left out.
    """
    for head, results in groups(messages):
        if is_real_user(head):
            yield TURN
        found = _stored_round(head, results, attachments or {}, rules, kind_of)
        if found is not None:
            yield found


def _stored_round(
    head: Message,
    results: Sequence[Message],
    attachments: Mapping[str, Attachment],
    rules: Rules,
    kind_of: KindOf | None,
) -> StoredRound | None:
    calls: list[RoundCall] = []
    values: dict[str, Value] = {}
    elapsed_ms, anchor = 0, ""
    for call_id, name, arguments, result in answered(head, results):
        seen = stored_call(name, arguments, result, attachments.get(call_id))
        kind = _kind(result, name, arguments, kind_of)
        reason = result.get("error_class")
        calls.append(
            round_call(
                seen,
                rules,
                kind,
                failed_for=reason if isinstance(reason, str) else None,
                harness=result.get("harness") is True,
                known=result.get("known") is True,
            )
        )
        if calls[-1].error_class is None:
            values.update(_scalars(result.get("values")))
        elapsed_ms += _count(result.get("elapsed_ms"))
        anchor = call_id
    if not calls:
        return None
    usage = head.get("usage")
    fields = usage if isinstance(usage, Mapping) else {}
    spent = Spent(
        elapsed_ms + _count(head.get("model_ms")),
        _count(fields.get("prompt_tokens")),
        _count(fields.get("completion_tokens")),
        _count(fields.get("cost_micros")),
    )
    return StoredRound(tuple(calls), spent, anchor, values or None)


def _kind(result: Message, name: str, arguments: str, kind_of: KindOf | None) -> Kind:
    """As it was stored, or as it is told now."""
    stored = result.get("kind")
    for kind in _KINDS:
        if stored == kind:
            return kind
    return kind_of(name, arguments) if kind_of is not None else "unknown"


def _scalars(values: object) -> dict[str, Value]:
    """What a call told of the state; a refused or failed one tells nothing that it did."""
    if not isinstance(values, Mapping):
        return {}
    return {
        name: value
        for name, value in values.items()
        if isinstance(name, str) and isinstance(value, int | float | str)
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
