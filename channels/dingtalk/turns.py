"""Runs as their chats see them: a card while they go, and the last words, told once."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from channels.dingtalk.card import card_id_of, render_end, render_new, render_progress
from channels.dingtalk.codes import Kind, Refused
from channels.dingtalk.decode import Address, decode_address
from channels.dingtalk.telling import CREATE_SECONDS, Parts, Telling, may_pass
from channels.dingtalk.writer import CardWriter
from channels.errors import DeliveryError, InboxUnavailable
from channels.events import Outcome, RunEvent, RunStarted
from channels.port import Delivery, Turn
from channels.progress import Progress

log = logging.getLogger(__name__)

UNMARK_SECONDS = 2.0
"""How long what was told waits for the mark at the message to go: a crash would leave it there."""
WATCHED_MAX = 1000
"""Runs that are remembered after their outcome was heard; the oldest go first."""


class Watched:
    """One run that is shown on a card, or on none; the sink of its events."""

    def __init__(self, turn: Turn, mark: Callable[[], None]) -> None:
        self.turn = turn
        self.writer: CardWriter | None = None
        self._mark = mark
        self._progress = Progress()

    @property
    def answer(self) -> str:
        """What the model said last."""
        return self._progress.shown.answer

    @property
    def is_over(self) -> bool:
        """Its outcome was heard."""
        return self._progress.shown.outcome is not None

    def emit(self, event: RunEvent) -> None:
        """Take *event*; see `RunSink`."""
        self._progress.emit(event)
        if isinstance(event, RunStarted) and event.attempt == 1:
            self._mark()  # after a restart it is there already
        if self.writer is not None and not isinstance(event, Outcome):
            self.writer.poke()

    def render(self) -> str:
        """The card's text now."""
        return render_progress(self._progress.shown, self.turn.locale, self.turn.label)


class Turns:
    """All runs of one bot that chats wait for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._watched: OrderedDict[str, Watched] = OrderedDict()

    def watch(self, turn: Turn) -> Watched:
        """Show a run in its chat; see `Surface.watch`.

        One that nobody asked for says all it has to say at its end.
        """
        if known := self._watched.get(turn.run_id):
            return known
        address = self.address(turn)
        mark = partial(self._parts.reactions.begin, address)
        watched = self._watched[turn.run_id] = Watched(turn, mark)
        if turn.reply_to is not None and self._parts.has_card_for(address):
            watched.writer = self._open_card(watched, address)
        self._forget_finished()
        return watched

    async def deliver(self, delivery: Delivery) -> None:
        """Tell how a run ended; see `Surface.deliver`."""
        run_id = delivery.turn.run_id
        watched = self._watched.get(run_id)
        address = self.address(delivery.turn)
        said = watched.answer if watched else ""
        end = render_end(delivery, said, is_group=address.is_group)
        writer = watched.writer if watched else None
        telling = Telling(self._parts, delivery, address, end, writer)
        is_news = telling.is_news
        try:
            await telling.tell()
        except Refused as refused:
            log.warning("[dingtalk] not told: %s (%s)", refused.kind, refused.code)
            if not may_pass(refused):
                self._watched.pop(run_id, None)
            raise DeliveryError(
                str(refused),
                retryable=may_pass(refused),
                retry_after_seconds=refused.retry_after_seconds,
                trouble=refused.trouble,
            ) from None
        self._watched.pop(run_id, None)
        if not is_news:  # else the run that goes on has marked the message anew
            await self._unmark(address, is_failure=delivery.status == "failed")

    def forget(self, turn: Turn) -> None:
        """Nothing more comes of the run; see `Surface.forget`. What is marked stays marked."""
        self._watched.pop(turn.run_id, None)

    async def close(self) -> None:
        """Leave the cards of running runs as they are; they go on after the restart."""
        writers = [watched.writer for watched in self._watched.values() if watched.writer]
        await asyncio.gather(*(writer.close() for writer in writers))

    def address(self, turn: Turn) -> Address:
        """Where to answer: the message itself, else its chat, where nobody is answered."""
        if address := decode_address(turn.reply_to):
            return address
        chat_id = turn.chat.chat_id
        known = self._parts.sender.last_of(chat_id) or decode_address(turn.reach)
        if known is None:  # a group can be found by its id
            return Address(chat_id, is_group=True, robot_code=self._parts.robot_code)
        return replace(known, message_id="", staff_id="" if known.is_group else known.staff_id)

    async def _unmark(self, address: Address, *, is_failure: bool) -> None:
        ending = self._parts.reactions.end(address, is_failure=is_failure)
        await asyncio.wait({self._parts.start(ending)}, timeout=UNMARK_SECONDS)

    def _open_card(self, watched: Watched, address: Address) -> CardWriter:
        parts, turn = self._parts, watched.turn
        trace = parts.traces.of(turn)
        is_known = bool(trace.card_id)
        trace = replace(trace, card_id=trace.card_id or card_id_of(turn.run_id))
        parts.traces.set(turn.run_id, trace)
        body = render_new(trace.card_id, parts.template_id, address, turn.locale, turn.label)

        async def create() -> None:
            try:
                await parts.traces.keep(turn.run_id, trace)
            except InboxUnavailable:
                # A card that nobody remembers would spin for ever after a crash.
                raise Refused(Kind.GONE, "not_kept") from None
            await parts.api.insist(
                lambda: parts.api.create_card(body), CREATE_SECONDS, is_repeatable=False
            )

        make: Callable[[], Awaitable[None]] | None = None if is_known else create
        return CardWriter(parts.api, parts.clock, trace.card_id, make, watched.render)

    def _forget_finished(self) -> None:
        """Drop runs whose end was never asked to be told."""
        if len(self._watched) > WATCHED_MAX:
            over = [run_id for run_id, watched in self._watched.items() if watched.is_over]
            for run_id in over[: len(self._watched) - WATCHED_MAX]:
                del self._watched[run_id]
