"""The tools of a session: bound once, shared by content, forgotten with the last session."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa

from server.errors import NotFound
from server.store.engine import Store
from server.store.sessions import delete_session, insert_session, load_session
from server.store.tables import ToolsetRow, table_of
from server.store.toolsets import bind_toolset, load_toolset, prune_toolsets, toolset_digest
from tests.server.store.rows import NOON, a_session, later, make_session

ONE = '[{"name":"one","description":"工具"}]'.encode()
TWO = b'[{"name":"two"}]'


async def _bind(store: Store, session_id: str, tools: bytes, seconds: float = 0) -> bytes:
    async with store.write() as db:
        return await bind_toolset(db, session_id, tools, later(seconds))


async def _count(store: Store) -> int:
    async with store.read() as db:
        return await db.scalar(sa.select(sa.func.count()).select_from(table_of(ToolsetRow))) or 0


async def test_session_keeps_the_tools_that_it_was_bound_to_first(store: Store) -> None:
    await make_session(store)
    async with store.read() as db:
        assert await load_toolset(db, "s1") is None
    assert await _bind(store, "s1", ONE) == ONE
    assert await _bind(store, "s1", TWO) == ONE
    async with store.read() as db:
        assert await load_toolset(db, "s1") == ONE
        assert (await load_session(db, "s1")).toolset == toolset_digest(ONE)


async def test_equal_tools_are_stored_once(store: Store) -> None:
    for session_id in ("s1", "s2", "s3"):
        await make_session(store, session_id)
    for session_id, tools in (("s1", ONE), ("s2", ONE), ("s3", TWO)):
        assert await _bind(store, session_id, tools) == tools
    assert await _count(store) == 2


async def test_many_that_bind_at_once_agree(store: Store) -> None:
    await make_session(store)
    offers = [f'[{{"name":"tool{number}"}}]'.encode() for number in range(8)]
    bound = await asyncio.gather(*(_bind(store, "s1", offer) for offer in offers))
    assert len(set(bound)) == 1
    assert bound[0] in offers


async def test_child_session_begins_with_the_tools_of_its_parent(store: Store) -> None:
    await make_session(store)
    await _bind(store, "s1", ONE)
    async with store.write() as db:
        parent = await load_session(db, "s1")
        child = replace(a_session("s2", parent="s1"), toolset=parent.toolset)
        await insert_session(db, child)
    assert await _bind(store, "s2", TWO) == ONE


async def test_session_that_is_gone_cannot_be_bound(store: Store) -> None:
    with pytest.raises(NotFound):
        await _bind(store, "nobody", ONE)
    assert await _count(store) == 0


async def test_only_tools_that_no_session_has_are_forgotten(store: Store) -> None:
    await make_session(store, "s1")
    await make_session(store, "s2")
    await _bind(store, "s1", ONE)
    await _bind(store, "s2", TWO)
    async with store.write() as db:
        assert await prune_toolsets(db, later(3600)) == 0
        await delete_session(db, "s2", NOON)
        assert await prune_toolsets(db, NOON) == 0
        assert await prune_toolsets(db, later(3600)) == 1
    async with store.read() as db:
        assert await load_toolset(db, "s1") == ONE


async def test_tools_that_are_bound_again_are_kept_a_while_longer(store: Store) -> None:
    await make_session(store, "s1")
    await make_session(store, "s2")
    await _bind(store, "s1", ONE)
    await _bind(store, "s2", ONE, seconds=3600)
    async with store.write() as db:
        await delete_session(db, "s1", NOON)
        await delete_session(db, "s2", NOON)
        assert await prune_toolsets(db, later(60)) == 0
        assert await prune_toolsets(db, later(7200)) == 1
