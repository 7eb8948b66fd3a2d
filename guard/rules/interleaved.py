"""One round with one result again and again, with other rounds between."""

from dataclasses import dataclass

from guard.rounds import NONE, Asks, Decision, Event, Turn


@dataclass(frozen=True, slots=True)
class WindowState:
    """What the last rounds did, the newest first, and what was told of."""

    rounds: tuple[tuple[str, str], ...] = ()
    """Of each round its `key` and `alike`."""
    told: tuple[tuple[str, int], ...] = ()
    """Rounds, as `alike`, that were told of and still stand in the window, with the count then."""


@dataclass(frozen=True, slots=True)
class InterleavedRepeat:
    """Remind when a round stands in *nudge_at* of the last *window_rounds* rounds.

    Clocks, durations, counters of tries and the order of lines or calls do not make it another
    one. A round in which only some calls repeat is another one: the rest may be work.
    """

    nudge_at: tuple[int, ...] = (5,)
    stop_at: int | None = None
    window_rounds: int = 9
    id: str = "interleaved_repeat"

    @property
    def start(self) -> WindowState:
        """No round yet."""
        return WindowState()

    def advance(self, state: WindowState, event: Event) -> tuple[WindowState, Decision]:
        """See `Rule`. A round of waits alone leaves the window as it is.

        A relapse into a round that was told of keeps its count while that stands in the window.
        """
        if isinstance(event, Turn):
            return WindowState(), NONE
        if not event.counted:
            return state, NONE
        key, alike = event.key, event.alike
        rounds = ((key, alike), *state.rounds)[: self.window_rounds]
        count = sum([one[0] == key or one[1] == alike for one in rounds])
        told = state.told
        if told:
            told = tuple([one for one in told if any(one[0] == other for _, other in rounds)])
        if self.stop_at is not None and count >= self.stop_at:
            return WindowState(rounds, told), self._decision("stop", count, event.tools)
        if count in self.nudge_at and (alike, count) not in told:
            nudged = WindowState(rounds, (*told, (alike, count)))
            return nudged, self._decision("nudge", count, event.tools)
        return WindowState(rounds, told), NONE

    def _decision(self, asks: Asks, count: int, tools: tuple[str, ...]) -> Decision:
        return Decision(asks, self.id, "no_progress_loop", streak=count, tools=tools)
