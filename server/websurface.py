"""Tells web clients that are not watching a session that its run has ended."""

from server.board import Board
from server.errors import NotFound
from server.store.engine import Store
from server.store.outbox import OutboxItem
from server.store.sessions import load_session


class WebSurface:
    """The pages and desktop clients of a session's owner; they refresh their lists."""

    def __init__(self, board: Board, store: Store) -> None:
        self._board = board
        self._store = store

    async def deliver(self, item: OutboxItem) -> None:
        """Refresh the lists; a client that is away asks for them when it comes back."""
        try:
            async with self._store.read() as db:
                session = await load_session(db, item.session_id)
        except NotFound:
            return
        self._board.changed(session.owner, [session.id])
