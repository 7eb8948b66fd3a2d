"""Replaying policies over recorded runs: where each would have spoken, and what that costs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from guard.policies import NO_RULING, Policy, Ruling
from guard.policy import RULES
from guard.rounds import Decision, StoredRound, Turn
from server.agent.acting import COMPLETED
from server.agent.judge import Judge, Judgement, RunPolicy
from server.agent.policies import in_force
from server.agent.record import Standing, standing_of
from server.contract import ProgressContract, stored_contract

Label = Literal["degenerate", "polling", "retry", "progress"]
"""What a person said of a run: a loop that gets nowhere, or one of three healthy kinds."""

LOOP: Label = "degenerate"


@dataclass(frozen=True, slots=True)
class TracedRun:
    """A run of a stored session."""

    id: str
    contract: ProgressContract | None
    """The one by which it was judged."""
    outcome: str
    """The code with which it ended; empty while it goes on."""

    @property
    def contract_key(self) -> str:
        """Names the contract with its version; empty without one."""
        return self.contract.key if self.contract is not None else ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A run, or a session of several, as it was recorded."""

    id: str
    source: str
    """Where it came from: the name of its file, or `session`."""
    model: str
    events: tuple[StoredRound | Turn, ...]
    is_estimated: bool = False
    """Nobody counted the tokens: they are a quarter of the characters."""
    runs: tuple[TracedRun, ...] = ()
    """Of each finished round the run that closed it; empty for a transcript."""
    unfinished: int = 0
    """Rounds that lack a result, and are left out."""
    is_session: bool = False
    """Stored by the server itself, with the runs that its rounds belong to."""

    @property
    def rounds(self) -> tuple[StoredRound, ...]:
        """The finished rounds."""
        return tuple(event for event in self.events if isinstance(event, StoredRound))


@dataclass(frozen=True, slots=True)
class Replay:
    """What one policy would have made of a trace."""

    policy: str
    rulings: tuple[Ruling | None, ...]
    """Of each round; None for one that would not have been played."""
    standings: tuple[Standing | None, ...]
    """After each round; None for one that was not judged: it was not played, or not finished by
    the tools themselves."""
    saved_tokens: int
    """Of the rounds that would not have been played; lost ones, where the run was healthy."""

    @property
    def nudges(self) -> tuple[tuple[int, Decision], ...]:
        """The rounds, from 1, after which the model would have been reminded, and of what."""
        return tuple(
            (number, nudge)
            for number, ruling in enumerate(self.rulings, 1)
            if ruling is not None
            for nudge in ruling.nudges
        )

    @property
    def stops(self) -> tuple[tuple[int, Decision], ...]:
        """The rounds, from 1, after which a run would have ended, and why."""
        return tuple(
            (number, ruling.stop)
            for number, ruling in enumerate(self.rulings, 1)
            if ruling is not None and ruling.stop is not None
        )

    @property
    def was_stopped(self) -> bool:
        """Whether a run would have ended without having reached its goal."""
        return any(stop.code != COMPLETED for _, stop in self.stops)

    @property
    def has_spoken(self) -> bool:
        """Whether it would have reminded or stopped."""
        return bool(self.nudges or self.stops)

    @property
    def saved_rounds(self) -> int:
        """Rounds that would not have been played."""
        return sum(ruling is None for ruling in self.rulings)


def replay(policy: Policy, trace: Trace) -> Replay:
    """Let *policy* live through *trace*. After a stop the run goes on when a person speaks.

    The rounds of a stored session are judged as those of a run are: with the rules that end every
    run, and with the contract of their own run in front. What was verified stays known to a later
    run with the same contract, as it does live; rounds that are not played verify nothing.
    """
    life = _Life(policy, trace.runs)
    runs = iter(trace.runs)
    rulings: list[Ruling | None] = []
    standings: list[Standing | None] = []
    saved_tokens, is_over = 0, False
    for event in trace.events:
        if isinstance(event, Turn):
            life.begin_turn()
            is_over = False
            continue
        run = next(runs, None)
        if is_over:
            rulings.append(None)
            standings.append(None)
            saved_tokens += event.spent.prompt_tokens + event.spent.completion_tokens
            continue
        active, judged = life.end_round(event, run)
        rulings.append(judged.ruling if judged is not None else NO_RULING)
        standings.append(standing_of(active, judged) if judged is not None else None)
        is_over = judged is not None and judged.ruling.stop is not None
    return Replay(policy.name, tuple(rulings), tuple(standings), saved_tokens)


