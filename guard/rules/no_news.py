"""Rounds that show only what was seen before, in whatever order."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from guard.policy import announced
from guard.rounds import (
    LOOP_CODE,
    NONE,
    Asks,
    Decision,
    Event,
    Round,
    RoundCall,
    Turn,
    was_seen,
)

IsKnown = Callable[[RoundCall, Iterable[Sequence[RoundCall]]], bool]


@dataclass(frozen=True, slots=True)
class NoNewsState:
    """What the last rounds showed, and which of them had no news."""

    seen: tuple[tuple[RoundCall, ...], ...] = ()
    """Of each round, the newest first, its counted calls."""
    without_news: tuple[bool, ...] = ()
    """The newest first."""
    told: tuple[tuple[tuple[RoundCall, ...], int], ...] = ()
    """Rounds of which the model was reminded and that are still remembered, with the count then."""


@dataclass(frozen=True, slots=True)
class NoNews:
    """Remind, then stop, when so many of the last *window_rounds* rounds brought nothing new.

    A round brings nothing new when each of its calls is known from the *memory_rounds* before it.
    This is every cycle, of any length and in any order.
    """

    nudge_at: tuple[int, ...] = (5,)
    stop_at: int | None = 7
    window_rounds: int = 9
    memory_rounds: int = 16
    is_known: IsKnown = was_seen
    """Whether a call brings nothing new after the calls of those rounds, the newest first."""
    id: str = "no_news"

    @property
    def start(self) -> NoNewsState:
        """Nothing was seen."""
        return NoNewsState()

    def advance(self, state: NoNewsState, event: Event) -> tuple[NoNewsState, Decision]:
        """See `Rule`. A round of waits alone leaves the state as it is.

        The count is that of the window, so a relapse goes on from where it stood; the model is
        reminded of it once, and of a round of another kind again.
        """
        if isinstance(event, Turn):
            return NoNewsState(), NONE
        if not event.counted:
            return state, NONE
        is_known = all(call.known or self.is_known(call, state.seen) for call in event.counted)
        seen = (event.counted, *state.seen)[: self.memory_rounds]
        without_news = (is_known, *state.without_news)[: self.window_rounds]
        told = state.told
        if told:
            told = tuple([one for one in told if any(one[0] is calls for calls in seen)])
        count = sum(without_news)
        is_end = self.stop_at is not None and count >= self.stop_at
        if not is_known or not (is_end or count in self.nudge_at):
            return NoNewsState(seen, without_news, told), NONE
        others = tuple([one for one in told if one[1] != count or not self._is_same(event, one[0])])
        grown = NoNewsState(seen, without_news, (*others, (event.counted, count)))
        if not is_end and len(others) < len(told):
            return grown, NONE  # a relapse: the model was told of this very round
        return grown, self._decision("stop" if is_end else "nudge", count, event)

    def _decision(self, asks: Asks, count: int, event: Round) -> Decision:
        limit = announced(self.nudge_at, self.stop_at, count)
        return Decision(asks, self.id, LOOP_CODE, streak=count, tools=event.tools, limit=limit)

    def _is_same(self, event: Round, told: tuple[RoundCall, ...]) -> bool:
        return all(self.is_known(call, [told]) for call in event.counted)
