"""The progress card of one run: made, shown, kept up to date, found again after a crash."""

import asyncio
import logging
from dataclasses import replace

from channels.clock import Clock
from channels.errors import DeliveryError, InboxUnavailable
from channels.events import Outcome, RunEvent
from channels.feishu import card
from channels.feishu.api import FeishuApi, idempotency_key
from channels.feishu.card import Face, Stop
from channels.feishu.codes import Refused, Unreachable
from channels.feishu.place import SEQUENCE_STEP, Handle, handle_from, place_for
from channels.feishu.writer import CardWriter
from channels.port import Inbox, Turn
from channels.progress import START, advance

logger = logging.getLogger(__name__)


class LiveCard:
    """The card of one run; a sink for its events.

    Whatever instant the process dies in, the card is found again: it is kept before it is shown,
    and shown under a key that shows it once. Only one that nobody has seen may be lost.
    """

    def __init__(
        self, turn: Turn, api: FeishuApi, inbox: Inbox, clock: Clock, *, is_over: bool = False
    ) -> None:
        """Begin to make or to find the card; if the run *is_over*, only its end will be written."""
        self.turn = turn
        self._is_over = is_over
        self._is_seen = True
        self.is_replaced = False
        """A message has told what the card could not; the card gets no answer any more."""
        self._api = api
        self._inbox = inbox
        self._clock = clock
        self._place = place_for(turn)
        self._shown = START
        self._handle = handle_from(turn.handle)
        self._writer: CardWriter | None = None
        self.opening = asyncio.create_task(self._open(), name=f"open-card-{turn.run_id}")

    @property
    def answer(self) -> str:
        """What the model has said so far."""
        return self._shown.answer

    def emit(self, event: RunEvent) -> None:
        """Take *event*; never blocks, never raises."""
        if isinstance(event, Outcome):
            self._is_over = True  # what it says is written by `close`
            return
        self._shown = advance(self._shown, event)
        self._touch()

    async def close(self, ended: str) -> bool:
        """Write *ended* as the card's last state; False if it is not sure that anybody sees it.

        Raises:
            DeliveryError: The card cannot be written.
        """
        await asyncio.wait({self.opening})
        if self._writer is None:
            return False
        await self._writer.close(ended)
        return self._is_seen

    async def stop(self) -> None:
        """Leave the card as it is: the process ends, or a message stands in for the card."""
        self.opening.cancel()
        await asyncio.wait({self.opening})
        if self._writer is not None:
            await self._writer.stop()

    def _touch(self) -> None:
        if self._writer is not None and not self._is_over:
            self._writer.touch()

    def _face(self) -> Face:
        return card.face(self._shown, self.turn.locale)

    def _render(self, face: Face) -> str:
        stop = Stop(self.turn.run_id, self._place.chat_id)
        return card.live(face, stop, self.turn.locale, self.turn.label)

    async def _open(self) -> None:
        try:
            if self._handle is None:
                await self._make()
            else:
                await self._find(self._handle)
        except (DeliveryError, InboxUnavailable) as error:
            logger.warning("[feishu] run=%s has no card: %s", self.turn.run_id, error)

    async def _make(self) -> None:
        face = self._face()
        card_id = await self._api.create_card(self._render(face))
        handle = Handle(card_id)
        await self._inbox.keep(self.turn.run_id, handle.as_json())
        await self._show(handle, face)

    async def _find(self, handle: Handle) -> None:
        """Go on with a card of an earlier life: above all numbers that may have been used."""
        handle = replace(handle, sequence=handle.sequence + SEQUENCE_STEP)
        await self._keep(handle)
        if handle.message_id:
            self._begin(handle, Face(""))
        else:
            await self._show(handle, Face(""), was_tried=True)

    async def _show(self, handle: Handle, face: Face, *, was_tried: bool = False) -> None:
        """Post the message that shows the card.

        Where it stays open whether there is one, the card's end is written all the same, so that
        it does not type for ever, and a message tells the end a second time. A refusal that may be
        repeated leaves it open too: an earlier try may have got through.
        """
        key = idempotency_key("card", self.turn.run_id)
        content = card.card_reference(handle.card_id)
        try:
            message_id = await self._api.post(self._place, "interactive", content, key)
        except (Refused, Unreachable) as error:
            if not (error.retryable or was_tried):
                raise
            self._is_seen = False
            self._is_over = self._is_over or isinstance(error, Refused)
            self._begin(handle, face)
            return
        handle = replace(handle, message_id=message_id)
        self._begin(handle, face)
        await self._keep(handle)

    def _begin(self, handle: Handle, written: Face) -> None:
        self._handle = handle
        self._writer = CardWriter(
            self._api,
            handle.card_id,
            self._face,
            self._render,
            written,
            sequence=handle.sequence,
            clock=self._clock,
        )
        self._touch()

    async def _keep(self, handle: Handle) -> None:
        """Keep what is worth a try only: without it the card is shown once more, to no effect."""
        try:
            await self._inbox.keep(self.turn.run_id, handle.as_json())
        except InboxUnavailable:
            logger.warning("[feishu] run=%s: the card's place was not kept", self.turn.run_id)
