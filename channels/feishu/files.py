"""Fetches what a message came with: a picture, a file, or messages that it quotes or holds."""

import logging
import mimetypes
from contextlib import suppress

from channels import sentences
from channels.clock import Clock
from channels.dedupe import Window
from channels.errors import DeliveryError, FetchError
from channels.feishu import content, fields, forward
from channels.feishu.api import FeishuApi
from channels.feishu.call import DOWNLOAD_BYTES_MAX, TooBig
from channels.feishu.codes import Meaning, Refused
from channels.feishu.content import OCTETS, ResourceKind
from channels.feishu.fields import Fields
from channels.feishu.place import QUOTE_NAME, locator_from
from channels.port import Fetched, Locale, RemoteFile

logger = logging.getLogger(__name__)

TOLD_SECONDS = 3600.0
"""How often the operator is told at most, for each chat, that a permission is missing."""


class Files:
    """The downloads of one bot."""

    def __init__(self, api: FeishuApi, locale: Locale, clock: Clock) -> None:
        self._api = api
        self._locale = locale
        self._told = Window(TOLD_SECONDS, clock.monotonic)

    async def fetch(self, file: RemoteFile) -> Fetched:
        """Download *file*; a quote that cannot be read is an empty one, not a failure."""
        where = locator_from(file.locator)
        if where is None:
            raise self._unavailable(file.name, "no locator")
        if where.kind != "forward" and not where.resource_key:
            return await self._quoted(where.message_id)
        try:
            if where.kind == "forward":
                return await self._forwarded(where.message_id, file.name)
            return await self._download(where.message_id, where.resource_key, where.kind, file.name)
        except TooBig:
            megabytes = DOWNLOAD_BYTES_MAX // 2**20
            text = sentences.file_too_big(self._locale, file.name, megabytes)
            raise FetchError("too big", text) from None
        except Refused as refused:
            if refused.meaning is not Meaning.SCOPE:
                raise self._unavailable(file.name, str(refused)) from None
            if self._told.claim([where.chat_id]):
                scopes = ", ".join(refused.scopes)
                logger.warning("[feishu] files cannot be read, missing permission: %s", scopes)
            raise FetchError(str(refused), sentences.files_forbidden(self._locale)) from None
        except DeliveryError as error:
            raise self._unavailable(file.name, str(error)) from None

    def _unavailable(self, name: str, why: str) -> FetchError:
        return FetchError(why, sentences.file_unavailable(self._locale, name))

    async def _download(self, message_id: str, key: str, kind: ResourceKind, name: str) -> Fetched:
        found = await self._api.download(message_id, key, kind)
        media_type = found.media_type
        if media_type == OCTETS:
            media_type = content.media_type_of(found.name or name)
        if kind == "image":
            name += mimetypes.guess_extension(media_type) or ""
        return Fetched(found.data, name, media_type)

    async def _quoted(self, message_id: str) -> Fetched:
        try:
            return await self._told_of(message_id)
        except (DeliveryError, TooBig) as error:
            logger.info("[feishu] a quoted message was not read: %s", type(error).__name__)
            return _text(QUOTE_NAME, "")

    async def _told_of(self, message_id: str) -> Fetched:
        """The words of a message, or its first file where it has none."""
        items = await self._read(message_id)
        if not items:
            return _text(QUOTE_NAME, "")
        if forward.is_forward(items[0]):
            return _text(QUOTE_NAME, forward.render(items))
        read = forward.read_item(items[0])
        if read.text or not read.resources:
            return _text(QUOTE_NAME, read.text)
        first = read.resources[0]
        return await self._download(message_id, first.key, first.kind, first.name)

    async def _read(self, message_id: str) -> list[Fields]:
        """The message and what it holds; a card as it was sent, if the platform gives it so."""
        items = await self._api.read_message(message_id)
        if items and fields.text(items[0], "msg_type") == "interactive":
            with suppress(Refused):
                return await self._api.read_message(message_id, is_card_whole=True)
        return items

    async def _forwarded(self, message_id: str, name: str) -> Fetched:
        items = await self._read(message_id)
        if items and not forward.is_forward(items[0]):
            words = forward.read_item(items[0]).text
        else:
            words = forward.render(items) if items else ""
        if not words:
            raise self._unavailable(name, "the forward holds nothing")
        return _text(name, words)


def _text(name: str, words: str) -> Fetched:
    return Fetched(words.encode(), name, "text/plain")
