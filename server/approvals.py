"""Answers to what waiting runs asked: the first one counts, and when all are there the run goes on.

The run goes on as a run of its own, which closes the round that was left open. All of it stands in
the store, so a restart forgets nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.faults import fault_of
from channels.port import Decision
from server.begin import RESUME, Begun, begin_run
from server.board import Board
from server.ending import owe_chat
from server.errors import BadRequest, Conflict, NotFound, StoreUnavailable
from server.message import clean_text
from server.patches import approvals_patch
from server.runs import Runs
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
from server.store.inbound import find_inbound, insert_inbound
from server.store.rows import lock_session
from server.store.runs import QueuedInput, Run, insert_run, load_run
from server.store.sessions import Session, load_session

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


@dataclass(frozen=True, slots=True)
class Resumed:
    """The run that goes on with the answers of a request."""

    run_id: str
    is_repeat: bool
    """The client asked the same before."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a transaction made of a session's questions; `Approvals.tell` it after the commit."""

    session: Session
    answered: Sequence[Approval]
    """Those that the words answered; none where their time was over."""
    asked: Sequence[Approval]
    """All that the waiting run asked, as it stands now."""
    begun: Begun | None
    """The run that goes on; None while a question is open."""

    @property
    def run_id(self) -> str | None:
        """The id of the run that goes on."""
        return None if self.begun is None else self.begun.run.id


