"""The small texts under a person's message that say that it is being worked on."""

import asyncio
import logging

from channels.clock import Clock
from channels.dingtalk.api import DingTalkApi
from channels.dingtalk.codes import Kind, Refused
from channels.dingtalk.decode import Address
from channels.port import Locale

log = logging.getLogger(__name__)

THINKING = {"zh-CN": "🤔思考中", "en": "🤔Thinking"}
FAILED = {"zh-CN": "❌失败", "en": "❌Failed"}
OFF_SECONDS = 3600.0
"""How long nothing is tried where the app lacks the right. Other refusals are of one message only,
which was withdrawn for example."""


class Reactions:
    """Decoration: a failure here is logged and never heard of again."""

    def __init__(self, api: DingTalkApi, clock: Clock, locale: Locale) -> None:
        self._api = api
        self._clock = clock
        self._locale = locale
        self._adding: dict[str, asyncio.Task[None]] = {}
        self._off_until = 0.0

    def begin(self, address: Address) -> None:
        """Show that the message is being worked on."""
        if address.message_id and not self._is_off and address.message_id not in self._adding:
            work = self._change(address, THINKING[self._locale])
            task = asyncio.create_task(work, name="dingtalk-react")
            self._adding[address.message_id] = task
            task.add_done_callback(lambda _: self._adding.pop(address.message_id, None))

    async def end(self, address: Address, *, is_failure: bool) -> None:
        """Take it away, also after a restart; a failure leaves a mark of its own."""
        if not address.message_id:
            return
        if adding := self._adding.get(address.message_id):
            await asyncio.wait({adding})  # or the removal overtakes it
        await self._change(address, THINKING[self._locale], remove=True)
        if is_failure:
            await self._change(address, FAILED[self._locale])

    async def close(self) -> None:
        """Leave what is shown."""
        adding = list(self._adding.values())
        for task in adding:
            task.cancel()
        if adding:
            await asyncio.wait(adding)

    @property
    def _is_off(self) -> bool:
        return self._clock.monotonic() < self._off_until

    async def _change(self, address: Address, emotion: str, *, remove: bool = False) -> None:
        if self._is_off:
            return
        try:
            await self._api.react(address, emotion, remove=remove)
        except Refused as refused:
            if refused.kind == Kind.PERMISSION and not remove:
                self._off_until = self._clock.monotonic() + OFF_SECONDS
            log.info("[dingtalk] no reaction: %s (%s)", refused.kind, refused.code)
