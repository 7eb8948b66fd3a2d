"""Answers of AG-UI clients to what a waiting run asked: `resume` of a `RunAgentInput`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from ag_ui.core import RunAgentInput
from ag_ui.core.types import ResumeEntry
from sqlalchemy.ext.asyncio import AsyncConnection

from server import agui
from server.approvals import Resumed, Word
from server.auth import User
from server.errors import BadRequest, Conflict, NotFound, user_text
from server.state import State
from server.store.approvals import Approval, approvals_of, load_approval
from server.store.codec import to_json
from server.store.sessions import Session

Mistake = Literal["interrupt_mismatch", "interrupt_expired"]


async def take_answers(
    state: State, session: Session, asked: RunAgentInput, user: User
) -> Resumed | Mistake:
    """Answer everything that the session waits for, which *asked* has to cover whole.

    All answers count or none does. The same request again goes on with the same run.

    Raises:
        BadRequest: An answer does not have the form that its question asked for.
    """
    entries = asked.resume or []
    async with state["store"].read() as db:
        questions = await _questions(db, session, entries)
    if questions is None:
        return "interrupt_mismatch"
    words = {
        entry.interrupt_id: _word(entry, question, user.name)
        for entry, question in zip(entries, questions, strict=True)
    }
    key = f"agui:{session.id}:{asked.run_id}"
    try:
        return await state["approvals"].answer_all(session.id, words, [key])
    except Conflict as error:
        is_late = error.code == "approval_expired"
        is_late = is_late or any(question.status == "EXPIRED" for question in questions)
        return "interrupt_expired" if is_late else "interrupt_mismatch"


async def mistake_stream(mistake: Mistake, session: Session) -> AsyncIterator[bytes]:
    """The one event that says why nothing goes on."""
    text = user_text(mistake, session.locale)
    yield b"data: %s\n\n" % agui.run_error(mistake, text, agui.epoch_ms())


async def _questions(
    db: AsyncConnection, session: Session, entries: Sequence[ResumeEntry]
) -> list[Approval] | None:
    """The question of each entry, open or not; None if they are not questions of one run here."""
    ids = [entry.interrupt_id for entry in entries]
    try:
        first = await load_approval(db, ids[0])
    except NotFound:
        return None
    known = {one.interrupt.id: one for one in await approvals_of(db, first.run_id)}
    if first.session_id != session.id or not known.keys() >= set(ids) or len(set(ids)) < len(ids):
        return None
    return [known[interrupt_id] for interrupt_id in ids]


def _word(entry: ResumeEntry, asked: Approval, by: str) -> Word:
    """The answer, in the form that the question's `responseSchema` asks for."""
    if entry.status == "cancelled":
        return Word("cancel", by)
    payload: Any = entry.payload
    if asked.interrupt.reason == "input_required":
        answer = payload.get("answer") if isinstance(payload, Mapping) else payload
        if not isinstance(answer, str) or not answer.strip():
            raise BadRequest('must be a text or {"answer": text}', "resume")
        return Word("approve", by, text=answer)
    if not isinstance(payload, Mapping) or not isinstance(payload.get("approved"), bool):
        raise BadRequest("must say approved: true or false", "resume")
    edited = payload.get("editedArgs")
    return Word(
        decision="approve" if payload["approved"] else "deny",
        by=by,
        edited_arguments=None if edited is None else to_json(edited),
        text=str(payload.get("note") or ""),
    )
