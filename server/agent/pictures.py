"""The pictures of a session as its requests show them.

What people send is shown to a model only if it was decoded, and made small enough: a gateway
refuses a request with a broken or a huge picture in it, and each later one of the session has it
too. This is done once, before the first request that has the picture, and kept: the same bytes go
into each request, whatever library makes pictures smaller by then.
"""

import asyncio
import base64
import logging
from collections.abc import Iterable, Sequence

from channels.pictures import PICTURE_TYPES, picture_type
from server.errors import NotFound, ToolError
from server.message import Message, files_of
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.files import NOT_SHOWN, StoredFile, files_by_id, set_shown
from server.tools.image import picture_of

log = logging.getLogger(__name__)


class Pictures:
    """Makes and loads them."""

    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._store = store
        self._blobs = blobs

    async def load(self, messages: Sequence[Message]) -> dict[str, str]:
        """Data URIs by file id of every picture that the prompt of *messages* shows.

        A file that cannot be read as a picture has none, so that the prompt only names it.
        """
        wanted = set(_picture_ids(messages))
        if not wanted:
            return {}
        async with self._store.read() as db:
            files = await files_by_id(db, sorted(wanted))
        pictures: dict[str, str] = {}
        for file in files.values():
            data = await self._shown(file)
            if data is not None:
                pictures[file.id] = await asyncio.to_thread(data_uri, data)
        return pictures

    async def _shown(self, file: StoredFile) -> bytes | None:
        try:
            sha256 = file.shown_sha256
            if sha256 is None:
                sha256 = await self._make(file)
            return None if sha256 == NOT_SHOWN else await self._blobs.read(sha256)
        except NotFound:
            return None

    async def _make(self, file: StoredFile) -> str:
        """Decode the file and keep what is shown of it; the name of that."""
        content = await self._blobs.read(file.sha256)
        try:
            picture = await asyncio.to_thread(picture_of, content, "the picture")
            shown_sha256 = await self._blobs.write(picture.data)
        except ToolError as error:
            log.info("[files] picture not shown session=%s code=%s", file.session_id, error.code)
            shown_sha256 = NOT_SHOWN
        async with self._store.write() as db:
            await set_shown(db, file.id, shown_sha256)
        return shown_sha256


def data_uri(data: bytes) -> str:
    """A picture as it stands in a request."""
    media_type = picture_type(data)
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def _picture_ids(messages: Sequence[Message]) -> Iterable[str]:
    for message in messages:
        if message.picture is not None:
            yield message.picture.file_id
        for part in files_of(message.content):
            if part.media_type in PICTURE_TYPES:
                yield part.file_id
