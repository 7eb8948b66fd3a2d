"""A replay of any session judges its rounds as the runs that made them did."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard import Rules
from guard.policies import POLICIES, Policy
from server.agent.judge import Judge
from server.agent.policies import Policies
from server.agent.record import Standing, standing_of
from server.contract import ProgressContract, contract_json, parse_contract
from server.message import Evidence, Message, StateValue, ToolCall, Usage
from server.replay import replay
from server.replay_read import session_trace
from server.store.runs import QueuedInput, Run
from tests.server.store.rows import NOON, a_message, a_session

untimed = settings(deadline=None, max_examples=60)
"""An example may take as long as the machine needs."""

FIELDS = [
    {"name": "open", "tool": "t", "extract": {"regex": "."}, "counts": "shrinks", "initial": 3},
    {"name": "at", "tool": "t", "extract": {"regex": "."}, "counts": "reaches", "target": 2},
    {"name": "which", "tool": "t", "extract": {"regex": "."}, "counts": "changes"},
]
CONTRACTS: Sequence[ProgressContract | None] = [
    None,
    parse_contract({"id": "a", "fields": FIELDS, "stop_after": 3, "nudge_after": 1}),
    parse_contract({"id": "a", "version": 2, "fields": FIELDS[:2], "stop_after": 4}),
    parse_contract({"id": "b", "fields": FIELDS[1:], "on_no_progress": "handoff"}),
    parse_contract({"id": "b", "fields": FIELDS[2:], "stop_after": 9}),  # one key, two contracts
]

VALUES: st.SearchStrategy[dict[str, StateValue]] = st.dictionaries(
    st.sampled_from(["open", "at", "which"]), st.sampled_from([0, 1, 2, True, "x", "y"]), max_size=3
)


@dataclass(frozen=True)
class Drawn:
    """A call with its result, as far as they are drawn."""

    tool: str
    arguments: str
    result: str
    evidence: Evidence


@dataclass(frozen=True)
class Played:
    """A round, and what comes before it."""

    calls: Sequence[Drawn]
    begins: str
    """What does: `run`, with the words of a person; words that `join`; `resume`, a run that goes
    on with this very round; or nothing."""
    contract: ProgressContract | None
    tokens: int


EVIDENCE = st.builds(
    Evidence,
    action_digest=st.just("not looked at"),
    result_digest=st.sampled_from(["1" * 16, "2" * 16]),
    exempt=st.sampled_from([False, False, False, True]),
    error_class=st.sampled_from([None, None, None, "not found", "timed out"]),
    elapsed_ms=st.integers(0, 5),
    harness=st.sampled_from([False] * 9 + [True]),
    known=st.sampled_from([False, False, False, True]),
    kind=st.sampled_from(["read", "send", "wait"]),
    values=VALUES,
)
CALLS = st.builds(
    Drawn,
    tool=st.sampled_from(["t", "u", "hand_off"]),
    arguments=st.sampled_from(["{}", '{"a":1}']),
    result=st.sampled_from(["done", "still running", '{"error":"not found"}']),
    evidence=EVIDENCE,
)
PLAYED = st.builds(
    Played,
    calls=st.lists(CALLS, min_size=1, max_size=3),
    begins=st.sampled_from(["", "", "", "", "run", "join", "resume"]),
    contract=st.sampled_from(CONTRACTS),
    tokens=st.integers(0, 100),
)


class Lives:
    """A session as the agent loop makes it: a judge for each run, over all that is stored."""

    def __init__(self, policy: Policy) -> None:
        self._policies = Policies(by_kind={"main": policy})
        self._is_over = True
        self._contract: ProgressContract | None = None
        self._judge = self._opened()
        self.messages: list[Message] = []
        self.runs: list[Run] = []
        self.standings: list[Standing | None] = []

    def play(self, played: Played) -> None:
        if self._is_over or played.begins == "run":
            self._contract = played.contract
            self._begin()
            self._store([replace(a_message(), run_id=self.runs[-1].id)])
            self._judge = self._opened()
        elif played.begins == "join":
            self._store([a_message()])
            self._judge.begin_turn()
        asked = self._asked(played)
        self._store([asked])
        if played.begins == "resume" and not self._is_over:
            self._begin()
            self._judge = self._opened()
        answers = [
            self._answer(call.id, drawn)
            for call, drawn in zip(asked.tool_calls, played.calls, strict=True)
        ]
        judged = self._judge.close(asked, answers)
        self._store(answers)
        active = self._judge.policy.active
        self.standings.append(None if judged is None else standing_of(active, judged))
        self._is_over = judged is not None and judged.ruling.stop is not None

    def _begin(self) -> None:
        contract = None if self._contract is None else contract_json(self._contract)
        name = f"r{len(self.runs)}"
        asked = QueuedInput(message_id=None, text="", contract=contract)
        self.runs.append(Run(name, "s1", "message", "COMPLETED", NOON, asked))
        self._is_over = False

    def _opened(self) -> Judge:
        judge = Judge(self._policies.of("main", self._contract), Rules())
        if not self._is_over:
            list(judge.replay(self.messages))
        return judge

    def _store(self, messages: Sequence[Message]) -> None:
        self.messages += messages

    def _asked(self, played: Played) -> Message:
        calls = tuple(
            ToolCall(f"c{len(self.messages)}-{n}", drawn.tool, drawn.arguments)
            for n, drawn in enumerate(played.calls)
        )
        return Message(
            f"a{len(self.messages)}",
            "assistant",
            "",
            NOON,
            run_id=self.runs[-1].id,
            tool_calls=calls,
            usage=Usage(played.tokens, 0, played.tokens),
        )

    def _answer(self, call_id: str, drawn: Drawn) -> Message:
        evidence = drawn.evidence
        if self._contract is None or evidence.harness:
            evidence = replace(evidence, values={})
        else:
            evidence = replace(evidence, contract=self._contract.key)
        return Message(
            call_id,
            "tool",
            drawn.result,
            NOON,
            run_id=self.runs[-1].id,
            tool_call_id=call_id,
            evidence=evidence,
        )


@pytest.mark.parametrize("policy", sorted(POLICIES))
@untimed
@given(st.lists(PLAYED, max_size=30))
def test_replay_judges_every_round_as_its_run_did(policy: str, rounds: list[Played]) -> None:
    lives = Lives(POLICIES[policy])
    for played in rounds:
        lives.play(played)
    trace = session_trace(a_session(), lives.messages, lives.runs)
    made = replay(POLICIES[policy], trace)
    assert list(made.standings) == lives.standings
    assert [run.contract for run in trace.runs] == [
        None if run.input is None or run.input.contract is None
        else parse_contract(run.input.contract)
        for run in closing(lives)
    ]  # fmt: skip


def closing(lives: Lives) -> list[Run]:
    """Of each round the run that closed it."""
    by_id = {run.id: run for run in lives.runs}
    last = {m.tool_call_id: m.run_id for m in lives.messages if m.role == "tool"}
    return [
        by_id[run_id]
        for m in lives.messages
        if m.tool_calls and (run_id := last[m.tool_calls[-1].id]) is not None
    ]


@given(st.lists(PLAYED, max_size=12))
@untimed
def test_another_policy_hears_of_no_round_that_it_would_not_have_played(
    rounds: list[Played],
) -> None:
    lives = Lives(POLICIES["default@1"])
    for played in rounds:
        lives.play(played)
    trace = session_trace(a_session(), lives.messages, lives.runs)
    made = replay(POLICIES["strict@1"], trace)
    assert made == replay(POLICIES["strict@1"], trace)
    assert len(made.rulings) == len(made.standings) == len(trace.rounds) == len(rounds)
    assert made.saved_rounds == sum(ruling is None for ruling in made.rulings)
    for ruling, standing in zip(made.rulings, made.standings, strict=True):
        assert ruling is not None or standing is None
