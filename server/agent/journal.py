"""What a run writes to the store: each step one transaction, each behind the run's fence."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from server.agent.calls import Answer, Effect
from server.agent.context import RunContext
from server.agent.judge import Judgement
from server.agent.record import decision_of, shadow_decisions_of
from server.llm.port import AttemptFailed, Purpose, Reply
from server.message import Message, Usage, content_of
from server.metrics import Metrics
from server.store.actions import finish_actions
from server.store.decisions import (
    Decision,
    ShadowDecision,
    insert_decision,
    insert_shadow_decisions,
)
from server.store.engine import Store
from server.store.ids import new_id
from server.store.messages import append_messages
from server.store.rows import lock_session
from server.store.runs import (
    begin_round,
    fence,
    join_run,
    queued,
)
from server.store.usage import LlmCall, insert_llm_call
from server.tracing import current


class Journal:
    """The store as the loop sees it; what is stored joins the context's window."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    async def open_round(
        self, context: RunContext, asked: Message, calls: Sequence[LlmCall]
    ) -> Message:
        """Store what the model said before any of its tools starts."""
        async with self._store.write() as db:
            await begin_round(db, context.run.id, context.run.attempt, context.rounds)
            stored = await self._append(db, context, [asked])
            for call in calls:
                await insert_llm_call(db, call)
        context.extend(stored)
        self._count_calls(calls)
        return stored[0]

    async def close_round(
        self, context: RunContext, answers: Sequence[Answer], judged: Judgement | None
    ) -> None:
        """Store all results of the round and what the policies made of them."""
        decision = decision_of(context, judged) if judged is not None else None
        shadows = shadow_decisions_of(context, judged) if judged is not None else []
        async with self._store.write() as db:
            await fence(db, context.run.id, context.run.attempt)
            stored = await self._append(db, context, [answer.message for answer in answers])
            await _finish_actions(db, context, answers)
            if decision is not None:
                await insert_decision(db, decision)
            await insert_shadow_decisions(db, shadows)
        context.extend(stored)
        self._count_round(context, answers, judged, decision, shadows)

    async def append_summary(self, context: RunContext, message: Message) -> None:
        """Store the summary of a compaction; the caller takes the history anew."""
        async with self._store.write() as db:
            await fence(db, context.run.id, context.run.attempt)
            await self._append(db, context, [message])

    async def record_calls(self, calls: Sequence[LlmCall]) -> None:
        """Store the accounts of requests that led to no message."""
        if not calls:
            return
        async with self._store.write() as db:
            for call in calls:
                await insert_llm_call(db, call)
        self._count_calls(calls)

    async def join_steered(self, context: RunContext) -> list[Message]:
        """Make the messages that wait to join part of the run, in the order they came."""
        async with self._store.write() as db:
            await fence(db, context.run.id, context.run.attempt)
            await lock_session(db, context.session.id)  # nobody takes one away meanwhile
            waiting = [run for run in await queued(db, context.session.id) if run.steer]
            messages = [
                Message(
                    id=run.input.message_id or run.id,
                    role="user",
                    content=content_of(run.input.text, run.input.files),
                    created_at=datetime.now(UTC),
                    run_id=context.run.id,
                )
                for run in waiting
                if run.input is not None and run.trigger != "compact"
            ]
            for run in waiting:
                await join_run(db, run.id, context.run.id, datetime.now(UTC))
            joined = await self._append(db, context, messages)
        context.extend(joined)
        context.compaction_asked |= any(run.trigger == "compact" for run in waiting)
        return joined

    async def _append(
        self, db: AsyncConnection, context: RunContext, messages: Sequence[Message]
    ) -> list[Message]:
        """Append behind the fence: while a run is under way nobody else writes its session."""
        return await append_messages(db, context.session.id, messages, after=context.last_seq)

    def _count_calls(self, calls: Sequence[LlmCall]) -> None:
        for call in calls:
            self._metrics.llm_called(
                call.purpose,
                error=call.error,
                usage=call.usage,
                total_ms=call.total_ms,
                first_token_ms=call.first_token_ms,
            )

    def _count_round(
        self,
        context: RunContext,
        answers: Sequence[Answer],
        judged: Judgement | None,
        decision: Decision | None,
        shadows: Sequence[ShadowDecision],
    ) -> None:
        policy = context.judge.policy.active.name
        self._metrics.round_closed(policy)
        for answer in answers:
            message = answer.message
            elapsed_ms = message.evidence.elapsed_ms if message.evidence is not None else 0
            self._metrics.tool_called(
                answer.tool_label, is_error=message.is_error, elapsed_ms=elapsed_ms
            )
        if judged is not None and decision is not None:
            current().judged(decision)
            spent = judged.round.spent
            if decision.streak > 1:
                self._metrics.round_repeated(policy, spent.prompt_tokens + spent.completion_tokens)
            if decision.state_diff:
                self._metrics.state_changed(policy)
            if decision.verdict != "none":
                self._metrics.guard_spoke(decision.verdict, decision.rule, policy)
        for shadow in shadows:
            self._metrics.shadow_spoke(shadow.verdict, shadow.rule, shadow.policy)


async def _finish_actions(
    db: AsyncConnection, context: RunContext, answers: Sequence[Answer]
) -> None:
    """Store what is known of what the round changed, together with its results."""
    effects: tuple[Effect, ...] = ("DONE", "UNKNOWN")
    for effect in effects:
        messages = (answer.message for answer in answers if answer.effect == effect)
        call_ids = [message.tool_call_id for message in messages if message.tool_call_id]
        if call_ids:
            await finish_actions(db, context.session.id, call_ids, effect, datetime.now(UTC))


def account_of(
    session_id: str,
    run_id: str | None,
    purpose: Purpose,
    model: str,
    end: Reply | AttemptFailed,
) -> LlmCall:
    """The row that a request leaves behind which ended just now, with a reply or not.

    It leaves a span in the trace of its run as well.
    """
    current().requested(purpose, model, end)
    return LlmCall(
        id=new_id(),
        session_id=session_id,
        run_id=run_id,
        purpose=purpose,
        model=model,
        usage=end.usage or Usage(),
        first_token_ms=end.first_token_ms,
        total_ms=end.total_ms,
        error=end.error if isinstance(end, AttemptFailed) else None,
        created_at=datetime.now(UTC),
    )
