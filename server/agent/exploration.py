"""What the subagents of one run share: what one of them found is no news to another.

The ledger is kept by the run that all of them work for. With a progress contract, what they
verified becomes known to whoever waits for them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from guard.rounds import Value
from server.agent.calls import Answer
from server.agent.context import RunContext
from server.agent.record import values_of
from server.message import Evidence
from server.store.engine import Store
from server.store.explorations import Explored, explore
from server.store.messages import evidence_of_children
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
        bringing = [
            n
            for n, answer in enumerate(answers)
            if answer.tool_label in _BRINGS_FINDINGS and not _evidence(answer).harness
        ]
        if contract is None or not bringing:
            return answers
        async with self._store.read() as db:
            found = await evidence_of_children(db, context.session.id)
        known = values_of(context.judge.policy.active, context.judge.state)
        last = answers[bringing[-1]]
        answers[bringing[-1]] = _with_evidence(
            last, _gathered(_evidence(last), found, contract.key, known)
        )
        return answers


def _gathered(
    evidence: Evidence, found: Iterable[Evidence], contract: str, known: Mapping[str, Value]
) -> Evidence:
    """*evidence* with all that *found* tells of the contract, a later one over an earlier one.

    A subagent that failed, and found out something that was not *known*, is no failed call.
    """
    values, facts = dict(evidence.values), dict(evidence.facts)
    for told in found:
        if told.contract == contract:
            values |= told.values
            facts |= told.facts
    is_news = any(known.get(name) != value for name, value in values.items())
    failed_for = None if is_news else evidence.error_class
    return replace(evidence, values=values, facts=facts, error_class=failed_for)


def _explored(answer: Answer) -> Explored | None:
    """What the call found out; None where it failed or only waited, which may be tried again."""
    evidence = answer.message.evidence
    if evidence is None or evidence.exempt or evidence.error_class is not None:
        return None
    return evidence.action_digest, evidence.result_digest


def _evidence(answer: Answer) -> Evidence:
    evidence = answer.message.evidence
    assert evidence is not None, "every answer is born with its evidence"
    return evidence


def _with_evidence(answer: Answer, evidence: Evidence) -> Answer:
    return replace(answer, message=replace(answer.message, evidence=evidence))
