"""The checks of model and store: kept for a while, never waited for twice."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

from server.llm.port import ModelEvent, ModelRequest
from server.probe import (
    FRESH_SECONDS,
    STORE_FRESH_SECONDS,
    ModelProbe,
    StoreProbe,
    open_probe,
)
from server.store.engine import open_store


class Checked:
    """A model whose check answers what the test puts in."""

    name = "checked"

    def __init__(self) -> None:
        self.answers: asyncio.Queue[str | None] = asyncio.Queue()
        self.asked = 0
        self.is_asked = asyncio.Event()
        self.has_answered = asyncio.Event()

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        raise AssertionError("a probe only checks")

    async def check(self) -> str | None:
        self.asked += 1
        self.is_asked.set()
        answer = await self.answers.get()
        self.has_answered.set()
        return answer


class Clock:
    """A time that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_an_answer_is_told_again_until_it_is_stale() -> None:
    model, clock = Checked(), Clock()
    probe = ModelProbe(model, clock)
    model.answers.put_nowait(None)
    assert (await probe.ask()).reason is None
    clock.now = FRESH_SECONDS - 1
    assert (await probe.ask()).reason is None
    assert model.asked == 1


async def test_a_stale_answer_is_told_while_the_next_is_looked_up() -> None:
    model, clock = Checked(), Clock()
    probe = ModelProbe(model, clock)
    model.answers.put_nowait(None)
    await probe.ask()
    clock.now = FRESH_SECONDS
    model.has_answered.clear()
    checked = await probe.ask()
    assert (checked.reason, checked.age_seconds) == (None, FRESH_SECONDS)
    model.answers.put_nowait("the key was refused")
    async with asyncio.timeout(5):
        await model.has_answered.wait()
    assert (await probe.ask()).reason == "the key was refused"
    assert model.asked == 2


async def test_leaving_ends_a_check_that_hangs() -> None:
    model = Checked()
    async with asyncio.timeout(5):
        async with open_probe(model) as probe:
            asking = asyncio.create_task(probe.ask())
            await model.is_asked.wait()
        assert (await asking).reason == "not checked yet"


async def test_the_store_is_asked_again_only_when_its_answer_is_stale(sqlite_url: str) -> None:
    clock = Clock()
    async with open_store(sqlite_url, busy_seconds=0.1) as store:
        probe = StoreProbe(store, clock)
        assert await probe.ask() is None
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as other:
            other.execute("BEGIN IMMEDIATE")  # nobody else can write now
            clock.now = STORE_FRESH_SECONDS - 1
            assert await asyncio.gather(*(probe.ask() for _ in range(20))) == [None] * 20
            clock.now = STORE_FRESH_SECONDS
            assert "locked" in (await probe.ask() or "")
            other.rollback()
        clock.now = 2 * STORE_FRESH_SECONDS
        assert await probe.ask() is None


async def test_a_folder_that_is_gone_is_a_reason_and_no_fault(
    sqlite_template: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "database"
    folder.mkdir()
    shutil.copy(sqlite_template, folder / "headway.db")
    async with open_store(f"sqlite:///{folder / 'headway.db'}") as store:
        assert await store.check() is None
        folder.rename(tmp_path / "elsewhere")
        assert await store.check() is not None
