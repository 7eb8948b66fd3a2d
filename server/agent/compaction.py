"""Makes a history shorter: older messages are replaced in the prompt by a summary of them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from channels.events import Compaction
from channels.port import RunSink
from server.agent.context import RunContext, size_bytes
from server.agent.history import History
from server.agent.journal import Journal, account_of
from server.agent.stopping import Stopped, unless_stopped
from server.agent.texts import PromptTexts
from server.errors import LLMBadResponse, LLMError
from server.llm.port import AttemptFailed, Model, ModelRequest, Reply
from server.llm.side import ask, side_messages
from server.message import Message, Summary, clean_text
from server.store.ids import new_id
from server.store.usage import LlmCall

log = logging.getLogger(__name__)

BYTES_PER_TOKEN: Final = 3
"""A careful guess for mixed Chinese and English text where the provider counts nothing."""

_KEPT_SHARE: Final = 0.25
"""Of the context that the kept messages may fill."""

_TRANSCRIPT_SHARE: Final = 0.5
"""Of the context that the text to be summarised may fill; the newest part wins."""

_MESSAGE_CHARACTERS: Final = 4000
"""Of one message in the text to be summarised; its middle is left out."""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """When a history is made shorter."""

    context_tokens: int
    """What the model's context holds."""
    trigger_ratio: float = 0.8
    """Share of the context at which compaction starts by itself."""
    keep_rounds: int = 6
    """The most rounds and user messages that stay as they are."""


class Compactor:
    """Summarises the older part of a session's history."""

    def __init__(
        self,
        *,
        model: Model,
        history: History,
        journal: Journal,
        settings: CompactionSettings,
    ) -> None:
        self._model = model
        self._history = history
        self._journal = journal
        self._settings = settings

    async def compact_if_due(self, context: RunContext, sink: RunSink) -> None:
        """Compact where a person asked for it or the prompt nears the model's limit."""
        by_hand, context.compaction_asked = context.compaction_asked, False
        if by_hand or self._is_near_limit(context):
            await self.try_compact(context, sink, by_hand=by_hand)

    async def try_compact(
        self, context: RunContext, sink: RunSink, *, by_hand: bool = False
    ) -> bool:
        """Compact as `compact` does, but let the run go on if no summary can be had."""
        try:
            return await self.compact(context, sink, by_hand=by_hand)
        except LLMError as error:
            log.warning("[compaction] failed session=%s code=%s", context.session.id, error.code)
            context.compaction_failed = True
            return False

    def _is_near_limit(self, context: RunContext) -> bool:
        limit = self._settings.context_tokens * self._settings.trigger_ratio
        return not context.compaction_failed and prompt_tokens(context) >= limit

    async def compact(self, context: RunContext, sink: RunSink, *, by_hand: bool = False) -> bool:
        """Replace the older part of the history by a summary.

        Args:
            by_hand: A person asked for it, so all but the last turn goes.
        Returns:
            Whether there was anything to leave out.
        Raises:
            LLMError: No summary can be had; everything is as it was.
            Stopped: A person stopped the run meanwhile; everything is as it was.
        """
        cut = self._cut(context.messages, by_hand=by_hand)
        if cut == 0:
            return False
        activity_id = new_id()
        sink.emit(Compaction(activity_id, "started"))
        try:
            await self._compact(context, context.messages[:cut])
        except (LLMError, Stopped):
            sink.emit(Compaction(activity_id, "failed"))
            raise
        sink.emit(Compaction(activity_id, "finished", cut))
        return True

    async def _compact(self, context: RunContext, dropped: Sequence[Message]) -> None:
        summary = await self._summarise(context, dropped)
        await self._journal.append_summary(context, self._record(context, dropped, summary))
        await self._history.reload(context)
        log.info(
            "[compaction] done session=%s dropped=%d kept=%d",
            context.session.id,
            len(dropped),
            len(context.messages) - 1,
        )

    def _cut(self, messages: Sequence[Message], *, by_hand: bool) -> int:
        """How many messages to drop; 0 if nothing can be.

        Kept messages begin with a user message or a round, never inside a round. What fits into
        the kept share stays; if all does, the last turn stays, else its newest round.
        """
        budget = int(self._settings.context_tokens * _KEPT_SHARE) * BYTES_PER_TOKEN
        floor = 1 if messages and messages[0].summary_of is not None else 0
        kept_cut = _budget_cut(messages, budget, self._settings.keep_rounds)
        turn_cut = _turn_cut(messages)
        cuts = (turn_cut, kept_cut) if by_hand else (kept_cut, turn_cut, _round_cut(messages))
        return next((cut for cut in cuts if cut > floor), 0)

    async def _summarise(self, context: RunContext, dropped: Sequence[Message]) -> str:
        texts = PromptTexts(context.session.locale)
        budget = int(self._settings.context_tokens * _TRANSCRIPT_SHARE) * BYTES_PER_TOKEN
        request = ModelRequest(
            messages=side_messages(texts.summary_request, transcript(dropped, budget)),
            purpose="compaction",
        )
        accounts: list[LlmCall] = []

        async def listen() -> str:
            return await ask(self._model, request, heard)

        def heard(end: Reply | AttemptFailed) -> None:
            session, run = context.session.id, context.run.id
            accounts.append(account_of(session, run, "compaction", self._model.name, end))

        try:
            summary = await unless_stopped(listen(), context.cancelled)
        finally:
            await self._journal.record_calls(accounts)
        text = clean_text(summary).strip()
        if not text:
            raise LLMBadResponse("the summary is empty")
        return text

    def _record(self, context: RunContext, dropped: Sequence[Message], summary: str) -> Message:
        """The summary as a message."""
        first_kept = context.messages[len(dropped)]
        texts = PromptTexts(context.session.locale)
        return Message(
            id=new_id(),
            role="user",
            content=texts.summary(summary, _last_request(context.messages)),
            created_at=datetime.now(UTC),
            run_id=context.run.id,
            synthetic=True,
            summary_of=Summary(first_kept.seq),
        )