class Approvals:
    """Takes answers, from whatever surface they come."""

    def __init__(self, *, store: Store, runs: Runs, board: Board, told: Told) -> None:
        """*told* wakes whoever delivers what stands in the outbox."""
        self._store = store
        self._runs = runs
        self._board = board
        self._told = told

    async def answer(self, approval_id: str, word: Word, session_id: str | None = None) -> Given:
        """Take *word*; if it cancels, for all that the session waits for.

        Args:
            session_id: Where the question is looked for; None for anywhere.

        Raises:
            NotFound: There is no such question (in this session).
            Conflict: `approval_already_resolved`, with who and when, or `approval_expired`.
            BadRequest: The word does not fit the question.
        """
        return await finish(self._answer(approval_id, word, session_id))

    async def answer_all(
        self, session_id: str, words: Mapping[str, Word], keys: Sequence[str]
    ) -> Resumed:
        """Take *words*, by question, for everything that the session waits for, or none of them.

        The same *keys* again get the same run. One word that cancels cancels all.

        Raises:
            NotFound: There is no such session.
            Conflict: `interrupt_mismatch` if other questions are open than those that have a
                word, `approval_expired` if the time of one is over.
            BadRequest: A word does not fit its question.
        """
        return await finish(self._answer_all(session_id, words, keys))

    async def cancel(self, session_id: str, by: str, *, run_id: str | None = None) -> bool:
        """Cancel all that the session waits for; False if that is nothing (any more).

        Args:
            run_id: Only if this run asked it.
        """
        return await finish(self._cancel(session_id, by, run_id))

    async def take_open(self, db: AsyncConnection, session_id: str, word: Word) -> Taken | None:
        """Take *word* for all that the session waits for and that it fits; None if that is nothing.

        For who cannot point at one question, and writes more in the same transaction. Questions
        whose time is over end by that.
        """
        now = datetime.now(UTC)
        await lock_session(db, session_id)
        waiting = await open_approvals(db, session_id)
        if any(_is_over(approval, now) for approval in waiting):
            return await self._expire_open(db, waiting, now)
        fitting = [(approval, word) for approval in waiting if _fits(approval, word)]
        return await self._settle(db, fitting, now) if fitting else None

    def tell(self, taken: Taken | None) -> None:
        """Let clients and chats know, and launch the run that goes on."""
        if taken is None:
            return
        session = taken.session
        self._board.patch(session.id, session.owner, approvals_patch(taken.asked))
        self._told()
        if taken.begun is not None:
            self._runs.launch(taken.begun)

    async def expire(self, now: datetime) -> None:
        """End what nobody answered in time."""
        async with self._store.read() as db:
            overdue = await overdue_sessions(db, now)
        for session_id in overdue:
            try:
                await finish(self._expire(session_id, now))
            except NotFound:
                continue  # it was deleted a moment ago
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - one session must not hold up the others
                log.error("[approval] not ended session=%s %s", session_id, fault_of(error))

    async def _answer(self, approval_id: str, word: Word, session_id: str | None) -> Given:
        now = datetime.now(UTC)
        async with self._store.write() as db:
            approval = await load_approval(db, approval_id)
            await lock_session(db, approval.session_id)
            approval = await load_approval(db, approval_id)  # as it is under the lock
            if session_id not in (None, approval.session_id):
                raise NotFound("there is no such question")
            _check_open(approval, now)
            others: Iterable[Approval] = ()
            if word.decision == "cancel":
                waiting = await open_approvals(db, approval.session_id)
                others = [other for other in waiting if other.interrupt.id != approval_id]
            taken = await self._settle(db, [(one, word) for one in (approval, *others)], now)
            run_id = taken.run_id or approval.run_id
            await insert_inbound(db, word.keys, approval.session_id, run_id, "started", None, now)
        self.tell(taken)
        return Given(taken.answered[0], taken.run_id)

    async def _answer_all(
        self, session_id: str, words: Mapping[str, Word], keys: Sequence[str]
    ) -> Resumed:
        now = datetime.now(UTC)
        async with self._store.write() as db:
            await lock_session(db, session_id)
            known = await find_inbound(db, keys)
            if known is not None:
                return Resumed(known.run_id, is_repeat=True)
            waiting = await open_approvals(db, session_id)
            _check_covered(waiting, words.keys(), now)
            ending = next((word for word in words.values() if word.decision == "cancel"), None)
            answers = [(one, ending or words[one.interrupt.id]) for one in waiting]
            taken = await self._settle(db, answers, now)
            assert taken.run_id is not None, "nothing is open any more, and the session is locked"
            await insert_inbound(db, keys, session_id, taken.run_id, "started", None, now)
        self.tell(taken)
        return Resumed(taken.run_id, is_repeat=False)

    async def _cancel(self, session_id: str, by: str, run_id: str | None) -> bool:
        async with self._store.write() as db:
            with suppress(NotFound):  # then nothing is open either
                await lock_session(db, session_id)
            waiting = await open_approvals(db, session_id)
            if not waiting or run_id not in (None, waiting[0].run_id):
                return False
            taken = await self.take_open(db, session_id, Word("cancel", by))
        self.tell(taken)
        return taken is not None and bool(taken.answered)

    async def _expire(self, session_id: str, now: datetime) -> None:
        async with self._store.write() as db:
            await lock_session(db, session_id)
            waiting = await open_approvals(db, session_id)
            if not any(_is_over(approval, now) for approval in waiting):
                return
            taken = await self._expire_open(db, waiting, now)
        self.tell(taken)

    async def _settle(
        self, db: AsyncConnection, answers: Sequence[tuple[Approval, Word]], now: datetime
    ) -> Taken:
        """Write *answers* to questions of one run; it goes on if none of its questions is left."""
        answered = [await _write(db, approval, word, now) for approval, word in answers]
        reply_to = next((word.reply_to for _, word in answers), None)
        return await self._taken(db, answered, answered, now, reply_to)

    async def _expire_open(
        self, db: AsyncConnection, waiting: Sequence[Approval], now: datetime
    ) -> Taken:
        """End the questions of one run without an answer."""
        for approval in waiting:
            dated = replace(approval, answered_at=now)
            await settle_approval(db, dated, "EXPIRED", Answer(), None)
        log.info("[approval] expired session=%s run=%s", waiting[0].session_id, waiting[0].run_id)
        return await self._taken(db, waiting, (), now)

    async def _taken(
        self,
        db: AsyncConnection,
        settled: Sequence[Approval],
        answered: Sequence[Approval],
        now: datetime,
        reply_to: str | None = None,
    ) -> Taken:
        session = await load_session(db, settled[0].session_id)
        asked = await approvals_of(db, settled[0].run_id)
        begun = await self._go_on(db, session, asked, now, reply_to)
        return Taken(session, answered, asked, begun)

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
        await owe_chat(db, waiting, "waiting", "answered", now)
        if any(approval.is_open for approval in asked):
            return None
        run = _resuming(waiting, asked, now)
        if reply_to is not None and run.input is not None:
            run = replace(run, input=replace(run.input, reply_to=reply_to))
        placed = await insert_run(db, run, front=True)
        return await begin_run(db, session, placed, self._runs.lease(), now)


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


async def _write(db: AsyncConnection, approval: Approval, word: Word, now: datetime) -> Approval:
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
        raise Conflict("approval_expired")
    if not approval.is_open:
        at = approval.answered_at.isoformat() if approval.answered_at is not None else ""
        raise Conflict(
            "approval_already_resolved",
            details={"by": approval.answered_by or "", "at": at},
        )


def _check_covered(waiting: Sequence[Approval], answered: Collection[str], now: datetime) -> None:
    """Make sure that those which were *answered*, by id, are what is open, and still in time."""
    if {one.interrupt.id for one in waiting} != set(answered):
        raise Conflict("interrupt_mismatch")
    for approval in waiting:
        _check_open(approval, now)


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
        except StoreUnavailable:
            log.warning("[approval] questions could not be looked at; trying again")
        except Exception as error:  # noqa: BLE001 - a look that breaks must not be the last one
            log.error("[approval] questions could not be looked at %s", fault_of(error))
        await asyncio.sleep(LOOK_SECONDS)
