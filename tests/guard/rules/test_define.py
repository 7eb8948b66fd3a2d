"""Policies out of tables, and rules put before those of a policy."""

from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.policies import (
    DEFAULT,
    POLICIES,
    STRICT,
    UNATTENDED,
    Mode,
    Use,
    define_policy,
    with_contract,
    with_rules,
)
from guard.rules.budget import Budget, Limits
from guard.rules.contract import Contract, Field
from guard.rules.hand_off import HandOff
from guard.rules.interleaved import InterleavedRepeat
from guard.rules.no_progress import NoProgress
from guard.rules.period import Period
from guard.rules.repeat_cycle import RepeatCycle
from guard.rules.same_error import SameError
from guard.rules.waiting import Waiting
from tests.guard.rules.rounds import call, lived

Tables = Mapping[str, Mapping[str, object]]

GOAL = Contract((Field("n", "grows", initial=0),))


def test_without_tables_a_policy_is_its_base_under_another_name() -> None:
    for base in POLICIES.values():
        made = define_policy("mine@1", base, {})
        assert (made.name, made.uses) == ("mine@1", base.uses)
        assert made.has_wait_lane == base.has_wait_lane
        assert made.free_retries == base.free_retries


def test_a_table_gives_a_rule_its_numbers_and_its_mode() -> None:
    tables: Tables = {
        "interleaved_repeat": {"nudge_at": [3, 5], "stop_at": 8},
        "same_error": {"mode": "observe", "gap_rounds": 0, "across_tools": False},
        "repeat_cycle": {"kinds": ["send", "write"], "limit": 2},
        "waiting": {"rounds": 9},
        "budget": {"rounds": 20, "cost_micros": 5},
    }
    uses = {use.rule.id: use for use in define_policy("mine@2", UNATTENDED, tables).uses}
    assert uses["interleaved_repeat"].rule == InterleavedRepeat((3, 5), 8)
    assert uses["same_error"] == Use(SameError((4,), 8, gap_rounds=0), "observe")
    assert uses["repeat_cycle"].rule == RepeatCycle(2, frozenset({"send", "write"}))
    assert uses["waiting"].rule == Waiting(9, 12 * 3600 * 1000)
    budget = uses["budget"].rule
    assert isinstance(budget, Budget)
    assert (budget.limits.rounds, budget.limits.cost_micros) == (20, 5)
    assert budget.limits.calls == 2000


def test_rules_that_the_base_lacks_stand_in_their_order_whatever_that_of_the_tables() -> None:
    tables: Tables = {
        "budget": {"calls": 3},
        "waiting": {},
        "period": {},
        "repeat_cycle": {},
    }
    made = define_policy("mine@1", DEFAULT, tables)
    assert [use.rule.id for use in made.uses] == [
        "repeat_cycle",
        "no_progress",
        "period",
        "waiting",
        "budget",
    ]
    assert made.uses[0].rule == RepeatCycle()
    assert made.uses[-1].rule == Budget(Limits(calls=3))


