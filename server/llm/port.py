"""What the loop asks of a model, and what it gets back."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from server.message import Usage

Purpose = Literal["agent", "title", "compaction"]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request, its long parts encoded already so that sending them again costs nothing."""

    messages: Sequence[bytes]
    """Chat messages in OpenAI shape, each one JSON object in UTF-8."""
    tools: bytes | None = None
    """The JSON array of tool definitions."""
    purpose: Purpose = "agent"
    model: str | None = None
    """Overrides the configured model's name."""
    prompt_cache_key: str | None = None
    max_tokens: int | None = None
    may_call: bool = True
    """Whether the reply may use the tools; their definitions stay, for the sake of the prefix."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model began to ask for a tool."""

    index: int
    """Position of the call in the reply, from 0."""
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A request failed; everything streamed by it is void.

    After the last try `LLMError` is raised; otherwise the request is made again.
    """

    error: str
    """A code of `LLMError`."""
    streamed: bool
    """Whether deltas of the failed attempt were given out."""
    total_ms: int
    usage: Usage | None = None
    first_token_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A finished tool call of a reply."""

    provider_id: str
    """May be empty, or the same in each reply."""
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole reply; always the last event."""

    text: str
    calls: tuple[ReplyCall, ...] = ()
    reasoning: str | None = None
    reasoning_field: str | None = None
    finish_reason: str | None = None
    """Advisory: non-empty `calls` mean tools whatever it says."""
    usage: Usage | None = None
    model: str = ""
    first_token_ms: int | None = None
    total_ms: int = 0

    @property
    def is_empty(self) -> bool:
        """Neither text nor calls."""
        return not self.text.strip() and not self.calls


ModelEvent = TextDelta | ReasoningDelta | CallStarted | CallArguments | AttemptFailed | Reply


class Model(Protocol):
    """A chat model behind some gateway."""

    @property
    def name(self) -> str:
        """The model's name as the gateway knows it."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask once and stream the reply; retries are the model's own affair.

        Each attempt that failed shows as one `AttemptFailed`; the last event is a `Reply`.

        Raises:
            LLMError: The last attempt failed too, or a repeat cannot help. Comes after the
                `AttemptFailed` of that attempt.

        Cancelling (or closing the generator) aborts the HTTP stream at once.
        """

    async def check(self) -> str | None:
        """None if the model can be asked, else what is wrong and how to mend it."""
