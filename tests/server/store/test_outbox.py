"""The outbox in the store: each item is taken by one, until it worked or cannot."""

import asyncio
from datetime import datetime

import sqlalchemy as sa

from server.store.engine import Store, open_store
from server.store.outbox import (
    OutboxItem,
    claim_item,
    due_items,
    insert_outbox,
    mark_delivered,
    mark_undeliverable,
    outbox_depth,
)
from tests.server.store.rows import NOON, later, make_session


def _an_item(item_id: str, due_at: datetime = NOON) -> OutboxItem:
    return OutboxItem(
        id=item_id,
        session_id="s1",
        run_id="r1",
        surface="feishu",
        kind="outcome",
        payload={"text": "完成 😀\x00", "lone": "\ud800", "n": [1, 2.5, None, True]},
        status="PENDING",
        attempts=0,
        error=None,
        created_at=NOON,
        due_at=due_at,
    )


async def test_due_items_come_back_as_they_were_longest_due_first(store: Store) -> None:
    await make_session(store)
    items = [_an_item("o1", later(2)), _an_item("o2", later(1)), _an_item("o3", later(9))]
    async with store.write() as db:
        for item in items:
            await insert_outbox(db, item)
    async with store.read() as db:
        assert await due_items(db, later(2), 9) == [items[1], items[0]]
        assert await due_items(db, later(2), 1) == [items[1]]
        assert await outbox_depth(db) == 3


async def test_item_is_claimed_by_one_of_many_processes(store: Store, database_url: str) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_outbox(db, _an_item("o1"))

    async def claim(opened: Store) -> bool:
        async with opened.write() as db:
            return await claim_item(db, "o1", 0, later(60))

    async with open_store(database_url) as other:
        wins = await asyncio.gather(*(claim(opened) for opened in (store, other) * 5))
    assert sorted(wins) == [False] * 9 + [True]
    async with store.read() as db:
        assert await due_items(db, later(59), 9) == []
        (again,) = await due_items(db, later(60), 9)
    assert again.attempts == 1


async def test_delivered_item_is_never_due_again(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_outbox(db, _an_item("o1"))
        await mark_delivered(db, "o1", later(1))
        assert await due_items(db, later(999), 9) == []
        assert await outbox_depth(db) == 0
        assert not await claim_item(db, "o1", 0, later(60))
        assert await db.scalar(sa.text("SELECT status FROM outbox")) == "DELIVERED"


async def test_undeliverable_item_says_why(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_outbox(db, _an_item("o1"))
        await mark_undeliverable(db, "o1", "chat_gone", later(1))
        assert await outbox_depth(db) == 0
        row = (await db.execute(sa.text("SELECT status, error FROM outbox"))).one()
    assert tuple(row) == ("UNDELIVERABLE", "chat_gone")
