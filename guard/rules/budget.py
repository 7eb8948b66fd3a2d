"""What a run may cost at most. It says nothing of whether the run gets anywhere."""

from dataclasses import dataclass, replace

from guard.reason import is_transport
from guard.rounds import NONE, Asks, Decision, Event, Round, Turn

NUDGE_PERCENT = 80
"""Of a budget; then the model is told once, in time to give what it has."""


@dataclass(frozen=True, slots=True)
class Limits:
    """At most so much since a person spoke; None is without a limit."""

    rounds: int | None = None
    elapsed_ms: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    calls: int | None = None
    retries: int | None = None
    """Rounds that failed since a tool was not reached or was busy."""
    cost_micros: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetState:
    """What was spent since a person spoke."""

    rounds: int = 0
    elapsed_ms: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    retries: int = 0
    cost_micros: int = 0
    is_nudged: bool = False


_CODES = {
    "rounds": "budget_rounds",
    "elapsed_ms": "budget_time",
    "prompt_tokens": "budget_tokens",
    "completion_tokens": "budget_tokens",
    "calls": "budget_calls",
    "retries": "budget_retries",
    "cost_micros": "budget_cost",
}


@dataclass(frozen=True, slots=True)
class Budget:
    """Stop when any limit is reached; one reminder at four fifths of the first that gets there."""

    limits: Limits = Limits()
    id: str = "budget"

    def __post_init__(self) -> None:
        for name, limit, _ in self._set():
            if limit <= 0:
                raise ValueError(f"the budget {name} is a positive number")

    @property
    def start(self) -> BudgetState:
        """Nothing spent."""
        return BudgetState()

    def advance(self, state: BudgetState, event: Event) -> tuple[BudgetState, Decision]:
        """See `Rule`. Waits cost as well."""
        if isinstance(event, Turn):
            return BudgetState(), NONE
        spent = _added(state, event)
        near = ""
        for name, limit, code in self._set():
            used = getattr(spent, name)
            if used >= limit:
                return replace(spent, is_nudged=True), self._decision("stop", code, spent, event)
            if not near and 100 * used >= NUDGE_PERCENT * limit:
                near = code
        if near and not state.is_nudged:
            return replace(spent, is_nudged=True), self._decision("nudge", near, spent, event)
        return spent, NONE

    def _decision(self, asks: Asks, code: str, spent: BudgetState, event: Round) -> Decision:
        limit = self._limit(code) if asks == "nudge" else 0
        return Decision(asks, self.id, code, streak=spent.rounds, tools=event.tools, limit=limit)

    def _limit(self, code: str) -> int:
        return next(limit for _, limit, other in self._set() if other == code)

    def _set(self) -> list[tuple[str, int, str]]:
        """The limits there are: name, limit, code."""
        limits = [(name, getattr(self.limits, name), code) for name, code in _CODES.items()]
        return [limit for limit in limits if limit[1] is not None]


def _added(state: BudgetState, event: Round) -> BudgetState:
    spent = event.spent
    is_retry = event.failure is not None and is_transport(event.failure)
    return BudgetState(
        state.rounds + 1,
        state.elapsed_ms + spent.elapsed_ms,
        state.prompt_tokens + spent.prompt_tokens,
        state.completion_tokens + spent.completion_tokens,
        state.calls + len(event.calls),
        state.retries + is_retry,
        state.cost_micros + spent.cost_micros,
        state.is_nudged,
    )
