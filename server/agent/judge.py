"""Judges the rounds of a run by its policy, live and from the store by the same steps."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from guard import Rules
from guard.policies import DEFAULT, Policy, PolicyGuard, PolicyState, Ruling
from guard.rounds import Round, StoredRound, Turn, stored_events
from server.message import Message, Usage


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a million tokens, in the currency in which budgets are given."""

    prompt: float = 0.0
    cached: float = 0.0
    completion: float = 0.0

    def cost_micros(self, usage: Usage) -> int:
        """What a request cost, in millionths of the currency."""
        fresh = usage.prompt_tokens - usage.cached_tokens
        return round(
            fresh * self.prompt
            + usage.cached_tokens * self.cached
            + usage.completion_tokens * self.completion
        )


NO_PRICES = Prices()


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """How a run is judged."""

    active: Policy = DEFAULT
    shadows: tuple[Policy, ...] = ()
    """They see the same rounds, and only record."""
    has_last_turn: bool = False
    """Whether the model may answer once more, without tools, before the policy ends the run."""
    prices: Prices = NO_PRICES
    contract: str = ""
    """Key of the progress contract among the active rules; empty without one."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the policies made of a closed round."""

    anchor: str
    """The id of the round's last call."""
    round: Round
    ruling: Ruling
    before: PolicyState
    after: PolicyState
    shadows: tuple[tuple[str, Ruling], ...]
    """By name, what those would have said that only record."""


class Judge:
    """Where the policies of one run stand; told of each round and of each person's message."""

    def __init__(self, policy: RunPolicy, rules: Rules) -> None:
        self.policy = policy
        self._rules = rules
        self._guard = PolicyGuard(policy.active)
        self._shadows = [PolicyGuard(shadow) for shadow in policy.shadows]

    @property
    def state(self) -> PolicyState:
        """Where the active policy stands."""
        return self._guard.state

    def begin_turn(self) -> None:
        """A person spoke."""
        for guard in (self._guard, *self._shadows):
            guard.begin_turn()

    def close(self, asked: Message, answers: Sequence[Message]) -> Judgement | None:
        """Judge a round that is about to be stored; None if the harness wrote in it."""
        return next(self.replay([asked, *answers]), None)

    def replay(self, messages: Iterable[Message]) -> Iterator[Judgement | None]:
        """Live through stored *messages*: what becomes of each round and, as None, of each turn.

        Of a round in which the harness wrote nothing comes: it says nothing about the model.
        """
        prices, contract = self.policy.prices, self.policy.contract
        chats = (as_chat(message, prices, contract) for message in messages)
        for event in stored_events(chats, rules=self._rules):
            if isinstance(event, Turn):
                self.begin_turn()
                yield None
            elif (judged := self.end_round(event)) is not None:
                yield judged

    def end_round(self, stored: StoredRound) -> Judgement | None:
        """Judge a finished round; None if the harness wrote in it."""
        if any(call.harness for call in stored.calls):
            self._guard.end_round(stored.calls, stored.spent, stored.values)
            return None
        before = self._guard.state
        seen = self._guard.round_of(stored.calls, stored.spent, stored.values)
        ruling = self._guard.end_round(stored.calls, stored.spent, stored.values)
        shadows = tuple(
            (guard.policy.name, guard.end_round(stored.calls, stored.spent, stored.values))
            for guard in self._shadows
        )
        return Judgement(stored.anchor, seen, ruling, before, self._guard.state, shadows)


def as_chat(message: Message, prices: Prices, contract: str) -> dict[str, Any]:
    """The message as the guard reads it, with the evidence taken at its birth and its cost.

    Args:
        contract: Key of the one by which the state is told; what others told is left out.
    """
    chat: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "user":
        chat["synthetic"] = message.synthetic
    if message.tool_calls:
        chat["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        chat["tool_call_id"] = message.tool_call_id
    if message.usage is not None:
        chat["usage"] = {
            "prompt_tokens": message.usage.prompt_tokens,
            "completion_tokens": message.usage.completion_tokens,
            "cost_micros": prices.cost_micros(message.usage),
        }
        chat["model_ms"] = message.model_ms
    evidence = message.evidence
    if evidence is not None:
        chat["result_digest"] = evidence.result_digest
        chat["exempt"] = evidence.exempt
        chat["harness"] = evidence.harness
        chat["error_class"] = evidence.error_class or ""
        spent_ms = evidence.elapsed_ms if evidence.wall_ms is None else evidence.wall_ms
        chat["elapsed_ms"] = spent_ms
        chat["known"] = evidence.known
        chat["kind"] = evidence.kind
        if evidence.values and evidence.contract == contract:
            chat["values"] = evidence.values
    return chat
