"""Shows runs in their chats: a live card each, and how it ended, by whatever way is left."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from uuid import uuid4

from channels import sentences
from channels.clock import Clock
from channels.errors import DeliveryError
from channels.feishu import card
from channels.feishu.api import FeishuApi, Place, idempotency_key
from channels.feishu.card import Ending
from channels.feishu.codes import TABLES, Meaning, Refused, Unreachable
from channels.feishu.live import LiveCard
from channels.feishu.place import place_for
from channels.port import Delivery, Inbox, Locale, RunSink, Turn
from channels.progress import Progress

logger = logging.getLogger(__name__)

REACTION = "OnIt"
"""Stands under a message from its receipt to the end of its run."""
TOLD_MAX = 1000
"""Deliveries that are remembered as done, in case the application could not note it."""

LATER_SECONDS = (30.0, 60.0, 120.0, 300.0, 600.0, 600.0, 600.0, 600.0)
"""When a card is tried again that could not be closed, after its end was told as a message."""

Spawn = Callable[[Coroutine[None, None, None], str], None]

_SIMPLER_HELPS = frozenset({Meaning.CARD, Meaning.TOO_LONG, Meaning.UNKNOWN, Meaning.BUG})
_ELSEWHERE_HELPS = frozenset({Meaning.UNKNOWN, Meaning.BUG})


class Outbound:
    """All that one bot shows."""

    def __init__(self, api: FeishuApi, inbox: Inbox, clock: Clock) -> None:
        self._api = api
        self._inbox = inbox
        self._clock = clock
        self._cards: dict[str, LiveCard] = {}
        self._reactions: dict[str, dict[str, asyncio.Task[str]]] = {}
        self._told: OrderedDict[str, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, turn: Turn) -> RunSink:
        """Show the run from now on; one that nobody asked for is told at its end, all at once."""
        if turn.reply_to is None:
            return Progress()
        if known := self._cards.get(turn.run_id):
            return known
        live = LiveCard(turn, self._api, self._inbox, self._clock)
        self._cards[turn.run_id] = live
        return live

    async def deliver(self, delivery: Delivery) -> None:
        """Tell how the run ended: on its card, else as a card of its own, else as text."""
        if delivery.id in self._told:
            return
        turn = delivery.turn
        live = self._cards.get(turn.run_id)
        if live is None and turn.handle is not None:
            live = LiveCard(turn, self._api, self._inbox, self._clock, is_over=True)
            self._cards[turn.run_id] = live
        end = card.ending(delivery, live.answer if live else "")
        telling = _Telling(self._api, delivery, end, live, self.spawn, self._clock)
        try:
            await telling.tell()
        except DeliveryError as error:
            if not error.retryable:
                self.forget(turn)
            raise
        self._note(delivery)
        self.forget(turn)

    def forget(self, turn: Turn) -> None:
        """Nobody asks for the run again."""
        self._cards.pop(turn.run_id, None)
        self.spawn(self._take_reactions_away(turn), "take-reactions-away")

    def _note(self, delivery: Delivery) -> None:
        self._told[delivery.id] = None
        while len(self._told) > TOLD_MAX:
            self._told.popitem(last=False)

    async def say(self, place: Place, text: str, *key: str) -> None:
        """Write one line; best effort, never raises.

        With a *key* it is written once however often it is asked for, else once for each call.
        """
        unique = idempotency_key(*key) if key else uuid4().hex
        try:
            await self._api.post(place, "text", card.text_message(text), unique)
        except DeliveryError as error:
            logger.warning("[feishu] a line was not told: %s", error)

    # Reactions

    def react(self, run_id: str, message_id: str) -> None:
        """Show that *message_id* was received, until its run ends."""
        task = asyncio.create_task(self._react(message_id), name="react")
        self._reactions.setdefault(run_id, {})[message_id] = task

    async def _react(self, message_id: str) -> str:
        try:
            return await self._api.react(message_id, REACTION)
        except DeliveryError as error:
            logger.info("[feishu] no reaction: %s", error)
            return ""

    async def _take_reactions_away(self, turn: Turn) -> None:
        """Take away what was added for the run, by an earlier life of this process too."""
        added = self._reactions.pop(turn.run_id, {})
        for message_id, task in added.items():
            if reaction_id := await task:
                await self._unreact(message_id, reaction_id)
        question = place_for(turn).message_id if turn.reply_to else ""
        if question and question not in added:
            for reaction_id in await self._left_under(question):
                await self._unreact(question, reaction_id)

    async def _left_under(self, message_id: str) -> list[str]:
        try:
            return await self._api.own_reactions(message_id, REACTION)
        except DeliveryError as error:
            logger.info("[feishu] nobody knows whether a reaction stays: %s", error)
            return []

    async def _unreact(self, message_id: str, reaction_id: str) -> None:
        try:
            await self._api.unreact(message_id, reaction_id)
        except DeliveryError as error:
            logger.info("[feishu] a reaction stays: %s", error)

    # Its life

    def spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        """Let *work* run by itself; it never raises."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all tasks; the cards stay as they are and are found again."""
        for live in list(self._cards.values()):
            await live.stop()
        reactions = [task for tasks in self._reactions.values() for task in tasks.values()]
        ending: set[asyncio.Task[None] | asyncio.Task[str]] = {*self._tasks, *reactions}
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)


