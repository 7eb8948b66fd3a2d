"""The chat message as a value: roles, calls, results, pictures."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

Role = Literal["user", "assistant", "tool"]

TITLE_CHARACTERS: Final = 40
"""Of a text that stands in for a title until somebody gives one."""

StateValue = int | float | str | bool
"""A value of a run's state that an authoritative tool told."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text a person wrote."""

    text: str


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file of the session that goes with a message; its bytes stay in the file store."""

    file_id: str
    media_type: str
    name: str
    size_bytes: int
    locator: str | None = None
    """Where its platform keeps it; present until it was fetched."""


Part = TextPart | FilePart
Content = str | tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One use of a tool, as the model asked for it."""

    id: str
    """Unique within the session: made so on arrival, since providers reuse theirs."""
    name: str
    arguments: str
    """The text as received; it may not be JSON."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture that came with a tool result; the bytes stay in the file store."""

    file_id: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the guard needs to know of a result, taken when the result was born."""

    action_digest: str
    result_digest: str
    exempt: bool
    error_class: str | None = None
    """The normalised reason of a failure."""
    elapsed_ms: int = 0
    harness: bool = False
    """Written by the harness (a cancel, a restart), so it neither counts nor clears a streak."""
    known: bool = False
    """Another subagent of the same run made this call with this result before."""
    kind: str = "unknown"
    """What the call did to the world: `read`, `write`, `send`, `wait`."""
    contract: str = ""
    """Key of the progress contract that the two below are told by."""
    values: Mapping[str, StateValue] = field(default_factory=dict)
    """By field of the contract, what the result told of it."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """By item of the contract, what the result verified."""
    wall_ms: int | None = None
    """How much longer its round took for it, where calls ran side by side; None elsewhere."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model request, or of several added up."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """The part of the prompt that the provider had cached; at most `prompt_tokens`."""
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class Message:
    """One stored message of a session."""

    id: str
    role: Role
    content: Content
    created_at: datetime
    run_id: str | None = None
    seq: int = 0
    """Position in the session, from 1; 0 until it is stored."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    synthetic: bool = False
    """A user message that no person wrote: a summary, a note of the harness."""
    is_aside: bool = False
    """It begins a side question: what stands before it is another session's history."""
    reasoning: str | None = None
    reasoning_field: str | None = None
    """The field in which the provider sent its reasoning and wants it back."""
    evidence: Evidence | None = None
    picture: Picture | None = None
    is_error: bool = False
    usage: Usage | None = None
    model_ms: int = 0
    """Milliseconds that the model call took; assistant messages only."""
    summary_of: "Summary | None" = None

    @property
    def text(self) -> str:
        """The message's own words, files left out."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a compaction's summary message stands for."""

    first_kept_seq: int
    """Messages with a smaller `seq` left the prompt; they stay in the store."""


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """*text* as every database can keep it: without NUL, lone surrogates as U+FFFD.

    Called where a text enters, so that what is stored is what the model and the guard saw.
    """
    return _LONE_SURROGATE.sub("\ufffd", text.replace("\x00", ""))


def title_of(text: str) -> str:
    """The first words of *text*, on one line."""
    words = " ".join(text.split())
    return words if len(words) <= TITLE_CHARACTERS else f"{words[:TITLE_CHARACTERS]}…"


def text_of(content: Content) -> str:
    """The text of *content*, its text parts joined by line ends."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def files_of(content: Content) -> Sequence[FilePart]:
    """The files that go with *content*."""
    if isinstance(content, str):
        return ()
    return [part for part in content if isinstance(part, FilePart)]


def content_of(text: str, files: Sequence[FilePart]) -> Content:
    """The content of a message that says *text* and brings *files*."""
    return (TextPart(text), *files) if files else text
