"""The one writer of one card: one call in flight, rising sequence, the newest text wins."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from channels.clock import SYSTEM, Clock
from channels.errors import DeliveryError
from channels.feishu.api import FeishuApi
from channels.feishu.card import ANSWER, STATUS, Face
from channels.feishu.codes import Meaning, Refused, Unreachable

logger = logging.getLogger(__name__)

UPDATE_SECONDS = 0.3
"""Between two looks at what is new; with two writes each, well below 10 per second."""
REOPEN_SECONDS = 540.0
"""Streaming ends by itself after 600 s; the card is written anew before that, though nothing is
new: one that types no more looks as if its run were over."""
REPLACE_AFTER = 2
"""Failures of a text in a row, after which the card is written as a whole: an element that is not
found does not come back by itself."""
_PAUSES = (0.3, 1.0, 2.0, 5.0, 10.0)
"""After failures in a row; the last write has one try more, then a message stands in for it."""
SEQUENCE_LEAP = 1000
"""Past whatever an earlier life of this process may have used, if the platform refuses a number."""

Look = Callable[[], Face]
Render = Callable[[Face], str]


class CardWriter:
    """Writes what a card shows, until it is closed with what it shows for good."""

    def __init__(
        self,
        api: FeishuApi,
        card_id: str,
        look: Look,
        render: Render,
        written: Face,
        *,
        sequence: int = 0,
        clock: Clock = SYSTEM,
    ) -> None:
        """Begin with a card that shows *written*, and whose last sequence was *sequence*.

        Args:
            look: What the card should show now; asked when it may be written to, not more often.
        """
        self._api = api
        self._card_id = card_id
        self._look = look
        self._render = render
        self._written = written
        self._sequence = sequence
        self._clock = clock
        self._reopen_at = clock.monotonic() + REOPEN_SECONDS
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._follow(), name=f"card-{card_id}")

    def touch(self) -> None:
        """Say that there may be something new to show; cheap, so for each token."""
        self._changed.set()

    async def close(self, card: str) -> None:
        """Write *card* as the last thing, after what is in flight.

        Raises:
            DeliveryError: The card could not be written; it may go on typing.

        May be called again after a failure. Cancelling leaves the card either old or new.
        """
        await self.stop()
        for pause in _PAUSES:
            try:
                return await self._replace_in_turn(card)
            except (Refused, Unreachable) as error:
                if not error.retryable:
                    raise
                await self._clock.sleep(_pause(error, pause))
        await self._replace_in_turn(card)

    async def stop(self) -> None:
        """Write nothing more; waits for what is in flight."""
        self._closing.set()
        self._changed.set()
        await asyncio.wait({self._task})

    async def _follow(self) -> None:
        failures = 0
        while True:
            await self._until(self._changed, self._reopen_at - self._clock.monotonic())
            self._changed.clear()
            try:
                while await self._step():
                    failures = 0
                if self._closing.is_set():
                    return
                await self._until(self._closing, UPDATE_SECONDS)
            except (Refused, Unreachable) as error:
                if not error.retryable:
                    logger.info("[feishu] a card is shown no more: %s", error)
                    return
                self._changed.set()
                pause = _pause(error, _PAUSES[min(failures, len(_PAUSES) - 1)])
                await self._until(self._closing, pause)
                failures += 1
                if failures >= REPLACE_AFTER:
                    self._reopen_at = self._clock.monotonic()

    async def _until(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for *event*, at most *seconds*."""
        sleeping = asyncio.ensure_future(self._clock.sleep(max(0.0, seconds)))
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({sleeping, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waiting.cancel()

    @property
    def _is_due(self) -> bool:
        """The card is to be written anew, whatever there is to show: typing must not end."""
        return self._clock.monotonic() >= self._reopen_at

    async def _step(self) -> bool:
        """Write one thing that is to be; False if nothing is, or the card is to be closed."""
        if self._closing.is_set() or not (self._is_due or self._look() != self._written):
            return False
        await self._api.card_turn(self._card_id)
        if self._closing.is_set():
            return False
        wanted = self._look()  # only now: something newer may have come while waiting
        if self._is_due:
            await self._replace(self._render(wanted))
            self._written = wanted
        elif wanted.status != self._written.status:
            if await self._text(STATUS, wanted.status):
                self._written = replace(self._written, status=wanted.status)
        elif await self._text(ANSWER, wanted.answer):
            self._written = replace(self._written, answer=wanted.answer)
        return True

    async def _text(self, element_id: str, text: str) -> bool:
        """Write one text; False if the card types no more, so that the next step renews it."""
        try:
            await self._write(
                lambda number: self._api.write_text(self._card_id, element_id, text, number)
            )
        except Refused as refused:
            if refused.meaning is not Meaning.STREAM_OVER:
                raise
            self._reopen_at = self._clock.monotonic()
            return False
        return True

    async def _replace_in_turn(self, card: str) -> None:
        await self._api.card_turn(self._card_id)
        await self._replace(card)

    async def _replace(self, card: str) -> None:
        await self._write(lambda number: self._api.replace_card(self._card_id, card, number))
        self._reopen_at = self._clock.monotonic() + REOPEN_SECONDS

    async def _write(self, call: Callable[[int], Awaitable[None]]) -> None:
        """Call with the next number: a failed one may have been used up."""
        self._sequence += 1
        try:
            await call(self._sequence)
        except Refused as refused:
            if refused.meaning is Meaning.SEQUENCE:
                self._sequence += SEQUENCE_LEAP
            if refused.meaning is not Meaning.DONE:
                raise


def _pause(error: DeliveryError, seconds: float) -> float:
    """*seconds*, or as long as the platform says."""
    return max(seconds, error.retry_after_seconds or 0.0)
