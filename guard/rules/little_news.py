"""Rounds that show little but what was shown before: one more blank line, another random number."""

from collections.abc import Iterable, Sequence

from guard.rounds import RoundCall, was_seen
from guard.rules.no_news import NoNews


def little_news(
    nudge_at: tuple[int, ...] = (8,),
    stop_at: int | None = 10,
    window_rounds: int = 12,
    memory_rounds: int = 8,
) -> NoNews:
    """`NoNews`, for which a result is also known that overlaps with the last one of its call."""
    return NoNews(nudge_at, stop_at, window_rounds, memory_rounds, _was_mostly_seen, "little_news")


def _was_mostly_seen(call: RoundCall, seen: Iterable[Sequence[RoundCall]]) -> bool:
    if was_seen(call, seen):
        return True
    for calls in seen:
        for one in calls:
            if one.action_digest == call.action_digest:
                return call.result_class.overlaps(one.result_class)
    return False
