"""Answers of AG-UI clients to what a waiting run asked: `resume` of a `RunAgentInput`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ag_ui.core import RunAgentInput
from ag_ui.core.types import ResumeEntry

from server import agui
from server.approvals import Word
from server.auth import User
from server.errors import BadRequest, Conflict, user_text
from server.state import State
from server.store.approvals import Approval, open_approvals
from server.store.codec import to_json
from server.store.inbound import find_inbound
from server.store.sessions import Session

Mistake = Literal["interrupt_mismatch", "interrupt_expired"]


@dataclass(frozen=True, slots=True)
class Resumed:
    """The run that goes on."""

    run_id: str
    is_repeat: bool
    """The client asked the same before."""


async def take_answers(
    state: State, session: Session, asked: RunAgentInput, user: User
) -> Resumed | Mistake:
    """Answer everything that the session waits for, which *asked* has to cover whole.

    Raises:
        BadRequest: An answer does not have the form that its question asked for.
    """
    entries = asked.resume or []
    key = f"agui:{session.id}:{asked.run_id}"
    async with state["store"].read() as db:
        known = await find_inbound(db, [key])
        waiting = {one.interrupt.id: one for one in await open_approvals(db, session.id)}
    if known is not None:
        return Resumed(known.run_id, is_repeat=True)
    if {entry.interrupt_id for entry in entries} != waiting.keys() or len(entries) != len(waiting):
        return "interrupt_mismatch"
    words = [_word(entry, waiting[entry.interrupt_id], user.name) for entry in entries]
    run_id: str | None = None
    for number, (entry, word) in enumerate(zip(entries, words, strict=True), start=1):
        keys = [key] if number == len(entries) or word.decision == "cancel" else []
        try:
            given = await state["approvals"].answer(
                entry.interrupt_id, _with_keys(word, keys), session.id
            )
        except Conflict as error:
            is_late = error.code == "approval_expired"
            return "interrupt_expired" if is_late else "interrupt_mismatch"
        run_id = given.run_id
        if word.decision == "cancel":
            break  # it cancels all that is open
    return "interrupt_mismatch" if run_id is None else Resumed(run_id, is_repeat=False)


async def mistake_stream(mistake: Mistake, session: Session) -> AsyncIterator[bytes]:
    """The one event that says why nothing goes on."""
    text = user_text(mistake, session.locale)
    yield b"data: %s\n\n" % agui.run_error(mistake, text, agui.epoch_ms())


def _with_keys(word: Word, keys: Sequence[str]) -> Word:
    return Word(word.decision, word.by, word.edited_arguments, word.text, keys)


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
