"""What a progress card shows of a run: a pure fold over its events."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from channels.events import (
    CallArguments,
    CallFinished,
    CallProgress,
    CallResult,
    CallStarted,
    Compaction,
    Discarded,
    Outcome,
    ReasoningAdded,
    ReasoningFinished,
    ReasoningStarted,
    RoundFinished,
    RoundStarted,
    RunEvent,
    RunStarted,
    SubagentFailed,
    SubagentFinished,
    SubagentStarted,
    TextAdded,
    TextFinished,
    TextStarted,
    UserJoined,
)

Phase = Literal["thinking", "tool", "answering", "done"]

SPOKEN_KEPT = 8
"""The last texts of the model: enough to go back to when a broken attempt is withdrawn."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A text of the model, as far as it came."""

    message_id: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A call that has no result yet."""

    call_id: str
    tool_name: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A run as a card shows it; never arguments, results or thoughts."""

    phase: Phase = "thinking"
    round: int = 0
    """The round that is on, from 1; 0 before the first."""
    spoken: tuple[Spoken, ...] = ()
    running: tuple[Running, ...] = ()
    joined: int = 0
    """Steered messages that became part of the run."""
    is_compacting: bool = False
    outcome: Outcome | None = None
    """Present when, and only when, the phase is `done`."""

    @property
    def answer(self) -> str:
        """The model's newest text that is not empty."""
        return next((spoken.text for spoken in reversed(self.spoken) if spoken.text), "")

    @property
    def tool(self) -> str | None:
        """The tool that was started last among those that still run."""
        return self.running[-1].tool_name if self.running else None


START = Shown()


def advance(shown: Shown, event: RunEvent) -> Shown:
    """Fold *event* into *shown*; nothing changes after the outcome except by a new start."""
    if shown.outcome is not None and not isinstance(event, RunStarted):
        return shown
    match event:
        case RunStarted():
            return START
        case RoundStarted(number):
            return replace(shown, phase="thinking", round=number, running=(), is_compacting=False)
        case TextStarted() | TextAdded() | TextFinished():
            return _speak(shown, event)
        case CallStarted() | CallResult():
            return _call(shown, event)
        case Discarded(message_ids, call_ids):
            return _withdraw(shown, message_ids, call_ids)
        case ReasoningStarted() | ReasoningAdded() | ReasoningFinished():
            return _settle(shown)
        case UserJoined():
            return replace(shown, joined=shown.joined + 1)
        case Compaction(state=state):
            return replace(shown, is_compacting=state == "started")
        case Outcome():
            return replace(shown, phase="done", running=(), is_compacting=False, outcome=event)
        case RoundFinished() | CallArguments() | CallFinished() | CallProgress():
            return shown
        case SubagentStarted() | SubagentFinished() | SubagentFailed():
            return shown
        case _:
            assert_never(event)


def _speak(shown: Shown, event: TextStarted | TextAdded | TextFinished) -> Shown:
    if isinstance(event, TextFinished):
        return shown
    *earlier, last = shown.spoken or (Spoken(event.message_id),)
    if last.message_id != event.message_id:
        earlier, last = [*earlier, last], Spoken(event.message_id)
    if isinstance(event, TextAdded):
        last = replace(last, text=last.text + event.delta)
    spoken = (*earlier, last)[-SPOKEN_KEPT:]
    return replace(shown, phase="answering", spoken=spoken)


def _call(shown: Shown, event: CallStarted | CallResult) -> Shown:
    others = tuple(call for call in shown.running if call.call_id != event.call_id)
    if isinstance(event, CallStarted):
        running = (*others, Running(event.call_id, event.tool_name))
        return replace(shown, phase="tool", running=running)
    return _settle(replace(shown, running=others))


def _withdraw(shown: Shown, message_ids: Sequence[str], call_ids: Sequence[str]) -> Shown:
    spoken = tuple(text for text in shown.spoken if text.message_id not in message_ids)
    running = tuple(call for call in shown.running if call.call_id not in call_ids)
    return _settle(replace(shown, spoken=spoken, running=running))


def _settle(shown: Shown) -> Shown:
    """Nobody speaks now: a tool runs, or the model thinks."""
    return replace(shown, phase="tool" if shown.running else "thinking")


class Progress:
    """Holds what is shown of one run; a sink for its events."""

    def __init__(self) -> None:
        self.shown = START

    def emit(self, event: RunEvent) -> None:
        """Take *event*; never blocks, never raises."""
        self.shown = advance(self.shown, event)
