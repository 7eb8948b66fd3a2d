"""What becomes of each pushed frame, and how it is acknowledged."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from channels import sentences
from channels.clock import Clock
from channels.dedupe import Window
from channels.dingtalk.card import render_click, run_id_of
from channels.dingtalk.decode import (
    PLATFORM,
    Address,
    Click,
    Heard,
    decode_click,
    decode_message,
    encode_address,
)
from channels.dingtalk.frames import FAILED, OK, TOPIC_CLICK, Answer
from channels.errors import InboxRefused, InboxUnavailable, Undecodable
from channels.lanes import Lanes
from channels.port import ChatAddress, Inbound, Inbox, Locale, Submitted

log = logging.getLogger(__name__)

STALE_SECONDS = 600.0
"""A message that waited longer is not run: what it was about is over."""
STALE_COMMAND_SECONDS = 60.0
"""A command that waited longer is not obeyed: it may now stop or forget the wrong thing."""
STALE_NOTICE_SECONDS = 2.0
"""A backlog comes at once; it is told of in one message."""
NOT_ALLOWED_SECONDS = 3600.0
"""Between two refusals in one chat."""
CLICK_SECONDS = 2.0
"""Until a press is answered, whatever the application does; people wait for it."""
PROBE_SECONDS = (2.0, 30.0)
"""First and longest pause between two looks whether the application keeps messages again."""
EVERYONE = "*"

Say = Callable[[Address, str], None]
"""Sends a text some time soon; never waits, never raises."""
Start = Callable[[Coroutine[Any, Any, None]], None]
"""Runs work that belongs to the channel."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may talk to the bot, and as whom it answers."""

    client_id: str
    robot_code: str
    allow: frozenset[str]
    locale: Locale

    def allows(self, person_id: str, conversation_id: str) -> bool:
        """Whether a person, by staff id or else by the platform's own, may talk to the bot.

        An id of a conversation lets in everybody who is in it.
        """
        return not self.allow.isdisjoint({EVERYONE, person_id, conversation_id} - {""})

    def is_for_us(self, heard: Heard) -> bool:
        """The message is addressed to this very robot."""
        return heard.address.robot_code in (self.robot_code, self.client_id)

    def chat(self, address: Address) -> ChatAddress:
        """The conversation as the application knows it."""
        return ChatAddress(PLATFORM, self.client_id, address.conversation_id)

    def keys(self, message_id: str) -> tuple[str, ...]:
        """What makes a message known; the frame's own id changes with each push."""
        return (f"{PLATFORM}:{self.robot_code}:msg:{message_id}",)


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
        self._clock = clock
        self._window = Window(clock=clock.monotonic)
        self._refused = Window(NOT_ALLOWED_SECONDS, clock.monotonic)
        self._lanes = Lanes(clock)
        self._stale: dict[str, int] = {}
        self._unheard: dict[str, _Unheard] = {}

    async def handle(self, topic: str, raw: str) -> Answer:
        """Take one frame; never raises, since no acknowledgement would leave."""
        began = time.monotonic()  # the real time that the platform waits
        try:
            return await (self._click(raw) if topic == TOPIC_CLICK else self._message(raw))
        except Exception as error:  # without an answer the platform would wait
            trace = (Exception, Exception("…"), error.__traceback__)  # its words may be a person's
            log.error("[dingtalk] a frame failed: %s", type(error).__name__, exc_info=trace)
            return Answer(FAILED, "failed")  # nothing of it was kept, it may come again
        finally:
            self.counts.acknowledged(time.monotonic() - began)

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
        if not self._rules.allows(heard.sender_id, address.conversation_id):
            if self._refused.claim((address.conversation_id,)):
                self._do.say(address, sentences.not_allowed(locale, heard.sender_id))
        elif self._is_stale(heard):
            if not await self._inbox.knows(keys):
                self._tell_stale(address)
        elif not heard.is_readable:
            self._do.say(address, sentences.unreadable(locale))
        elif heard.needs_transcript:
            self._do.say(address, sentences.no_transcript(locale))
        elif heard.is_bare:
            self._do.say(address, sentences.bare_mention(locale))
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
                text = await self._inbox.command(chat, command, keys, heard.sender_id, way_back)
            else:
                text = self._acknowledgement(await self._inbox.submit(self._inbound(heard, keys)))
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
            reply_to=encode_address(heard.address),
            remote_files=heard.files,
        )

    def _acknowledgement(self, submitted: Submitted) -> str:
        """What a person is told whose message has to wait."""
        if submitted.duplicate:
            self.counts.duplicates += 1
            return ""
        if submitted.state == "queued":
            return sentences.queued(self._rules.locale, submitted.position or 1)
        if submitted.state == "steered":
            return sentences.steered(self._rules.locale)
        return ""

    def _is_stale(self, heard: Heard) -> bool:
        if heard.sent_at is None:
            return False
        age = self._clock.wall() - heard.sent_at
        return age > (STALE_COMMAND_SECONDS if heard.command else STALE_SECONDS)

    def _tell_stale(self, address: Address) -> None:
        self.counts.stale += 1
        count = self._stale.get(address.conversation_id, 0)
        self._stale[address.conversation_id] = count + 1
        if count == 0:
            self._do.start(self._notice_stale(address))

    async def _notice_stale(self, address: Address) -> None:
        await self._clock.sleep(STALE_NOTICE_SECONDS)
        count = self._stale.pop(address.conversation_id)
        self._do.say(address, sentences.stale(self._rules.locale, count))

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

    async def _click(self, raw: str) -> Answer:
        try:
            click = decode_click(raw)
        except Undecodable as error:
            log.warning("[dingtalk] not decodable: %s", error)
            return Answer(OK)
        run_id = run_id_of(click.card_id) or click.params.get("run")
        if not click.wants_stop or not run_id:
            return Answer(OK)
        if not self._rules.allows(click.user_id, click.conversation_id):
            text = sentences.not_allowed(self._rules.locale, click.user_id)
            return Answer(OK, render_click(text, keep_button=True))
        try:
            note = await self._stop(run_id, click)
        except InboxUnavailable:
            text = sentences.not_received(self._rules.locale)
            return Answer(OK, render_click(text, keep_button=True))
        return Answer(OK, render_click(note))

    async def _stop(self, run_id: str, click: Click) -> str:
        """Ask the run to stop; what the person sees of it at once."""
        by = f"{PLATFORM}:{click.user_id}"
        asked = asyncio.create_task(self._inbox.cancel_run(run_id, by), name="dingtalk-stop")
        await asyncio.wait({asked}, timeout=CLICK_SECONDS)
        if not asked.done():
            self._do.start(_finish(asked))
            return sentences.stopping(self._rules.locale)
        is_stopping = asked.result()
        return (sentences.stopping if is_stopping else sentences.already_over)(self._rules.locale)


async def _finish(asked: "asyncio.Task[bool]") -> None:
    with suppress(InboxUnavailable):  # nobody is left to be told; the run's card goes on
        await asked