class _Telling:
    """One try to tell how a run ended."""

    def __init__(
        self,
        api: FeishuApi,
        delivery: Delivery,
        end: Ending,
        live: LiveCard | None,
        spawn: Spawn,
        clock: Clock,
    ) -> None:
        self._api = api
        self._id = delivery.id
        self._run_id = delivery.turn.run_id
        self._locale: Locale = delivery.turn.locale
        self._place = place_for(delivery.turn)
        self._end = end
        self._live = live
        self._spawn = spawn
        self._clock = clock
        self._goes_on_typing = False

    async def tell(self) -> None:
        """Tell it.

        Raises:
            DeliveryError: No way is left, or none just now.
        """
        try:
            await self._tell(card.TABLES_MAX)
        except Refused as refused:
            if refused.inner != TABLES:
                raise
            await self._tell(0)

    async def _tell(self, tables_max: int) -> None:
        first, *others = card.parts_of(self._end, tables_max)
        if not await self._on_card(first):
            await self._beside_card(first)
            self._replaced()
        for number, part in enumerate(others, start=1):
            await self._as_message(card.plain_card(part), part, self._key(number))

    async def _beside_card(self, first: str) -> None:
        """Tell it as a message; of what was asked before only who answered it, and each once."""
        asked, label = self._end.asked, self._end.label
        if asked is not None and asked.answered:
            key = idempotency_key(self._run_id, "answered", str(asked.answered))
            content = card.plain_card(asked.verdicts, label)
            await self._as_message(content, card.headed(label, asked.verdicts), key)
            return
        words = [first.strip(), asked.text if asked else "", self._end.status_below(first)]
        text = card.headed(label, "\n\n".join(filter(None, words)))
        await self._as_message(card.ended(self._end.words, first), text, self._key(0))

    def _key(self, number: int) -> str:
        return idempotency_key(self._id, str(number))

    async def _on_card(self, first: str) -> bool:
        """Write the live card for the last time; False if a message has to stand in."""
        if self._live is None or self._live.is_replaced:
            return False
        try:
            return await self._live.close(card.ended(self._end, first))
        except Unreachable:
            raise
        except Refused as refused:
            if refused.inner == TABLES:
                raise
            logger.warning("[feishu] a card was not closed: %s", refused)
            if refused.retryable:  # their fault: the answer goes first
                self._goes_on_typing = True
                return False
        await self._quieten(self._live, card.ended(replace(self._end, asked=None), ""))
        return False

    def _replaced(self) -> None:
        """A message told the answer: the next try must not put it on the card too."""
        if self._live is None:
            return
        self._live.is_replaced = True
        if self._goes_on_typing:
            self._spawn(self._quieten_later(self._live), "quieten-card")

    async def _quieten_later(self, live: LiveCard) -> None:
        """As `_quieten`, for as long as the platform's trouble may last.

        What is asked stays with what answers it: nothing was wrong with that.
        """
        content = card.ended(self._end, self._end.answer if self._end.asked else "")
        for pause in LATER_SECONDS:
            if await self._quieten(live, content):
                return
            await self._clock.sleep(pause)
        await self._quieten(live, content)

    async def _quieten(self, live: LiveCard, content: str) -> bool:
        """The card takes no answer: leave it *content*, so that it does not go on typing.

        False if it would help to try again.
        """
        try:
            await live.close(content)
        except DeliveryError as error:
            logger.info("[feishu] a card goes on typing: %s", error)
            return not error.retryable
        return True

    async def _as_message(self, content: str, words: str, key: str) -> None:
        try:
            await self._api.post(self._place, "interactive", content, idempotency_key(key, "card"))
        except Refused as refused:
            if refused.inner == TABLES or refused.meaning not in _SIMPLER_HELPS | {Meaning.AUDIT}:
                raise
            logger.warning("[feishu] told as text: %s", refused)
            await self._as_text(words, key, is_audited=refused.meaning is Meaning.AUDIT)

    async def _as_text(self, words: str, key: str, *, is_audited: bool) -> None:
        if is_audited:
            words = sentences.refused_content(self._locale)
        content = card.text_message(words)
        try:
            await self._api.post(self._place, "text", content, idempotency_key(key, "text"))
        except Refused as refused:
            if refused.meaning is Meaning.AUDIT and not is_audited:
                await self._as_text(words, key, is_audited=True)
            elif refused.meaning in _ELSEWHERE_HELPS and self._place.message_id:
                in_chat = Place(self._place.chat_id)  # a message that takes no reply, say
                await self._api.post(in_chat, "text", content, idempotency_key(key, "chat"))
            else:
                raise
