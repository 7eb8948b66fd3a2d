"""Messages that came too late to be run: each is kept, and their chat is told once of them all.

The notice is owed by the outbox, so that neither a crash loses it nor an acknowledgement waits for
it. It is due a little later, and counts what comes until then.
"""

from collections.abc import Collection
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from channels import sentences
from channels.port import ChatAddress, Delivery, Turn
from server.errors import NotFound
from server.store.ids import new_id
from server.store.inbound import insert_inbound
from server.store.outbox import OutboxItem, insert_outbox, load_item, set_payload, untried_item
from server.store.sessions import Session, load_session

LATE: Final = "late"
"""The kind of such items."""

GATHERED_FOR: Final = timedelta(seconds=2)
"""A platform hands over what it held back within about a second."""


async def keep_late(
    db: AsyncConnection, session: Session, chat: ChatAddress, keys: Collection[str], reply_to: str
) -> None:
    """Keep a message's *keys* and owe its chat a notice, or count it in the one that is owed.

    The session's row is locked before, so that two of its messages never owe one each.

    Args:
        chat: Where the notice is told: in the newest message's topic, if it stands in one.
        reply_to: What the platform needs to write there; see `Turn.reach`.
    """
    now = datetime.now(UTC)
    await insert_inbound(db, keys, session.id, "", "started", None, now)
    payload: dict[str, object] = {"chat": asdict(chat), "reach": reply_to, "count": 1}
    owed = await untried_item(db, session.id, LATE)
    if owed is not None:
        payload["count"] = _count(owed) + 1
        if await set_payload(db, owed, payload):
            return
        payload["count"] = 1  # it is being told this very moment
    item = OutboxItem(
        id=new_id(),
        session_id=session.id,
        run_id=None,
        surface=chat.surface,
        kind=LATE,
        payload=payload,
        status="PENDING",
        attempts=0,
        error=None,
        created_at=now,
        due_at=now + GATHERED_FOR,
    )
    await insert_outbox(db, item)


async def late_delivery(db: AsyncConnection, item: OutboxItem) -> Delivery:
    """The notice as a chat's surface tells it: unasked, as a message of its own.

    Raises:
        NotFound: The session was deleted.
    """
    current = await load_item(db, item.id)  # it may have counted more since it was looked at
    if current is None:
        raise NotFound("the notice is gone with its session")
    session = await load_session(db, item.session_id)
    told: Any = current.payload  # written by `keep_late`
    turn = Turn(
        session_id=session.id,
        run_id=item.id,
        chat=ChatAddress(**told["chat"]),
        reply_to=None,
        handle=None,
        locale=session.locale,
        reach=told["reach"],
    )
    return Delivery(
        id=item.id,
        attempt=item.attempts + 1,
        turn=turn,
        status="finished",
        code=LATE,
        text="",
        answer=sentences.stale(session.locale, _count(current)),
    )


def main_chat(chat: ChatAddress) -> ChatAddress:
    """The chat whose session owes the notice, whatever topic its messages stand in."""
    return replace(chat, thread_id="")


def _count(item: OutboxItem) -> int:
    told: Any = item.payload
    count: int = told["count"]
    return count
