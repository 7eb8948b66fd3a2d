"""Which session a platform's conversation speaks to."""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from channels.port import ChatAddress
from server.store.ids import new_id
from server.store.rows import changed
from server.store.tables import ChatBindingRow, table_of

_BINDING = table_of(ChatBindingRow)


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
    await db.execute(
        sa.insert(_BINDING).values(
            id=new_id(),
            platform=chat.platform,
            app_id=chat.app_id,
            chat_id=chat.chat_id,
            thread_id=chat.thread_id,
            session_id=session_id,
            created_at=now,
            updated_at=now,
        )
    )


def _is(chat: ChatAddress) -> sa.ColumnElement[bool]:
    return sa.and_(
        _BINDING.c.platform == chat.platform,
        _BINDING.c.app_id == chat.app_id,
        _BINDING.c.chat_id == chat.chat_id,
        _BINDING.c.thread_id == chat.thread_id,
    )
