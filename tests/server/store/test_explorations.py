"""What subagents of one run have explored, noted by several at once."""

import asyncio

import sqlalchemy as sa

from server.store.engine import Store
from server.store.explorations import explore
from server.store.runs import insert_run
from server.store.sessions import delete_session, insert_session
from tests.server.store.rows import NOON, a_run, a_session

FOUND = [(f"action-{n}", f"result-{n}") for n in range(20)]


async def begin(store: Store) -> None:
    async with store.write() as db:
        await insert_session(db, a_session())
        await insert_run(db, a_run("r1"))


async def note(store: Store, session_id: str, found: list[tuple[str, str]]) -> set[tuple[str, str]]:
    async with store.write() as db:
        return await explore(db, "r1", session_id, found, NOON)


async def test_of_two_that_find_the_same_at_once_one_was_first(store: Store) -> None:
    await begin(store)
    one, other = await asyncio.gather(
        note(store, "one", FOUND), note(store, "other", list(reversed(FOUND)))
    )
    assert one | other == set(FOUND)
    assert not one & other


async def test_what_a_session_found_itself_is_no_finding_of_another(store: Store) -> None:
    await begin(store)
    assert await note(store, "one", FOUND) == set()
    assert await note(store, "one", FOUND) == set()  # a retry, or a round made again
    assert await note(store, "other", FOUND[:1]) == set(FOUND[:1])


async def test_what_was_explored_goes_with_its_run(store: Store) -> None:
    await begin(store)
    await note(store, "one", FOUND)
    async with store.write() as db:
        await delete_session(db, a_session().id, NOON)
        assert await db.scalar(sa.text("SELECT count(*) FROM exploration")) == 0
