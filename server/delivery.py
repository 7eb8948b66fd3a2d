"""Texts that are told in a session without a model: one way for tasks, notices and `send_message`.

A delivery is a run like any other, so it waits for the one under way, stands in the history, is
shown by every surface, and goes out through the outbox; but it asks no model.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.port import QUEUE_MAX, ChatAddress
from server.errors import NotFound, ToolError
from server.message import clean_text
from server.settings import ADMIN
from server.signals import RunSignals
from server.store.chats import bound_session, chat_of, list_chats
from server.store.engine import Store
from server.store.ids import new_id
from server.store.inbound import find_inbound, insert_inbound
from server.store.runs import QueuedInput, Run, insert_run, queued
from server.store.sessions import Session, load_session
from server.tools.base import ToolContext
from server.tools.send import Sent
from server.upkeep import KEYS_KEPT

DELIVER: Final = "deliver"
"""Trigger of such a run."""

_NAMED_MOST: Final = 20
"""Destinations that a wrong one is answered with."""


async def insert_delivery(
    db: AsyncConnection, session: Session, text: str, key: str, *, label: str = ""
) -> str:
    """Queue *text* to be told in *session*; the id of its run.

    Args:
        key: The same key again is the same delivery: nothing is added.
        label: Stands at the head of a chat's card.

    Whoever calls asks for `RunSignals.advance` when the transaction is committed.
    """
    known = await find_inbound(db, [key])
    if known is not None:
        return known.run_id
    chat, reach = await chat_of(db, session.id)
    now = datetime.now(UTC)
    run = Run(
        id=new_id(),
        session_id=session.id,
        trigger=DELIVER,
        status="QUEUED",
        created_at=now,
        input=QueuedInput(
            message_id=None,
            text=clean_text(text),
            origin=session.origin,
            chat=chat,
            reach=reach,
            label=label,
        ),
    )
    await insert_run(db, run)
    await insert_inbound(db, [key], session.id, run.id, "queued", None, now)
    return run.id


class Deliveries:
    """Fits `server.tools.send.Post` by shape."""

    def __init__(self, store: Store, signals: RunSignals) -> None:
        self._store = store
        self._signals = signals

    async def send(self, context: ToolContext, to: str, text: str) -> Sent:
        """Queue *text* to be told at *to*; the same call again changes nothing.

        Raises:
            ToolError: There is no such destination for this session, or too much waits there.
        """
        key = _key(context)
        async with self._store.write() as db:
            known = await find_inbound(db, [key])
            if known is not None:
                return Sent(known.run_id)
            target = await _target(db, await load_session(db, context.session_id), to)
            if len(await queued(db, target.id)) >= QUEUE_MAX:
                raise ToolError("queue_full", f"{QUEUE_MAX} messages wait there; try again later")
            run_id = await insert_delivery(db, target, text, key)
        self._signals.advance(target.id)
        return Sent(run_id)

    async def find(self, context: ToolContext) -> Sent | None:
        """What the call queued."""
        async with self._store.read() as db:
            known = await find_inbound(db, [_key(context)])
        return None if known is None else Sent(known.run_id)

    def remembers(self, since: datetime) -> bool:
        """Keys are forgotten after a while; an hour is left for clocks that differ."""
        return datetime.now(UTC) - since < KEYS_KEPT - timedelta(hours=1)


def _key(context: ToolContext) -> str:
    return f"send:{context.session_id}:{context.call_id}"


async def _target(db: AsyncConnection, sender: Session, to: str) -> Session:
    chat = _chat(to)
    session_id = to if chat is None else await bound_session(db, chat)
    if session_id == sender.id:
        raise ToolError("own_session", "that is where you are; answer directly instead")
    if session_id is not None:
        with suppress(NotFound):
            target = await load_session(db, session_id)
            if _may_send(sender, target):
                return target
    raise ToolError("unknown_destination", await _known_chats(db, sender))


def _may_send(sender: Session, target: Session) -> bool:
    """To what has the same owner, which all chats of a bot have; the admin to every chat."""
    is_chat_for_admin = sender.owner == ADMIN and target.kind == "chat"
    return target.owner == sender.owner or is_chat_for_admin


async def _known_chats(db: AsyncConnection, sender: Session) -> str:
    owner = None if sender.owner == ADMIN else sender.owner
    chats = await list_chats(db, owner, besides=sender.id, limit=_NAMED_MOST)
    if not chats:
        return "there is no such chat or session, and no chat is known that you may send to"
    return f"there is no such chat or session; chats are: {', '.join(map(_text, chats))}"


def _chat(text: str) -> ChatAddress | None:
    """The chat that *text* names; None if it names none."""
    match text.split(":", 3):
        case [platform, app_id, chat_id]:
            return ChatAddress(platform, app_id, chat_id)
        case [platform, app_id, chat_id, thread_id]:
            return ChatAddress(platform, app_id, chat_id, thread_id)
        case _:
            return None


def _text(chat: ChatAddress) -> str:
    parts = [chat.platform, chat.app_id, chat.chat_id]
    return ":".join([*parts, chat.thread_id] if chat.thread_id else parts)
