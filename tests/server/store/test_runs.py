"""Runs in the store: the queue, claims, leases, fences and ends."""

import asyncio
from dataclasses import replace

import pytest

from server.errors import Duplicate, Fenced, NotFound
from server.message import FilePart
from server.store.engine import Store, open_store
from server.store.runs import (
    QueuedInput,
    Run,
    begin_round,
    cancels_requested,
    claim_expired,
    delete_queue,
    delete_queued,
    fence,
    finish_run,
    idle_queues,
    insert_run,
    join_run,
    list_runs,
    load_run,
    queued,
    release_leases,
    renew_leases,
    request_cancel,
    requeue_front,
    running,
    sessions_with_queue,
    start_run,
    update_queued_text,
)
from server.store.sessions import set_queue_paused, set_status
from tests.server.store.rows import NOON, a_run, later, make_running, make_session


async def _queue_ids(store: Store, session_id: str = "s1") -> list[str]:
    async with store.read() as db:
        return [run.id for run in await queued(db, session_id)]


async def test_run_comes_back_as_it_was(store: Store) -> None:
    await make_session(store)
    run = replace(
        a_run("r1", steer=True),
        input=QueuedInput(
            message_id="m1",
            text="画一张图 😀",
            files=(FilePart("f1", "image/png", "图.png", 7),),
            origin="feishu",
            retry_of="m2",
            edit_of="m3",
            model="step-3",
        ),
        message_id="m1",
        joined_run_id="r0",
        outcome_code="completed",
        outcome_text="好",
        rounds=3,
        attempt=2,
        cancel_requested=True,
        started_at=later(1),
        ended_at=later(2),
        lease_owner="p1",
        lease_until=later(30),
    )
    async with store.write() as db:
        stored = await insert_run(db, run)
    assert stored == replace(run, queue_seq=1)
    async with store.read() as db:
        assert await load_run(db, "r1") == stored


async def test_unknown_run_is_not_found(store: Store) -> None:
    async with store.read() as db:
        with pytest.raises(NotFound):
            await load_run(db, "nothing")


async def test_run_of_an_unknown_session_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        async with store.write() as db:
            await insert_run(db, a_run("r1", session_id="nobody"))


async def test_queue_is_in_order_of_coming_and_lets_one_to_the_front(store: Store) -> None:
    await make_session(store)
    await make_session(store, "s2")
    async with store.write() as db:
        for run_id in ("r1", "r2", "r3"):
            await insert_run(db, a_run(run_id))
        await insert_run(db, a_run("first"), front=True)
        await insert_run(db, a_run("elsewhere", session_id="s2"))
    assert await _queue_ids(store) == ["first", "r1", "r2", "r3"]
    async with store.read() as db:
        assert await sessions_with_queue(db) == ["s1", "s2"]


