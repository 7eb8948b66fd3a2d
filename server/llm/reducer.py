"""Folds the chunks of one streamed reply into events and, at its end, the whole reply.

Tool calls are told apart by what gateways really send: an index that is missing or always 0,
ids that are missing, empty after the first piece or repeated, names in each piece, arguments in
one piece or as an object.
"""

from collections.abc import Sequence

import msgspec

from server.errors import LLMBadResponse
from server.llm.chunk import CallDelta, Chunk, Delta, TokenCount, decode_chunk
from server.llm.failure import from_error
from server.llm.port import (
    CallArguments,
    CallStarted,
    ModelEvent,
    ReasoningDelta,
    Reply,
    ReplyCall,
    TextDelta,
)
from server.message import Usage

DONE = b"[DONE]"


class _Slot:
    """One tool call while its pieces arrive."""

    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a JSON object already; asked only when in doubt."""
        try:
            return isinstance(msgspec.json.decode("".join(self.arguments)), dict)
        except msgspec.DecodeError:
            return False


class Reducer:
    """The state of one reply."""

    def __init__(self) -> None:
        self.is_done = False
        """`[DONE]` was seen, or a reply in one piece; what follows is not looked at."""
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_field: str | None = None
        self._slots: list[_Slot] = []

    @property
    def is_whole(self) -> bool:
        """Whether the reply may end here."""
        return self.is_done or self.finish_reason is not None

    def feed(self, line: bytes) -> Sequence[ModelEvent]:
        """The events that one data line stands for.

        Raises:
            LLMError: The line carries an error, or is no chunk.
        """
        if line == DONE:
            self.is_done = True
            return ()
        return self.advance(decode_chunk(line))

    def advance(self, chunk: Chunk) -> Sequence[ModelEvent]:
        """Fold *chunk* into the reply.

        Raises:
            LLMError: It carries an error.
        """
        if chunk.error:
            raise from_error(chunk.error)
        if chunk.usage is not None:
            self._count(chunk.usage)
        if not chunk.choices:
            if chunk.code and chunk.usage is None and isinstance(chunk.message, str):
                raise from_error({"code": chunk.code, "message": chunk.message})
            return ()
        events: list[ModelEvent] = []
        for choice in chunk.choices:
            if choice.index:
                continue
            if choice.usage is not None:
                self._count(choice.usage)
            if choice.delta is not None:
                self._take(choice.delta, events)
            elif choice.message is not None:
                self._take(choice.message, events)
                self.is_done = True
            if choice.finish_reason:
                self._finish(choice.finish_reason)
        return events

    def reply(self, model: str, first_token_ms: int | None, total_ms: int) -> Reply:
        """The whole reply.

        Raises:
            LLMBadResponse: The stream ended before the reply did, or a call has no name.
        """
        if not self.is_whole:
            raise LLMBadResponse("the stream ended before the reply did")
        slots = [slot for slot in self._slots if slot.name or "".join(slot.arguments).strip()]
        if not all(slot.name for slot in slots):
            raise LLMBadResponse("a tool call of the reply has no name")
        return Reply(
            text="".join(self._text),
            calls=tuple(
                ReplyCall(slot.id, slot.name, "".join(slot.arguments) or "{}") for slot in slots
            ),
            reasoning="".join(self._reasoning) or None,
            reasoning_field=self._reasoning_field,
            finish_reason=self.finish_reason,
            usage=self.usage,
            model=model,
            first_token_ms=first_token_ms,
            total_ms=total_ms,
        )

    def _finish(self, reason: str) -> None:
        if reason == "error":  # OpenRouter, when the provider behind it broke off
            raise LLMBadResponse("the gateway says that the reply ended by an error")
        self.finish_reason = reason

    def _take(self, delta: Delta, events: list[ModelEvent]) -> None:
        if delta.content:
            self._text.append(delta.content)
            events.append(TextDelta(delta.content))
        if delta.reasoning_content:
            self._think("reasoning_content", delta.reasoning_content, events)
        if delta.reasoning:
            self._think("reasoning", delta.reasoning, events)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._take_call(call, events)

    def _think(self, field: str, text: str, events: list[ModelEvent]) -> None:
        """Add reasoning; gateways between two names of the field send the same text in both."""
        if self._reasoning_field is None:
            self._reasoning_field = field
        if self._reasoning_field == field:
            self._reasoning.append(text)
            events.append(ReasoningDelta(text))

    def _take_call(self, call: CallDelta, events: list[ModelEvent]) -> None:
        name = (call.function and call.function.name) or ""
        arguments = (call.function and call.function.arguments) or ""
        slot = self._slot_of(call.id or "", call.index, name, arguments)
        place = self._slots.index(slot)
        slot.id = slot.id or call.id or ""
        if arguments:
            slot.arguments.append(arguments)
        if slot.name:
            if arguments:
                events.append(CallArguments(place, arguments))
        elif name:
            slot.name = name
            events.append(CallStarted(place, name))
            if slot.arguments:
                events.append(CallArguments(place, "".join(slot.arguments)))

    def _slot_of(self, call_id: str, index: int | None, name: str, arguments: str) -> _Slot:
        """The call that a piece belongs to: a known one, or a new one."""
        slot = self._known(call_id, index)
        if slot is None or _starts_anew(slot, call_id, name, arguments):
            slot = _Slot(index)
            self._slots.append(slot)
        return slot

    def _known(self, call_id: str, index: int | None) -> _Slot | None:
        """The latest call with this id, or else with this index, or else the latest of all."""
        latest = self._slots[::-1]
        if call_id:
            for slot in latest:
                if slot.id == call_id and (index is None or slot.index in (None, index)):
                    return slot
        if index is not None:
            return next((slot for slot in latest if slot.index == index), None)
        return latest[0] if latest else None

    def _count(self, count: TokenCount) -> None:
        """Take the last count: some gateways send the sum so far in every chunk."""
        if count.prompt_tokens is None and count.completion_tokens is None:
            return
        prompt = max(count.prompt_tokens or 0, 0)
        cached = max(_cached(count), 0)
        self.usage = Usage(prompt, min(cached, prompt), max(count.completion_tokens or 0, 0))


def _starts_anew(slot: _Slot, call_id: str, name: str, arguments: str) -> bool:
    """Whether a piece that could belong to *slot* begins another call instead.

    A differing id says so, unless the gateway gives each piece its own: then there is no name
    and the arguments go on. Without ids a name says so once the arguments before are whole.
    """
    if call_id and slot.id:
        return call_id != slot.id and (bool(name) or slot.is_whole)
    return bool(name and slot.name and (arguments or name != slot.name)) and slot.is_whole


def _cached(count: TokenCount) -> int:
    details = count.prompt_tokens_details
    places = (
        details.cached_tokens if details is not None else None,
        count.prompt_cache_hit_tokens,
        count.cached_tokens,
    )
    return next((tokens for tokens in places if tokens is not None), 0)
