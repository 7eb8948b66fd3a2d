"""The agent loop: the only `while True` that spends money."""

import logging
import time
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from channels.events import Interrupt, RoundFinished, RoundStarted, UserJoined
from channels.port import RunSink
from guard import NoProgressNotice
from server.agent.acting import (
    COMPLETED,
    has_last_turn,
    last_turn_notice,
    log_nudges,
    log_stop,
    notices_of,
    stop_error,
)
from server.agent.calls import Answer, CallRunner
from server.agent.compaction import Compactor
from server.agent.consent import Consent
from server.agent.context import RunContext
from server.agent.exploration import Explorations
from server.agent.history import History, facts_of
from server.agent.journal import Journal, account_of
from server.agent.judge import Judgement
from server.agent.speaker import Speaker, attached_files, say
from server.agent.stopping import Stopped, unless_stopped
from server.errors import (
    ContextOverflow,
    EmptyReplies,
    LLMContextOverflow,
    LLMError,
    RunError,
    ServerError,
    StoreUnavailable,
)
from server.llm.port import AttemptFailed, Model, ModelRequest, Reply
from server.message import Message, ToolCall, clean_text
from server.store.ids import new_id
from server.store.usage import LlmCall

log = logging.getLogger(__name__)

EMPTY_REPLY_RETRIES: Final = 10
"""How often in a row an empty reply is asked for again."""

LAST_REPLY_RETRIES: Final = 2
"""As above, in the last turn of a run: what it may cost is spent, and it ends in any case."""


