"""Replaying policies over recorded runs: where each would have spoken, and what that costs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from guard.policies import Policy, PolicyGuard, Ruling
from guard.rounds import Decision, StoredRound, Turn

Label = Literal["degenerate", "polling", "retry", "progress"]
"""What a person said of a run: a loop that gets nowhere, or one of three healthy kinds."""

LOOP: Label = "degenerate"


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
    def has_spoken(self) -> bool:
        """Whether it would have reminded or stopped."""
        return bool(self.nudges or self.stops)

    @property
    def saved_rounds(self) -> int:
        """Rounds that would not have been played."""
        return sum(ruling is None for ruling in self.rulings)


def replay(policy: Policy, trace: Trace) -> Replay:
    """Let *policy* live through *trace*. After a stop the run goes on when a person speaks."""
    guard = PolicyGuard(policy)
    rulings: list[Ruling | None] = []
    saved_tokens, is_over = 0, False
    for event in trace.events:
        if isinstance(event, Turn):
            guard.begin_turn()
            is_over = False
        elif is_over:
            rulings.append(None)
            saved_tokens += event.spent.prompt_tokens + event.spent.completion_tokens
        else:
            ruling = guard.end_round(event.calls, event.spent)
            rulings.append(ruling)
            is_over = ruling.stop is not None
    return Replay(policy.name, tuple(rulings), saved_tokens)


@dataclass(slots=True)
class Tally:
    """What a policy did to a set of traces."""

    traces: int = 0
    reminded: int = 0
    """Stopped or not."""
    stopped: int = 0
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
        self.stopped += bool(made.stops)
        self.reminded_only += bool(made.nudges) and not made.stops
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

    def add(self, trace: Trace, made: Iterable[Replay]) -> None:
        """Count what each policy made of *trace*."""
        label = self._labels.get(trace.id)
        source = self._by_source.setdefault(trace.source, self._empty())
        for one in made:
            source[one.policy].add(one)
            self._total[one.policy].add(one)
            if label is not None:
                self._by_label[label == LOOP][one.policy].add(one)

    def sources(self) -> Iterator[tuple[str, str, Tally]]:
        """Source, policy and tally, then the whole under the name `all`."""
        for source, tallies in [*self._by_source.items(), ("all", self._total)]:
            for name, tally in tallies.items():
                yield source, name, tally

    def labelled(self) -> Iterator[tuple[str, Tally, Tally]]:
        """Policy, its tally of the loops and its tally of the healthy runs, of those labelled."""
        for name in self._names:
            yield name, self._by_label[True][name], self._by_label[False][name]

    def _empty(self) -> dict[str, Tally]:
        return {name: Tally() for name in self._names}
