"""Rounds in turn: A, B, A, B, or up to five of them, with the same results each time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from guard.rounds import LOOP_CODE, NONE, Asks, Decision, Event, Turn

MIN_PERIOD = 2
MAX_PERIOD = 5


@dataclass(frozen=True, slots=True)
class PeriodState:
    """The last rounds, the newest first, and for how many rounds each period has held."""

    keys: tuple[str, ...] = ()
    action_keys: tuple[str, ...] = ()
    held_rounds: tuple[int, ...] = (0,) * (MAX_PERIOD - MIN_PERIOD + 1)
    """For each period from 2 on: rounds in a row equal to the one a period before."""
    is_nudged: bool = False
    """The cycle that goes on now was told of."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """The smallest cycle that came round at least twice; period 0 is none."""

    period: int = 0
    laps: int = 0


NO_CYCLE = Cycle()


@dataclass(frozen=True, slots=True)
class Period:
    """Cycles of two to five rounds with at least two different actions and equal results."""

    nudge_laps: int = 3
    stop_laps: int = 5
    id: str = "period"

    @property
    def start(self) -> PeriodState:
        """No round yet."""
        return PeriodState()

    def advance(self, state: PeriodState, event: Event) -> tuple[PeriodState, Decision]:
        """See `Rule`. A round of waits alone ends every cycle."""
        if isinstance(event, Turn) or not event.counted:
            return PeriodState(), NONE
        held = tuple(
            count + 1 if len(state.keys) >= period and state.keys[period - 1] == event.key else 0
            for period, count in enumerate(state.held_rounds, MIN_PERIOD)
        )
        grown = PeriodState(
            (event.key, *state.keys)[:MAX_PERIOD],
            (event.action_key, *state.action_keys)[:MAX_PERIOD],
            held,
        )
        found = longest_of(grown)
        if found.laps < self.nudge_laps:
            return grown, NONE
        grown = replace(grown, is_nudged=True)
        asks: Asks = "stop" if found.laps >= self.stop_laps else "nudge"
        if asks == "nudge" and state.is_nudged:
            return grown, NONE
        return grown, Decision(
            asks,
            self.id,
            LOOP_CODE,
            streak=found.laps * found.period,
            laps=found.laps,
            period=found.period,
            tools=event.tools,
            limit=self.stop_laps if asks == "nudge" else 0,
        )


def cycle_of(state: PeriodState) -> Cycle:
    """The smallest cycle that *state* is in after its last round."""
    return next(_cycles(state), NO_CYCLE)


def longest_of(state: PeriodState) -> Cycle:
    """The cycle with the most laps: one of five may end like one of three for a round."""
    return max(_cycles(state), key=lambda cycle: cycle.laps, default=NO_CYCLE)


def _cycles(state: PeriodState) -> Iterator[Cycle]:
    if len(set(state.action_keys)) < 2:
        return
    for period, count in enumerate(state.held_rounds, MIN_PERIOD):
        laps = count // period + 1
        if laps >= 2 and len(set(state.action_keys[:period])) >= 2:
            yield Cycle(period, laps)
