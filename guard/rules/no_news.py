"""Rounds that show only what was seen before, in whatever order."""

from dataclasses import dataclass

from guard.rounds import NONE, Asks, Decision, Event, Round, Turn


@dataclass(frozen=True, slots=True)
class NoNewsState:
    """What the last rounds showed, and which of them had no news."""

    seen: tuple[frozenset[str], ...] = ()
    """Of each round, the newest first, its `shown`."""
    without_news: tuple[bool, ...] = ()
    """The newest first."""


@dataclass(frozen=True, slots=True)
class NoNews:
    """Remind, then stop, when so many of the last *window_rounds* rounds brought nothing new.

    A round brings nothing new when each of its calls had the same result within the
    *memory_rounds* before it. This is every cycle, of any length and in any order.
    """

    nudge_at: tuple[int, ...] = (5,)
    stop_at: int | None = 7
    window_rounds: int = 9
    memory_rounds: int = 16
    id: str = "no_news"

    @property
    def start(self) -> NoNewsState:
        """Nothing was seen."""
        return NoNewsState()

    def advance(self, state: NoNewsState, event: Event) -> tuple[NoNewsState, Decision]:
        """See `Rule`. A round of waits alone leaves the state as it is."""
        if isinstance(event, Turn):
            return NoNewsState(), NONE
        if not event.counted:
            return state, NONE
        is_known = _knows(state.seen, event)
        grown = NoNewsState(
            (event.shown, *state.seen)[: self.memory_rounds],
            (is_known, *state.without_news)[: self.window_rounds],
        )
        return grown, self._decision(sum(grown.without_news), is_known, event.tools)

    def _decision(self, count: int, is_known: bool, tools: tuple[str, ...]) -> Decision:
        if not is_known:
            return NONE
        is_end = self.stop_at is not None and count >= self.stop_at
        if not is_end and count not in self.nudge_at:
            return NONE
        asks: Asks = "stop" if is_end else "nudge"
        return Decision(asks, self.id, "no_progress_loop", streak=count, tools=tools)


def _knows(seen: tuple[frozenset[str], ...], event: Round) -> bool:
    """Whether each call had this result before, by its digest or by its class."""
    for call in event.counted:
        exact = f"{call.action_digest} {call.result_digest}"
        alike = f"{call.action_digest} {call.result_class}"
        for before in seen:
            if exact in before or alike in before:
                break
        else:
            return False
    return True
