"""Tells whoever watches a session what became of the sessions under it.

Children are born, named and ended in many places, all of which tell the board. So this listens
there, as a client would, and reads the truth from the store: one at a time, so that the last list
that goes out is the newest.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from channels.faults import fault_of
from server.board import Board
from server.errors import NotFound, StoreUnavailable
from server.patches import children_patch
from server.store.engine import Store
from server.store.sessions import children_of, load_session, parents_of

log = logging.getLogger(__name__)


class Children:
    """Keeps the lists of children up to date; fits `server.board.Watcher` by shape."""

    def __init__(self, store: Store, board: Board) -> None:
        self._store = store
        self._board = board
        self._listed: set[str] = set()
        self._parents: set[str] = set()
        self._woken = asyncio.Event()

    def may_see(self, owner: str) -> bool:
        """Whether sessions of *owner* may be shown: of everybody."""
        return True

    def patched(self, session_id: str, rev: int, changes: Mapping[str, object]) -> None:
        """Nothing: no session is watched as such."""

    def listed(self, rev: int, session_ids: Sequence[str]) -> None:
        """These sessions look different; some may be children."""
        self._listed.update(session_ids)
        self._woken.set()

    def unfollow(self, session_id: str) -> None:
        """Nothing: no session is watched as such."""

    def going_away(self) -> None:
        """Nothing: `open_children` ends it."""

    def lost(self, parent_id: str) -> None:
        """A child of this session was deleted, so the store does not know any more whose it was."""
        self._parents.add(parent_id)
        self._woken.set()

    async def tell(self) -> None:
        """Tell of changes until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            listed, self._listed = self._listed, set()
            parents, self._parents = self._parents, set()
            if not self._board.watched:
                continue
            try:
                await self._tell_of(listed, parents)
            except StoreUnavailable:
                log.warning("[children] not told; the next change tells all")
            except Exception as error:  # noqa: BLE001 - one list must not be the last one
                log.error("[children] not told %s", fault_of(error))

    async def _tell_of(self, listed: set[str], parents: set[str]) -> None:
        async with self._store.read() as db:
            parents |= await parents_of(db, listed)
        for parent_id in parents & self._board.watched:
            try:
                async with self._store.read() as db:
                    parent = await load_session(db, parent_id)
                    children = await children_of(db, parent_id)
            except NotFound:
                continue
            self._board.patch(parent_id, parent.owner, children_patch(children))


@asynccontextmanager
async def open_children(store: Store, board: Board) -> AsyncIterator[Children]:
    """Tell of children until closed."""
    children = Children(store, board)
    board.join(children)
    telling = asyncio.create_task(children.tell(), name="children")
    try:
        yield children
    finally:
        telling.cancel()
        await asyncio.wait({telling})
        board.leave(children)