class _Life:
    """What a policy knows in a trace: for each contract a judge, who is told of all that happens.

    A run begins with what the whole history says of its contract, so a judge cannot wait for it.
    """

    def __init__(self, policy: Policy, runs: Iterable[TracedRun]) -> None:
        self._judges: dict[str | None, Judge] = {
            stored_contract(run.contract): Judge(
                RunPolicy(in_force(policy, run.contract), contract=run.contract_key), RULES
            )
            for run in runs
        }
        if not self._judges:  # a transcript
            self._judges[None] = Judge(RunPolicy(policy), RULES)

    def begin_turn(self) -> None:
        """A person spoke."""
        for judge in self._judges.values():
            judge.begin_turn()

    def end_round(
        self, stored: StoredRound, run: TracedRun | None
    ) -> tuple[Policy, Judgement | None]:
        """The policy of the run, and what it makes of the round; None if the harness wrote in it.

        Values that were told by another contract are not told to a judge.
        """
        own = stored_contract(run.contract) if run is not None else None
        told_by = run.contract_key if run is not None else ""
        judgements: dict[str | None, Judgement | None] = {}
        for contract, judge in self._judges.items():
            is_told = judge.policy.contract == told_by
            seen = stored if is_told else replace(stored, values=None)
            judgements[contract] = judge.end_round(seen)
        return self._judges[own].policy.active, judgements[own]


@dataclass(slots=True)
class Tally:
    """What a policy did to a set of traces."""

    traces: int = 0
    reminded: int = 0
    """Stopped or not."""
    stopped: int = 0
    """Ended before their goal was reached."""
    reminded_only: int = 0
    """Reminded and not stopped."""
    rounds: int = 0
    """All that there were."""
    saved_rounds: int = 0
    saved_tokens: int = 0

    def add(self, made: Replay) -> None:
        """Count one trace more."""
        self.traces += 1
        self.reminded += bool(made.nudges)
        self.stopped += made.was_stopped
        self.reminded_only += bool(made.nudges) and not made.was_stopped
        self.rounds += len(made.rulings)
        self.saved_rounds += made.saved_rounds
        self.saved_tokens += made.saved_tokens


class Costs:
    """The tallies of several policies, by source and by label, in the order in which they came."""

    def __init__(self, policies: Sequence[Policy], labels: Mapping[str, Label]) -> None:
        self._names = [policy.name for policy in policies]
        self._labels = labels
        self._by_source: dict[str, dict[str, Tally]] = {}
        self._by_label: dict[bool, dict[str, Tally]] = {True: self._empty(), False: self._empty()}
        self._total = self._empty()
        self._stops: Counter[tuple[str, str]] = Counter()
        self._stopped: Counter[tuple[str, str]] = Counter()

    def add(self, trace: Trace, made: Iterable[Replay]) -> None:
        """Count what each policy made of *trace*."""
        label = self._labels.get(trace.id)
        source = self._by_source.setdefault(trace.source, self._empty())
        for one in made:
            source[one.policy].add(one)
            self._total[one.policy].add(one)
            reasons = [(one.policy, stop.code) for _, stop in one.stops]
            self._stops.update(reasons)
            self._stopped.update(set(reasons))
            if label is not None:
                self._by_label[label == LOOP][one.policy].add(one)

    def sources(self) -> Iterator[tuple[str, str, Tally]]:
        """Source, policy and tally, then the whole under the name `all`."""
        for source, tallies in [*self._by_source.items(), ("all", self._total)]:
            for name, tally in tallies.items():
                yield source, name, tally

    def reasons(self) -> Iterator[tuple[str, str, int, int]]:
        """Policy, stop reason, how many traces had such a stop, and how many stops there were."""
        for name in self._names:
            for code in sorted(code for policy, code in self._stops if policy == name):
                yield name, code, self._stopped[name, code], self._stops[name, code]

    def labelled(self) -> Iterator[tuple[str, Tally, Tally]]:
        """Policy, its tally of the loops and its tally of the healthy runs, of those labelled."""
        for name in self._names:
            yield name, self._by_label[True][name], self._by_label[False][name]

    def _empty(self) -> dict[str, Tally]:
        return {name: Tally() for name in self._names}
