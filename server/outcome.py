"""How the end of a run is named: one outcome, from which every surface is derived."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from channels.events import Interrupt, Outcome, OutcomeStatus
from guard import NoProgressLoopError
from guard.reminder import RuleStop
from guard.rounds import LOOP_CODE
from guard.rules.hand_off import HAND_OFF_TOOL
from server.agent.context import RunContext
from server.agent.record import NO_PROGRESS_RULE, values_of
from server.agent.stopping import Stopped
from server.errors import LLMError, Locale, RunError, StoreUnavailable, user_text
from server.message import Message
from server.partial import partial_result
from server.store.runs import Run
from server.tools.handoff import reason_of

EndStatus = Literal["COMPLETED", "WAITING", "FAILED", "CANCELLED"]

RUN_STATUS: Final[Mapping[OutcomeStatus, EndStatus]] = {
    "finished": "COMPLETED",
    "waiting": "WAITING",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
}
"""The status of the run, of its session and of the task run that it was."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, before it is told to anybody."""

    status: OutcomeStatus
    code: str
    text: str = ""
    retryable: bool = False
    rule: str | None = None
    streak: int = 0
    interrupts: tuple[Interrupt, ...] = ()
    last_words: str = ""
    """What the run says at its end by itself: how far it came."""

    def outcome(self, run: Run, context: RunContext | None, model: str) -> Outcome:
        """The event that tells it; *context* is None if the run could not even be opened."""
        metadata: dict[str, str | int] = {}
        if self.rule is not None:
            metadata = {"rule": self.rule, "streak": self.streak}
        usage = context.usage if context is not None else None
        return Outcome(
            run_id=run.id,
            status=self.status,
            code=self.code,
            text=self.text,
            retryable=self.retryable,
            rounds=context.rounds if context is not None else run.rounds,
            prompt_tokens=usage.prompt_tokens if usage else 0,
            cached_tokens=usage.cached_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
            model=model,
            metadata=metadata,
            interrupts=self.interrupts,
        )


FINISHED: Final = Ending("finished", "completed")
CANCELLED: Final = Ending("cancelled", "cancelled")


def waiting(interrupts: Sequence[Interrupt]) -> Ending:
    """A stop for a person's word."""
    is_gate = any(one.reason == "tool_call" for one in interrupts)
    text = "\n".join(one.message for one in interrupts)
    code = "risk_gate" if is_gate else "needs_input"
    return Ending("waiting", code, text, interrupts=tuple(interrupts))


def failed(code: str, locale: Locale, *, retryable: bool = True) -> Ending:
    """A failure with the standing text of its code."""
    return Ending("failed", code, user_text(code, locale), retryable)


def stopped_by(stop: RuleStop | NoProgressLoopError, context: RunContext) -> Ending:
    """A stop by the policy, with how far it came; nothing is known of that in a mere loop."""
    ending = ending_of(stop, context.session.locale)
    if ending.code == LOOP_CODE and context.contract is None:
        return ending  # its text says all there is to say
    return replace(ending, last_words=how_far(context, ending.text))


def completed(context: RunContext) -> Ending:
    """The goal is reached; where the model found no words for it, the record has some.

    An empty answer is that of a run which may be silent.
    """
    if context.messages[-1].role == "assistant":
        return FINISHED
    return replace(FINISHED, last_words=how_far(context, ""))


def how_far(context: RunContext, reason: str) -> str:
    """What was verified, what is missing and why the run stopped, for a person."""
    return partial_result(
        context.contract,
        context.facts,
        values_of(context.judge.policy.active, context.judge.state),
        reason,
        _handed_off_for(context.messages),
        context.session.locale,
    )


def _handed_off_for(messages: Sequence[Message]) -> str | None:
    """Why the model gave the task to a person, if that is how it ended."""
    asked = next((one for one in reversed(messages) if one.tool_calls), None)
    for call in asked.tool_calls if asked is not None else ():
        if call.name == HAND_OFF_TOOL:
            return reason_of(call.arguments)
    return None


def ending_of(error: Exception, locale: Locale) -> Ending:
    """What *error* means for the run; texts never carry what the error itself says."""
    match error:
        case Stopped():
            return CANCELLED
        case NoProgressLoopError():
            return Ending(
                "failed",
                LOOP_CODE,
                str(error),
                retryable=True,
                rule=NO_PROGRESS_RULE,
                streak=error.streak,
            )
        case RuleStop():
            stop = error.decision
            return Ending(
                "failed", stop.code, str(error), retryable=True, rule=stop.rule, streak=stop.streak
            )
        case RunError() | LLMError():
            return failed(error.code, locale, retryable=error.retryable)
        case StoreUnavailable():
            return Ending("failed", "internal", user_text("store_unavailable", locale), True)
        case _:
            return failed("internal", locale)