def test_a_defined_policy_judges_by_its_own_numbers() -> None:
    made = define_policy("mine@1", DEFAULT, {"repeat_cycle": {"limit": 4}})
    rulings = lived(made, [[call("a", n)] for n in range(4)])
    assert [ruling.stop is not None for ruling in rulings] == [False, False, False, True]
    assert [nudge.limit for nudge in rulings[2].nudges] == [4]


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"loops": {}}, "loops: there is no such rule; known are repeat_cycle, no_prog"),
        ({"progress_contract": {}}, "progress_contract: there is no such rule"),
        ({"period": {"laps": 3}}, "period.laps: there is no such field; known are mode, nudge_l"),
        ({"no_progress": {"abort_at": 3}}, "no_progress.abort_at: there is no such field"),
        ({"hand_off": {}}, "hand_off: there is no such rule"),
        ({"period": {"id": "x"}}, "period.id: there is no such field"),
        ({"period": {"mode": "loud"}}, "period.mode: must be one of off, observe, nudge, stop"),
        ({"period": {"mode": ["off"]}}, "period.mode: must be one of"),
        ({"period": 3}, "period: must be a table"),
        ({"period": {"stop_laps": 2}}, "period.stop_laps: must be at least nudge_laps, which is 3"),
        ({"repeat_cycle": {"limit": 0}}, "repeat_cycle.limit: must be a whole number from 1"),
        ({"repeat_cycle": {"limit": -1}}, "repeat_cycle.limit: must be a whole number from 1"),
        ({"repeat_cycle": {"limit": True}}, "repeat_cycle.limit: must be a whole number from 1"),
        ({"repeat_cycle": {"limit": 2.5}}, "repeat_cycle.limit: must be a whole number from 1"),
        ({"repeat_cycle": {"kinds": ["sends"]}}, "repeat_cycle.kinds: must be a list of read, wr"),
        ({"repeat_cycle": {"kinds": []}}, "repeat_cycle.kinds: must be a list of"),
        ({"repeat_cycle": {"with_waits": 1}}, "repeat_cycle.with_waits: must be true or false"),
        ({"same_error": {"nudge_at": [4, 4]}}, "same_error.nudge_at: must be a list of whole"),
        ({"same_error": {"nudge_at": 4}}, "same_error.nudge_at: must be a list of whole"),
        ({"same_error": {"gap_rounds": -1}}, "same_error.gap_rounds: must be a whole number from "),
        ({"no_news": {"stop_at": 11}}, "no_news.stop_at: must be at most window_rounds, which is"),
        ({"waiting": {"elapsed_ms": 0}}, "waiting.elapsed_ms: must be a whole number from 1"),
        ({"budget": {"calls": 0}}, "budget.calls: must be a whole number from 1"),
        ({"budget": {"limits": {}}}, "budget.limits: there is no such field; known are mode, rou"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_right(tables: Tables, words: str) -> None:
    with pytest.raises(ValueError, match="^" + words):
        define_policy("mine@1", DEFAULT, tables)


COUNTS = st.integers(1, 9)
MODES = st.sampled_from(get_args(Mode))
TABLES = st.fixed_dictionaries(
    {},
    optional={
        "repeat_cycle": st.fixed_dictionaries({}, optional={"limit": COUNTS, "mode": MODES}),
        "period": st.fixed_dictionaries(
            {}, optional={"stop_laps": st.integers(3, 9), "mode": MODES}
        ),
        "no_news": st.fixed_dictionaries({}, optional={"stop_at": COUNTS, "mode": MODES}),
        "little_news": st.fixed_dictionaries({}, optional={"stop_at": COUNTS, "mode": MODES}),
        "same_error": st.fixed_dictionaries({}, optional={"stop_at": COUNTS, "mode": MODES}),
        "budget": st.fixed_dictionaries({}, optional={"rounds": COUNTS, "mode": MODES}),
    },
)


@given(st.sampled_from(sorted(POLICIES)), TABLES)
def test_any_right_tables_make_a_policy_in_order_that_can_judge(base: str, tables: Tables) -> None:
    made = define_policy("mine@1", POLICIES[base], tables)
    ids = [use.rule.id for use in made.uses]
    assert len(ids) == len(set(ids))
    assert {use.rule.id for use in POLICIES[base].uses} | set(tables) == set(ids)
    assert "budget" not in ids[:-1]
    for rule_id, table in tables.items():
        use = next(use for use in made.uses if use.rule.id == rule_id)
        assert "mode" not in table or use.mode == table["mode"]
    assert len(lived(made, [[call("a", "Error: x")]] * 20)) == 20


def test_a_contract_is_asked_first_and_the_name_stays() -> None:
    made = with_contract(with_rules(UNATTENDED, Use(HandOff())), GOAL)
    assert made.name == UNATTENDED.name
    assert [use.rule.id for use in made.uses[:3]] == [
        "progress_contract",
        "hand_off",
        "repeat_cycle",
    ]
    assert made.uses[-1].rule.id == "budget"
    assert made.has_wait_lane


def test_a_rule_that_the_policy_has_is_replaced_and_not_doubled() -> None:
    other = Contract((Field("m", "grows", initial=0),))
    made = with_contract(with_contract(STRICT, GOAL), other)
    assert [use.rule for use in made.uses][:1] == [other]
    assert len(made.uses) == len(STRICT.uses) + 1


def test_a_budget_cannot_be_put_first() -> None:
    with pytest.raises(ValueError, match="last"):
        with_rules(DEFAULT, Use(Budget(Limits(rounds=1))))
    assert isinstance(DEFAULT.uses[0].rule, NoProgress)
    assert isinstance(STRICT.uses[2].rule, Period)
