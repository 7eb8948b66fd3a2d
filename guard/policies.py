"""Named, versioned sets of rules, and the fold over all rules of one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from guard.reason import is_transport
from guard.rounds import (
    NONE,
    NOTHING_SPENT,
    TURN,
    Asks,
    Decision,
    Event,
    Kind,
    Round,
    RoundCall,
    Rule,
    Spent,
    StoredRound,
    Turn,
    Value,
    round_of,
)
from guard.rules.budget import Budget, Limits
from guard.rules.contract import Contract
from guard.rules.hand_off import HandOff
from guard.rules.interleaved import InterleavedRepeat
from guard.rules.little_news import little_news
from guard.rules.no_news import NoNews
from guard.rules.no_progress import NoProgress
from guard.rules.period import Period
from guard.rules.repeat_cycle import RepeatCycle
from guard.rules.same_error import SameError
from guard.rules.same_result import SameResult
from guard.rules.waiting import Waiting
from guard.tables import with_numbers

Mode = Literal["off", "observe", "nudge", "stop"]
"""How far a rule may go: not asked, only recorded, reminders, or the end of the run."""


@dataclass(frozen=True, slots=True)
class Use:
    """A rule in a policy."""

    rule: Rule[Any]
    """Any, since each rule has a state of its own kind."""
    mode: Mode = "stop"


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules in the order in which they are asked; budgets stand last."""

    name: str
    """With its version, `strict@1`."""
    uses: tuple[Use, ...]
    has_wait_lane: bool = False
    """Waits neither count nor clear, and a result may say in words that it is one. Without the
    lane only declared waits are waits, and a round of them clears every rule."""
    free_retries: int = 0
    """So many rounds that fail since a tool was not reached or was busy are told to no rule but
    the default one and the budgets."""

    def __post_init__(self) -> None:
        if any(isinstance(use.rule, Budget) for use in self.uses[:-1]):
            raise ValueError("a budget is checked last")


def with_rules(policy: Policy, *uses: Use) -> Policy:
    """*policy*, under its name, with these rules before its own; one that it has already moves."""
    ids = {use.rule.id for use in uses}
    others = tuple(use for use in policy.uses if use.rule.id not in ids)
    return replace(policy, uses=(*uses, *others))


def with_contract(policy: Policy, contract: Contract, mode: Mode = "stop") -> Policy:
    """*policy* with a progress contract, which is asked first."""
    return with_rules(policy, Use(contract, mode))


@dataclass(frozen=True, slots=True)
class PolicyState:
    """Where every rule of a policy stands."""

    rules: tuple[Any, ...]
    """As in `Policy.uses`; each of its rule's own kind."""
    stopping: tuple[str, ...] = ()
    """Rules that asked for a stop when they were last told of an event."""
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule asked for, and what its mode made of that."""

    decision: Decision
    given: Asks


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a policy makes of an event."""

    findings: tuple[Finding, ...] = ()
    """Of the rules that asked for anything, in the policy's order."""

    @property
    def nudges(self) -> tuple[Decision, ...]:
        """The reminders that are due, in the order in which they are shown."""
        return tuple(found.decision for found in self.findings if found.given == "nudge")

    @property
    def stop(self) -> Decision | None:
        """Why the run ends here."""
        stops = (found.decision for found in self.findings if found.given == "stop")
        return next(stops, None)


NO_RULING = Ruling()


def start_of(policy: Policy) -> PolicyState:
    """The state before the first event."""
    return PolicyState(tuple(use.rule.start for use in policy.uses))


