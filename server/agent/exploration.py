"""What the subagents of one run share: what one of them found is no news to another.

The ledger is kept by the run that all of them work for. With a progress contract, what they
verified becomes known to whoever waits for them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from server.agent.calls import Answer
from server.agent.context import RunContext
from server.message import Evidence, Message
from server.store.engine import Store
from server.store.explorations import Explored, explore
from server.store.messages import results_of_children
from server.tools.subagents import SPAWN_SUBAGENT, WAIT_SUBAGENTS

_BRINGS_FINDINGS: Final = frozenset({SPAWN_SUBAGENT, WAIT_SUBAGENTS})
"""Tools whose results come after the work of subagents."""


class Explorations:
    """Adds to the evidence of a round what other agents of the same run have found."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def share(self, context: RunContext, answers: Sequence[Answer]) -> list[Answer]:
        """*answers* with what another subagent found before marked as known, and with what
        subagents verified for whoever waited for them.

        Raises:
            StoreUnavailable: Nothing was noted; asking again is safe.
        """
        return await self._with_findings(context, await self._marked(context, answers))

    async def _marked(self, context: RunContext, answers: Sequence[Answer]) -> list[Answer]:
        found = {pair for answer in answers if (pair := _explored(answer)) is not None}
        if context.root_run_id is None or not found:
            return list(answers)
        async with self._store.write() as db:
            known = await explore(
                db, context.root_run_id, context.session.id, found, datetime.now(UTC)
            )
        return [
            _with_evidence(answer, replace(_evidence(answer), known=True))
            if _explored(answer) in known
            else answer
            for answer in answers
        ]

    async def _with_findings(self, context: RunContext, answers: list[Answer]) -> list[Answer]:
        contract = context.contract
        bringing = [n for n, answer in enumerate(answers) if answer.tool_label in _BRINGS_FINDINGS]
        if contract is None or not bringing:
            return answers
        async with self._store.read() as db:
            results = await results_of_children(db, context.session.id)
        last = answers[bringing[-1]]
        answers[bringing[-1]] = _with_evidence(
            last, _gathered(_evidence(last), results, contract.key)
        )
        return answers


def _gathered(evidence: Evidence, results: Iterable[Message], contract: str) -> Evidence:
    """*evidence* with all that *results* told of the contract, a later one over an earlier one."""
    values, facts = dict(evidence.values), dict(evidence.facts)
    for result in results:
        told = result.evidence
        if told is not None and told.contract == contract and not result.is_error:
            values |= told.values
            facts |= told.facts
    return replace(evidence, values=values, facts=facts)


def _explored(answer: Answer) -> Explored | None:
    """What the call found out; None where it only waited, or the harness answered it."""
    evidence = answer.message.evidence
    if evidence is None or evidence.exempt or evidence.harness:
        return None
    return evidence.action_digest, evidence.result_digest


def _evidence(answer: Answer) -> Evidence:
    evidence = answer.message.evidence
    assert evidence is not None, "every answer is born with its evidence"
    return evidence


def _with_evidence(answer: Answer, evidence: Evidence) -> Answer:
    return replace(answer, message=replace(answer.message, evidence=evidence))
