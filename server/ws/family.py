"""Following a session together with the sessions under it."""

from collections.abc import Iterable, Mapping
from typing import cast

from server.ws.methods import Caller
from server.ws.objects import ChildObject


class Family:
    """The children of a session on one connection: those that are there, and those to come.

    They are followed as far as the connection may follow more sessions.
    """

    def __init__(self, caller: Caller, session_id: str) -> None:
        self._caller = caller
        self._session_id = session_id
        self._met: set[str] = set()

    def meet(self, child_ids: Iterable[str]) -> None:
        """Follow children that are there, each from the run under way on."""
        for child_id in child_ids:
            ring = self._caller.state["logs"].of(child_id)
            self._follow(child_id, ring.head if ring.active is None else ring.active.first - 1)

    def changed(self, changes: Mapping[str, object]) -> None:
        """Follow children that were born since, each from its first event on."""
        children = cast(Iterable[ChildObject], changes.get("children", ()))  # as on the board
        for child in children:
            ring = self._caller.state["logs"].of(child.id)
            self._follow(child.id, ring.oldest - 1)

    def _follow(self, child_id: str, cursor: int) -> None:
        connection = self._caller.connection
        is_known = child_id in self._met or child_id in connection.subscriptions
        self._met.add(child_id)
        if is_known or len(connection.subscriptions) >= self._caller.policy.subscriptions:
            return
        self._caller.state["board"].watch(child_id, connection)
        ring = self._caller.state["logs"].of(child_id)
        connection.follow(child_id, ring, cursor, through=self._session_id)
