"""The model's check: kept for a while, never waited for twice."""

import asyncio
from collections.abc import AsyncGenerator

from server.llm.port import ModelEvent, ModelRequest
from server.probe import FRESH_SECONDS, ModelProbe, open_probe


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
