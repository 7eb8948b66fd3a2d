"""The calls that a Feishu bot makes: who it is, messages, files, cards."""

import hashlib
import json
from collections import deque
from dataclasses import dataclass
from urllib.parse import quote

import aiohttp

from channels.clock import SYSTEM, Clock
from channels.feishu import fields
from channels.feishu.call import Caller, Downloaded, budgets
from channels.feishu.codes import Meaning, Refused, Unreachable
from channels.feishu.config import PATIENT, FeishuConfig, Patience
from channels.feishu.content import ResourceKind
from channels.feishu.fields import Fields
from channels.throttle import Budgets

POSTED_MAX = 1000
CARD_PER_SECOND = 8
"""The platform admits 10 per card; clicks need a few."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """Where a long connection goes; for one connection only."""

    url: str
    ping_seconds: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message goes: as an answer to another one, or into a chat."""

    chat_id: str
    message_id: str = ""
    """Answered if it is still there."""
    in_thread: bool = False


def idempotency_key(*parts: str) -> str:
    """A `uuid` of at most 50 characters: the platform does once what comes twice within an hour."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:40]


class FeishuApi:
    """The calls of one app."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        config: FeishuConfig,
        chats: Budgets,
        clock: Clock = SYSTEM,
        patience: Patience = PATIENT,
    ) -> None:
        """*chats* are shared with the other bots of the process: a group counts them together."""
        self._config = config
        self._patience = patience
        self._caller = Caller(http, config, chats, clock, patience)
        self.posted: deque[str] = deque(maxlen=POSTED_MAX)
        """Ids of the newest messages of this bot, to know them when they are pushed back."""
        self._cards = budgets(CARD_PER_SECOND, CARD_PER_SECOND, clock)

    @property
    def waits(self) -> int:
        """Calls that had to wait for their turn."""
        return self._caller.waits + self._cards.waits

    @property
    def missing_scopes(self) -> frozenset[str]:
        """Permissions for lack of which a call was refused lately."""
        return self._caller.missing_scopes

    # Who and where

    async def bot_open_id(self) -> str:
        """Who this bot is, as mentions name it."""
        answer = await self._caller.call("bot", "GET", "/open-apis/bot/v3/info")
        open_id = fields.text(fields.under(answer, "bot"), "open_id")
        if not open_id:
            raise Refused(Meaning.BUG, status=200)
        return open_id

    async def person_name(self, open_id: str) -> str:
        """How a person is called; empty if the app may not know.

        The permissions for it are nobody's need, so nothing counts as missing without them.
        """
        path = f"/open-apis/contact/v3/users/{_part(open_id)}?user_id_type=open_id"
        try:
            answer = await self._caller.call("person", "GET", path)
        except Refused as refused:
            self._caller.excuse(refused.scopes)
            raise
        return fields.text(fields.under(answer, "data", "user"), "name")

    async def discover(self) -> Discovered:
        """Where the long connection goes; one try, since whoever asks tries again."""
        body = {"AppID": self._config.app_id, "AppSecret": self._config.app_secret}
        answer = await self._caller.answer(
            "POST", "/callback/ws/endpoint", seconds=self._patience.discovery_seconds, json=body
        )
        found = fields.under(answer, "data")
        settings = fields.under(found, "ClientConfig")
        url = fields.text(found, "URL")
        if "device_id=" not in url or "service_id=" not in url:
            raise Unreachable("discovery gave no address")
        return Discovered(url, fields.number(settings, "PingInterval") or 120.0)

    async def scopes(self) -> frozenset[str]:
        """The permissions that the operator was granted."""
        answer = await self._caller.ask("GET", "/open-apis/application/v6/scopes")
        found = [fields.fields(one) for one in fields.items(fields.under(answer, "data"), "scopes")]
        granted = (one for one in found if fields.number(one, "grant_status") == 1)
        return frozenset(fields.text(one, "scope_name") for one in granted)

    # Messages

    async def post(self, place: Place, kind: str, content: str, key: str) -> str:
        """Answer the message of *place*, or write into its chat if that message is gone.

        Args:
            kind: `text`, `interactive`, …
            content: A JSON text.
            key: From `idempotency_key`; the same one posts at most once within an hour.

        Returns:
            The id of the new message.
        """
        if place.message_id:
            try:
                return await self._reply(place, kind, content, key)
            except Refused as refused:
                if refused.meaning is not Meaning.MESSAGE_GONE:
                    raise
        body = {"receive_id": place.chat_id, "msg_type": kind, "content": content}
        path = "/open-apis/im/v1/messages?receive_id_type=chat_id"
        return await self._message("send", place.chat_id, path, {**body, "uuid": key})

    async def _reply(self, place: Place, kind: str, content: str, key: str) -> str:
        body = {"msg_type": kind, "content": content, "uuid": key}
        path = f"/open-apis/im/v1/messages/{_part(place.message_id)}/reply"
        return await self._message(
            "reply", place.chat_id, path, {**body, "reply_in_thread": place.in_thread}
        )

    async def _message(self, api: str, chat_id: str, path: str, body: Fields) -> str:
        answer = await self._caller.call(api, "POST", path, body=body, chat_id=chat_id)
        message_id = fields.text(fields.under(answer, "data"), "message_id")
        self.posted.append(message_id)
        return message_id

    async def read_message(self, message_id: str, *, is_card_whole: bool = False) -> list[Fields]:
        """A message as the platform keeps it, and after it all that it holds at whatever depth.

        Each has `msg_type`, `body.content`, `sender`, … and, inside of another, `upper_message_id`.

        Args:
            is_card_whole: As it was sent, where the message is one; else an extract is given, which
                of cards like ours says nothing. By field reports only for cards: a forward asked
                for so is an internal error.
        """
        path = f"/open-apis/im/v1/messages/{_part(message_id)}?with_sender_name=true"
        if is_card_whole:
            path += "&card_msg_content_type=user_card_content"
        answer = await self._caller.call("read", "GET", path)
        found = fields.items(fields.under(answer, "data"), "items")
        return [fields.fields(one) for one in found]

    async def react(self, message_id: str, emoji: str) -> str:
        """Add a reaction; its id is needed to take it away."""
        path = f"/open-apis/im/v1/messages/{_part(message_id)}/reactions"
        body = {"reaction_type": {"emoji_type": emoji}}
        answer = await self._caller.call("react", "POST", path, body=body)
        return fields.text(fields.under(answer, "data"), "reaction_id")

    async def own_reactions(self, message_id: str, emoji: str) -> list[str]:
        """Ids of the reactions of that kind that this bot has added, as far as one page tells."""
        query = f"reaction_type={_part(emoji)}&page_size=50"
        path = f"/open-apis/im/v1/messages/{_part(message_id)}/reactions?{query}"
        answer = await self._caller.call("reactions", "GET", path)
        found = fields.items(fields.under(answer, "data"), "items")
        return [
            fields.text(one, "reaction_id")
            for one in map(fields.fields, found)
            if fields.text(fields.under(one, "operator"), "operator_id") == self._config.app_id
        ]

    async def unreact(self, message_id: str, reaction_id: str) -> None:
        """Take a reaction away."""
        path = f"/open-apis/im/v1/messages/{_part(message_id)}/reactions/{_part(reaction_id)}"
        await self._caller.call("unreact", "DELETE", path)

    # Files

    async def download(self, message_id: str, key: str, kind: ResourceKind) -> Downloaded:
        """A file of a message that was received.

        Raises:
            TooBig: It is over `DOWNLOAD_BYTES_MAX`.
        """
        path = f"/open-apis/im/v1/messages/{_part(message_id)}/resources/{_part(key)}?type={kind}"
        return await self._caller.repeated("download", lambda: self._caller.download(path))

    # Cards: one writer each, who counts `sequence`, so nothing is repeated here but a bad token

    async def create_card(self, card: str) -> str:
        """Make a card that nobody sees yet; its id."""
        body = {"type": "card_json", "data": card}
        answer = await self._caller.call("cards", "POST", "/open-apis/cardkit/v1/cards", body=body)
        return fields.text(fields.under(answer, "data"), "card_id")

    async def card_turn(self, card_id: str) -> None:
        """Wait until the card may be written to; what is written should be read after this."""
        await self._cards.of(card_id).take()
        await self._caller.turn("card")

    async def write_text(self, card_id: str, element_id: str, text: str, sequence: int) -> None:
        """Set the text of an element, the whole of it; the platform types out what is new."""
        path = f"/open-apis/cardkit/v1/cards/{_part(card_id)}/elements/{element_id}/content"
        await self._card_write(card_id, path, {"content": text}, sequence)

    async def replace_card(self, card_id: str, card: str, sequence: int) -> None:
        """Set the whole card, its streaming mode too."""
        path = f"/open-apis/cardkit/v1/cards/{_part(card_id)}"
        await self._card_write(
            card_id, path, {"card": {"type": "card_json", "data": card}}, sequence
        )

    async def _card_write(self, card_id: str, path: str, body: Fields, sequence: int) -> None:
        """The key holds the content too: a number that an earlier life of the process used may come
        again with another text, which the platform must not take for done."""
        key = idempotency_key(card_id, str(sequence), json.dumps(body))
        try:
            await self._caller.ask("PUT", path, body={**body, "sequence": sequence, "uuid": key})
        except Refused as refused:
            self._caller.heed("card", refused)
            raise


def _part(identifier: str) -> str:
    """An id as a part of a path: what the platform, or a card, gave may hold anything."""
    return quote(identifier, safe="")
