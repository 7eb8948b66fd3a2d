"""A finished round as rules see it, and what a rule is.

Evidence is computed once, from the call itself or from what the store kept of it, so that rules
cost little and a replay judges as the live run did.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from guard.canonical import as_text, text_of
from guard.digest import evidence
from guard.model import Attachment, Evidence, Message, NoProgressCall
from guard.notice import tool_call_id
from guard.policy import RULES, Rules
from guard.reason import error_class, result_class, says_it_waits, sleeps
from guard.scan import groups, is_real_user, requested

Kind = Literal["read", "write", "send", "wait", "unknown"]
"""What a call does to the world; unknown where nobody says."""

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
    error_class: str | None = None
    """The normalised reason of a failure."""
    result_class: str
    """Equal for results that differ in clocks, durations, addresses and the order of lines."""
    kind: Kind = "unknown"
    waits: bool = False
    """It lets time pass, or its result says that what was asked about goes on."""
    harness: bool = False
    """Written by the harness, which says nothing about the model."""


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
    shown: frozenset[str]
    """Each action of `counted` with its result's digest, and with its result's class."""
    alike: str
    """Equal for rounds of the same calls, in any order, with results of the same class."""
    failure: str | None
    """The reasons, if every counted call failed."""
    spent: Spent = NOTHING_SPENT
    values: Mapping[str, Value] | None = None
    """The named state after the round, as far as tools told it."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools of the counted calls, each once, in the model's order."""
        return tuple(dict.fromkeys(call.tool_name for call in self.counted))


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


NONE = Decision("none")

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
) -> RoundCall:
    """The evidence of *call*. Never raises; stored evidence is believed.

    Args:
        failed_for: The reason of a failure as it was stored, "" for none; None is computed.
    """
    call = as_text(call)
    known = evidence(call, rules)
    content = call.result_content
    reason = error_class(content) if failed_for is None else failed_for
    return RoundCall(
        action_digest=known.action_digest,
        result_digest=known.result_digest,
        exempt=known.exempt,
        faults=known.faults,
        tool_name=call.tool_name,
        error_class=reason or None,
        result_class=result_class(content, known.result_digest),
        kind=kind,
        waits=kind == "wait" or sleeps(call.arguments_json) or says_it_waits(content),
        harness=harness,
    )


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
    exact = [f"{call.action_digest} {call.result_digest}" for call in counted]
    classed = sorted([f"{call.action_digest} {call.result_class}" for call in counted])
    reasons = [call.error_class for call in counted if call.error_class is not None]
    failure = " | ".join(sorted(set(reasons))) if reasons and len(reasons) == len(counted) else None
    return Round(
        calls=tuple(calls),
        counted=counted,
        key=f"{actions} {results}",
        action_key=actions,
        shown=frozenset(exact + classed),
        alike="|".join(classed),
        failure=failure,
        spent=spent,
        values=values,
    )


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A finished round of a stored history."""

    calls: tuple[RoundCall, ...]
    spent: Spent
    anchor: str
    """The id of its last call."""


def stored_events(
    messages: Iterable[Message],
    attachments: Mapping[str, Attachment] | None = None,
    rules: Rules = RULES,
    kind_of: KindOf | None = None,
) -> Iterator[StoredRound | Turn]:
    """The rounds and turns of *messages*, as `scan_no_progress_notices` reads them.

    An assistant message may carry `usage` and `model_ms`, a tool message `error_class`, `kind` and
    `elapsed_ms` beside what the scan reads. A round that lacks a result is left out.
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
    unclaimed: defaultdict[str, deque[Message]] = defaultdict(deque)
    for result in results:
        unclaimed[tool_call_id(result)].append(result)
    calls: list[RoundCall] = []
    elapsed_ms, anchor = 0, ""
    for call_id, name, arguments in requested(head):
        if not unclaimed[call_id]:
            return None
        result = unclaimed[call_id].popleft()
        seen = _seen(name, arguments, result, attachments.get(call_id))
        kind: Kind = kind_of(name, arguments) if kind_of is not None else "unknown"
        reason = result.get("error_class")
        calls.append(
            round_call(
                seen,
                rules,
                kind,
                failed_for=reason if isinstance(reason, str) else None,
                harness=result.get("harness") is True,
            )
        )
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
    )
    return StoredRound(tuple(calls), spent, anchor)


def _seen(
    name: str, arguments: str, result: Message, attachment: Attachment | None
) -> NoProgressCall:
    digest, exempt = result.get("result_digest"), result.get("exempt")
    return NoProgressCall(
        name,
        arguments,
        text_of(result.get("content")),
        attachment,
        digest if isinstance(digest, str) else None,
        exempt if isinstance(exempt, bool) else None,
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
