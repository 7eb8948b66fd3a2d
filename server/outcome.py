"""How the end of a run is named: one outcome, from which every surface is derived."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from channels.events import Interrupt, Outcome, OutcomeStatus
from guard import NoProgressLoopError
from server.agent.context import RunContext
from server.agent.journal import NO_PROGRESS_RULE
from server.agent.stopping import Stopped
from server.errors import LLMError, Locale, RunError, StoreUnavailable, user_text
from server.store.runs import Run

RUN_STATUS: Final[dict[OutcomeStatus, str]] = {
    "finished": "COMPLETED",
    "waiting": "WAITING",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
}
"""The status of the run and of its session."""


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


def ending_of(error: Exception, locale: Locale) -> Ending:
    """What *error* means for the run; texts never carry what the error itself says."""
    match error:
        case Stopped():
            return CANCELLED
        case NoProgressLoopError():
            return Ending(
                "failed",
                "no_progress_loop",
                str(error),
                retryable=True,
                rule=NO_PROGRESS_RULE,
                streak=error.streak,
            )
        case RunError() | LLMError():
            return failed(error.code, locale, retryable=error.retryable)
        case StoreUnavailable():
            return Ending("failed", "internal", user_text("store_unavailable", locale), True)
        case _:
            return failed("internal", locale)
