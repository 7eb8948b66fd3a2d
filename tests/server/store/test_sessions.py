"""Sessions in the store."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
import sqlalchemy as sa

from server.errors import Duplicate, NotFound, StoreRefused
from server.store.engine import Store
from server.store.messages import append_messages, supersede_from
from server.store.runs import insert_run, load_run
from server.store.sessions import (
    SHOWN_CHILDREN,
    ExecutionError,
    children_of,
    delete_session,
    family_of,
    find_by_external_id,
    insert_session,
    list_sessions,
    load_session,
    parents_of,
    set_model,
    set_queue_paused,
    set_status,
    set_title,
)
from tests.server.store.rows import NOON, a_message, a_run, a_session, later, make_session

FAILURE = ExecutionError(
    code="no_progress_loop", message="连续 15 轮没有进展", retryable=True, run_id="r1", at=later(5)
)


async def test_session_comes_back_as_it_was(store: Store) -> None:
    session = replace(
        a_session(title="周报 😀", external_id="thread-1"),
        model="step-3",
        queue_paused=True,
        execution_error=FAILURE,
    )
    async with store.write() as db:
        await insert_session(db, session)
    async with store.read() as db:
        assert await load_session(db, "s1") == session


async def test_unknown_session_is_not_found(store: Store) -> None:
    async with store.read() as db:
        with pytest.raises(NotFound):
            await load_session(db, "nobody")


async def test_external_id_belongs_to_its_owner(store: Store) -> None:
    async with store.write() as db:
        await insert_session(db, a_session("s1", owner="ann", external_id="t"))
        await insert_session(db, a_session("s2", owner="bob", external_id="t"))
    async with store.read() as db:
        found = await find_by_external_id(db, "t", "bob")
        assert found is not None
        assert found.id == "s2"
        assert await find_by_external_id(db, "t", "eve") is None


async def test_second_session_with_the_same_external_id_is_a_duplicate(store: Store) -> None:
    async with store.write() as db:
        await insert_session(db, a_session("s1", external_id="t"))
    with pytest.raises(Duplicate):
        async with store.write() as db:
            await insert_session(db, a_session("s2", external_id="t"))


async def test_list_is_newest_first_of_the_owner_and_pages(store: Store) -> None:
    async with store.write() as db:
        for number in range(5):
            await insert_session(db, a_session(f"s{number}", updated_at=later(number)))
        await insert_session(db, a_session("other", owner="bob", updated_at=later(99)))
    async with store.read() as db:
        page = await list_sessions(db, "ann", before=None, limit=2)
        assert [session.id for session in page] == ["s4", "s3"]
        rest = await list_sessions(db, "ann", before=(page[-1].updated_at, page[-1].id), limit=9)
        assert [session.id for session in rest] == ["s2", "s1", "s0"]
        everyone = await list_sessions(db, None, before=None, limit=9)
        assert everyone[0].id == "other"


async def test_pages_miss_none_of_several_sessions_that_were_changed_at_once(store: Store) -> None:
    async with store.write() as db:
        for number in range(5):
            await insert_session(db, a_session(f"s{number}", updated_at=later(number // 4)))
    seen: list[str] = []
    before = None
    async with store.read() as db:
        while page := await list_sessions(db, "ann", before=before, limit=2):
            seen += [session.id for session in page]
            before = page[-1].updated_at, page[-1].id
    assert seen == ["s4", "s3", "s2", "s1", "s0"]


async def test_search_looks_into_titles_and_visible_words(store: Store) -> None:
    async with store.write() as db:
        await insert_session(db, a_session("s1", title="Weekly REPORT"))
        await insert_session(db, a_session("s2"))
        await insert_session(db, a_session("s3"))
        await append_messages(db, "s2", [a_message("请写一份report")])
        await append_messages(db, "s3", [a_message("a report, but retried")])
        await supersede_from(db, "s3", 1, "r9")
    async with store.read() as db:
        found = await list_sessions(db, "ann", before=None, limit=9, search="report")
        assert {session.id for session in found} == {"s1", "s2"}
        assert await list_sessions(db, "ann", before=None, limit=9, search="100%_") == []


async def test_children_are_shown_newest_first_and_only_so_many(store: Store) -> None:
    async with store.write() as db:
        await insert_session(db, a_session("s1"))
        for number in range(SHOWN_CHILDREN + 2):
            child = a_session(f"c{number:02}", parent="s1")
            kind = "subagent" if number % 2 else "sideline"
            await insert_session(db, replace(child, kind=kind, created_at=later(number)))
        planned = replace(a_session("p", parent="s1"), kind="scheduled", created_at=later(99))
        await insert_session(db, planned)
    async with store.read() as db:
        children = [session.id for session in await children_of(db, "s1")]
        assert children == [f"c{number:02}" for number in range(SHOWN_CHILDREN + 1, 1, -1)]
        assert await children_of(db, "nobody") == []


async def test_a_family_is_all_below_a_session_and_parents_are_one_step_above(
    store: Store,
) -> None:
    async with store.write() as db:
        for session_id, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "b"), ("e", None)):
            await insert_session(db, a_session(session_id, parent=parent))
    async with store.read() as db:
        assert await family_of(db, "a") == {"a", "b", "c", "d"}
        assert await family_of(db, "b") == {"b", "c", "d"}
        assert await family_of(db, "e") == {"e"}
        assert await family_of(db, "nobody") == set()
        assert await parents_of(db, ["a", "c", "d", "nobody"]) == {"b"}
        assert await parents_of(db, []) == set()


async def test_failure_stands_in_the_session_until_the_next_status(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await set_status(db, "s1", "FAILED", error=FAILURE, now=later(6))
    async with store.read() as db:
        failed = await load_session(db, "s1")
    assert (failed.status, failed.execution_error) == ("FAILED", FAILURE)
    assert failed.updated_at == later(6)
    async with store.write() as db:
        await set_status(db, "s1", "RUNNING", error=None, now=later(7))
    async with store.read() as db:
        assert (await load_session(db, "s1")).execution_error is None


async def test_failure_is_written_in_the_form_operators_read_and_leaves_other_keys(
    store: Store,
) -> None:
    await make_session(store)
    column = "runtime_status_json"
    async with store.write() as db:
        await db.execute(sa.text(f"""UPDATE session SET {column} = '{{"other":[1]}}'"""))
        await set_status(db, "s1", "FAILED", error=FAILURE, now=later(6))
    async with store.read() as db:
        written = json.loads(await db.scalar(sa.text(f"SELECT {column} FROM session")))
    assert written == {
        "other": [1],
        "executionError": {
            "code": "no_progress_loop",
            "message": "连续 15 轮没有进展",
            "retryable": True,
            "runId": "r1",
            "at": "2026-03-04T12:00:05.123456+00:00",
        },
    }


async def test_title_model_and_pause_can_be_changed(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await set_title(db, "s1", "新标题", later(1))
        await set_model(db, "s1", "step-3", later(2))
        await set_queue_paused(db, "s1", True)
    async with store.read() as db:
        session = await load_session(db, "s1")
    assert (session.title, session.model, session.queue_paused) == ("新标题", "step-3", True)
    assert session.updated_at == later(2)


async def test_changing_an_unknown_session_is_not_found(store: Store) -> None:
    async with store.write() as db:
        with pytest.raises(NotFound):
            await set_title(db, "nobody", "x", NOON)
        with pytest.raises(NotFound):
            await set_status(db, "nobody", "FAILED", error=None, now=NOON)
        with pytest.raises(NotFound):
            await delete_session(db, "nobody", NOON)


async def test_deleting_takes_children_and_all_rows_along(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_session(db, a_session("side", parent="s1"))
        await insert_run(db, a_run("r1", session_id="side"))
        await append_messages(db, "side", [a_message()])
        await delete_session(db, "s1", NOON)
    async with store.read() as db:
        assert await family_of(db, "side") == set()
        assert await db.scalar(sa.text("SELECT count(*) FROM message")) == 0
        with pytest.raises(NotFound):
            await load_run(db, "r1")


async def test_time_of_another_zone_comes_back_as_the_same_instant_in_utc(store: Store) -> None:
    shanghai = timezone(timedelta(hours=8))
    morning = datetime(2026, 3, 4, 8, 0, tzinfo=shanghai)
    async with store.write() as db:
        await insert_session(db, replace(a_session(), created_at=morning))
    async with store.read() as db:
        created_at = (await load_session(db, "s1")).created_at
    assert created_at == morning
    assert created_at.utcoffset() == timedelta(0)


async def test_time_without_a_zone_is_refused(store: Store) -> None:
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(StoreRefused):
        async with store.write() as db:
            await insert_session(db, replace(a_session(), created_at=naive))