def judge(policy: Policy, state: PolicyState, event: Event) -> tuple[PolicyState, Ruling]:
    """Fold one event into the states of all rules. Never raises."""
    retries = _retries(state, event)
    hearing = _hearing(policy, state.retries < retries <= policy.free_retries, event)
    states: list[Any] = []
    stopping: list[str] = []
    findings: list[Finding] = []
    for use, before in zip(policy.uses, state.rules, strict=True):
        rule = use.rule
        if use.mode == "off" or (hearing is not None and not isinstance(rule, hearing)):
            states.append(before)
            continue
        after, decision = rule.advance(before, event)
        states.append(after)
        if decision is not NONE:
            if use.mode != "stop":
                decision = replace(decision, limit=0)  # it ends nothing, so it announces no end
            was_stopping = rule.id in state.stopping
            findings.append(Finding(decision, _given(decision, use.mode, was_stopping)))
            if decision.asks == "stop":
                stopping.append(rule.id)
    ruling = Ruling(tuple(findings)) if findings else NO_RULING
    return PolicyState(tuple(states), tuple(stopping), retries), ruling


def _hearing(policy: Policy, is_free: bool, event: Event) -> tuple[type, ...] | None:
    """The kinds of rules that are told of *event*; None is all."""
    if is_free:
        return (NoProgress, Budget)
    if policy.has_wait_lane and isinstance(event, Round) and not event.counted:
        return (Contract, HandOff, Waiting, Budget)
    return None


def _retries(state: PolicyState, event: Event) -> int:
    if isinstance(event, Turn):
        return 0
    if event.failure is None or not is_transport(event.failure):
        return state.retries
    return state.retries + 1


def _given(decision: Decision, mode: Mode, was_stopping: bool) -> Asks:
    """A stop that is not allowed becomes one reminder."""
    if mode == "observe":
        return "none"
    if decision.asks == "stop" and mode == "nudge":
        return "none" if was_stopping else "nudge"
    return decision.asks


class PolicyGuard:
    """The rules of one policy in one run, told of each round and of each person's message."""

    def __init__(self, policy: Policy, state: PolicyState | None = None) -> None:
        self.policy = policy
        self.state = state or start_of(policy)

    def begin_turn(self) -> None:
        """A person spoke."""
        self.state, _ = judge(self.policy, self.state, TURN)

    def end_round(
        self,
        calls: Sequence[RoundCall],
        spent: Spent = NOTHING_SPENT,
        values: Mapping[str, Value] | None = None,
    ) -> Ruling:
        """What the policy makes of a finished round.

        One in which the harness wrote says nothing of the model, but what its other calls told of
        the state is known to a contract.
        """
        if not calls or any(call.harness for call in calls):
            self.state = _told(self.policy, self.state, values or {})
            return NO_RULING
        event = self.round_of(calls, spent, values)
        self.state, ruling = judge(self.policy, self.state, event)
        return ruling

    def round_of(
        self, calls: Sequence[RoundCall], spent: Spent, values: Mapping[str, Value] | None
    ) -> Round:
        """The round as this policy's rules see it."""
        return round_of(calls, spent, values, with_told_waits=not self.policy.has_wait_lane)


def _told(policy: Policy, state: PolicyState, values: Mapping[str, Value]) -> PolicyState:
    rules = tuple(
        use.rule.learn(before, values) if isinstance(use.rule, Contract) else before
        for use, before in zip(policy.uses, state.rules, strict=True)
    )
    return replace(state, rules=rules)


def scan_rounds(
    policy: Policy, events: Iterable[StoredRound | Turn], state: PolicyState | None = None
) -> tuple[PolicyState, list[Ruling]]:
    """What a guard would say that had lived through *events*: a ruling for each round."""
    guard = PolicyGuard(policy, state)
    rulings: list[Ruling] = []
    for event in events:
        if isinstance(event, Turn):
            guard.begin_turn()
        else:
            rulings.append(guard.end_round(event.calls, event.spent, event.values))
    return guard.state, rulings


_SENDS: frozenset[Kind] = frozenset({"send"})

_LOOPS = (
    Use(NoProgress()),
    Use(Period()),
    Use(InterleavedRepeat(nudge_at=(4,), stop_at=6)),
    Use(SameError(nudge_at=(4,), stop_at=8, across_tools=True)),
    Use(NoNews(nudge_at=(5,), stop_at=8, window_rounds=10)),
    Use(little_news()),
    Use(SameResult(), "nudge"),
)
"""Stops that no run of a strong model in the corpus comes near; see docs/policies.md."""

