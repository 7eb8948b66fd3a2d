"""The record of a judged round: digests and figures that explain a decision later, no texts."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from guard.policies import Policy, PolicyState, Ruling
from guard.rounds import Decision as Spoken
from guard.rounds import RoundCall, Value
from guard.rules.budget import Budget
from guard.rules.contract import Contract
from guard.rules.waiting import Waiting
from server.agent.context import RunContext
from server.agent.judge import Judgement
from server.store.decisions import (
    Decision,
    RuleFinding,
    ShadowDecision,
    StateValue,
    ToolStatus,
    Verdict,
)

NO_PROGRESS_RULE: Final = "no_progress"
"""The default rule: what a record names where no rule gave a verdict."""
CONTRACT_RULE: Final = "progress_contract"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a policy made of a round, and where it stands after it."""

    verdict: Verdict
    rule: str
    """That gave the verdict; the default one where none did."""
    streaks: Mapping[str, int]
    """By rule, where it counts rounds in a row."""
    state_version: int
    """Of the contract: rounds that made progress; 0 without one."""
    state_diff: Mapping[str, Sequence[StateValue]]
    """By field of the contract `[before, after]`; a text stands for itself by its digest."""
    stop_reason: str


def standing_of(policy: Policy, judged: Judgement) -> Standing:
    """Where *policy*, which made this judgement, stands."""
    spoken = _spoken(judged.ruling)
    stop = judged.ruling.stop
    return Standing(
        verdict=_verdict(judged.ruling),
        rule=spoken.rule if spoken is not None else NO_PROGRESS_RULE,
        streaks=_streaks(policy, judged.after),
        state_version=_state_version(policy, judged.after),
        state_diff=_state_diff(policy, judged.before, judged.after),
        stop_reason=stop.code if stop is not None else "",
    )


def decision_of(context: RunContext, judged: Judgement) -> Decision:
    """The row of the round that is about to be closed."""
    policy, ruling, calls = context.judge.policy.active, judged.ruling, judged.round.calls
    standing = standing_of(policy, judged)
    contract = context.contract
    return Decision(
        run_id=context.run.id,
        round=context.rounds,
        action_digest=_joined(call.action_digest for call in calls),
        result_digest=_joined(call.result_digest for call in calls),
        exempt=all(call.exempt for call in calls),
        streak=standing.streaks.get(NO_PROGRESS_RULE, 0),
        verdict=standing.verdict,
        rule=standing.rule,
        policy=policy.name,
        created_at=datetime.now(UTC),
        tool_status=_tool_status(calls),
        streaks=standing.streaks,
        state_version=standing.state_version,
        state_diff=standing.state_diff,
        budgets_left=_budgets_left(policy, judged.after),
        findings=_findings(ruling),
        threshold_source=_threshold_source(context, _spoken(ruling), judged.round.counted),
        trace_id=trace_id_of(context.run.id),
        stop_reason=standing.stop_reason,
        contract_id=contract.id if contract is not None else None,
        contract_version=contract.version if contract is not None else None,
    )


def shadow_decisions_of(context: RunContext, judged: Judgement) -> list[ShadowDecision]:
    """What policies would have said that only record; of those that would have spoken."""
    found: list[ShadowDecision] = []
    for name, ruling in judged.shadows:
        spoken = _spoken(ruling)
        if spoken is not None:
            found.append(
                ShadowDecision(
                    run_id=context.run.id,
                    round=context.rounds,
                    policy=name,
                    verdict=_verdict(ruling),
                    rule=spoken.rule,
                    streak=spoken.streak,
                    stop_reason=ruling.stop.code if ruling.stop is not None else "",
                    findings=_findings(ruling),
                    created_at=datetime.now(UTC),
                )
            )
    return found


