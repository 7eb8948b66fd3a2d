"""What is heard becomes a submitted message, a command or a stop, and then an acknowledgement."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace

from channels import sentences
from channels.clock import Clock
from channels.dedupe import Window
from channels.errors import DeliveryError, InboxRefused, InboxUnavailable, Undecodable
from channels.faults import fault_of
from channels.feishu.config import FeishuConfig
from channels.feishu.decode import Click, Message, Other, decode_event
from channels.feishu.outbound import Outbound
from channels.feishu.people import People
from channels.feishu.place import forwarded_file, place_of, quoted_file, remote_file, reply_to
from channels.feishu.presses import Presses
from channels.feishu.rules import Ask, Bare, CannotRead, Ignore, NotAllowed, Order, Rules, judge
from channels.feishu.stream import Ack
from channels.lanes import Lanes
from channels.port import ChatAddress, Command, Inbound, Inbox, Submitted

logger = logging.getLogger(__name__)

ACK_SECONDS = 2.5
"""The platform waits 3 s; what is not kept by then is asked for again."""
COMMAND_SECONDS = 1.0
"""A command that takes longer goes on by itself; it is acknowledged all the same."""
STALE_SECONDS = 600.0
"""Older messages are not run: whoever wrote them has gone on since."""
STALE_COMMAND_SECONDS = 60.0
"""A command is meant for what runs now."""
TOLD_SECONDS = 3600.0
"""How often a chat is told at most that somebody may not use the bot."""
BOT_TURNS_MAX = 3
"""Of other bots in a row in one chat, before a person has to speak."""

TAKEN = Ack(200)
AGAIN = Ack(500)


@dataclass(slots=True)
class Counts:
    """For the health of the channel."""

    duplicates: int = 0
    stale: int = 0
    acks: int = 0
    ack_seconds_max: float = 0.0


class Intake:
    """All that one bot hears."""

    def __init__(
        self,
        config: FeishuConfig,
        rules: Callable[[], Awaitable[Rules]],
        inbox: Inbox,
        outbound: Outbound,
        people: People,
        is_own: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self._config = config
        self._rules = rules
        self._inbox = inbox
        self._outbound = outbound
        self._people = people
        self._is_own = is_own
        self._clock = clock
        self._window = Window(clock=clock.monotonic)
        self._presses = Presses(config, inbox, people, self._window)
        self._refusals = Window(TOLD_SECONDS, clock.monotonic)
        self._lanes = Lanes(clock)
        self._bot_turns: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[bool]] = set()
        self.counts = Counts()

    async def hear(self, payload: bytes) -> Ack:
        """Take one event; the acknowledgement is good when, and only when, it is kept."""
        started = self._clock.monotonic()
        try:
            ack = await self._hear(payload)
        except Undecodable as error:
            logger.warning("[feishu] app=%s undecodable: %s", self._config.app_id, error)
            ack = TAKEN  # another push would hold the same
        except Exception as error:  # noqa: BLE001 - ours; the SDK would not tell anybody
            logger.error("[feishu] app=%s an event broke %s", self._config.app_id, fault_of(error))
            ack = AGAIN
        seconds = self._clock.monotonic() - started
        self.counts.acks += 1
        self.counts.ack_seconds_max = max(self.counts.ack_seconds_max, seconds)
        return ack

    async def _hear(self, payload: bytes) -> Ack:
        event = decode_event(payload)
        if isinstance(event, Other) or event.app_id != self._config.app_id:
            return TAKEN
        until = asyncio.get_running_loop().time() + ACK_SECONDS
        try:
            async with asyncio.timeout_at(until):
                rules = await self._rules()
        except (DeliveryError, TimeoutError):
            return AGAIN  # who the bot is, and so who is addressed, is not known yet
        if isinstance(event, Click):
            return Ack(200, await self._presses.answer(event, rules, until))
        return await self._heard(event, rules, until)

    # Messages

    async def _heard(self, message: Message, rules: Rules, until: float) -> Ack:
        verdict = judge(message, rules)
        if isinstance(verdict, Ignore) or self._is_own(message.message_id):
            return TAKEN
        self._people.meet(message)
        keys = self._keys(message)
        if not self._window.claim(keys):
            self.counts.duplicates += 1
            return await self._acknowledge(self._window.kept(keys), until)
        if not self._may_go_on(message):
            self._window.keep(keys)
            return TAKEN
        taking = self._take(message, verdict, keys)
        return await self._acknowledge(self._settle(keys, taking), until)

    def _may_go_on(self, message: Message) -> bool:
        """Bots that talk to each other stop after a while."""
        if message.sender_type == "user":
            self._bot_turns.pop(message.chat_id, None)
            return True
        self._bot_turns[message.chat_id] += 1
        return self._bot_turns[message.chat_id] <= BOT_TURNS_MAX

    def _keys(self, message: Message) -> Sequence[str]:
        head = f"feishu:{self._config.app_id}"
        key = f"{head}:msg:{message.message_id}"
        if not message.event_id:  # all that have none would be one message
            return (key,)
        return (key, f"{head}:ev:{message.event_id}")

    async def _acknowledge(self, work: Coroutine[None, None, bool], until: float) -> Ack:
        """Wait for *work* as long as the platform does; it goes on beyond that."""
        task = self._spawn(work)
        await asyncio.wait({task}, timeout=_seconds_to(until))
        return TAKEN if _gave(task) is True else AGAIN

    async def _settle(self, keys: Sequence[str], taking: Awaitable[None]) -> bool:
        is_kept = False
        try:
            await taking
            is_kept = True
        except InboxUnavailable:
            logger.warning("[feishu] app=%s a message was not kept", self._config.app_id)
        finally:
            if is_kept:
                self._window.keep(keys)
            else:
                self._window.release(keys)
        return is_kept

    async def _take(
        self,
        message: Message,
        verdict: NotAllowed | CannotRead | Bare | Order | Ask,
        keys: Sequence[str],
    ) -> None:
        locale = self._config.locale
        match verdict:
            case NotAllowed(person_id):
                if self._refusals.claim([message.chat_id]):
                    self._answer(message, sentences.not_allowed(locale, person_id))
            case _ if self._is_stale(message, isinstance(verdict, Order)):
                await self._too_late(message, keys)
            case CannotRead():
                self._answer(message, sentences.unreadable(locale))
            case Bare():
                self._answer(message, sentences.bare_mention(locale))
            case Order(command):
                await self._order(message, command, keys)
            case Ask():
                await self._ask(message, verdict, keys)

    async def _ask(self, message: Message, ask: Ask, keys: Sequence[str]) -> None:
        files = [remote_file(message, resource) for resource in ask.resources]
        if ask.is_forward:
            files.append(forwarded_file(message))
        if ask.quoted_message_id:
            files.append(quoted_file(message, ask.quoted_message_id))
        inbound = Inbound(
            origin="feishu",
            text=ask.text,
            keys=keys,
            chat=self._address(message),
            reply_to=reply_to(message),
            remote_files=files,
            is_sideline=ask.is_sideline,
        )
        lane = f"{message.chat_id}\0{message.thread_id}"
        naming = asyncio.create_task(self._people.name_of(message.sender.open_id), name="name")
        try:  # named meanwhile, or those who wait would wait for each other's names too
            async with self._lanes.turn(lane, message.sent_at or None):
                submitted = await self._inbox.submit(replace(inbound, sender=await naming))
        except InboxRefused as refused:
            self._answer(message, refused.user_text)
            return
        finally:
            naming.cancel()
        if not submitted.duplicate:
            self._confirm(message, submitted)

    def _confirm(self, message: Message, submitted: Submitted) -> None:
        """Show that it was taken; in words where it does not run at once."""
        self._outbound.react(submitted.run_id, message.message_id)
        if submitted.state == "queued":
            position = submitted.position or 1
            self._answer(message, sentences.queued(self._config.locale, position))

    async def _order(self, message: Message, command: Command, keys: Sequence[str]) -> None:
        task = self._spawn(self._obey(message, command, keys))
        await asyncio.wait({task}, timeout=COMMAND_SECONDS)
        if task.done() and not _gave(task):
            raise InboxUnavailable
        if not task.done():
            task.add_done_callback(lambda done: self._apologise(message, done))

    async def _obey(self, message: Message, command: Command, keys: Sequence[str]) -> bool:
        """Carry the command out and answer with what came of it; False if it could not be kept."""
        address = self._address(message)
        try:
            sender = await self._people.name_of(message.sender.open_id)
            text = await self._inbox.command(address, command, keys, sender, reply_to(message))
        except InboxRefused as refused:
            text = refused.user_text
        except InboxUnavailable:
            return False
        if text:
            self._answer(message, text)
        return True

    def _apologise(self, message: Message, done: "asyncio.Task[bool]") -> None:
        """It was acknowledged already, so nobody pushes it again."""
        if not _gave(done):
            self._answer(message, sentences.not_received(self._config.locale))

    def _address(self, message: Message) -> ChatAddress:
        app_id = self._config.app_id
        return ChatAddress("feishu", app_id, message.chat_id, message.thread_id)

    def _answer(self, message: Message, text: str) -> None:
        place = place_of(message)
        self._outbound.spawn(self._outbound.say(place, text, message.message_id, text), "say")

    # Late messages

    def _is_stale(self, message: Message, is_command: bool) -> bool:
        if message.sent_at == 0:
            return False
        age_seconds = self._clock.wall() - message.sent_at
        return age_seconds > (STALE_COMMAND_SECONDS if is_command else STALE_SECONDS)

    async def _too_late(self, message: Message, keys: Sequence[str]) -> None:
        if await self._inbox.note_late(self._address(message), keys, reply_to(message)):
            self.counts.stale += 1

    # Its life

    def _spawn(self, work: Coroutine[None, None, bool]) -> "asyncio.Task[bool]":
        task = asyncio.create_task(work, name="feishu-intake")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[bool]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("[feishu] app=%s intake broke %s", self._config.app_id, fault_of(error))

    async def close(self) -> None:
        """Take nothing more; what is not kept yet is pushed again."""
        await self._presses.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _seconds_to(until: float) -> float:
    """By the clock of the loop, as the platform counts."""
    return max(0.0, until - asyncio.get_running_loop().time())


def _gave(task: "asyncio.Task[bool]") -> bool | None:
    """What *task* gave; None if it goes on, or broke."""
    if not task.done() or task.cancelled() or task.exception():
        return None
    return task.result()
