"""The outbox at work: nobody is told twice, and no surface waits for another."""

import asyncio
import gc
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from channels.errors import DeliveryError
from server.board import Board
from server.metrics import Metrics
from server.outbox import BATCH, OTHERS_PATIENCE, Outbox, Surface, open_outbox
from server.store.engine import Store, open_store
from server.store.outbox import OutboxItem, insert_outbox, outbox_depth
from server.store.sessions import delete_session
from server.store.tables import UtcTime
from tests.server.store.rows import make_session
from tests.waiting import until


@dataclass
class Telephone:
    """A surface that takes its time."""

    answers: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[str] = field(default_factory=list)

    async def deliver(self, item: OutboxItem) -> None:
        self.told.append(item.id)
        await self.answers.wait()


@dataclass
class Refusal:
    """A surface that says no, once it may."""

    may: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def deliver(self, item: OutboxItem) -> None:
        self.asked.set()
        await self.may.wait()
        raise DeliveryError("no", retryable=False)


async def owe(store: Store, session_id: str, surface: str, count: int = 1) -> None:
    """Let a session have something to tell."""
    await make_session(store, session_id)
    now = datetime.now(UTC)
    async with store.write() as db:
        for number in range(count):
            item = OutboxItem(
                id=f"{session_id}-{number}",
                session_id=session_id,
                run_id=None,
                surface=surface,
                kind="outcome",
                payload={},
                status="PENDING",
                attempts=0,
                error=None,
                created_at=now,
                due_at=now,
            )
            await insert_outbox(db, item)


async def test_surface_that_hangs_in_many_sessions_delays_no_other_surface(store: Store) -> None:
    hanging, quick = Telephone(), Telephone()
    quick.answers.set()
    await owe(store, "first", "hanging", count=BATCH + 1)
    for number in range(BATCH):
        await owe(store, f"s{number}", "hanging")
    await owe(store, "last", "quick")
    surfaces = {"hanging": hanging, "quick": quick}
    async with open_outbox(Outbox(store, surfaces, Metrics(), Board(), is_alone=True)):

        async def is_told() -> bool:
            return len(hanging.told) == BATCH and quick.told == ["last-0"]

        await until(is_told, seconds=4)


async def test_slow_telling_is_not_begun_by_another_process(
    store: Store, database_url: str
) -> None:
    slow, other = Telephone(), Telephone()
    claim = timedelta(seconds=0.6)
    await owe(store, "s1", "slow")
    async with open_store(database_url) as second:
        outbox = Outbox(store, {"slow": slow}, Metrics(), Board(), is_alone=False, claim=claim)
        rival = Outbox(second, {"slow": other}, Metrics(), Board(), is_alone=False, claim=claim)
        async with open_outbox(outbox):

            async def is_told() -> bool:
                return bool(slow.told)

            await until(is_told)
            over = datetime.now(UTC) + 3 * claim
            async with open_outbox(rival):

                async def is_over() -> bool:
                    rival.wake()
                    return datetime.now(UTC) > over

                await until(is_over)
                slow.answers.set()
                await until(lambda: _is_settled(store))
    assert (slow.told, other.told) == (["s1-0"], [])


async def test_session_that_is_deleted_while_it_is_told_leaves_no_fault_behind(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    refusal, quick = Refusal(), Telephone()
    quick.answers.set()
    await owe(store, "s1", "refusal")
    surfaces: dict[str, Surface] = {"refusal": refusal, "quick": quick}
    async with open_outbox(Outbox(store, surfaces, Metrics(), Board(), is_alone=True)) as outbox:
        async with asyncio.timeout(10):
            await refusal.asked.wait()
        async with store.write() as db:
            await delete_session(db, "s1", datetime.now(UTC))
        refusal.may.set()
        await owe(store, "s2", "quick")
        outbox.wake()
        await until(lambda: _is_settled(store))
    gc.collect()
    assert [(record.name, record.levelname) for record in caplog.records] == []
    assert quick.told == ["s2-0"]


async def test_surface_of_another_process_is_left_to_it_until_nobody_can_have_it(
    store: Store, database_url: str
) -> None:
    here, there = Telephone(), Telephone()
    here.answers.set()
    there.answers.set()
    await owe(store, "s1", "there")
    await owe(store, "s2", "here")
    outbox = Outbox(store, {"here": here}, Metrics(), Board(), is_alone=False)

    async def is_told() -> bool:
        return bool(here.told)

    async with open_store(database_url) as second, open_outbox(outbox):
        await until(is_told)
        rival = Outbox(second, {"there": there}, Metrics(), Board(), is_alone=False)
        async with open_outbox(rival):
            await until(lambda: _is_settled(store))
        assert there.told == ["s1-0"]
        await owe(store, "s3", "gone")
        async with store.write() as db:
            long_ago = datetime.now(UTC) - OTHERS_PATIENCE
            await db.execute(
                sa.text("UPDATE outbox SET created_at = :then WHERE id = 's3-0'").bindparams(
                    sa.bindparam("then", long_ago, type_=UtcTime())
                )
            )
        outbox.wake()
        await until(lambda: _is_settled(store))
    async with store.read() as db:
        status = await db.scalar(sa.text("SELECT status FROM outbox WHERE id = 's3-0'"))
    assert status == "UNDELIVERABLE"


async def test_telling_that_is_under_way_when_the_server_stops_is_finished(store: Store) -> None:
    slow = Telephone()
    await owe(store, "s1", "slow")
    opened = AsyncExitStack()
    await opened.enter_async_context(
        open_outbox(Outbox(store, {"slow": slow}, Metrics(), Board(), is_alone=True))
    )

    async def is_told() -> bool:
        return bool(slow.told)

    await until(is_told)
    leaving = asyncio.create_task(opened.aclose())
    await asyncio.sleep(0)  # the cancellation is on its way
    slow.answers.set()
    await leaving
    assert await _is_settled(store)


async def _is_settled(store: Store) -> bool:
    async with store.read() as db:
        status = await db.scalar(sa.text("SELECT status FROM outbox"))
        return status == "DELIVERED" and await outbox_depth(db) == 0
