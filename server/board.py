"""What is known of each session beside its events: status, title, queue, why it failed.

State, not a log: the last one wins, so whoever was away asks once and then hears of changes. It
stands beside the event log because AG-UI allows nothing between two runs.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

_LISTED = frozenset({"status", "title"})
"""Changes that a list of sessions shows."""


class Watcher(Protocol):
    """A client that is told. All calls come in the event loop and must be quick."""

    def may_see(self, owner: str) -> bool:
        """Whether sessions of *owner* may be shown to it."""

    def patched(self, session_id: str, rev: int, changes: Mapping[str, object]) -> None:
        """Something of a session it watches is different now."""

    def listed(self, rev: int, session_ids: Sequence[str]) -> None:
        """Its list of sessions is out of date."""

    def unfollow(self, session_id: str) -> None:
        """A session it watched was deleted."""

    def going_away(self) -> None:
        """The server is about to stop."""


class Board:
    """Tells the watchers what changed."""

    def __init__(self) -> None:
        self._members: set[Watcher] = set()
        self._watching: dict[str, set[Watcher]] = {}
        self._revs: dict[str, int] = {}
        self._list_rev = 0

    def join(self, watcher: Watcher) -> None:
        """Tell *watcher* of changes in the list, and when the server goes away."""
        self._members.add(watcher)

    def leave(self, watcher: Watcher) -> None:
        """Tell *watcher* nothing more; it has stopped watching every session."""
        self._members.discard(watcher)

    def watch(self, session_id: str, watcher: Watcher) -> None:
        """Tell *watcher* of changes in this session."""
        self._watching.setdefault(session_id, set()).add(watcher)

    @property
    def watched(self) -> Set[str]:
        """Ids of the sessions that somebody watches now."""
        return self._watching.keys()

    def unwatch(self, session_id: str, watcher: Watcher) -> None:
        """Tell *watcher* no more of this session."""
        watchers = self._watching.get(session_id)
        if watchers is not None:
            watchers.discard(watcher)
            if not watchers:
                del self._watching[session_id]

    def forget(self, session_id: str) -> None:
        """The session was deleted: nobody watches one that may get its id."""
        for watcher in self._watching.pop(session_id, ()):
            watcher.unfollow(session_id)
        self._revs.pop(session_id, None)

    def patch(self, session_id: str, owner: str, changes: Mapping[str, object]) -> None:
        """Something of the session is different now.

        Args:
            changes: Keys of the session's object with their new values; None clears a key.
        """
        rev = self._revs.get(session_id, 0) + 1
        self._revs[session_id] = rev
        for watcher in self._watching.get(session_id, ()):
            watcher.patched(session_id, rev, changes)
        if not _LISTED.isdisjoint(changes):
            self.changed(owner, [session_id])

    def changed(self, owner: str, session_ids: Sequence[str]) -> None:
        """Sessions of *owner* came, went, or look different in a list."""
        self._list_rev += 1
        for watcher in self._members:
            if watcher.may_see(owner):
                watcher.listed(self._list_rev, session_ids)

    def close(self) -> None:
        """The server is about to stop: every member says so to its client and ends."""
        for watcher in list(self._members):
            watcher.going_away()
