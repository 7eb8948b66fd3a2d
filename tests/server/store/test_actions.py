"""What is stored of calls that write or send."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa

from server.errors import Duplicate, Fenced, StoreUnavailable
from server.store.actions import (
    Action,
    finish_actions,
    load_actions,
    prune_actions,
    restart_action,
    start_action,
)
from server.store.engine import Store, open_store
from server.store.runs import claim_expired, finish_run
from server.store.sessions import delete_session
from tests.server.store.rows import NOON, later, make_running, make_session


def an_action(call_id: str = "c1", *, session_id: str = "s1", mark: str = "m") -> Action:
    return Action(session_id, call_id, f"r-{session_id}", "write_file", "STARTED", mark, NOON)


async def make_run(store: Store, session_id: str = "s1") -> None:
    await make_session(store, session_id)
    await make_running(store, f"r-{session_id}", session_id=session_id)


async def start(store: Store, action: Action, attempt: int = 1) -> None:
    async with store.write() as db:
        await start_action(db, action, attempt)


async def test_call_that_began_is_found_as_it_was_stored_and_no_other(store: Store) -> None:
    await make_run(store)
    await make_run(store, "s2")
    await start(store, an_action(mark="before after"))
    await start(store, an_action(session_id="s2"))
    async with store.read() as db:
        assert await load_actions(db, "s1", ["c1", "c2"]) == {"c1": an_action(mark="before after")}
        assert await load_actions(db, "s1", ["c2"]) == {}
        assert await load_actions(db, "s1", []) == {}


async def test_calls_that_ended_are_stored_so_and_the_others_stay(store: Store) -> None:
    await make_run(store)
    await make_run(store, "s2")
    for call_id in ("c1", "c2", "c3", "c4"):
        await start(store, an_action(call_id))
    await start(store, an_action(session_id="s2"))
    async with store.write() as db:
        await finish_actions(db, "s1", ["c1", "c2", "never began"], "DONE", later(1))
        await finish_actions(db, "s1", ["c3"], "UNKNOWN", later(2))
        await finish_actions(db, "s1", [], "UNKNOWN", later(3))
    async with store.read() as db:
        found = await load_actions(db, "s1", ["c1", "c2", "c3", "c4", "never began"])
        [other] = (await load_actions(db, "s2", ["c1"])).values()
    known = {call_id: (action.state, action.ended_at) for call_id, action in found.items()}
    assert known == {
        "c1": ("DONE", later(1)),
        "c2": ("DONE", later(1)),
        "c3": ("UNKNOWN", later(2)),
        "c4": ("STARTED", None),
    }
    assert other.state == "STARTED"


async def test_call_begins_once(store: Store) -> None:
    await make_run(store)
    await start(store, an_action(mark="first"))
    with pytest.raises(Duplicate):
        await start(store, an_action(mark="second"))
    async with store.read() as db:
        assert (await load_actions(db, "s1", ["c1"]))["c1"].mark == "first"


async def test_call_that_began_in_vain_begins_anew(store: Store) -> None:
    await make_run(store)
    await start(store, an_action("c1"))
    await start(store, an_action("c2"))
    again = replace(an_action("c1", mark="new"), created_at=later(60))
    async with store.write() as db:
        await finish_actions(db, "s1", ["c1"], "UNKNOWN", later(1))
        await restart_action(db, again, 1)
    async with store.read() as db:
        found = await load_actions(db, "s1", ["c1", "c2"])
    assert found == {"c1": again, "c2": an_action("c2")}


async def test_nothing_begins_for_a_run_that_was_claimed_or_is_over(store: Store) -> None:
    await make_run(store)
    await start(store, an_action("c1"))
    async with store.write() as db:
        claimed = await claim_expired(db, "p2", later(90), later(60), any_owner=False)
        assert [run.attempt for run in claimed] == [2]
    with pytest.raises(Fenced):
        await start(store, an_action("c2"), 1)
    with pytest.raises(Fenced):
        async with store.write() as db:
            await restart_action(db, an_action("c1", mark="new"), 1)
    await start(store, an_action("c3"), 2)
    async with store.write() as db:
        await finish_run(db, "r-s1", 2, "CANCELLED", "cancelled", None, 1, later(61))
    with pytest.raises(Fenced):
        await start(store, an_action("c4"), 2)
    async with store.read() as db:
        found = await load_actions(db, "s1", ["c1", "c2", "c3", "c4"])
    assert found == {"c1": an_action("c1"), "c3": an_action("c3")}


async def test_claim_waits_for_a_call_that_is_being_begun(postgres_url: str) -> None:
    """Or whoever claims the run would take a call for one that never began."""
    async with open_store(postgres_url) as mine, open_store(postgres_url, busy_seconds=0.2) as his:
        await make_run(mine)
        async with mine.write() as db:
            await start_action(db, an_action(), 1)
            with pytest.raises(StoreUnavailable):
                async with his.write() as other:
                    await claim_expired(other, "p2", later(90), later(60), any_owner=False)
        async with his.write() as other:
            await claim_expired(other, "p2", later(90), later(60), any_owner=False)
            assert list(await load_actions(other, "s1", ["c1"])) == ["c1"]


async def test_two_processes_begin_a_call_once(postgres_url: str) -> None:
    async with open_store(postgres_url) as mine, open_store(postgres_url) as his:
        await make_run(mine)
        both = (start(mine, an_action()), start(his, an_action()))
        ends = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(map(type, ends), key=str) == sorted([type(None), Duplicate], key=str)


async def test_old_actions_are_forgotten_once_they_ended(store: Store) -> None:
    await make_run(store)
    for call_id in ("old", "new", "open"):
        await start(store, an_action(call_id))
    async with store.write() as db:
        await finish_actions(db, "s1", ["old"], "DONE", later(1))
        await finish_actions(db, "s1", ["new"], "UNKNOWN", later(10))
        assert await prune_actions(db, later(10)) == 1
        assert set(await load_actions(db, "s1", ["old", "new", "open"])) == {"new", "open"}


async def test_actions_go_with_their_session(store: Store) -> None:
    await make_run(store)
    await start(store, an_action())
    async with store.write() as db:
        await delete_session(db, "s1", NOON)
    async with store.read() as db:
        assert await db.scalar(sa.text("SELECT count(*) FROM action")) == 0
