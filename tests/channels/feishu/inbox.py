"""An application in memory: keeps what channels bring it, and lets the test play the runs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from channels.errors import InboxRefused, InboxUnavailable
from channels.events import (
    CallResult,
    CallStarted,
    Outcome,
    OutcomeStatus,
    RoundStarted,
    RunEvent,
    RunStarted,
    TextAdded,
    TextFinished,
    TextStarted,
)
from channels.feishu.channel import FeishuChannel
from channels.port import (
    ChatAddress,
    Command,
    Decision,
    Delivery,
    Inbound,
    Locale,
    RunSink,
    Submitted,
    SubmittedState,
    Turn,
)


@dataclass
class MemoryInbox:
    """Fits `port.Inbox`."""

    taken: list[tuple[Inbound, Submitted]] = field(default_factory=list)
    commands: list[tuple[ChatAddress, Command, str]] = field(default_factory=list)
    late: list[tuple[ChatAddress, str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    decided: list[tuple[str, Decision, str, str]] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    kept: dict[str, list[str]] = field(default_factory=dict)
    states: list[tuple[SubmittedState, int | None]] = field(default_factory=list)
    """What becomes of the next messages; started, when used up."""
    is_unavailable: bool = False
    refuses_with: str = ""
    breaks_with: BaseException | None = None
    """A fault of the application."""
    gate: asyncio.Event | None = None
    """Submitting and commands wait for it."""
    cancel_gate: asyncio.Event | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _by_key: dict[str, Any] = field(default_factory=dict)

    async def submit(self, inbound: Inbound) -> Submitted:
        await self._enter()
        if known := next((self._by_key[key] for key in inbound.keys if key in self._by_key), None):
            return Submitted(known.session_id, known.run_id, known.state, duplicate=True)
        number = len(self.taken) + 1
        state, position = self.states.pop(0) if self.states else ("started", None)
        submitted = Submitted("s1", f"run{number}", state, position)
        self._by_key.update(dict.fromkeys(inbound.keys, submitted))
        self.taken.append((inbound, submitted))
        self.running.add(submitted.run_id)
        await self._tell()
        return submitted

    async def command(
        self,
        chat: ChatAddress,
        command: Command,
        keys: Sequence[str],
        sender: str,
        reply_to: str | None = None,
    ) -> str:
        await self._enter()
        if any(key in self._by_key for key in keys):
            return ""
        self._by_key.update(dict.fromkeys(keys, command))
        self.commands.append((chat, command, sender))
        await self._tell()
        return f"did {command}"

    async def note_late(self, chat: ChatAddress, keys: Sequence[str], reply_to: str) -> bool:
        """See the port."""
        await self._enter()
        if any(key in self._by_key for key in keys):
            return False
        self._by_key.update(dict.fromkeys(keys, "late"))
        self.late.append((chat, reply_to))
        await self._tell()
        return True

    async def is_ready(self) -> bool:
        """See the port."""
        return not self.is_unavailable

    async def decide(self, interrupt_id: str, decision: Decision, by: str, text: str = "") -> str:
        """See the port."""
        await self._enter()
        self.decided.append((interrupt_id, decision, by, text))
        await self._tell()
        return f"{by}: {decision}"

    async def cancel_run(self, run_id: str) -> bool:
        if self.cancel_gate is not None:
            await self.cancel_gate.wait()
        if self.is_unavailable:
            raise InboxUnavailable
        self.cancelled.append(run_id)
        return run_id in self.running

    async def keep(self, run_id: str, handle: str) -> None:
        if self.is_unavailable:
            raise InboxUnavailable
        self.kept.setdefault(run_id, []).append(handle)
        await self._tell()

    async def _enter(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.breaks_with is not None:
            raise self.breaks_with
        if self.is_unavailable:
            raise InboxUnavailable
        if self.refuses_with:
            raise InboxRefused(self.refuses_with)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait until *holds*; looked at after each change."""
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(holds)

    async def turn(self, number: int = 1, locale: Locale = "zh-CN") -> Turn:
        """The run of the message that was taken as the *number*th."""
        await self.until(lambda: len(self.taken) >= number)
        inbound, submitted = self.taken[number - 1]
        assert inbound.chat is not None, "every message of a chat has one"
        return Turn(
            submitted.session_id, submitted.run_id, inbound.chat, inbound.reply_to, None, locale
        )


def speak(sink: RunSink, text: str, message_id: str = "m1") -> None:
    """The model says *text* at once."""
    emit(
        sink,
        TextStarted(message_id),
        TextAdded(message_id, text),
        TextFinished(message_id),
    )


def emit(sink: RunSink, *events: RunEvent) -> None:
    """Put *events* into the sink."""
    for event in events:
        sink.emit(event)


def begin(channel: FeishuChannel, turn: Turn) -> RunSink:
    """A run that asks the model."""
    sink = channel.watch(turn)
    emit(sink, RunStarted(turn.run_id, "m0", "hi"), RoundStarted(1))
    return sink


def use_tool(sink: RunSink, name: str, call_id: str = "c1") -> Callable[[], None]:
    """A tool runs until the result of this is called."""
    sink.emit(CallStarted(call_id, name, "m1"))
    return lambda: sink.emit(CallResult("m2", call_id, name, "what a tool found"))


async def finish(
    channel: FeishuChannel,
    turn: Turn,
    answer: str = "",
    *,
    status: OutcomeStatus = "finished",
    text: str = "",
    attempt: int = 1,
) -> None:
    """The run ends and is told."""
    await channel.deliver(ending(turn, answer, status=status, text=text, attempt=attempt))


def ending(
    turn: Turn,
    answer: str = "",
    *,
    status: OutcomeStatus = "finished",
    text: str = "",
    attempt: int = 1,
) -> Delivery:
    """How the run of *turn* ended."""
    code = {"finished": "completed", "cancelled": "cancelled"}.get(status, "no_progress_loop")
    return Delivery(f"d-{turn.run_id}", attempt, turn, status, code, text, answer)


def outcome(turn: Turn, status: OutcomeStatus = "finished") -> Outcome:
    """The last event of the run."""
    return Outcome(turn.run_id, status, "completed")
