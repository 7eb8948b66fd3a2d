"""CPU time of this process and of others, and batches measured in turns."""

import time
from collections.abc import Callable, Sequence
from statistics import median

_SCHEDULED = 2
"""Linux: the clock that counts what the scheduler gave, in nanoseconds; the one behind
`/proc/<pid>/stat` counts hundredths of a second."""


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, those that ended too, but not of its children."""
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


def in_turns(batches: Sequence[Callable[[], object]], turns: int) -> list[float]:
    """The median CPU seconds of each batch; they take turns, so that noise meets all alike."""
    spent: list[list[float]] = [[] for _ in batches]
    for _ in range(turns):
        for batch, seconds in zip(batches, spent, strict=True):
            began = time.process_time()
            batch()
            seconds.append(time.process_time() - began)
    return [median(seconds) for seconds in spent]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which *share* of all lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
