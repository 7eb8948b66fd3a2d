"""What policies made of the rounds of a run: the one in force, and those that only record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.store.codec import from_json, to_json
from server.store.tables import DecisionRow, ShadowDecisionRow, table_of

_DECISION = table_of(DecisionRow)
_SHADOW = table_of(ShadowDecisionRow)
_INSERT_DECISION = sa.insert(_DECISION)
_INSERT_SHADOW = sa.insert(_SHADOW)

Verdict = Literal["none", "nudge", "abort"]
ToolStatus = Literal["ok", "error", "mixed"]
StateValue = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """What one rule asked for, and what came of that in its mode."""

    rule: str
    asks: str
    given: str
    streak: int = 0
    laps: int = 0
    period: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What the run's policy made of one closed round; no arguments, no results, no texts."""

    run_id: str
    round: int
    action_digest: str
    result_digest: str
    exempt: bool
    streak: int
    """Of the default rule."""
    verdict: Verdict
    rule: str
    policy: str
    created_at: datetime
    tool_status: ToolStatus = "ok"
    streaks: Mapping[str, int] = field(default_factory=dict)
    """By rule, where it counts rounds."""
    state_version: int = 0
    """Times that the state of the contract moved in this turn."""
    state_diff: Mapping[str, Sequence[StateValue]] = field(default_factory=dict)
    """By field `[before, after]`; a text stands for itself by its digest."""
    budgets_left: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[RuleFinding] = ()
    threshold_source: str = ""
    trace_id: str = ""
    stop_reason: str = ""
    contract_id: str | None = None
    contract_version: int | None = None


@dataclass(frozen=True, slots=True)
class ShadowDecision:
    """What a policy that only records would have said of a round."""

    run_id: str
    round: int
    policy: str
    verdict: Verdict
    rule: str
    streak: int
    stop_reason: str
    findings: Sequence[RuleFinding]
    created_at: datetime


_JSON = ("streaks", "state_diff", "budgets_left", "findings")


async def insert_decision(db: AsyncConnection, decision: Decision) -> None:
    """Add the verdict of a round; `Duplicate` if the round has one."""
    await db.execute(_INSERT_DECISION, _encode(decision))


async def insert_shadow_decisions(db: AsyncConnection, decisions: Sequence[ShadowDecision]) -> None:
    """Add what policies would have said that only record."""
    if decisions:
        await db.execute(_INSERT_SHADOW, [_encode(decision) for decision in decisions])


async def load_decisions(db: AsyncConnection, run_id: str) -> list[Decision]:
    """The verdicts of a run, by round."""
    query = sa.select(_DECISION).where(_DECISION.c.run_id == run_id).order_by(_DECISION.c.round)
    rows = (await db.execute(query)).mappings()
    return [Decision(**_decode(row)) for row in rows]


async def load_shadow_decisions(db: AsyncConnection, run_id: str) -> list[ShadowDecision]:
    """What other policies would have said of a run, by round and policy."""
    query = sa.select(_SHADOW).where(_SHADOW.c.run_id == run_id)
    rows = (await db.execute(query.order_by(_SHADOW.c.round, _SHADOW.c.policy))).mappings()
    return [ShadowDecision(**_decode(row)) for row in rows]


def _encode(decision: Decision | ShadowDecision) -> dict[str, Any]:
    names = decision.__dataclass_fields__
    return {
        f"{name}_json" if name in _JSON else name: (
            to_json(getattr(decision, name)) if name in _JSON else getattr(decision, name)
        )
        for name in names
    }


def _decode(row: sa.RowMapping) -> dict[str, Any]:
    values: dict[str, Any] = dict(row)
    for name in _JSON:
        text = values.pop(f"{name}_json", None)
        if text is not None:
            kind: Any = tuple[RuleFinding, ...] if name == "findings" else dict[str, Any]
            values[name] = from_json(text, kind)
    return values
