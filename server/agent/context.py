"""What one run knows while it is executed."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from guard import NoProgressNotice
from server.agent.judge import Judge, Judgement
from server.agent.prompt import Prompt
from server.contract import ProgressContract
from server.message import Message, Usage
from server.store.approvals import Approval
from server.store.ids import new_id
from server.store.runs import Run
from server.store.sessions import Session

_CALL_ID_LENGTH = 9
"""Some providers accept tool call ids of exactly nine letters and digits, none refuses them."""


_FRAME_BYTES = 50
"""What the JSON of a message adds to its words."""


@dataclass(slots=True)
class RunContext:
    """The state of one run in memory; all of it can be rebuilt from the store."""

    session: Session
    run: Run
    prompt: Prompt
    messages: list[Message]
    """The window of history that the prompt is made from."""
    notices: list[NoProgressNotice]
    judge: Judge
    workspace: Path
    tools_json: bytes
    """The definitions that each request of the session carries."""
    judgement: Judgement | None = None
    """Of the last closed round of this turn, for the verdict that a restart takes again."""
    contract: ProgressContract | None = None
    """What counts as progress; without it only repetition is judged."""
    facts: dict[str, str] = field(default_factory=dict)
    """By item of the contract, what was verified."""
    is_complete: bool = False
    """The goal of the contract is reached; nothing more is to be done."""
    root_run_id: str | None = None
    """Of a subagent: the run for which it and others explore."""
    pictures: dict[str, str] = field(default_factory=dict)
    """Data URIs of the pictures that the prompt shows, by file id."""
    last_seq: int = 0
    """The `seq` of the session's newest message; the run alone adds to it."""
    rounds: int = 0
    """Rounds begun so far, those before a restart too."""
    usage: Usage = field(default_factory=Usage)
    """Of this run's agent calls."""
    counted_tokens: int = 0
    """Size of the last prompt and its reply, as the provider counted; 0 if it counted none since
    the history was last made shorter."""
    uncounted_bytes: int = 0
    """About what the window has gained since then."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    answers: dict[str, Approval] = field(default_factory=dict)
    """What people said of the calls of the open round, by call id."""
    compaction_asked: bool = False
    """A person asked to make the history shorter; done after the round."""
    compaction_failed: bool = False
    """Not tried again by itself in this run: each try costs a request."""
    has_steered: bool = False
    """Somebody wants to join; looked at after each round."""
    call_ids: set[str] = field(default_factory=set)
    faults: set[str] = field(default_factory=set)
    """Lines about tools' rules and contracts that were logged already."""

    def new_call_id(self) -> str:
        """An id for a tool call, unique in the session whatever the provider sent."""
        while True:
            call_id = new_id()[-_CALL_ID_LENGTH:]  # random bits alone
            if call_id not in self.call_ids:
                self.call_ids.add(call_id)
                return call_id

    def clear(self) -> None:
        """Empty the window."""
        self.messages = []
        self.counted_tokens = 0
        self.uncounted_bytes = 0

    def extend(self, messages: Iterable[Message]) -> None:
        """Add messages that were just stored to the window."""
        for message in messages:
            self.messages.append(message)
            self.last_seq = message.seq
            self._count(message)

    def _count(self, message: Message) -> None:
        head = self.messages[0]
        is_longer_prompt = head.summary_of is not None and message.seq < head.seq
        if message.usage is None or is_longer_prompt:
            self.uncounted_bytes += size_bytes(message)
        else:
            self.counted_tokens = message.usage.prompt_tokens + message.usage.completion_tokens
            self.uncounted_bytes = 0


def size_bytes(message: Message) -> int:
    """About what the message adds to a prompt; pictures are left out."""
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return len(message.text.encode()) + calls + _FRAME_BYTES