class AgentLoop:
    """Executes runs; holds nothing of any of them, so one loop serves all sessions."""

    def __init__(
        self,
        *,
        model: Model,
        history: History,
        calls: CallRunner,
        journal: Journal,
        compactor: Compactor,
        consent: Consent,
        explorations: Explorations,
    ) -> None:
        self._model = model
        self._history = history
        self._calls = calls
        self._journal = journal
        self._compactor = compactor
        self._consent = consent
        self._explorations = explorations

    async def execute(self, context: RunContext, sink: RunSink) -> Sequence[Interrupt]:
        """Run to the end, or to a question to a person; the questions, none at the end.

        A round with a question stays open: none of its calls has run.

        Raises:
            Stopped: A person stopped the run; what was stored stays.
            NoProgressLoopError, RuleStop: The policy ended the run; its last round is stored.
            RunError, LLMError: The run cannot go on.
            StoreUnavailable, Fenced: Nothing more can be written.

        Cancelling leaves the store at the last finished step; the run can be resumed from there.
        """
        questions = await self._settle(context, sink)
        if questions:
            return questions
        _check_stop(context)
        if context.judgement is not None and not context.is_complete:
            await self._stop(context, sink, context.judgement)
        while not (context.is_complete or _has_answered(context)):
            _check_stop(context)
            await self._compactor.compact_if_due(context, sink)
            context.rounds += 1
            sink.emit(RoundStarted(context.rounds))
            asked = await self._ask(context, sink)
            if not asked.tool_calls:
                sink.emit(RoundFinished(context.rounds))
                continue
            questions = self._consent.questions(context, asked.tool_calls)
            if questions:
                sink.emit(RoundFinished(context.rounds))
                return questions
            answers = await self._calls.run(context, asked.tool_calls, sink)
            await self._close(context, sink, asked, answers)
        return ()

    async def deliver(self, context: RunContext, sink: RunSink, text: str) -> None:
        """Say *text* without asking the model; raises as `execute`."""
        if _has_answered(context):
            return
        message = Message(
            id=new_id(),
            role="assistant",
            content=text,
            created_at=datetime.now(UTC),
            run_id=context.run.id,
        )
        say(sink, await self._journal.open_round(context, message, ()))

    async def compact(self, context: RunContext, sink: RunSink) -> None:
        """Make the history shorter because a person asked for it; raises as `execute` does."""
        await self._compactor.compact(context, sink, by_hand=True)

    async def abandon(self, context: RunContext, sink: RunSink) -> None:
        """Close the round that a dead process left open without going on; raises as `execute`."""
        calls = _open_calls(context)
        if calls:
            answers = await self._calls.abandon(context, calls, sink)
            await self._journal.close_round(context, answers, None)

    @property
    def model_name(self) -> str:
        """The configured model."""
        return self._model.name

    async def _settle(self, context: RunContext, sink: RunSink) -> Sequence[Interrupt]:
        """Close the round that a dead process or a question left open."""
        open_calls = _open_calls(context)
        if open_calls:
            questions = self._consent.questions(context, open_calls)
            if questions and not context.cancelled.is_set():
                return questions
            sink.emit(RoundStarted(context.rounds))
            answers = await self._calls.settle(context, open_calls, sink)
            await self._close(context, sink, context.messages[-1], answers)
        return ()

    async def _ask(
        self, context: RunContext, sink: RunSink, last: NoProgressNotice | None = None
    ) -> Message:
        """Ask the model until it says something, and open the round with what it said.

        Args:
            last: What the model is told of its last turn, in which it has no tools.
        """
        accounts: list[LlmCall] = []
        speaker = Speaker(context, sink)
        try:
            reply = await self._heard(context, sink, speaker, accounts, last)
            asked = _asked(context, speaker, reply)
        except Stopped:
            await self._keep_spoken(context, speaker, accounts)
            sink.emit(RoundFinished(context.rounds))
            raise
        except BaseException as error:
            await self._withdraw(context, sink, speaker, accounts, error)
            raise
        try:
            return await self._journal.open_round(context, asked, accounts)
        except ServerError as error:  # nothing was kept; a cancel may come when all of it is
            await self._withdraw(context, sink, speaker, accounts, error)
            raise

    async def _heard(
        self,
        context: RunContext,
        sink: RunSink,
        speaker: Speaker,
        accounts: list[LlmCall],
        last: NoProgressNotice | None,
    ) -> Reply:
        """A reply that says something; see `_ask`."""
        retries = EMPTY_REPLY_RETRIES if last is None else LAST_REPLY_RETRIES
        for _ in range(1 + retries):
            _check_stop(context)
            reply = await self._reply(context, sink, speaker, accounts, last)
            if last is not None:
                speaker.withdraw_calls()
                reply = replace(reply, calls=())
            if not reply.is_empty or _may_be_silent(context):
                return reply
            speaker.discard()
        raise EmptyReplies

    async def _withdraw(
        self,
        context: RunContext,
        sink: RunSink,
        speaker: Speaker,
        accounts: Sequence[LlmCall],
        error: BaseException,
    ) -> None:
        """Take back what was shown of a round that *error* kept out of the store."""
        speaker.discard()
        sink.emit(RoundFinished(context.rounds))
        if not isinstance(error, StoreUnavailable):  # it would only be waited for once more
            with suppress(ServerError):  # why the round ended matters more
                await self._journal.record_calls(accounts)

    async def _reply(
        self,
        context: RunContext,
        sink: RunSink,
        speaker: Speaker,
        accounts: list[LlmCall],
        last: NoProgressNotice | None,
    ) -> Reply:
        """One reply; a prompt that turns out too long is compacted once and asked again."""
        try:
            return await self._stream(context, speaker, accounts, last)
        except LLMContextOverflow as overflow:
            if not await self._compactor.try_compact(context, sink):
                raise ContextOverflow from overflow
        try:
            return await self._stream(context, speaker, accounts, last)
        except LLMContextOverflow as overflow:
            raise ContextOverflow from overflow

    async def _stream(
        self,
        context: RunContext,
        speaker: Speaker,
        accounts: list[LlmCall],
        last: NoProgressNotice | None,
    ) -> Reply:
        request = self._request(context, last)

        async def listen() -> Reply:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, AttemptFailed | Reply):
                        accounts.append(self._account(context, event))
                    if isinstance(event, Reply):
                        return event
                    speaker.hear(event)
            raise AssertionError("a model's stream ends in a reply or an error")

        started = time.monotonic()
        try:
            reply = await unless_stopped(listen(), context.cancelled)
        except Stopped:
            total_ms = round((time.monotonic() - started) * 1000)
            cut = AttemptFailed("cancelled", bool(speaker.spoken()), total_ms)
            accounts.append(self._account(context, cut))
            raise
        if reply.usage is not None:
            context.usage += reply.usage
        return reply

    def _request(self, context: RunContext, last: NoProgressNotice | None) -> ModelRequest:
        notices = context.notices if last is None else [*context.notices, last]
        context.prompt.extend(context.messages, notices, context.pictures)
        manifest = context.prompt.manifest
        log.debug(
            "[prompt] session=%s round=%d messages=%d bytes=%d digest=%s",
            context.session.id,
            context.rounds,
            manifest.messages,
            manifest.size_bytes,
            manifest.digest,
        )
        return ModelRequest(
            messages=context.prompt.fragments,
            tools=context.tools_json,
            may_call=last is None,
            model=_model_of(context),
            prompt_cache_key=f"headway-session-{context.session.id}",
        )

    def _account(self, context: RunContext, end: Reply | AttemptFailed) -> LlmCall:
        told = end.model if isinstance(end, Reply) else ""
        model = told or _model_of(context) or self._model.name
        return account_of(context.session.id, context.run.id, "agent", model, end)

    async def _keep_spoken(
        self, context: RunContext, speaker: Speaker, accounts: Sequence[LlmCall]
    ) -> None:
        """A stop cut the reply: the text that people saw stays, half calls do not."""
        speaker.withdraw_calls()
        text = clean_text(speaker.spoken())
        if not text.strip():
            await self._journal.record_calls(accounts)
            return
        message = Message(
            id=speaker.message_id,
            role="assistant",
            content=text,
            created_at=datetime.now(UTC),
            run_id=context.run.id,
        )
        await self._journal.open_round(context, message, accounts)

    async def _close(
        self,
        context: RunContext,
        sink: RunSink,
        asked: Message,
        answers: Sequence[Answer],
    ) -> None:
        """Close the round, act on what the policy makes of it, and prepare the next one.

        The verdict is a pure fold, so it is found before the results are stored and goes into the
        same transaction; it is acted upon only when they are. A person's stop comes first.
        """
        answers = await self._explorations.share(context, answers)
        judged = context.judge.close(asked, [answer.message for answer in answers])
        await self._journal.close_round(context, answers, judged)
        context.facts |= facts_of(context.contract, [answer.message for answer in answers])
        sink.emit(RoundFinished(context.rounds))
        if judged is not None:
            context.judgement = judged
            log_nudges(context, judged)
            context.notices += notices_of(judged, context.session.locale)
            await self._stop(context, sink, judged)
        if context.is_complete:
            return  # who wants to join now is answered by the next run
        _check_stop(context)
        await self._join(context, sink)

    async def _stop(self, context: RunContext, sink: RunSink, judged: Judgement) -> None:
        """End the run where its policy says so; a goal that is reached ends it without an error."""
        stop = judged.ruling.stop
        if stop is None:
            return
        _check_stop(context)
        log_stop(context, judged, stop)
        if has_last_turn(context.judge.policy, stop) and not _has_answered(context):
            told = last_turn_notice(judged, stop, context.session.locale)
            await self._answer_without_tools(context, sink, told)
        if stop.code != COMPLETED:
            _check_stop(context)
            raise stop_error(stop, context.session.locale)
        context.is_complete = True

    async def _answer_without_tools(
        self, context: RunContext, sink: RunSink, told: NoProgressNotice
    ) -> None:
        """Let the model say what it has; a model that cannot is no reason to end otherwise."""
        context.rounds += 1
        sink.emit(RoundStarted(context.rounds))
        try:
            await self._ask(context, sink, told)
        except (LLMError, RunError) as error:
            log.warning(
                "[no-progress] no last answer session=%s code=%s", context.session.id, error.code
            )
            return
        sink.emit(RoundFinished(context.rounds))

    async def _join(self, context: RunContext, sink: RunSink) -> None:
        """Take in what people sent to steer the run; a real message begins a new turn."""
        if not context.has_steered:
            return
        context.has_steered = False
        joined = await self._journal.join_steered(context)
        if joined:
            context.judge.begin_turn()
            context.judgement = None
        for message in joined:
            sink.emit(UserJoined(message.id, message.text, attached_files(message)))
        await self._history.admit_files(context, joined)


