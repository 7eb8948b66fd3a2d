"""Idempotency keys in the store."""

import pytest

from server.errors import Duplicate
from server.store.engine import Store
from server.store.inbound import InboundEvent, find_inbound, insert_inbound, prune_inbound
from tests.server.store.rows import NOON, later, make_session


async def test_any_of_the_keys_finds_what_the_message_became(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_inbound(db, ["feishu:1", "feishu:e1"], "s1", "r1", "queued", 2, NOON)
    async with store.read() as db:
        found = await find_inbound(db, ["feishu:9", "feishu:e1"])
        assert found == InboundEvent("feishu:e1", "s1", "r1", "queued", 2, NOON)
        assert await find_inbound(db, ["feishu:9"]) is None
        assert await find_inbound(db, []) is None


async def test_key_that_came_before_is_a_duplicate_and_nothing_is_kept(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_inbound(db, ["a"], "s1", "r1", "started", None, NOON)
    with pytest.raises(Duplicate):
        async with store.write() as db:
            await insert_inbound(db, ["b", "a"], "s1", "r2", "started", None, later(1))
    async with store.read() as db:
        assert await find_inbound(db, ["b"]) is None


async def test_key_given_twice_in_one_message_counts_once_and_none_is_fine(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_inbound(db, ["a", "a"], "s1", "r1", "started", None, NOON)
        await insert_inbound(db, [], "s1", "r1", "started", None, NOON)
    async with store.read() as db:
        assert await find_inbound(db, ["a"]) is not None


async def test_old_keys_are_forgotten(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_inbound(db, ["old"], "s1", "r1", "started", None, NOON)
        await insert_inbound(db, ["new"], "s1", "r2", "started", None, later(10))
        assert await prune_inbound(db, later(10)) == 1
        assert await find_inbound(db, ["old"]) is None
        assert await find_inbound(db, ["new"]) is not None