def trace_id_of(run_id: str) -> str:
    """The trace of a run, 32 hex digits: of the record and of the spans alike."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:32]


def _spoken(ruling: Ruling) -> Spoken | None:
    """The decision that counted: the stop, else the first reminder."""
    return ruling.stop or next(iter(ruling.nudges), None)


def _verdict(ruling: Ruling) -> Verdict:
    if ruling.stop is not None:
        return "abort"
    return "nudge" if ruling.nudges else "none"


def _findings(ruling: Ruling) -> tuple[RuleFinding, ...]:
    return tuple(
        RuleFinding(
            found.decision.rule,
            found.decision.asks,
            found.given,
            found.decision.streak,
            found.decision.laps,
            found.decision.period,
        )
        for found in ruling.findings
    )


def _tool_status(calls: Sequence[RoundCall]) -> ToolStatus:
    failed = sum(call.error_class is not None for call in calls)
    if failed == 0:
        return "ok"
    return "error" if failed == len(calls) else "mixed"


def _streaks(policy: Policy, state: PolicyState) -> dict[str, int]:
    """By rule, where it counts rounds in a row."""
    counted = {
        use.rule.id: getattr(after, "streak", None)
        for use, after in zip(policy.uses, state.rules, strict=True)
    }
    return {rule: streak for rule, streak in counted.items() if streak is not None}


def _budgets_left(policy: Policy, state: PolicyState) -> dict[str, int]:
    left: dict[str, int] = {}
    for use, after in zip(policy.uses, state.rules, strict=True):
        if isinstance(use.rule, Budget):
            limits = use.rule.limits
            for name in limits.__dataclass_fields__:
                limit = getattr(limits, name)
                if limit is not None:
                    left[name] = max(0, limit - getattr(after, name))
        elif isinstance(use.rule, Waiting):
            left["wait_rounds"] = max(0, use.rule.rounds - after.rounds)
            left["wait_ms"] = max(0, use.rule.elapsed_ms - after.elapsed_ms)
    return left


def _contract(policy: Policy, state: PolicyState) -> tuple[Contract, Any] | None:
    for use, after in zip(policy.uses, state.rules, strict=True):
        if isinstance(use.rule, Contract):
            return use.rule, after
    return None


def _state_version(policy: Policy, state: PolicyState) -> int:
    found = _contract(policy, state)
    return found[1].version if found is not None else 0


def values_of(policy: Policy, state: PolicyState) -> dict[str, Value]:
    """The fields of the contract as they were told last."""
    found = _contract(policy, state)
    if found is None:
        return {}
    rule, at = found
    told = zip(rule.fields, at.last, strict=True)
    return {part.name: value for part, value in told if value is not None}


def _state_diff(
    policy: Policy, before: PolicyState, after: PolicyState
) -> Mapping[str, Sequence[StateValue]]:
    was, now = values_of(policy, before), values_of(policy, after)
    return {
        name: (_kept(was.get(name)), _kept(value))
        for name, value in now.items()
        if was.get(name) != value
    }


def _kept(value: Value | None) -> StateValue:
    """A value as the record keeps it: a text by its digest alone."""
    if not isinstance(value, str):
        return value
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _threshold_source(
    context: RunContext, spoken: Spoken | None, counted: Sequence[RoundCall]
) -> str:
    """Whose numbers gave the verdict; those of tools hold where each counted call has its own."""
    contract = context.contract
    if spoken is not None and contract is not None and spoken.rule == CONTRACT_RULE:
        return f"contract:{contract.key}"
    is_default_rule = spoken is None or spoken.rule == NO_PROGRESS_RULE
    if is_default_rule and counted and all(call.thresholds is not None for call in counted):
        return "tool:" + ",".join(dict.fromkeys(call.tool_name for call in counted))
    return context.judge.policy.active.name


def _joined(digests: Iterable[str]) -> str:
    """One digest for the calls of a round; that of the call itself where it is the only one."""
    parts = list(digests)
    if len(parts) == 1:
        return parts[0]
    return hashlib.sha256(",".join(parts).encode()).hexdigest()[:16]
