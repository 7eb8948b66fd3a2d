"""Runs as their chats see them: a card while they go, and the last words, told once."""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from channels.clock import Clock
from channels.dingtalk.api import DingTalkApi
from channels.dingtalk.card import (
    End,
    card_id_of,
    render_end,
    render_new,
    render_progress,
    render_refused,
)
from channels.dingtalk.codes import Kind, Refused
from channels.dingtalk.decode import Address, decode_address
from channels.dingtalk.reactions import Reactions
from channels.dingtalk.sender import Sender
from channels.dingtalk.writer import END_SECONDS, CardWriter, end_card
from channels.errors import DeliveryError, InboxUnavailable
from channels.events import Outcome, RunEvent
from channels.port import Delivery, Inbox, Locale, Turn
from channels.progress import Progress

log = logging.getLogger(__name__)

CREATE_SECONDS = 10.0
"""How long the creation of a card waits out refusals; the end is told without one as well."""
TOLD_MAX = 1000
"""Runs and deliveries that are remembered; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What has to be known of a run's card and words after a crash."""

    card_id: str = ""
    """Written down before the card is made: its id is ours, so it can be ended either way."""
    told: int = 0
    """Parts of the last words that are in the chat."""
    is_ended: bool = False
    """Nothing is left to be done to the card."""

    @property
    def has_open_card(self) -> bool:
        """There may be a card that would spin for ever."""
        return bool(self.card_id) and not self.is_ended

    def encode(self) -> str:
        """The text that the application keeps."""
        return json.dumps({"card": self.card_id, "told": self.told, "ended": self.is_ended})


def decode_trace(text: str | None) -> Trace:
    """The other way; nothing is known of what is no trace of ours."""
    try:
        known = json.loads(text or "{}")
        card_id, told = str(known.get("card", "")), int(known.get("told", 0))
        return Trace(card_id, told, known.get("ended") is True)
    except (ValueError, AttributeError, TypeError):
        return Trace()


@dataclass(frozen=True, slots=True)
class Parts:
    """What the chats' side is built of."""

    api: DingTalkApi
    sender: Sender
    reactions: Reactions
    inbox: Inbox
    clock: Clock
    template_id: str
    robot_code: str
    start: Callable[[Coroutine[Any, Any, None]], None]


class Watched:
    """One run that is shown on a card, or on none; the sink of its events."""

    def __init__(self, turn: Turn, trace: Trace) -> None:
        self.turn = turn
        self.trace = trace
        self.writer: CardWriter | None = None
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
        if self.writer is not None and not isinstance(event, Outcome):
            self.writer.poke()

    def render(self) -> str:
        """The card's text now."""
        return render_progress(self._progress.shown, self.turn.locale)


