"""A clock that stands until it is moved."""


class Clock:
    """Seconds, from 1000."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        """The time, as `time.monotonic` would give it."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