_HOUR_MS = 3600 * 1000

DEFAULT = Policy("default@1", (Use(NoProgress()),))
"""The default rule alone."""

STRICT = Policy(
    "strict@1",
    (Use(RepeatCycle(kinds=_SENDS)), *_LOOPS, Use(Waiting(rounds=120, elapsed_ms=6 * _HOUR_MS))),
    has_wait_lane=True,
    free_retries=3,
)
"""For runs that nobody should pay for twice: a loop ends after six to ten rounds."""

UNATTENDED = Policy(
    "unattended@1",
    (
        Use(RepeatCycle(kinds=_SENDS)),
        *_LOOPS,
        Use(Waiting(rounds=240, elapsed_ms=12 * _HOUR_MS)),
        Use(Budget(Limits(rounds=500, elapsed_ms=24 * _HOUR_MS, calls=2000, retries=30))),
    ),
    has_wait_lane=True,
    free_retries=6,
)
"""For runs that nobody sees: the same rules, more patience with waits and outages, and an end."""

RESEARCH = Policy(
    "research@1",
    (
        Use(NoProgress()),
        Use(Period()),
        Use(InterleavedRepeat(nudge_at=(4, 7), stop_at=10, window_rounds=15)),
        Use(SameError(nudge_at=(4, 7), stop_at=10)),
        Use(NoNews(nudge_at=(5, 8), stop_at=12, window_rounds=16, memory_rounds=32)),
        Use(little_news(nudge_at=(9, 12), stop_at=15, window_rounds=18)),
        Use(SameResult(nudge_at=(6, 12)), "nudge"),
        Use(Waiting(rounds=120, elapsed_ms=6 * _HOUR_MS)),
        Use(Budget(Limits(rounds=500, retries=30))),
    ),
    has_wait_lane=True,
    free_retries=6,
)
"""For looking around: it reminds as early, and lets a run go on longer before it ends it."""

POLICIES: Mapping[str, Policy] = MappingProxyType(
    {policy.name: policy for policy in (DEFAULT, STRICT, UNATTENDED, RESEARCH)}
)
"""The policies that ship, by name and version. What is changed gets a new version."""


_ADDED: Mapping[str, Use] = MappingProxyType(
    {
        use.rule.id: use
        for use in (
            Use(RepeatCycle()),
            *_LOOPS,
            Use(Waiting(rounds=120, elapsed_ms=6 * _HOUR_MS)),
            Use(Budget()),
        )
    }
)
"""Rules that a policy may have, in the order in which they are asked, with the numbers of
`strict@1`; but a repeat cycle looks at all tools, and a budget has no limits."""

_ORDER = tuple(_ADDED)


def define_policy(
    name: str,
    base: Policy,
    tables: Mapping[str, Mapping[str, object]],
) -> Policy:
    """A policy like *base*, with modes and numbers by rule.

    Args:
        tables: By rule its `mode`, and fields of its class by their names (of `Limits`, for a
            budget). A rule that *base* does not have is added in its place.

    Raises:
        ValueError: A rule, a field or a value is wrong; with its name and what is right.
    """
    uses = {use.rule.id: use for use in base.uses}
    for rule_id, table in tables.items():
        before = uses.get(rule_id) or _ADDED.get(rule_id)
        if before is None:
            raise ValueError(f"{rule_id}: there is no such rule; known are {', '.join(_ADDED)}")
        uses[rule_id] = _defined(before, table)
    ordered = sorted(uses.values(), key=lambda use: _ORDER.index(use.rule.id))
    return replace(base, name=name, uses=tuple(ordered))


def _defined(use: Use, table: object) -> Use:
    if not isinstance(table, Mapping):
        raise ValueError(f"{use.rule.id}: must be a table of mode and numbers")
    numbers = dict(table)
    mode = numbers.pop("mode", use.mode)
    if mode not in get_args(Mode):
        raise ValueError(f"{use.rule.id}.mode: must be one of {', '.join(get_args(Mode))}")
    return Use(with_numbers(use.rule, numbers), mode)
