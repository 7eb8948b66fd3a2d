"""How a run begins: in one transaction the queue gives it up and its message joins the history."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from server.delivery import DELIVER
from server.errors import BadRequest, NotFound
from server.message import Message, content_of, title_of
from server.store.messages import (
    append_messages,
    last_seq,
    load_from,
    load_message,
    supersede_from,
)
from server.store.runs import Run, start_run
from server.store.sessions import Session, set_status, set_title

COMPACT_COMMAND: Final = "/compact"

RESUME: Final = "resume"
"""Trigger of the run that goes on where another waited for an answer."""

UNASKED: Final = frozenset({RESUME, DELIVER})
"""Triggers of runs that no person queued, so that a held queue lets them pass."""

WORDLESS: Final = UNASKED | {"compact"}
"""Triggers of runs that no message of a person begins."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who executes a run, and until when nobody else may claim it."""

    owner: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Begun:
    """A run under way, as it was when it began."""

    run: Run
    session: Session
    history_seq: int
    """Messages up to this are older than the run."""
    message: Message | None = None
    """The person's message that began it; None for what no message began."""
    withdrawn: tuple[Message, ...] = ()
    """What a retry or an edit took out of the history."""
    is_first: bool = False
    """The session had no title before."""


async def begin_run(
    db: AsyncConnection, session: Session, run: Run, lease: Lease, now: datetime
) -> Begun | None:
    """Take *run* out of the queue and put its message into the history.

    Returns:
        None if the run was not queued any more.

    Raises:
        NotFound: The message that it retries left the history; nothing was written.
    """
    first_seq = await _first_withdrawn(db, session, run)
    attempt = await start_run(db, run.id, lease.owner, lease.until, now)
    if attempt is None:
        return None
    withdrawn = await _withdraw(db, session, run, first_seq)
    history_seq = await last_seq(db, session.id)
    message = await _message_of(db, session, run, history_seq, now)
    if run.trigger != DELIVER:  # what is told unasked says nothing of how the last run ended
        await set_status(db, session.id, "RUNNING", error=None, now=now)
    title = session.title or _first_title(run)
    if title is not None and session.title is None:
        await set_title(db, session.id, title, now)
    return Begun(
        run=replace(
            run,
            status="RUNNING",
            attempt=attempt,
            started_at=now,
            lease_owner=lease.owner,
            lease_until=lease.until,
        ),
        session=replace(
            session, status="RUNNING", title=title, execution_error=None, updated_at=now
        ),
        history_seq=history_seq,
        message=message,
        withdrawn=tuple(withdrawn),
        is_first=session.title is None and run.trigger not in WORDLESS,
    )


async def _first_withdrawn(db: AsyncConnection, session: Session, run: Run) -> int | None:
    """The `seq` from which a retry or an edit starts over; None if nothing is to be withdrawn."""
    asked = run.input
    if asked is None:
        return None
    if asked.retry_of is not None:
        return (await user_message(db, session.id, asked.retry_of)).seq + 1
    if asked.edit_of is None:
        return None
    try:
        return (await user_message(db, session.id, asked.edit_of)).seq
    except NotFound:
        return None  # withdrawn while this one waited; its words are still to be heard


async def _withdraw(
    db: AsyncConnection, session: Session, run: Run, first_seq: int | None
) -> list[Message]:
    if first_seq is None:
        return []
    withdrawn = await load_from(db, session.id, first_seq)
    await supersede_from(db, session.id, first_seq, run.id)
    return withdrawn


async def _message_of(
    db: AsyncConnection, session: Session, run: Run, history_seq: int, now: datetime
) -> Message | None:
    """The message that begins the run, in the history from now on."""
    asked = run.input
    if asked is None or run.trigger in WORDLESS:
        return None
    if asked.retry_of is not None:
        return await user_message(db, session.id, asked.retry_of)
    message = Message(
        id=asked.message_id or run.id,
        role="user",
        content=content_of(asked.text, asked.files),
        created_at=now,
        run_id=run.id,
        is_aside=session.kind == "sideline" and history_seq == session.inherited_seq,
    )
    [stored] = await append_messages(db, session.id, [message])
    return stored


def is_asked(waiting: Iterable[Run]) -> bool:
    """Whether a person queued any of it, so that there is something to hold for him."""
    return any(run.trigger not in UNASKED for run in waiting)


async def user_message(db: AsyncConnection, session_id: str, message_id: str) -> Message:
    """A message of a person in this session's history.

    Raises:
        NotFound: There is none.
        BadRequest: It is no message of a person.
    """
    found_session_id, message = await load_message(db, message_id, include_superseded=False)
    if found_session_id != session_id:
        raise NotFound("there is no such message")
    if message.role != "user" or message.synthetic:
        raise BadRequest("only a message of a person can be run again")
    return message


def _first_title(run: Run) -> str | None:
    if run.input is None or run.trigger in WORDLESS:
        return None
    words = title_of(run.input.text)
    return None if words.startswith("/") else words or None