def prompt_tokens(context: RunContext) -> int:
    """Size of the next prompt: what the provider counted last, and a guess for what came since."""
    return context.counted_tokens + context.uncounted_bytes // BYTES_PER_TOKEN


def _budget_cut(messages: Sequence[Message], budget_bytes: int, most_rounds: int) -> int:
    """Where the kept messages begin if they may fill *budget_bytes*; 0 if all fit."""
    size = 0
    cut = 0
    rounds = 0
    for position in range(len(messages) - 1, -1, -1):
        size += size_bytes(messages[position])
        if cut and (size > budget_bytes or rounds >= most_rounds):
            return cut
        if messages[position].role != "tool":
            cut = position
            rounds += 1
    return 0


def _turn_cut(messages: Sequence[Message]) -> int:
    """Where the last turn begins."""
    turns = (n for n, m in enumerate(messages) if m.role == "user" and not m.synthetic)
    return max(turns, default=0)


def _round_cut(messages: Sequence[Message]) -> int:
    """Where the newest round begins."""
    return max((n for n, m in enumerate(messages) if m.role != "tool"), default=0)


def transcript(messages: Sequence[Message], budget_bytes: int) -> str:
    """The messages as plain text for a summary; the oldest are left out above *budget_bytes*.

    A summary at their head stays, and whole: it is all that is left of what was before.
    """
    summaries = [message.text for message in messages[:1] if message.summary_of is not None]
    lines: list[str] = []
    room = budget_bytes - sum(len(text.encode()) for text in summaries)
    for message in reversed(messages[len(summaries) :]):
        line = _line(message)
        room -= len(line.encode())
        if room < 0 and lines:
            lines.append("…")
            break
        lines.append(line)
    return "\n\n".join([*summaries, *reversed(lines)])


def _line(message: Message) -> str:
    asked = "".join(f"\n[{call.name} {_shortened(call.arguments)}]" for call in message.tool_calls)
    return f"{message.role}: {_shortened(message.text)}{asked}"


def _shortened(text: str) -> str:
    if len(text) <= _MESSAGE_CHARACTERS:
        return text
    half = _MESSAGE_CHARACTERS // 2
    return f"{text[:half]}\n…\n{text[-half:]}"


def _last_request(messages: Sequence[Message]) -> str:
    """The newest words of a person; they must survive the summary as they were."""
    for message in reversed(messages):
        if message.role == "user" and not message.synthetic:
            return _shortened(message.text)
    return ""
