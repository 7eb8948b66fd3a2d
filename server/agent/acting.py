"""What a judgement means for the run: reminders in the prompt, lines in the log, its end."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from guard import Locale, NoProgressLoopError, NoProgressNotice
from guard.reminder import RuleStop, build_last_turn_notice, build_notice
from guard.rounds import Decision
from server.agent.context import RunContext
from server.agent.judge import Judgement, RunPolicy
from server.agent.record import NO_PROGRESS_RULE
from server.message import Message

log = logging.getLogger(__name__)

COMPLETED: Final = "completed"
"""The code of a stop because the goal of the contract is reached."""


def notices_of(judged: Judgement, locale: Locale) -> list[NoProgressNotice]:
    """The reminders that the model sees behind the round, in the policy's order."""
    return [
        NoProgressNotice(judged.anchor, build_notice(nudge, locale))
        for nudge in judged.ruling.nudges
    ]


def has_last_turn(policy: RunPolicy, stop: Decision) -> bool:
    """Whether the model answers once more, without tools, before the run ends."""
    return policy.has_last_turn or stop.code == COMPLETED


def last_turn_notice(judged: Judgement, stop: Decision, locale: Locale) -> NoProgressNotice:
    """What the model is told before its last answer."""
    return NoProgressNotice(judged.anchor, build_last_turn_notice(stop, locale))


def last_turn_notices(
    judgements: Iterable[Judgement], messages: Sequence[Message], policy: RunPolicy, locale: Locale
) -> Iterator[NoProgressNotice]:
    """Those that were shown before an answer which is stored: the prompt has them again."""
    answered = _answered(messages)
    for judged in judgements:
        stop = judged.ruling.stop
        if stop is not None and has_last_turn(policy, stop) and judged.anchor in answered:
            yield last_turn_notice(judged, stop, locale)


def _answered(messages: Sequence[Message]) -> Mapping[str, None]:
    """The last calls of rounds that an answer without calls of the same run follows at once."""
    return {
        before.tool_call_id: None
        for before, after in zip(messages, messages[1:], strict=False)
        if before.tool_call_id is not None
        and after.role == "assistant"
        and not after.tool_calls
        and after.run_id == before.run_id
    }


def stop_error(stop: Decision, locale: Locale) -> Exception:
    """What is raised to end the run."""
    if stop.rule == NO_PROGRESS_RULE:
        return NoProgressLoopError(stop.tools, stop.streak, locale)
    return RuleStop(stop, locale)


def log_nudges(context: RunContext, judged: Judgement) -> None:
    """One line for each reminder; never an argument."""
    for nudge in judged.ruling.nudges:
        _log(context, judged, nudge, logging.WARNING, "nudge")


def log_stop(context: RunContext, judged: Judgement, stop: Decision) -> None:
    """One line for the end of the run."""
    if stop.code == COMPLETED:
        _log(context, judged, stop, logging.INFO, "complete")
    else:
        _log(context, judged, stop, logging.ERROR, "abort")


def _log(context: RunContext, judged: Judgement, decision: Decision, level: int, word: str) -> None:
    rule = "" if decision.rule == NO_PROGRESS_RULE else f" rule={decision.rule}"
    log.log(
        level,
        "[no-progress] %s session=%s round=%d streak=%d tools=%s digest=%s argsLength=%d%s",
        word,
        context.session.id,
        context.rounds,
        decision.streak,
        ",".join(decision.tools),
        judged.round.digest,
        sum(call.args_length for call in judged.round.counted),
        rule,
    )
