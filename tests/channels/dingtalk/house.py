"""What the tests of the DingTalk channel stand on: an inbox in memory, and a bot that is open."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from channels.clock import SYSTEM, Clock
from channels.dingtalk.channel import DingTalkChannel, DingTalkConfig, open_dingtalk
from channels.errors import InboxRefused, InboxUnavailable
from channels.events import (
    CallResult,
    CallStarted,
    OutcomeStatus,
    RoundStarted,
    RunEvent,
    RunStarted,
    TextAdded,
    TextStarted,
)
from channels.port import (
    ChatAddress,
    Command,
    Decision,
    Delivery,
    Inbound,
    Submitted,
    Turn,
)
from tests.fakes.clock import Clock as StandingClock
from tests.fakes.dingtalk import FakeDingTalk
from tests.waiting import until

TEMPLATE = "template.schema"
PRIVATE_CHAT = "cidAb+C/d=="
GROUP_CHAT = "cidGroup=="
WAIT_SECONDS = 20.0
ZH: Final = "zh-CN"


@dataclass
class MemoryInbox:
    """Keeps what it is given; fits `channels.port.Inbox`."""

    taken: list[Inbound] = field(default_factory=list)
    commands: list[tuple[ChatAddress, Command, str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    late: list[tuple[ChatAddress, str]] = field(default_factory=list)
    decided: list[tuple[str, Decision, str, str]] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    """Runs that can be cancelled."""
    is_down: bool = False
    breaks: bool = False
    refuses: str = ""
    answer: Submitted | None = None
    """In place of the usual one."""
    hold: asyncio.Event | None = None
    """Submitting and deciding wait for it."""
    _seen: dict[str, Submitted] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def submit(self, inbound: Inbound) -> Submitted:
        """See the port."""
        if self.hold is not None:
            await self.hold.wait()
        self._check()
        for key in inbound.keys:
            if key in self._seen:
                return replace(self._seen[key], duplicate=True)
        self.taken.append(inbound)
        run_id = f"run{len(self.taken)}"
        self.running.add(run_id)
        submitted = self.answer or Submitted("s1", run_id, "started")
        self._seen.update(dict.fromkeys(inbound.keys, submitted))
        await self._change()
        return submitted

    async def command(
        self,
        chat: ChatAddress,
        command: Command,
        keys: Sequence[str],
        sender: str,
        reply_to: str | None = None,
    ) -> str:
        """See the port."""
        self._check()
        self.commands.append((chat, command, sender))
        await self._change()
        return f"done: {command}"

    async def note_late(self, chat: ChatAddress, keys: Sequence[str], reply_to: str) -> bool:
        """See the port."""
        self._check()
        if any(key in self._seen for key in keys):
            return False
        self._seen.update(dict.fromkeys(keys, Submitted("s1", "", "started")))
        self.late.append((chat, reply_to))
        await self._change()
        return True

    async def is_ready(self) -> bool:
        """See the port."""
        return not self.is_down

    async def cancel_run(self, run_id: str) -> bool:
        """See the port."""
        if self.hold is not None:
            await self.hold.wait()
        self.cancelled.append(run_id)
        await self._change()
        return run_id in self.running

    async def decide(self, interrupt_id: str, decision: Decision, by: str, text: str = "") -> str:
        """See the port."""
        if self.hold is not None:
            await self.hold.wait()
        self._check()
        self.decided.append((interrupt_id, decision, by, text))
        await self._change()
        return f"{by}: {decision}"

    async def keep(self, run_id: str, handle: str) -> None:
        """See the port."""
        self._check()
        self.kept[run_id] = handle

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until *holds*; looked at after every change here."""
        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(holds)

    def _check(self) -> None:
        if self.breaks:
            raise RuntimeError("a bug")
        if self.is_down:
            raise InboxUnavailable("down")
        if self.refuses:
            raise InboxRefused(self.refuses)

    async def _change(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@dataclass(frozen=True)
class Bot:
    """An open bot with its platform and its application."""

    platform: FakeDingTalk
    inbox: MemoryInbox
    channel: DingTalkChannel

    def turn(self, number: int = 1, *, is_restarted: bool = False) -> Turn:
        """The turn of the *number*th message that was taken."""
        inbound = self.inbox.taken[number - 1]
        assert inbound.chat is not None, "a bot's message has a chat"
        run_id = f"run{number}"
        handle = self.inbox.kept.get(run_id) if is_restarted else None
        return Turn("s1", run_id, inbound.chat, inbound.reply_to, handle, "zh-CN")


def config(platform: FakeDingTalk, **changes: object) -> DingTalkConfig:
    """A bot of the platform's app that everyone may talk to, with a card template."""
    made = DingTalkConfig(
        client_id=platform.app.client_id,
        client_secret=platform.app.client_secret,
        card_template_id=TEMPLATE,
        api_base=platform.url,
        oapi_base=platform.url,
        allow=("*",),
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # the tests name real fields


async def up(state: Callable[[], str]) -> None:
    """Wait until the supervisor has noticed that the line is open."""

    async def is_up() -> bool:
        return state() == "up"

    await until(is_up)


@asynccontextmanager
async def open_bot(
    platform: FakeDingTalk,
    inbox: MemoryInbox | None = None,
    clock: Clock = SYSTEM,
    **changes: object,
) -> AsyncIterator[Bot]:
    """A bot that is connected."""
    inbox = inbox or MemoryInbox()
    before = platform.opened
    async with open_dingtalk(config(platform, **changes), inbox, clock) as channel:
        await platform.connected(before + 1)
        await up(lambda: channel.health().state)
        yield Bot(platform, inbox, channel)


async def move_until(clock: StandingClock, holds: Callable[[], bool], step: float = 0.5) -> float:
    """Let time pass in small steps, with real work in between; how long it took by the clock."""
    began = clock.monotonic()
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.005)  # sockets are real and tell nobody when they are done
            if not holds():
                clock.advance(step)
    return clock.monotonic() - began


async def said(platform: FakeDingTalk, count: int = 1, chat_id: str = PRIVATE_CHAT) -> list[str]:
    """The texts in a chat, once there are so many."""
    await platform.until(lambda: len(platform.chat(chat_id)) >= count)
    return platform.chat(chat_id)


async def sleep_through(bot: Bot, clock: StandingClock, seconds: float) -> None:
    """Let time pass at once; the line is silent meanwhile, so that a new one is opened."""
    opened = bot.platform.opened
    clock.advance(seconds)
    await move_until(
        clock,
        lambda: bot.platform.opened > opened and bot.channel.health().state == "up",
    )


async def in_time(clock: StandingClock, work: Coroutine[Any, Any, None]) -> float:
    """Let time pass until *work* is done; how long it took by the clock."""
    task = asyncio.create_task(work)
    seconds = await move_until(clock, task.done)
    await task
    return seconds


def delivery(
    turn: Turn,
    status: OutcomeStatus = "finished",
    *,
    text: str = "",
    answer: str = "",
    attempt: int = 1,
) -> Delivery:
    """How *turn* ended."""
    code = {"finished": "completed", "cancelled": "cancelled"}.get(status, "no_progress_loop")
    return Delivery(f"d-{turn.run_id}", attempt, turn, status, code, text, answer)


def started(run_id: str = "run1") -> RunEvent:
    """The beginning of a run."""
    return RunStarted(run_id, "m1", "hello")


def calling(tool_name: str, number: int = 1) -> list[RunEvent]:
    """A round that uses a tool."""
    return [RoundStarted(number), CallStarted(f"call{number}", tool_name, f"a{number}")]


def called(tool_name: str, number: int = 1) -> RunEvent:
    """Its result."""
    return CallResult(f"t{number}", f"call{number}", tool_name, "secret result")


def saying(text: str, message_id: str = "a9") -> list[RunEvent]:
    """The model speaks."""
    return [TextStarted(message_id), TextAdded(message_id, text)]