async def test_steered_run_can_be_put_back_as_the_next_one(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_run(db, a_run("r1"))
        await insert_run(db, a_run("r2", steer=True))
        await requeue_front(db, "r2")
    assert await _queue_ids(store) == ["r2", "r1"]
    async with store.read() as db:
        assert not (await load_run(db, "r2")).steer


async def test_starting_takes_a_run_out_of_the_queue_once(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_run(db, a_run("r1"))
        assert await start_run(db, "r1", "p1", later(30), NOON) == 1
        assert await start_run(db, "r1", "p2", later(30), NOON) is None
        assert await start_run(db, "nothing", "p2", later(30), NOON) is None
    async with store.read() as db:
        run = await running(db, "s1")
        assert await queued(db, "s1") == []
        assert await sessions_with_queue(db) == []
    assert run is not None
    assert (run.id, run.lease_owner, run.lease_until) == ("r1", "p1", later(30))
    assert run.started_at == NOON
    assert run.input == a_run("r1").input, "what was asked stays with the run"


async def test_second_running_run_of_a_session_is_refused(store: Store) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1")
    async with store.write() as db:
        await insert_run(db, a_run("r2"))
    with pytest.raises(Duplicate):
        async with store.write() as db:
            await start_run(db, "r2", "p2", later(30), NOON)


async def test_nothing_running_is_none(store: Store) -> None:
    await make_session(store)
    async with store.read() as db:
        assert await running(db, "s1") is None


async def test_only_runs_whose_lease_is_over_are_claimed(store: Store) -> None:
    for number, owner in enumerate(("dead", "dead", "alive", "me"), start=1):
        await make_session(store, f"s{number}")
        await make_running(store, f"r{number}", session_id=f"s{number}", owner=owner)
    async with store.write() as db:
        await renew_leases(db, "alive", ["r3"], later(90))
        claimed = await claim_expired(db, "me", later(100), later(60), any_owner=False, held=["r4"])
    assert [run.id for run in claimed] == ["r1", "r2"]
    assert {(run.attempt, run.lease_owner, run.lease_until) for run in claimed} == {
        (2, "me", later(100))
    }
    async with store.write() as db:
        claimed = await claim_expired(db, "me", later(200), later(61), any_owner=False, held=["r4"])
    assert claimed == []


async def test_process_claims_its_own_run_that_began_without_its_knowledge(store: Store) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1", owner="me")
    async with store.write() as db:
        assert await claim_expired(db, "me", later(100), later(29), any_owner=True) == []
        [claimed] = await claim_expired(db, "me", later(100), later(60), any_owner=True)
    assert (claimed.id, claimed.attempt) == ("r1", 2)


async def test_process_that_is_alone_claims_live_leases_but_never_its_own(store: Store) -> None:
    for number, owner in enumerate(("dead", "me"), start=1):
        await make_session(store, f"s{number}")
        await make_running(store, f"r{number}", session_id=f"s{number}", owner=owner)
    async with store.write() as db:
        claimed = await claim_expired(db, "me", later(60), later(1), any_owner=True)
    assert [run.id for run in claimed] == ["r1"]


async def test_two_processes_never_claim_the_same_run(store: Store, database_url: str) -> None:
    for number in range(6):
        await make_session(store, f"s{number}")
        await make_running(store, f"r{number}", session_id=f"s{number}", owner="dead")

    async def claim(opened: Store, owner: str) -> list[Run]:
        async with opened.write() as db:
            return await claim_expired(db, owner, later(100), later(60), any_owner=False)

    async with open_store(database_url) as other:
        first, second = await asyncio.gather(claim(store, "a"), claim(other, "b"))
    assert sorted(run.id for run in (*first, *second)) == [f"r{n}" for n in range(6)]


async def test_leases_are_renewed_for_their_owner_only(store: Store) -> None:
    for number, owner in enumerate(("me", "other"), start=1):
        await make_session(store, f"s{number}")
        await make_running(store, f"r{number}", session_id=f"s{number}", owner=owner)
    async with store.write() as db:
        assert await renew_leases(db, "me", ["r1", "r2", "gone"], later(60)) == {"r1"}
        assert await renew_leases(db, "me", [], later(60)) == set()
    async with store.read() as db:
        assert (await load_run(db, "r1")).lease_until == later(60)
        assert (await load_run(db, "r2")).lease_until == later(30)


async def test_released_lease_can_be_claimed_at_once(store: Store) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1", owner="leaving")
    async with store.write() as db:
        await release_leases(db, "leaving")
        claimed = await claim_expired(db, "next", later(60), NOON, any_owner=False)
    assert [run.id for run in claimed] == ["r1"]


async def test_claimed_run_fences_its_former_owner(store: Store) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1", owner="frozen")
    async with store.write() as db:
        await fence(db, "r1", 1)
        await claim_expired(db, "next", later(100), later(60), any_owner=False)
        with pytest.raises(Fenced):
            await fence(db, "r1", 1)
        with pytest.raises(Fenced):
            await finish_run(db, "r1", 1, "COMPLETED", "completed", None, 4, later(61))
        await fence(db, "r1", 2)


async def test_claim_waits_for_a_transaction_that_passed_its_fence(
    store: Store, database_url: str
) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1", owner="slow")
    steps: list[str] = []

    async def claim(other: Store) -> None:
        async with other.write() as db:
            await claim_expired(db, "next", later(100), later(60), any_owner=False)
        steps.append("claimed")

    async with open_store(database_url) as other:
        async with store.write() as db:
            await fence(db, "r1", 1)
            claiming = asyncio.create_task(claim(other))
            done, _ = await asyncio.wait({claiming}, timeout=0.3)
            assert not done, "the claim came between fence and commit"
            steps.append("written")
        await claiming
    assert steps == ["written", "claimed"]


async def test_finished_run_keeps_its_outcome_and_gives_its_lease_back(store: Store) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1")
    async with store.write() as db:
        await begin_round(db, "r1", 1, 14)
        await finish_run(db, "r1", 1, "FAILED", "no_progress_loop", "没有进展", 15, later(9))
    async with store.write() as db:
        with pytest.raises(Fenced):
            await finish_run(db, "r1", 1, "COMPLETED", "completed", None, 15, later(9))
        run = await load_run(db, "r1")
    assert (run.status, run.outcome_code, run.outcome_text) == (
        "FAILED",
        "no_progress_loop",
        "没有进展",
    )
    assert (run.rounds, run.ended_at, run.lease_owner, run.lease_until) == (
        15,
        later(9),
        None,
        None,
    )


async def test_beginning_a_round_counts_it_and_fences(store: Store) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1")
    async with store.write() as db:
        await begin_round(db, "r1", 1, 7)
        with pytest.raises(Fenced):
            await begin_round(db, "r1", 2, 8)
        assert (await load_run(db, "r1")).rounds == 7


async def test_cancel_request_reaches_the_owner_of_the_run(store: Store) -> None:
    for number, owner in enumerate(("me", "me", "other"), start=1):
        await make_session(store, f"s{number}")
        await make_running(store, f"r{number}", session_id=f"s{number}", owner=owner)
    async with store.write() as db:
        assert await cancels_requested(db, "me") == set()
        await request_cancel(db, "r1")
        await request_cancel(db, "r3")
        assert await cancels_requested(db, "me") == {"r1"}
        assert (await load_run(db, "r1")).cancel_requested


async def test_joined_run_leaves_the_queue_and_names_what_it_joined(store: Store) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1")
    async with store.write() as db:
        await insert_run(db, a_run("r2", steer=True))
        assert await join_run(db, "r2", "r1", later(3))
        assert not await join_run(db, "r2", "r1", later(4))
        joined = await load_run(db, "r2")
    assert (joined.status, joined.joined_run_id, joined.ended_at) == ("JOINED", "r1", later(3))
    assert await _queue_ids(store) == []


async def test_waiting_text_can_be_changed_until_it_starts(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_run(db, a_run("r1", text="old"))
        assert await update_queued_text(db, "r1", "新")
        assert not await update_queued_text(db, "nothing", "x")
        run = await load_run(db, "r1")
        await start_run(db, "r1", "p1", later(30), NOON)
        assert not await update_queued_text(db, "r1", "too late")
    assert run.input == QueuedInput(message_id="m-r1", text="新", origin="web")


async def test_queue_can_lose_one_run_or_all_but_never_a_started_one(store: Store) -> None:
    await make_session(store)
    await make_running(store, "r1", session_id="s1")
    async with store.write() as db:
        for run_id in ("r2", "r3", "r4"):
            await insert_run(db, a_run(run_id))
        assert not await delete_queued(db, "r1")
        assert await delete_queued(db, "r3")
        assert not await delete_queued(db, "r3")
        assert await delete_queue(db, "s1") == 2
        assert await running(db, "s1") is not None


async def test_queue_behind_a_question_is_not_idle_but_for_the_answer(store: Store) -> None:
    for session_id in ("idle", "held", "waiting", "answered"):
        await make_session(store, session_id)
    async with store.write() as db:
        for session_id in ("idle", "held", "waiting", "answered"):
            await insert_run(db, a_run(f"r-{session_id}", session_id=session_id))
        await set_queue_paused(db, "held", True)
        for session_id in ("waiting", "answered"):
            await set_status(db, session_id, "WAITING", error=None, now=NOON)
        answer = replace(a_run("r-answer", session_id="answered"), trigger="resume")
        await insert_run(db, answer, front=True)
    async with store.read() as db:
        assert set(await idle_queues(db, {"resume", "deliver"}, "resume")) == {"idle", "answered"}


async def test_runs_are_listed_newest_first(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        for number in range(4):
            await insert_run(db, replace(a_run(f"r{number}"), created_at=later(number)))
    async with store.read() as db:
        assert [run.id for run in await list_runs(db, "s1", 3)] == ["r3", "r2", "r1"]
