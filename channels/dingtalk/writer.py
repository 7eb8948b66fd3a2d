"""The one writer of a card: newest text first, one call at a time, then the end."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable

from channels.clock import Clock
from channels.dingtalk.api import DingTalkApi
from channels.dingtalk.card import (
    End,
    render_ended,
    render_settled,
    render_text,
    render_unstreamed,
)
from channels.dingtalk.codes import Kind, Refused

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.5
"""Between two texts of a card; readers see no difference below, and all cards share the budget."""
REFUSAL_SECONDS = (2.0, 30.0)
"""First and longest pause of a card after a refusal for too many calls."""
END_SECONDS = 60.0
"""How long the end is tried before its text goes another way."""
SETTLE_TRIES = 4
"""How often the removal of the stop button, which shall go first, may hold up the end: 14 s."""
SETTLE_SECONDS = 20.0
"""How long it is tried after the end, if it could not go first."""


class CardWriter:
    """Shows a run on one card.

    Args:
        create: Makes the card; raises Refused. None where it exists since before a restart.
        render: The newest text; asked for when there is time to show it.
    """

    def __init__(
        self,
        api: DingTalkApi,
        clock: Clock,
        card_id: str,
        create: Callable[[], Awaitable[None]] | None,
        render: Callable[[], str],
    ) -> None:
        self.card_id = card_id
        self._api = api
        self._clock = clock
        self._create = create
        self._render = render
        self._is_missing = False
        self._can_stream = True
        self._shown = ""
        self._wanted = asyncio.Event()
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._write(), name=f"card-{card_id}")

    def poke(self) -> None:
        """Say that there is something new to show; cheap, never waits."""
        self._wanted.set()

    async def end(self, end: End, seconds: float = END_SECONDS) -> None:
        """Show how the run ended, after whatever is being written now; see `end_card`.

        Raises:
            Refused: The card does not show it. Where there is no card, of kind `GONE`.
        """
        self._ending.set()
        self._wanted.set()
        await asyncio.wait({self._task})
        if self._is_missing:
            raise Refused(Kind.GONE, "no_card")
        await end_card(self._api, self.card_id, end, seconds)

    async def close(self) -> None:
        """Write no more and leave the card as it is."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _write(self) -> None:
        if self._create is not None and not await self._make(self._create):
            return
        pause, longest = REFUSAL_SECONDS
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._ending.is_set():
                return
            try:
                await self._show(self._render())
            except Refused as refused:
                if not refused.is_passing:
                    log.warning("[dingtalk] card stands still: %s (%s)", refused.kind, refused.code)
                    return
                self._wanted.set()
                await self._pause(max(pause, refused.retry_after_seconds or 0.0))
                pause = min(pause * 2, longest)
            else:
                pause = REFUSAL_SECONDS[0]
                await self._pause(INTERVAL_SECONDS)

    async def _make(self, create: Callable[[], Awaitable[None]]) -> bool:
        """Whether the card is there; after a lost answer it may be, which its end will show."""
        try:
            await create()
        except Refused as refused:
            log.warning("[dingtalk] no card: %s (%s)", refused.kind, refused.code)
            self._is_missing = refused.kind != Kind.BROKEN
            return False
        return True

    async def _show(self, content: str) -> None:
        if content == self._shown:
            return
        if self._can_stream:
            self._can_stream = await self._stream(content)
        if not self._can_stream:
            await self._api.update_card(render_unstreamed(self.card_id, content))
        self._shown = content

    async def _stream(self, content: str) -> bool:
        """Whether the platform takes streamed texts for this card."""
        try:
            await self._api.stream_card(render_text(self.card_id, uuid.uuid4().hex, content))
        except Refused as refused:
            if refused.is_passing:
                raise
            log.warning("[dingtalk] card not streamed: %s (%s)", refused.kind, refused.code)
            return False
        return True

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the end comes."""
        waits = {
            asyncio.ensure_future(self._clock.sleep(seconds)),
            asyncio.ensure_future(self._ending.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


async def end_card(api: DingTalkApi, card_id: str, end: End, seconds: float = END_SECONDS) -> None:
    """Bring a card to its end; again changes nothing.

    Args:
        seconds: How long refusals that pass are waited out.
    Raises:
        Refused: The card does not show the text: there is no such card, it cannot be reached, or
            it ended without this text because the platform does not take it.
    """
    ending = _Ending(api, card_id, end, SETTLE_TRIES if seconds else 0)
    try:
        await api.insist(ending.write, seconds, is_repeatable=True)
    except Refused as refused:
        if refused.is_passing:
            raise
        await _end_unstreamed(api, card_id, end, seconds, refused)
        return
    if not ending.is_settled:
        await _settle_late(api, card_id, end)


class _Ending:
    """The last two writes of a card, in their order.

    What tells how the run ended comes first and in one piece: no card shall be over and have a stop
    button, nor name the end above a text that is not the last one.
    """

    def __init__(self, api: DingTalkApi, card_id: str, end: End, settle_tries: int) -> None:
        self.is_settled = False
        """The card shows how the run ended, without a stop button."""
        self._api = api
        self._tries_left = settle_tries
        self._settled = render_settled(card_id, end)
        self._last = render_text(
            card_id, uuid.uuid4().hex, end.parts[0], is_last=True, is_failure=end.is_failure
        )

    async def write(self) -> None:
        """Do what is left; raises Refused."""
        if not self.is_settled:
            await self._settle()
        await self._api.stream_card(self._last)

    async def _settle(self) -> None:
        self._tries_left -= 1
        try:
            await self._api.update_card(self._settled)
        except Refused as refused:
            if refused.is_passing and self._tries_left > 0:
                raise
        else:
            self.is_settled = True


async def _settle_late(api: DingTalkApi, card_id: str, end: End) -> None:
    settled = render_settled(card_id, end)
    try:
        await api.insist(lambda: api.update_card(settled), SETTLE_SECONDS, is_repeatable=True)
    except Refused as refused:
        log.warning("[dingtalk] a card keeps its button: %s (%s)", refused.kind, refused.code)


async def _end_unstreamed(
    api: DingTalkApi, card_id: str, end: End, seconds: float, refused: Refused
) -> None:
    """End a card by its variables, which may be taken where a text is not, and after its end.

    Without the text where it is that which is refused, or would be set and never seen.
    """
    if refused.kind != Kind.TEMPLATE:
        ended = render_ended(card_id, end)
        try:
            await api.insist(lambda: api.update_card(ended), seconds, is_repeatable=True)
        except Refused as error:
            if error.kind not in (Kind.CONTENT, Kind.BAD):
                raise
            refused = error
        else:
            return
    textless = render_ended(card_id, end, has_text=False)
    await api.insist(lambda: api.update_card(textless), seconds, is_repeatable=True)
    raise refused
