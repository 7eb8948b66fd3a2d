"""What becomes of each pushed frame, and how it is acknowledged."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from channels import sentences
from channels.clock import Clock
from channels.dedupe import Window
from channels.dingtalk.card import render_lost_quote
from channels.dingtalk.decode import PLATFORM, Address, Heard, decode_message, encode_address
from channels.dingtalk.frames import FAILED, OK, TOPIC_CLICK, Answer
from channels.dingtalk.people import People
from channels.dingtalk.presses import Presses, Start
from channels.dingtalk.rules import Rules
from channels.errors import InboxRefused, InboxUnavailable, Undecodable
from channels.faults import fault_of
from channels.lanes import Lanes
from channels.port import Inbound, Inbox, Submitted

log = logging.getLogger(__name__)

ACK_SECONDS = 0.8
"""Until a message is acknowledged, whatever the application does: as not kept, if it is not yet."""
STALE_SECONDS = 600.0
"""A message that waited longer is not run: what it was about is over."""
STALE_COMMAND_SECONDS = 60.0
"""A command that waited longer is not obeyed: it may now stop or forget the wrong thing."""
NOT_ALLOWED_SECONDS = 3600.0
"""Between two refusals in one chat."""
PROBE_SECONDS = (2.0, 30.0)
"""First and longest pause between two looks whether the application keeps messages again."""

Say = Callable[[Address, str], None]
"""Sends a text some time soon; never waits, never raises."""


@dataclass(slots=True)
class Counts:
    """For `health()`."""

    duplicates: int = 0
    stale: int = 0
    acks: int = 0
    ack_seconds_max: float = 0.0

    def acknowledged(self, seconds: float) -> None:
        """An acknowledgement leaves so long after its frame came."""
        self.acks += 1
        self.ack_seconds_max = max(self.ack_seconds_max, seconds)


@dataclass(frozen=True, slots=True)
class Reactor:
    """What the receiver does to chats beside submitting."""

    say: Say
    start: Start
    remember: Callable[[Address], None]


@dataclass(slots=True)
class _Unheard:
    """Messages of one chat that the application could not keep."""

    address: Address
    sender_id: str
    keys: set[str] = field(default_factory=set)


class Receiver:
    """Takes frames on the application's loop; each method returns what to acknowledge."""

    def __init__(self, rules: Rules, inbox: Inbox, reactor: Reactor, clock: Clock) -> None:
        self.counts = Counts()
        self._rules = rules
        self._inbox = inbox
        self._do = reactor
        self._people = People()
        self._presses = Presses(rules, inbox, self._people, reactor.start)
        self._clock = clock
        self._window = Window(clock=clock.monotonic)
        self._refused = Window(NOT_ALLOWED_SECONDS, clock.monotonic)
        self._lanes = Lanes(clock)
        self._unheard: dict[str, _Unheard] = {}

    async def handle(self, topic: str, raw: str) -> Answer:
        """Take one frame; never raises, since no acknowledgement would leave."""
        began = time.monotonic()  # the real time that the platform waits
        try:
            if topic == TOPIC_CLICK:
                return await _guarded(self._presses.handle(raw))
            return await self._in_time(_guarded(self._message(raw)))
        finally:
            self.counts.acknowledged(time.monotonic() - began)

    async def _in_time(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """What *work* answers, or after `ACK_SECONDS` that nothing is kept yet.

        It goes on by itself then. If the platform pushes the message again meanwhile it is known,
        and if it cannot be kept in the end, its person is told.
        """
        taking = asyncio.create_task(work, name="dingtalk-message")
        self._do.start(_finish(taking))
        patience = asyncio.ensure_future(self._clock.sleep(ACK_SECONDS))
        await asyncio.wait({taking, patience}, return_when=asyncio.FIRST_COMPLETED)
        patience.cancel()
        return taking.result() if taking.done() else Answer(FAILED, "slow")

    async def _message(self, raw: str) -> Answer:
        try:
            heard = decode_message(raw, self._rules.robot_code)
        except Undecodable as error:
            log.warning("[dingtalk] not decodable: %s", error)
            return Answer(OK)
        keys = self._rules.keys(heard.message_id)
        if not self._window.claim(keys):  # before any await: two pushes come in one tick
            self.counts.duplicates += 1
            return Answer(OK if await self._window.kept(keys) else FAILED)
        return await self._claimed(heard, keys)

    async def _claimed(self, heard: Heard, keys: Sequence[str]) -> Answer:
        is_kept = False
        try:
            async with self._lanes.turn(heard.address.conversation_id, heard.sent_at):
                await self._process(heard, keys)
            is_kept = True
        except InboxUnavailable:
            self._miss(heard, keys)
            return Answer(FAILED, "unavailable")
        except Exception:  # `_guarded` tells the operator of it
            self._miss(heard, keys)
            raise
        finally:
            (self._window.keep if is_kept else self._window.release)(keys)
        self._found(heard.address.conversation_id, keys)
        return Answer(OK)

    async def _process(self, heard: Heard, keys: Sequence[str]) -> None:
        address, locale = heard.address, self._rules.locale
        if ignored := self._reason_to_ignore(heard):
            log.debug("[dingtalk] ignored: %s", ignored)
            return
        self._do.remember(address)
        self._people.meet(heard)
        if not self._rules.allows(heard.sender_id, address.conversation_id):
            if self._refused.claim((address.conversation_id,)):
                self._do.say(address, sentences.not_allowed(locale, heard.sender_id))
        elif self._is_stale(heard):
            await self._note_late(address, keys)
        elif not heard.is_readable:
            self._do.say(address, sentences.unreadable(locale))
        elif heard.needs_transcript:
            self._do.say(address, sentences.no_transcript(locale))
        elif heard.is_bare:
            lost = render_lost_quote(locale) if heard.has_lost_quote else ""
            self._do.say(address, lost or sentences.bare_mention(locale))
        else:
            await self._bring(heard, keys)

    def _reason_to_ignore(self, heard: Heard) -> str | None:
        if heard.is_echo:
            return "own message"
        if not self._rules.is_for_us(heard):
            return "another robot"
        return None if heard.is_mention else "no mention"

    async def _bring(self, heard: Heard, keys: Sequence[str]) -> None:
        address = heard.address
        try:
            if command := heard.command:
                chat = self._rules.chat(address)
                way_back = encode_address(address)
                by = self._people.name_of(heard.sender_id)
                text = await self._inbox.command(chat, command, keys, by, way_back)
            else:
                submitted = await self._inbox.submit(self._inbound(heard, keys))
                text = self._acknowledgement(submitted)
                if heard.has_lost_quote and not submitted.duplicate:
                    self._do.say(address, render_lost_quote(self._rules.locale))
        except InboxRefused as refused:
            text = refused.user_text
        if text:
            self._do.say(address, text)

    def _inbound(self, heard: Heard, keys: Sequence[str]) -> Inbound:
        return Inbound(
            origin=PLATFORM,
            text=heard.prompt,
            keys=keys,
            chat=self._rules.chat(heard.address),
            sender=self._people.name_of(heard.sender_id),
            reply_to=encode_address(heard.address),
            remote_files=heard.files,
            is_sideline=heard.is_sideline,
        )

    def _acknowledgement(self, submitted: Submitted) -> str:
        """What a person is told whose message has to wait."""
        if submitted.duplicate:
            self.counts.duplicates += 1
            return ""
        if submitted.state == "queued":
            return sentences.queued(self._rules.locale, submitted.position or 1)
        return ""

    def _is_stale(self, heard: Heard) -> bool:
        if heard.sent_at is None:
            return False
        age = self._clock.wall() - heard.sent_at
        return age > (STALE_COMMAND_SECONDS if heard.command else STALE_SECONDS)

    async def _note_late(self, address: Address, keys: Sequence[str]) -> None:
        if await self._inbox.note_late(self._rules.chat(address), keys, encode_address(address)):
            self.counts.stale += 1

    def _miss(self, heard: Heard, keys: Sequence[str]) -> None:
        """Keep in mind that a message was not taken; its person is told when one can be."""
        log.warning("[dingtalk] a message could not be kept")
        is_first = not self._unheard
        chat = self._unheard.setdefault(
            heard.address.conversation_id, _Unheard(heard.address, heard.sender_id)
        )
        chat.keys.update(keys)
        if is_first:
            self._do.start(self._tell_unheard())

    def _found(self, conversation_id: str, keys: Sequence[str]) -> None:
        """A message that was missed may have been pushed again; then nobody needs to send it."""
        if chat := self._unheard.get(conversation_id):
            chat.keys.difference_update(keys)

    async def _tell_unheard(self) -> None:
        """Wait until the application keeps messages again, then tell whom it concerns."""
        pause, longest = PROBE_SECONDS
        while self._unheard:
            await self._clock.sleep(pause)
            pause = min(pause * 2, longest)
            if not await self._inbox.is_ready():
                continue
            missed, self._unheard = self._unheard, {}
            for chat in missed.values():
                if chat.keys:
                    self._do.say(chat.address, sentences.not_received(self._rules.locale))


async def _guarded(work: Coroutine[Any, Any, Answer]) -> Answer:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - without an answer the platform would wait
        log.error("[dingtalk] a frame failed %s", fault_of(error))
        return Answer(FAILED, "failed")  # nothing of it was kept, it may come again


async def _finish(task: "asyncio.Task[Answer]") -> None:
    await task
