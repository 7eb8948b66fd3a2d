"""What is known of a result when it is born, before anything rewrites it."""

import asyncio
import logging

from guard import Attachment, NoProgressCall, Rules, evidence
from guard.reason import error_class
from server.agent.context import RunContext
from server.extract import NOTHING, extract
from server.message import Evidence, ToolCall
from server.tools.base import Kind, ToolResult

log = logging.getLogger(__name__)


async def evidence_of(
    context: RunContext,
    call: ToolCall,
    result: ToolResult,
    attachment: Attachment | None,
    elapsed_ms: int,
    kind: Kind,
    rules: Rules,
) -> Evidence:
    """The evidence of what a tool gave back, and what it tells of the run's contract."""
    seen = NoProgressCall(call.name, call.arguments, result.content, attachment)
    found = evidence(seen, rules)
    _log_once(context, "[no-progress] fell back to the text rule: %s", found.faults)
    failed_for = _failed_for(call, result, kind)
    contract = context.contract
    told = NOTHING
    if contract is not None and contract.reads(call.name) and failed_for is None:
        text = result.whole or result.content  # in a thread: a large result takes a while
        told = await asyncio.to_thread(extract, contract, call.name, text, result.is_error)
        _log_once(context, f"[contract] no value tool={call.name} reason=%s", told.faults)
    return Evidence(
        action_digest=found.action_digest,
        result_digest=found.result_digest,
        exempt=found.exempt,
        error_class=failed_for,
        elapsed_ms=elapsed_ms,
        kind=kind,
        contract=contract.key if contract is not None else "",
        values=told.values,
        facts=told.facts,
    )


def harness_evidence(call: ToolCall, content: str, rules: Rules) -> Evidence:
    """The evidence of an answer that no tool gave: its round neither counts nor clears."""
    seen = evidence(NoProgressCall(call.name, call.arguments, content), rules)
    return Evidence(seen.action_digest, seen.result_digest, seen.exempt, "harness", harness=True)


def _failed_for(call: ToolCall, result: ToolResult, kind: Kind) -> str | None:
    """The normalised reason of a failure.

    A wait that ended well may tell of others that failed.
    """
    if kind == "wait" and not result.is_error:
        return None
    reason = error_class(result.content, call.arguments)
    return reason or ("error" if result.is_error else None)


def _log_once(context: RunContext, line: str, faults: tuple[str, ...]) -> None:
    """Log each line once in a run."""
    for words in {line % fault for fault in faults} - context.faults:
        context.faults.add(words)
        log.warning(words)
