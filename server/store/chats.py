"""Which session a platform's conversation speaks to."""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from channels.port import ChatAddress
from server.store.ids import new_id
from server.store.rows import changed
from server.store.tables import ChatBindingRow, SessionRow, table_of

_BINDING = table_of(ChatBindingRow)
_SESSION = table_of(SessionRow)


async def bound_session(db: AsyncConnection, chat: ChatAddress) -> str | None:
    """The id of the session that *chat* speaks to; None if it never spoke."""
    found: str | None = await db.scalar(sa.select(_BINDING.c.session_id).where(_is(chat)))
    return found


async def bind_chat(db: AsyncConnection, chat: ChatAddress, session_id: str, now: datetime) -> None:
    """Let *chat* speak to this session from now on.

    Raises:
        Duplicate: At the transaction's end, if the chat was bound by another at the same time.
    """
    rebound = sa.update(_BINDING).where(_is(chat)).values(session_id=session_id, updated_at=now)
    if await changed(db, rebound):
        return
    await db.execute(sa.insert(_BINDING).values(_row(chat, session_id, now)))


async def bind_free_chat(
    db: AsyncConnection, chat: ChatAddress, session_id: str, now: datetime
) -> str:
    """Let *chat* speak to this session unless it is bound; the id of the session it speaks to.

    Unlike `bind_chat` it never spoils the transaction: who was first at the same time wins.
    """
    insert = postgresql.insert if db.dialect.name == "postgresql" else sqlite.insert
    statement = insert(_BINDING).values(_row(chat, session_id, now)).on_conflict_do_nothing()
    await db.execute(statement)
    bound = await bound_session(db, chat)
    assert bound is not None, "it was bound before, or is now"
    return bound


async def chat_of(db: AsyncConnection, session_id: str) -> tuple[ChatAddress | None, str | None]:
    """The chat that speaks to the session, and how to write there unasked; None for no chat."""
    query = sa.select(_BINDING).where(_BINDING.c.session_id == session_id).limit(1)
    row = (await db.execute(query)).mappings().first()
    if row is None:
        return None, None
    return _address(row), row["reach"]


async def list_chats(
    db: AsyncConnection, owner: str | None, *, besides: str, limit: int
) -> list[ChatAddress]:
    """Chats that speak to a session of *owner* (None for all), last bound first.

    Args:
        besides: Of a session whose own chat is left out.
    """
    query = sa.select(_BINDING).where(_BINDING.c.session_id != besides)
    if owner is not None:
        query = query.join(_SESSION, _SESSION.c.id == _BINDING.c.session_id)
        query = query.where(_SESSION.c.owner == owner)
    query = query.order_by(_BINDING.c.updated_at.desc(), _BINDING.c.id).limit(limit)
    return [_address(row) for row in (await db.execute(query)).mappings()]


async def set_reach(db: AsyncConnection, chat: ChatAddress, reach: str) -> None:
    """Remember how to write to *chat* unasked."""
    await db.execute(sa.update(_BINDING).where(_is(chat)).values(reach=reach))


def _row(chat: ChatAddress, session_id: str, now: datetime) -> dict[str, object]:
    return {
        "id": new_id(),
        "platform": chat.platform,
        "app_id": chat.app_id,
        "chat_id": chat.chat_id,
        "thread_id": chat.thread_id,
        "session_id": session_id,
        "created_at": now,
        "updated_at": now,
    }


def _address(row: sa.RowMapping) -> ChatAddress:
    return ChatAddress(row["platform"], row["app_id"], row["chat_id"], row["thread_id"])


def _is(chat: ChatAddress) -> sa.ColumnElement[bool]:
    return sa.and_(
        _BINDING.c.platform == chat.platform,
        _BINDING.c.app_id == chat.app_id,
        _BINDING.c.chat_id == chat.chat_id,
        _BINDING.c.thread_id == chat.thread_id,
    )
