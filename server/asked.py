"""The run that a message asks for, as it waits in the queue."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.port import Inbound
from server import sentences
from server.begin import COMPACT_COMMAND, user_message
from server.contract import given_contract
from server.errors import BadRequest, NotFound
from server.message import FilePart, clean_text
from server.store.files import StoredFile, bind_files, files_by_id
from server.store.ids import new_id
from server.store.messages import message_exists
from server.store.runs import QueuedInput, Run, awaits_message, load_run
from server.store.sessions import Session


async def asked_run(db: AsyncConnection, session: Session, inbound: Inbound) -> Run:
    """The run that *inbound* asks for, not stored yet.

    Raises:
        BadRequest: It says nothing.
        NotFound: It names a message or a file that is not there.
    """
    text = clean_text(inbound.text)
    trigger = "message"
    for name, message_id in (("retry", inbound.retry_of), ("edit", inbound.edit_of)):
        if message_id is not None:
            trigger = name
            await user_message(db, session.id, message_id)
    is_command = text.strip().lower() == COMPACT_COMMAND and not inbound.is_sideline
    if trigger == "message" and is_command:
        trigger = "compact"
    files = await _files_of(db, session, inbound)
    if trigger != "retry":
        check_said(text, files)
    message_id = await _message_id(db, session, inbound)
    run_id = new_id()
    steer = inbound.when_busy == "steer" and trigger in ("message", "compact")
    return Run(
        id=run_id,
        session_id=session.id,
        trigger=trigger,
        status="QUEUED",
        created_at=datetime.now(UTC),
        input=QueuedInput(
            message_id=message_id,
            text=text,
            files=files,
            origin=inbound.origin,
            retry_of=inbound.retry_of,
            edit_of=inbound.edit_of,
            model=inbound.model,
            contract=await _contract_of(db, session, inbound),
            chat=inbound.chat,
            reply_to=inbound.reply_to,
            label=sentences.sideline_label(session.locale) if inbound.is_sideline else "",
        ),
        steer=steer,
        message_id=inbound.retry_of or message_id,
    )


async def _contract_of(
    db: AsyncConnection, session: Session, inbound: Inbound
) -> Mapping[str, object] | None:
    """The run's progress contract, fixed with it: a later change of the session's is not its own.

    What is tried again has the contract that it had.
    """
    if inbound.contract is not None:
        return inbound.contract
    if inbound.retry_of is not None:
        asked = await user_message(db, session.id, inbound.retry_of)
        if asked.run_id is not None:
            tried = (await load_run(db, asked.run_id)).input
            return None if tried is None else tried.contract
    return given_contract(session.contract_json)


async def _message_id(db: AsyncConnection, session: Session, inbound: Inbound) -> str:
    """The id the user message gets: the client's own where it is free."""
    wanted = inbound.message_id
    for message_id in (wanted, f"{session.id}-{wanted}") if wanted is not None else ():
        if not (await message_exists(db, message_id) or await awaits_message(db, message_id)):
            return message_id
    return new_id()


def check_said(text: str, files: Sequence[FilePart]) -> None:
    """Raise `BadRequest` for a message that says nothing."""
    if not text.strip() and not files:
        raise BadRequest("the message is empty", "content")


async def _files_of(
    db: AsyncConnection, session: Session, inbound: Inbound
) -> tuple[FilePart, ...]:
    """The files of a message, those still elsewhere too: of the session, or of its parent.

    What was in no session is the session's from now on.
    """
    places = (session.id, session.parent_session_id)
    file_ids = [file.file_id for file in inbound.files]
    found: dict[str, StoredFile] = {}
    if file_ids:
        await bind_files(db, file_ids, session.id)  # waits for who is about to forget one
        found = await files_by_id(db, file_ids)
    parts: list[FilePart] = []
    for file_id in file_ids:
        file = found.get(file_id)
        if file is None or file.owner != session.owner or file.session_id not in places:
            raise NotFound("there is no such file")
        parts.append(FilePart(file.id, file.media_type, file.name, file.size_bytes))
    for remote in inbound.remote_files:
        name = clean_text(remote.name).replace("/", "_") or "file"
        parts.append(FilePart(new_id(), remote.media_type, name, 0, remote.locator))
    return tuple(parts)
