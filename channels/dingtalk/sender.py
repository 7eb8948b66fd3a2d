"""The ways to a chat: the message's own webhook while it is good, then the robot's OpenAPI."""

import logging
from collections import OrderedDict

from channels.clock import Clock
from channels.dingtalk.api import DingTalkApi
from channels.dingtalk.codes import Kind, Refused
from channels.dingtalk.decode import Address
from channels.dingtalk.text import TEXT_BYTES, space_tables, title_of
from channels.markdown import split
from channels.port import Locale

log = logging.getLogger(__name__)

WEBHOOK_MARGIN_SECONDS = 60.0
"""A webhook is not used so shortly before its end."""
WEBHOOK_PAUSE_SECONDS = 600.0
"""How long the platform refuses a chat's webhooks after too many messages in a minute."""
WEBHOOK_LIFE_SECONDS = 5400.0
PATIENCE_SECONDS = 30.0
"""How long a message waits out refusals for too many calls before its sender hears of them."""
REMEMBERED_MAX = 1000
"""Chats and webhooks; the oldest go first."""


class Sender:
    """Sends texts into chats."""

    def __init__(self, api: DingTalkApi, clock: Clock, locale: Locale) -> None:
        self._api = api
        self._clock = clock
        self._locale = locale
        self._unusable: OrderedDict[str, float] = OrderedDict()
        """Webhooks and chats whose webhooks are refused, and until when."""
        self._last: OrderedDict[str, Address] = OrderedDict()

    def remember(self, address: Address) -> None:
        """Keep *address* as the newest way to its chat."""
        self._last[address.conversation_id] = address
        self._last.move_to_end(address.conversation_id)
        while len(self._last) > REMEMBERED_MAX:
            self._last.popitem(last=False)

    def last_of(self, conversation_id: str) -> Address | None:
        """The newest way to a chat that was heard from since the start."""
        return self._last.get(conversation_id)

    async def say(self, address: Address, text: str) -> None:
        """Send *text* as one or more messages.

        Raises:
            Refused: No way led there; what was sent of several messages stays.
        """
        for part in split(space_tables(text), TEXT_BYTES):
            await self.send(address, part)

    async def send(self, address: Address, text: str) -> None:
        """Send one message that fits.

        Raises:
            Refused: No way led there. Of kind `BROKEN`, it may have been sent all the same.
        """
        title = title_of(text, self._locale)
        if self._has_webhook(address) and await self._by_webhook(address, title, text):
            return
        await self._by_robot(address, title, text)

    def _has_webhook(self, address: Address) -> bool:
        ends_at = address.webhook_until_ms / 1000 - WEBHOOK_MARGIN_SECONDS
        if not address.webhook or ends_at < self._clock.wall():
            return False
        now = self._clock.monotonic()
        ways = (address.webhook, address.conversation_id)
        return all(self._unusable.get(way, 0.0) <= now for way in ways)

    async def _by_webhook(self, address: Address, title: str, text: str) -> bool:
        """Whether it was taken; if not, another way has to be tried."""
        try:
            await self._api.send_webhook(address, title, text)
        except Refused as refused:
            log.info("[dingtalk] webhook refused: %s (%s)", refused.kind, refused.code)
            match refused.kind:
                case Kind.BROKEN:
                    raise
                case Kind.THROTTLED:
                    self._avoid(address.conversation_id, WEBHOOK_PAUSE_SECONDS)
                case Kind.CONTENT:
                    pass  # the webhook is good, this text is not
                case _:
                    self._avoid(address.webhook, WEBHOOK_LIFE_SECONDS)
            return False
        return True

    async def _by_robot(self, address: Address, title: str, text: str) -> None:
        async def group() -> None:
            chat_id = address.conversation_id
            await self._api.send_group(address.robot_code, chat_id, title, text)

        async def person() -> None:
            await self._api.send_person(address.robot_code, address.staff_id, title, text)

        if not address.is_group and not address.staff_id:
            raise Refused(Kind.GONE, "no_staff_id")
        attempt = group if address.is_group else person
        await self._api.insist(attempt, PATIENCE_SECONDS, is_repeatable=False)

    def _avoid(self, way: str, seconds: float) -> None:
        self._unusable[way] = self._clock.monotonic() + seconds
        while len(self._unusable) > REMEMBERED_MAX:
            self._unusable.popitem(last=False)
