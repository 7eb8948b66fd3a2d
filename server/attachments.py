"""Fetches the files of a chat message from its platform, before its run does anything else."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from channels.dedupe import Window
from channels.errors import FetchError
from channels.port import Fetched, RemoteFile, Surface, Turn
from server import sentences
from server.errors import NotFound
from server.message import FilePart, Message, Part, TextPart, clean_text, files_of
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.files import StoredFile, insert_file
from server.store.messages import load_message, replace_content
from server.store.sessions import Session

log = logging.getLogger(__name__)


INLINE_BYTES: Final = 4096
"""Plain texts up to this, quotes above all, are read into the message itself."""

TOLD_SECONDS: Final = 3600.0
"""How often a chat is told the same reason why files cannot be had."""


class Attachments:
    """Turns the places where a platform keeps files into files of the session."""

    def __init__(self, store: Store, blobs: Blobs, surfaces: Mapping[str, Surface]) -> None:
        self._store = store
        self._blobs = blobs
        self._surfaces = surfaces
        self._told = Window(TOLD_SECONDS)

    async def fetch(self, message_id: str, session: Session, turn: Turn) -> None:
        """Fetch what the message brings and is not here yet; a second call fetches nothing.

        What cannot be had is told in the chat, and stands in the message as a note.
        """
        async with self._store.read() as db:
            try:
                _, message = await load_message(db, message_id)
            except NotFound:
                return
        if not any(part.locator for part in files_of(message.content)):
            return
        parts = [await self._resolved(part, session, turn) for part in _parts(message)]
        async with self._store.write() as db:
            for _, file in parts:
                if file is not None:
                    await insert_file(db, file)
            content = tuple(part for part, _ in parts if part is not None)
            await replace_content(db, message_id, content)

    async def _resolved(
        self, part: Part, session: Session, turn: Turn
    ) -> tuple[Part | None, StoredFile | None]:
        if isinstance(part, TextPart) or part.locator is None:
            return part, None
        surface = self._surfaces.get(turn.chat.surface)
        if surface is None:  # its bot is not configured any more
            return TextPart(sentences.unreadable(session.locale, part.name)), None
        try:
            fetched = await surface.fetch(RemoteFile(part.locator, part.name, part.media_type))
        except FetchError as error:
            log.warning("[files] not fetched session=%s: %s", session.id, error)
            if self._told.claim([f"{turn.chat}:{error.user_text}"]):
                await surface.say(turn, error.user_text)
            return TextPart(sentences.unreadable(session.locale, part.name)), None
        if fetched.media_type == "text/plain" and len(fetched.data) <= INLINE_BYTES:
            return _inlined(part.name, fetched.data), None
        return await self._kept(part, fetched, session)

    async def _kept(
        self, part: FilePart, fetched: Fetched, session: Session
    ) -> tuple[FilePart, StoredFile]:
        sha256 = await self._blobs.write(fetched.data)
        name = clean_text(fetched.name).replace("/", "_") or part.name
        size = len(fetched.data)
        file = StoredFile(
            id=part.file_id,
            session_id=session.id,
            owner=session.owner,
            name=name,
            media_type=fetched.media_type,
            size_bytes=size,
            sha256=sha256,
            created_at=datetime.now(UTC),
        )
        return FilePart(part.file_id, fetched.media_type, name, size), file


def _inlined(name: str, data: bytes) -> TextPart | None:
    """A short text as words of the message, which the model sees without opening a file."""
    text = clean_text(data.decode("utf-8", "replace")).strip()
    return TextPart(f"[{name}]\n{text}") if text else None


def _parts(message: Message) -> tuple[Part, ...]:
    content = message.content
    return (TextPart(content),) if isinstance(content, str) else content