class Turns:
    """All runs of one bot that chats wait for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._watched: OrderedDict[str, Watched] = OrderedDict()
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        """Of deliveries that were tried."""

    def watch(self, turn: Turn) -> Watched:
        """Show a run in its chat; see `Surface.watch`."""
        if known := self._watched.get(turn.run_id):
            return known
        watched = self._watched[turn.run_id] = Watched(turn, decode_trace(turn.handle))
        address = self._address(turn)
        if turn.handle is None:  # else it stands there since before the restart
            self._parts.reactions.begin(address)
        if self._parts.template_id and (address.is_group or address.staff_id):
            watched.writer = self._open_card(watched, address)
        self._forget_finished()
        return watched

    async def deliver(self, delivery: Delivery) -> None:
        """Tell how a run ended; see `Surface.deliver`."""
        run_id = delivery.turn.run_id
        watched = self._watched.get(run_id)
        address = self._address(delivery.turn)
        end = render_end(delivery, watched.answer if watched else "")
        try:
            await self._tell(delivery, watched, address, end)
        except Refused as refused:
            log.warning("[dingtalk] not told: %s (%s)", refused.kind, refused.code)
            if not _may_pass(refused):
                self._watched.pop(run_id, None)
            raise DeliveryError(
                str(refused),
                retryable=_may_pass(refused),
                retry_after_seconds=refused.retry_after_seconds,
            ) from None
        self._watched.pop(run_id, None)
        self._parts.start(
            self._parts.reactions.end(address, is_failure=delivery.status == "failed")
        )

    async def close(self) -> None:
        """Leave the cards of running runs as they are; they go on after the restart."""
        writers = [watched.writer for watched in self._watched.values() if watched.writer]
        await asyncio.gather(*(writer.close() for writer in writers))

    def _address(self, turn: Turn) -> Address:
        """Where to answer: the message itself, else the chat as it was heard last."""
        address = decode_address(turn.reply_to) or self._parts.sender.last_of(turn.chat.chat_id)
        if address is None:  # nobody wrote there since the start; a group can be found by its id
            return Address(turn.chat.chat_id, is_group=True, robot_code=self._parts.robot_code)
        return address

    def _open_card(self, watched: Watched, address: Address) -> CardWriter:
        parts, turn = self._parts, watched.turn
        is_known = bool(watched.trace.card_id)
        card_id = watched.trace.card_id or card_id_of(turn.run_id)
        watched.trace = replace(watched.trace, card_id=card_id)
        body = render_new(card_id, parts.template_id, address, turn.locale)

        async def create() -> None:
            try:
                await parts.inbox.keep(turn.run_id, watched.trace.encode())
            except InboxUnavailable:
                # A card that nobody remembers would spin for ever after a crash.
                raise Refused(Kind.GONE, "not_kept") from None
            await parts.api.insist(
                lambda: parts.api.create_card(body), CREATE_SECONDS, is_repeatable=False
            )

        make: Callable[[], Awaitable[None]] | None = None if is_known else create
        return CardWriter(parts.api, parts.clock, card_id, make, watched.render)

    async def _tell(
        self, delivery: Delivery, watched: Watched | None, address: Address, end: End
    ) -> None:
        """Do what an earlier try has not done: end the card, send what does not stand on it.

        Raises:
            Refused: Something of it is still not told, or a card is still open.
        """
        trace = self._trace_of(delivery, watched)
        owed: Refused | None = None
        if trace.has_open_card:
            try:
                trace = await self._note(delivery, await self._end_card(trace, watched, end))
            except Refused as refused:
                owed = refused
        for number in range(trace.told, len(end.parts)):
            await self._send(address, end.parts[number], delivery.turn.locale)
            trace = await self._note(delivery, replace(trace, told=number + 1))
        if owed is not None:
            raise owed

    async def _send(self, address: Address, text: str, locale: Locale) -> None:
        """Send one part; a text that the platform does not take is owned up to."""
        try:
            await self._parts.sender.send(address, text)
        except Refused as refused:
            if refused.kind not in (Kind.CONTENT, Kind.BAD):
                raise
            log.warning("[dingtalk] a text was not taken (%s)", refused.code)
            await self._parts.sender.send(address, render_refused(locale))

    def _trace_of(self, delivery: Delivery, watched: Watched | None) -> Trace:
        known = self._traces.get(delivery.id)
        if known is None:
            known = watched.trace if watched else decode_trace(delivery.turn.handle)
        return known

    async def _end_card(self, trace: Trace, watched: Watched | None, end: End) -> Trace:
        """End the run's card; if it shows how the run ended, the first part is told.

        Raises:
            Refused: It is still open, and can be ended later.
        """
        # Once its text is told elsewhere, nobody waits for the card: the next try is the outbox's.
        seconds = END_SECONDS if trace.told == 0 else 0.0
        try:
            if watched is not None and watched.writer is not None:
                await watched.writer.end(end, seconds)
            else:
                await end_card(self._parts.api, trace.card_id, end, seconds)
        except Refused as refused:
            log.warning("[dingtalk] told without a card: %s (%s)", refused.kind, refused.code)
            if _may_pass(refused):
                raise
            return replace(trace, is_ended=True)
        return replace(trace, is_ended=True, told=max(trace.told, 1))

    async def _note(self, delivery: Delivery, trace: Trace) -> Trace:
        """Keep what was done, here and for after a crash."""
        self._traces[delivery.id] = trace
        while len(self._traces) > TOLD_MAX:
            self._traces.popitem(last=False)
        try:
            await self._parts.inbox.keep(delivery.turn.run_id, trace.encode())
        except InboxUnavailable:
            log.warning("[dingtalk] what was told is not noted; a crash now would tell it twice")
        return trace

    def _forget_finished(self) -> None:
        """Drop runs whose end was never asked to be told."""
        if len(self._watched) > TOLD_MAX:
            over = [run_id for run_id, watched in self._watched.items() if watched.is_over]
            for run_id in over[: len(self._watched) - TOLD_MAX]:
                del self._watched[run_id]


def _may_pass(refused: Refused) -> bool:
    """Whether the application is to try again; a secret may be mended meanwhile."""
    return refused.is_passing or refused.kind == Kind.TOKEN
