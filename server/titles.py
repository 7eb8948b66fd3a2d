"""Names a session by one extra model call, beside the runs and never on their path."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from server.agent.journal import Journal, account_of
from server.agent.texts import PromptTexts
from server.board import Board
from server.errors import LLMError, NotFound, StoreUnavailable
from server.llm.port import AttemptFailed, Model, ModelRequest, Reply
from server.llm.side import ask, side_messages
from server.message import clean_text
from server.store.engine import Store
from server.store.messages import load_page
from server.store.sessions import Session, load_session, set_title
from server.store.usage import LlmCall

log = logging.getLogger(__name__)

TITLE_CHARACTERS: Final = 60
_SOURCE_CHARACTERS: Final = 2000
_SOURCE_MESSAGES: Final = 12
_MAX_TOKENS: Final = 64


class Titles:
    """Asks the model for titles; one that cannot be had leaves the first words standing."""

    def __init__(self, store: Store, journal: Journal, model: Model, board: Board) -> None:
        self._store = store
        self._journal = journal
        self._model = model
        self._board = board
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, session: Session) -> None:
        """Name *session* in the background, unless a person renames it meanwhile."""
        task = asyncio.create_task(self._name(session), name=f"title-{session.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop what is still asked for."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _name(self, session: Session) -> None:
        try:
            title = await self._title(session)
            if not title:
                return
            async with self._store.write() as db:
                now = await load_session(db, session.id)
                if now.title != session.title:
                    return
                await set_title(db, session.id, title, datetime.now(UTC))
        except (LLMError, NotFound, StoreUnavailable) as error:
            log.info("[title] not named session=%s: %s", session.id, type(error).__name__)
            return
        self._board.patch(session.id, session.owner, {"title": title})

    async def _title(self, session: Session) -> str:
        async with self._store.read() as db:
            messages = await load_page(db, session.id, before_seq=None, limit=_SOURCE_MESSAGES)
        spoken = "\n\n".join(
            message.text
            for message in messages
            if message.role != "tool" and not message.synthetic and message.text
        )
        task = PromptTexts(session.locale).title_request
        request = ModelRequest(
            messages=side_messages(task, spoken[:_SOURCE_CHARACTERS]),
            purpose="title",
            max_tokens=_MAX_TOKENS,
        )
        accounts: list[LlmCall] = []

        def heard(end: Reply | AttemptFailed) -> None:
            accounts.append(account_of(session.id, None, "title", self._model.name, end))

        try:
            title = await ask(self._model, request, heard)
        finally:
            await self._journal.record_calls(accounts)
        first_line = clean_text(title).strip().partition("\n")[0]
        return first_line.strip(" \"'“”「」《》#*。.")[:TITLE_CHARACTERS]


@asynccontextmanager
async def open_titles(titles: Titles) -> AsyncIterator[Titles]:
    """Name sessions until closed."""
    try:
        yield titles
    finally:
        await titles.close()
