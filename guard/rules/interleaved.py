"""One round with one result again and again, with other rounds between."""

from dataclasses import dataclass

from guard.policy import announced
from guard.rounds import LOOP_CODE, NONE, Asks, Decision, Event, Round, Turn, is_alike


@dataclass(frozen=True, slots=True)
class WindowState:
    """What the last rounds did, the newest first, and what was told of."""

    rounds: tuple[Round, ...] = ()
    told: tuple[tuple[Round, int], ...] = ()
    """Rounds that were told of and still stand in the window, with the count then."""


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
        key = event.key
        rounds = (event, *state.rounds)[: self.window_rounds]
        count = sum([one.key == key or is_alike(one, event) for one in rounds])
        told = state.told
        if told:
            told = tuple([one for one in told if _stands(one[0], rounds)])
        if self.stop_at is not None and count >= self.stop_at:
            return WindowState(rounds, told), self._decision("stop", count, event)
        if count in self.nudge_at and not _is_told(told, event, count):
            nudged = WindowState(rounds, (*told, (event, count)))
            return nudged, self._decision("nudge", count, event)
        return WindowState(rounds, told), NONE

    def _decision(self, asks: Asks, count: int, event: Round) -> Decision:
        limit = announced(self.nudge_at, self.stop_at, count)
        return Decision(asks, self.id, LOOP_CODE, streak=count, tools=event.tools, limit=limit)


def _stands(told: Round, rounds: tuple[Round, ...]) -> bool:
    for one in rounds:
        if one is told or is_alike(one, told):
            return True
    return False


def _is_told(told: tuple[tuple[Round, int], ...], event: Round, count: int) -> bool:
    return any(then == count and is_alike(one, event) for one, then in told)