def _check_stop(context: RunContext) -> None:
    if context.cancelled.is_set():
        raise Stopped


def _asked(context: RunContext, speaker: Speaker, reply: Reply) -> Message:
    """The message that *reply* becomes; all of it has been shown then."""
    calls = tuple(
        ToolCall(
            id=speaker.call_id(index, call.name),
            name=clean_text(call.name),
            arguments=clean_text(call.arguments),
        )
        for index, call in enumerate(reply.calls)
    )
    speaker.close()
    return Message(
        id=speaker.message_id,
        role="assistant",
        content=clean_text(reply.text),
        created_at=datetime.now(UTC),
        run_id=context.run.id,
        tool_calls=calls,
        reasoning=clean_text(reply.reasoning) if reply.reasoning else None,
        reasoning_field=reply.reasoning_field,
        usage=reply.usage,
        model_ms=reply.total_ms,
    )


def _model_of(context: RunContext) -> str | None:
    """The model that this message asked for, or the session's own; None for the configured one."""
    asked = context.run.input.model if context.run.input is not None else None
    return asked or context.session.model


def _has_answered(context: RunContext) -> bool:
    """Whether the last word is the run's own answer without calls."""
    last = context.messages[-1] if context.messages else None
    return (
        last is not None
        and last.role == "assistant"
        and last.run_id == context.run.id
        and not last.tool_calls
    )


def _may_be_silent(context: RunContext) -> bool:
    """Whether an empty reply is an answer: there was nothing to report."""
    asked = context.run.input
    return asked is not None and asked.is_quiet


def _open_calls(context: RunContext) -> tuple[ToolCall, ...]:
    """The calls of a round that has no results: a round is closed whole or not at all."""
    last = context.messages[-1] if context.messages else None
    return last.tool_calls if last is not None and last.role == "assistant" else ()
