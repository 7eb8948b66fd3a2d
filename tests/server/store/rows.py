"""Rows to store, with every field set to something a test can recognise."""

from datetime import UTC, datetime, timedelta

from server.message import Message
from server.store.engine import Store
from server.store.ids import new_id
from server.store.runs import QueuedInput, Run, insert_run, start_run
from server.store.sessions import Session, insert_session

NOON = datetime(2026, 3, 4, 12, 0, 0, 123456, tzinfo=UTC)


def later(seconds: float) -> datetime:
    """*seconds* after noon."""
    return NOON + timedelta(seconds=seconds)


def a_session(
    session_id: str = "s1",
    *,
    owner: str = "ann",
    title: str | None = None,
    parent: str | None = None,
    external_id: str | None = None,
    updated_at: datetime = NOON,
) -> Session:
    """An idle session."""
    return Session(
        id=session_id,
        kind="main" if parent is None else "sideline",
        title=title,
        status="IDLE",
        parent_session_id=parent,
        owner=owner,
        origin="web",
        model=None,
        locale="zh-CN",
        timezone="Asia/Shanghai",
        external_id=external_id,
        queue_paused=False,
        execution_error=None,
        created_at=NOON,
        updated_at=updated_at,
    )


def a_run(run_id: str, *, session_id: str = "s1", text: str = "go on", steer: bool = False) -> Run:
    """A run that waits."""
    return Run(
        id=run_id,
        session_id=session_id,
        trigger="message",
        status="QUEUED",
        created_at=NOON,
        input=QueuedInput(message_id=f"m-{run_id}", text=text, origin="web"),
        steer=steer,
    )


def a_message(text: str = "hello", *, message_id: str | None = None) -> Message:
    """A person's message."""
    return Message(id=message_id or new_id(), role="user", content=text, created_at=NOON)


async def make_session(store: Store, session_id: str = "s1") -> Session:
    """A stored session."""
    session = a_session(session_id)
    async with store.write() as db:
        await insert_session(db, session)
    return session


async def make_running(store: Store, run_id: str, *, session_id: str, owner: str = "p1") -> Run:
    """A stored run that *owner* started at noon and holds for 30 seconds."""
    run = a_run(run_id, session_id=session_id)
    async with store.write() as db:
        run = await insert_run(db, run)
        assert await start_run(db, run_id, owner, later(30), NOON) == 1
    return run
