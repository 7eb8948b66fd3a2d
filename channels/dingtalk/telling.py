"""One delivery on its way: the card brought to its end, what does not stand on it as messages."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from channels.clock import Clock
from channels.dingtalk.api import DingTalkApi
from channels.dingtalk.card import (
    End,
    card_id_of,
    render_posted,
    render_refused,
    render_settled,
)
from channels.dingtalk.codes import Kind, Refused
from channels.dingtalk.decode import Address
from channels.dingtalk.reactions import Reactions
from channels.dingtalk.sender import Sender
from channels.dingtalk.trace import Trace, Traces
from channels.dingtalk.writer import END_SECONDS, CardWriter, end_card
from channels.errors import InboxUnavailable
from channels.port import Delivery

log = logging.getLogger(__name__)

CREATE_SECONDS = 10.0
"""How long the creation of a card waits out refusals; all can be told without one as well."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the chats' side is built of."""

    api: DingTalkApi
    sender: Sender
    reactions: Reactions
    traces: Traces
    clock: Clock
    template_id: str
    robot_code: str
    start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

    def has_card_for(self, address: Address) -> bool:
        """Whether a card can be put there; people from outside cannot be found by an id."""
        return bool(self.template_id) and (address.is_group or bool(address.staff_id))


class Telling:
    """Does what an earlier try has not done."""

    def __init__(
        self,
        parts: Parts,
        delivery: Delivery,
        address: Address,
        end: End,
        writer: CardWriter | None,
    ) -> None:
        """*writer* is that of the run's card, where this process has begun it."""
        self._parts = parts
        self._turn = delivery.turn
        self._address = address
        self._end = end
        self._writer = writer
        self._trace = parts.traces.of(delivery.turn)

    @property
    def is_news(self) -> bool:
        """The run's end was told before; what comes now is who answered."""
        return self._trace.told > 0 and self._end.answered > 0

    async def tell(self) -> None:
        """Tell it.

        Raises:
            Refused: Something of it is still not told, or a card is still open.
        """
        owed: Refused | None = None
        if self._can_post:
            await self._post()
        if self._trace.has_open_card:
            try:
                await self._end_card()
            except Refused as refused:
                if self._is_unasked:  # nobody waits for it, so it can be told later, and once
                    raise
                owed = refused
        for number in range(self._trace.told, len(self._end.parts)):
            await self._send(self._end.parts[number])
            await self._note(replace(self._trace, told=number + 1, answered=self._end.answered))
        if self._end.answered > self._trace.answered:
            await self._tell_answers()
        if owed is not None:
            raise owed

    @property
    def _is_unasked(self) -> bool:
        return self._turn.reply_to is None

    @property
    def _can_post(self) -> bool:
        is_new = self._trace == Trace()
        return self._is_unasked and is_new and self._parts.has_card_for(self._address)

    async def _post(self) -> None:
        """Show what nobody asked for on a card that is over at once.

        Other than a message, a card can be looked for after a crash: it is told once.

        Raises:
            Refused: It may stand there, which the next try finds out, or does not stand there yet.
        """
        card_id = card_id_of(self._turn.run_id)
        api = self._parts.api
        body = render_posted(card_id, self._parts.template_id, self._address, self._end)
        try:
            await self._parts.traces.keep(self._turn.run_id, Trace(card_id))
        except InboxUnavailable:
            self._parts.traces.set(self._turn.run_id, Trace())
            raise Refused(Kind.BROKEN, "not_kept") from None
        self._trace = Trace(card_id)
        try:
            await api.insist(lambda: api.create_card(body), CREATE_SECONDS, is_repeatable=False)
        except Refused as refused:
            if refused.kind == Kind.BROKEN:
                raise
            log.warning("[dingtalk] no card: %s (%s)", refused.kind, refused.code)
            await self._note(Trace())
            if may_pass(refused):
                raise
        else:
            await self._note(self._trace.shown(self._end.answered))

    async def _end_card(self) -> None:
        """End the run's card; if it shows how the run ended, the first part is told.

        Raises:
            Refused: It is still open, and can be ended later.
        """
        # Once its text is told elsewhere, nobody waits for the card: the next try is the outbox's.
        seconds = END_SECONDS if self._trace.told == 0 else 0.0
        try:
            if self._writer is not None:
                await self._writer.end(self._end, seconds)
            else:
                await end_card(self._parts.api, self._trace.card_id, self._end, seconds)
        except Refused as refused:
            log.warning("[dingtalk] told without a card: %s (%s)", refused.kind, refused.code)
            if may_pass(refused):
                raise
            await self._note(replace(self._trace, is_ended=True))
        else:
            await self._note(self._trace.shown(self._end.answered))

    async def _tell_answers(self) -> None:
        """Show who answered where the question stands, else as a message.

        Raises:
            Refused: It can be shown later.
        """
        if not (self._trace.card_id and await self._update_card()):
            await self._send(self._end.verdicts)
        await self._note(replace(self._trace, answered=self._end.answered))

    async def _update_card(self) -> bool:
        """Whether the card, which is over, shows what was answered."""
        api, body = self._parts.api, render_settled(self._trace.card_id, self._end)
        try:
            await api.insist(lambda: api.update_card(body), END_SECONDS, is_repeatable=True)
        except Refused as refused:
            log.warning("[dingtalk] a card keeps its question: %s (%s)", refused.kind, refused.code)
            if may_pass(refused):
                raise
            return False
        return True

    async def _send(self, text: str) -> None:
        """Send one message; a text that the platform does not take is owned up to."""
        try:
            await self._parts.sender.send(self._address, text)
        except Refused as refused:
            if refused.kind not in (Kind.CONTENT, Kind.BAD):
                raise
            log.warning("[dingtalk] a text was not taken (%s)", refused.code)
            await self._parts.sender.send(self._address, render_refused(self._turn.locale))

    async def _note(self, trace: Trace) -> None:
        self._trace = await self._parts.traces.note(self._turn.run_id, trace)


def may_pass(refused: Refused) -> bool:
    """Whether the application is to try again; a secret may be mended meanwhile."""
    return refused.is_passing or refused.kind == Kind.TOKEN
