"""Shows one reply of the model while it comes, and withdraws what came of a broken attempt."""

from channels.events import (
    AttachedFile,
    CallArguments,
    CallFinished,
    CallStarted,
    Discarded,
    ReasoningAdded,
    ReasoningFinished,
    ReasoningStarted,
    TextAdded,
    TextFinished,
    TextStarted,
)
from channels.port import RunSink
from server.agent.context import RunContext
from server.llm import port as llm
from server.message import Message, clean_text, files_of
from server.store.ids import new_id


def attached_files(message: Message | None) -> list[AttachedFile]:
    """The files of a person's message as events name them."""
    files = files_of(message.content) if message is not None else ()
    return [AttachedFile(file.file_id, file.name, file.media_type) for file in files]


def say(sink: RunSink, message: Message) -> None:
    """Show a message of the harness that no model spoke."""
    sink.emit(TextStarted(message.id))
    sink.emit(TextAdded(message.id, message.text))
    sink.emit(TextFinished(message.id))


class Speaker:
    """Turns the model's deltas into run events; opens and closes each part exactly once."""

    def __init__(self, context: RunContext, sink: RunSink) -> None:
        self._context = context
        self._sink = sink
        self._begin()

    def _begin(self) -> None:
        self.message_id = new_id()
        self._pieces: list[str] = []
        self._text_open = False
        self._reasoning_id: str | None = None
        self._reasoning_open = False
        self._shown: list[str] = []
        self._call_ids: dict[int, str] = {}
        self._open_calls: list[str] = []

    def hear(self, event: llm.ModelEvent) -> None:
        """Show one event of the model's stream."""
        if isinstance(event, llm.TextDelta):
            self._hear_text(event.text)
        elif isinstance(event, llm.ReasoningDelta):
            self._hear_reasoning(event.text)
        elif isinstance(event, llm.CallStarted):
            self._start_call(event.index, event.name)
        elif isinstance(event, llm.CallArguments):
            call_id = self._call_ids.get(event.index)
            if call_id is not None:
                self._sink.emit(CallArguments(call_id, event.text))
        elif isinstance(event, llm.AttemptFailed):
            self.discard()

    def call_id(self, index: int, name: str) -> str:
        """The id of the reply's call at *index*; announces it if the stream did not."""
        if index not in self._call_ids:
            self._start_call(index, name)
        return self._call_ids[index]

    def close(self) -> None:
        """Close whatever is open; the reply is whole, or a stop cut it."""
        self._close_reasoning()
        self._close_text()
        for call_id in self._open_calls:
            self._sink.emit(CallFinished(call_id))
        self._open_calls.clear()

    def spoken(self) -> str:
        """The text shown so far."""
        return "".join(self._pieces)

    def discard(self) -> None:
        """Withdraw everything that was shown; the next attempt speaks under new ids."""
        self.close()
        if self._shown or self._call_ids:
            self._sink.emit(Discarded(tuple(self._shown), tuple(self._call_ids.values())))
        self._begin()

    def withdraw_calls(self) -> None:
        """Withdraw the calls alone: a stop cut the reply before they could be made."""
        self.close()
        if self._call_ids:
            self._sink.emit(Discarded((), tuple(self._call_ids.values())))
            self._call_ids.clear()

    def _hear_text(self, delta: str) -> None:
        self._close_reasoning()
        if not self._text_open:
            self._sink.emit(TextStarted(self.message_id))
            self._text_open = True
            if self.message_id not in self._shown:
                self._shown.append(self.message_id)
        self._pieces.append(delta)
        self._sink.emit(TextAdded(self.message_id, delta))

    def _hear_reasoning(self, delta: str) -> None:
        if not self._reasoning_open:
            self._reasoning_id = new_id()
            self._shown.append(self._reasoning_id)
            self._reasoning_open = True
            self._sink.emit(ReasoningStarted(self._reasoning_id))
        if self._reasoning_id is not None:
            self._sink.emit(ReasoningAdded(self._reasoning_id, delta))

    def _start_call(self, index: int, name: str) -> None:
        self._close_reasoning()
        self._close_text()
        call_id = self._context.new_call_id()
        self._call_ids[index] = call_id
        self._open_calls.append(call_id)
        self._sink.emit(CallStarted(call_id, clean_text(name), self.message_id))

    def _close_text(self) -> None:
        if self._text_open:
            self._sink.emit(TextFinished(self.message_id))
            self._text_open = False

    def _close_reasoning(self) -> None:
        if self._reasoning_open and self._reasoning_id is not None:
            self._sink.emit(ReasoningFinished(self._reasoning_id))
            self._reasoning_open = False
