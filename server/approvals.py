"""Answers to what waiting runs asked: the first one counts, and when all are there the run goes on.

The run goes on as a run of its own, which closes the round that was left open. All of it stands in
the store, so a restart forgets nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.port import Decision
from server.begin import RESUME, Begun, begin_run
from server.board import Board
from server.ending import outbox_item
from server.errors import BadRequest, Conflict, NotFound, StoreUnavailable
from server.message import clean_text
from server.runs import Runs
from server.session_state import approvals_patch
from server.store.approvals import (
    Answer,
    Approval,
    ApprovalStatus,
    approvals_of,
    load_approval,
    open_approvals,
    overdue_sessions,
    settle_approval,
)
from server.store.engine import Store
from server.store.finish import finish
from server.store.ids import new_id
from server.store.inbound import insert_inbound
from server.store.outbox import insert_outbox
from server.store.rows import lock_session
from server.store.runs import QueuedInput, Run, insert_run, load_run
from server.store.sessions import Session, load_session
from server.surfaces import is_chat

log = logging.getLogger(__name__)

Told = Callable[[], None]

LOOK_SECONDS: Final = 5.0
"""How often questions whose time is over are looked for."""


@dataclass(frozen=True, slots=True)
class Word:
    """What a person says to a question."""

    decision: Decision
    by: str
    """Who, by name; others are told."""
    edited_arguments: str | None = None
    """JSON; the call runs with these instead of the model's own."""
    text: str = ""
    """What the model asked for, or a note to it."""
    keys: Sequence[str] = ()
    """Idempotency keys of the message that says it, if one does."""
    reply_to: str | None = None
    """What the platform needs to answer that message."""


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that counts."""

    approval: Approval
    run_id: str | None
    """The run that goes on; None while other questions are open."""


class Approvals:
    """Takes answers, from whatever surface they come."""

    def __init__(self, *, store: Store, runs: Runs, board: Board, told: Told) -> None:
        """*told* wakes whoever delivers what stands in the outbox."""
        self._store = store
        self._runs = runs
        self._board = board
        self._told = told

    async def answer(self, approval_id: str, word: Word, session_id: str | None = None) -> Given:
        """Take *word*.

        Args:
            session_id: Where the question is looked for; None for anywhere.

        Raises:
            NotFound: There is no such question (in this session).
            Conflict: `approval_already_resolved`, with who and when, or `approval_expired`.
            BadRequest: The word does not fit the question.
        """
        return await finish(self._answer(approval_id, word, session_id))

    async def answer_open(
        self, session_id: str, word: Word, *, run_id: str | None = None
    ) -> Given | None:
        """Take *word* for everything the session waits for; None if that is nothing (any more).

        Used where a person cannot point at one question: a word in a chat.

        Args:
            run_id: Only for what this run asked.
        """
        now = datetime.now(UTC)
        given: Given | None = None
        async with self._store.read() as db:
            waiting = await open_approvals(db, session_id)
        if any(_is_over(approval, now) for approval in waiting):
            await finish(self._expire(session_id, now))
            return None
        for approval in waiting:
            if run_id not in (None, approval.run_id) or not _fits(approval, word):
                continue
            with suppress(Conflict):  # somebody answered this one a moment ago
                given = await self.answer(approval.interrupt.id, word, session_id)
                if word.decision == "cancel":
                    break  # it cancels all that is open
                word = replace(word, keys=())  # they are kept with the first answer
        return given

    async def expire(self, now: datetime) -> None:
        """End what nobody answered in time."""
        async with self._store.read() as db:
            overdue = await overdue_sessions(db, now)
        for session_id in overdue:
            await finish(self._expire(session_id, now))

    async def _answer(self, approval_id: str, word: Word, session_id: str | None) -> Given:
        now = datetime.now(UTC)
        async with self._store.write() as db:
            approval = await load_approval(db, approval_id)
            await lock_session(db, approval.session_id)
            approval = await load_approval(db, approval_id)  # as it is under the lock
            if session_id not in (None, approval.session_id):
                raise NotFound("there is no such question")
            _check_open(approval, now)
            settled = await _settle(db, approval, word, now)
            if word.decision == "cancel":
                for other in await open_approvals(db, approval.session_id):
                    await _settle(db, other, word, now)
            session = await load_session(db, approval.session_id)
            asked = await approvals_of(db, approval.run_id)
            begun = await self._go_on(db, session, asked, now, word.reply_to)
            went_on = begun.run.id if begun is not None else None
            await insert_inbound(
                db, word.keys, session.id, went_on or approval.run_id, "started", None, now
            )
        self._tell(session, asked, begun)
        return Given(settled, went_on)

    async def _expire(self, session_id: str, now: datetime) -> None:
        async with self._store.write() as db:
            await lock_session(db, session_id)
            waiting = await open_approvals(db, session_id)
            if not any(_is_over(approval, now) for approval in waiting):
                return
            for approval in waiting:
                await settle_approval(
                    db, replace(approval, answered_at=now), "EXPIRED", Answer(), None
                )
            session = await load_session(db, session_id)
            asked = await approvals_of(db, waiting[0].run_id)
            begun = await self._go_on(db, session, asked, now)
        log.info("[approval] expired session=%s run=%s", session_id, waiting[0].run_id)
        self._tell(session, asked, begun)

    async def _go_on(
        self,
        db: AsyncConnection,
        session: Session,
        asked: Sequence[Approval],
        now: datetime,
        reply_to: str | None = None,
    ) -> Begun | None:
        """Begin the run that goes on, if all is answered; a chat that asked is told either way."""
        waiting = await load_run(db, asked[0].run_id)
        if is_chat(waiting):
            await insert_outbox(db, outbox_item(waiting, session, "waiting", "answered", now))
        if any(approval.is_open for approval in asked):
            return None
        run = _resuming(waiting, asked, now)
        if reply_to is not None and run.input is not None:
            run = replace(run, input=replace(run.input, reply_to=reply_to))
        placed = await insert_run(db, run, front=True)
        return await begin_run(db, session, placed, self._runs.lease(), now)

    def _tell(self, session: Session, asked: Sequence[Approval], begun: Begun | None) -> None:
        self._board.patch(session.id, session.owner, approvals_patch(asked))
        self._told()
        if begun is not None:
            self._runs.launch(begun)


def _resuming(waiting: Run, asked: Sequence[Approval], now: datetime) -> Run:
    """The run that goes on with the round that *waiting* left open; that round is its first."""
    came = waiting.input or QueuedInput(message_id=None, text="")
    return Run(
        id=new_id(),
        session_id=waiting.session_id,
        trigger=RESUME,
        status="QUEUED",
        created_at=now,
        rounds=1,
        cancel_requested=any(approval.status == "CANCELLED" for approval in asked),
        input=replace(
            came,
            message_id=None,
            text="",
            files=(),
            retry_of=None,
            edit_of=None,
            resumes=waiting.id,
        ),
    )


async def _settle(db: AsyncConnection, approval: Approval, word: Word, now: datetime) -> Approval:
    answer = Answer(word.edited_arguments, clean_text(word.text))
    dated = replace(approval, answered_at=now)
    return await settle_approval(db, dated, _status(approval, word), answer, word.by)


def _status(approval: Approval, word: Word) -> ApprovalStatus:
    is_question = approval.interrupt.reason == "input_required"
    match word.decision:
        case "cancel":
            return "CANCELLED"
        case "deny":
            return "DENIED"
        case "approve" if is_question:
            if not word.text.strip():
                raise BadRequest("an answer is needed", "payload")
            return "ANSWERED"
        case "approve":
            return "APPROVED"


def _fits(approval: Approval, word: Word) -> bool:
    """Whether a word that names no question can be meant for this one."""
    is_question = approval.interrupt.reason == "input_required"
    return word.decision != "approve" or is_question == bool(word.text)


def _check_open(approval: Approval, now: datetime) -> None:
    if approval.status == "EXPIRED" or (approval.is_open and _is_over(approval, now)):
        raise Conflict("approval_expired", "nobody answered in time")
    if not approval.is_open:
        at = approval.answered_at.isoformat() if approval.answered_at is not None else ""
        raise Conflict(
            "approval_already_resolved",
            "somebody answered before",
            details={"by": approval.answered_by or "", "at": at},
        )


def _is_over(approval: Approval, now: datetime) -> bool:
    expires_at = approval.interrupt.expires_at
    return expires_at is not None and expires_at <= now


@asynccontextmanager
async def open_approvals_watch(approvals: Approvals) -> AsyncIterator[None]:
    """Look for questions whose time is over until closed."""
    task = asyncio.create_task(_watch(approvals), name="approvals-expiry")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _watch(approvals: Approvals) -> None:
    while True:
        try:
            await approvals.expire(datetime.now(UTC))
        except (NotFound, StoreUnavailable):
            log.warning("[approval] questions could not be looked at; trying again")
        await asyncio.sleep(LOOK_SECONDS)
