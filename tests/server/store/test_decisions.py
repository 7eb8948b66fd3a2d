"""The record of decisions: what was written comes back as it was, once for each round."""

from dataclasses import replace

import pytest

from server.errors import Duplicate
from server.store.decisions import (
    Decision,
    RuleFinding,
    ShadowDecision,
    insert_decision,
    insert_shadow_decisions,
    load_decisions,
    load_shadow_decisions,
)
from server.store.engine import Store
from tests.server.store.rows import later, make_running, make_session

FINDING = RuleFinding("period", "stop", "nudge", streak=9, laps=3, period=3)

FULL = Decision(
    run_id="r1",
    round=4,
    action_digest="a" * 16,
    result_digest="b" * 16,
    exempt=False,
    streak=2,
    verdict="nudge",
    rule="period",
    policy="strict@1",
    created_at=later(1),
    tool_status="mixed",
    streaks={"no_progress": 2, "progress_contract": 1},
    state_version=3,
    state_diff={"gaps": [2, 1], "state": [None, "3a6eb079"]},
    budgets_left={"rounds": 496},
    findings=(FINDING,),
    threshold_source="strict@1",
    trace_id="c" * 32,
    stop_reason="",
    contract_id="two-sources",
    contract_version=1,
)

SHADOW = ShadowDecision(
    "r1", 4, "strict@1", "abort", "period", 9, "no_progress_loop", (FINDING,), later(1)
)


async def test_a_decision_comes_back_whole_and_each_round_has_one(store: Store) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1")
    later_round = replace(FULL, round=5, findings=(), contract_id=None, contract_version=None)
    async with store.write() as db:
        for decision in (later_round, FULL):
            await insert_decision(db, decision)
    with pytest.raises(Duplicate):
        async with store.write() as db:
            await insert_decision(db, FULL)
    async with store.read() as db:
        assert await load_decisions(db, "r1") == [FULL, later_round]


async def test_policies_that_only_record_have_rows_of_their_own(store: Store) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1")
    other = replace(SHADOW, policy="research@1", verdict="nudge", stop_reason="")
    async with store.write() as db:
        await insert_shadow_decisions(db, [])
        await insert_shadow_decisions(db, [SHADOW, other])
    async with store.read() as db:
        assert await load_shadow_decisions(db, "r1") == [other, SHADOW]
        assert await load_decisions(db, "r1") == []
