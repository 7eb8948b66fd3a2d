"""What is looked at again and again goes on, whatever one look meets."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from channels.port import ChatAddress
from server.delivery import insert_delivery
from server.store.outbox import outbox_depth
from server.store.sessions import Session
from tests.fakes.llm import reply, serve_gateway
from tests.house import House, is_title, open_house, settings_for
from tests.server.approvals.test_answers import WRITE, ask_to_write, asking, waiting
from tests.server.approvals.test_together import execute
from tests.server.test_chats import Platform
from tests.waiting import until


def told_of(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    """Whether an error was logged so, without what is damaged."""
    return any(
        record.levelname == "ERROR" and words in record.message and "{damaged" not in record.message
        for record in caplog.records
    )


async def test_a_damaged_question_keeps_no_other_from_ending_in_time(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serve_gateway([WRITE] * 3, title=is_title) as gateway,
        open_house(asking(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        sessions = [(await ask_to_write(house))[0] for _ in range(3)]
        for damaged in (sessions[0], sessions[2]):
            await execute(
                house,
                "UPDATE approval SET request_json = '{damaged' WHERE session_id = :id",
                id=damaged.id,
            )
        over = datetime.now(UTC) - timedelta(seconds=1)
        await execute(house, "UPDATE approval SET expires_at = :over", over=over)

        async def has_failed() -> bool:
            return (await house.session(sessions[1])).status == "FAILED"

        await until(has_failed)
        assert await waiting(house, sessions[1]) == []
        assert told_of(caplog, f"[approval] not ended session={sessions[0].id}")


async def damage_queue(house: House) -> Session:
    """A session whose queue nobody can read."""
    session = await house.create()
    async with house.state["store"].write() as db:
        await insert_delivery(db, session, "daily", f"d-{session.id}")
    await execute(
        house, "UPDATE run SET input_json = '{damaged' WHERE session_id = :id", id=session.id
    )
    return session


async def deliver(house: House, *, signal: bool) -> None:
    """Queue a text in a session of its own, and wait until it is told."""
    session = await house.create()
    async with house.state["store"].write() as db:
        await insert_delivery(db, session, "daily", f"d-{session.id}")
    if signal:
        house.state["signals"].advance(session.id)

    async def is_told() -> bool:
        return [message.text for message in await house.messages(session)] == ["daily"]

    await until(is_told)


async def test_a_damaged_queue_keeps_no_signal_from_being_obeyed(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serve_gateway([], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        damaged = await damage_queue(house)
        house.state["signals"].advance(damaged.id)
        await deliver(house, signal=True)
        assert told_of(caplog, f"[run] advance failed session={damaged.id}")


async def test_a_damaged_queue_does_not_end_the_beat_that_keeps_leases(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serve_gateway([], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        damaged = await damage_queue(house)

        async def has_met_it() -> bool:
            return told_of(caplog, f"[run] advance failed session={damaged.id}")

        await until(has_met_it)
        await deliver(house, signal=False)


async def test_the_outbox_goes_on_after_a_row_that_nobody_could_read(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serve_gateway([reply("one"), reply("two")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        house.state["bots"].surfaces["test:app1"] = Platform()
        session, chat = await house.create(), ChatAddress("test", "app1", "c1")
        await house.ask(session, "first", chat=chat)
        await until(lambda: all_told(house))
        due = "status = 'PENDING', due_at = created_at"
        await execute(house, f"UPDATE outbox SET {due}, payload_json = '{{damaged'")
        await house.ask(session, "second", chat=chat)

        async def is_told() -> bool:
            return told_of(caplog, "[outbox] look failed")

        await until(is_told)
        await execute(
            house, "UPDATE outbox SET payload_json = '{}' WHERE payload_json = '{damaged'"
        )
        await until(lambda: all_told(house))


async def all_told(house: House) -> bool:
    """Whether nothing waits to be told."""
    async with house.state["store"].read() as db:
        return await outbox_depth(db) == 0
