"""The redelivery window."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from channels.dedupe import WINDOW_SECONDS, Window
from tests.fakes.clock import Clock

MESSAGE, EVENT = "feishu:cli_test:msg:om_1", "feishu:cli_test:ev:ev_1"


def test_the_same_message_is_taken_once() -> None:
    window = Window()
    assert window.claim([MESSAGE, EVENT])
    assert not window.claim([MESSAGE, EVENT])


def test_any_known_key_means_the_same_message_and_takes_none_of_the_others() -> None:
    window = Window()
    assert window.claim([MESSAGE])
    assert not window.claim([EVENT, MESSAGE])
    assert window.claim([EVENT])


def test_the_whole_ladder_of_redelivery_is_recognised() -> None:
    clock = Clock()
    window = Window(clock=clock.monotonic)
    assert window.claim([MESSAGE, EVENT])
    for pause_seconds in (15, 5 * 60, 3600, 6 * 3600):
        clock.advance(pause_seconds)
        assert not window.claim([MESSAGE, EVENT])


def test_a_key_is_forgotten_after_the_window() -> None:
    clock = Clock()
    window = Window(clock=clock.monotonic)
    window.claim([MESSAGE])
    clock.advance(WINDOW_SECONDS - 1)
    assert not window.claim([MESSAGE])
    clock.advance(1)
    assert window.claim([MESSAGE])


def test_released_keys_can_be_claimed_again_by_any_of_them() -> None:
    window = Window()
    window.claim([MESSAGE, EVENT])
    window.release([EVENT])
    assert len(window) == 0
    assert window.claim([MESSAGE, EVENT])


def test_releasing_what_nobody_claimed_is_nothing() -> None:
    window = Window()
    window.release([MESSAGE])
    window.keep([MESSAGE])
    assert window.claim([MESSAGE])


async def test_a_second_push_waits_for_what_becomes_of_the_first() -> None:
    window = Window()
    window.claim([MESSAGE, EVENT])
    second = asyncio.create_task(window.kept([MESSAGE]))
    third = asyncio.create_task(window.kept([EVENT]))
    await asyncio.wait({second, third}, timeout=0)
    assert not second.done()
    assert not third.done()
    window.keep([MESSAGE, EVENT])
    async with asyncio.timeout(5):
        assert await second
        assert await third
        assert await window.kept([EVENT])


async def test_a_second_push_learns_that_the_first_was_not_taken() -> None:
    window = Window()
    window.claim([MESSAGE])
    second = asyncio.create_task(window.kept([MESSAGE]))
    await asyncio.wait({second}, timeout=0)
    window.release([MESSAGE])
    async with asyncio.timeout(5):
        assert not await second
        assert not await window.kept([MESSAGE])


async def test_a_second_push_that_gives_up_disturbs_nobody() -> None:
    window = Window()
    window.claim([MESSAGE])
    second = asyncio.create_task(window.kept([MESSAGE]))
    await asyncio.wait({second}, timeout=0)
    second.cancel()
    await asyncio.wait({second})
    window.keep([MESSAGE])
    assert await window.kept([MESSAGE])


async def test_who_waits_for_a_claim_that_was_pushed_out_is_told() -> None:
    window = Window(most=2)
    window.claim([MESSAGE])
    second = asyncio.create_task(window.kept([MESSAGE]))
    await asyncio.wait({second}, timeout=0)
    window.claim(["a"])
    window.claim(["b"])
    async with asyncio.timeout(5):
        assert not await second


@given(st.lists(st.lists(st.integers(0, 50).map(str), min_size=1, max_size=3), max_size=60))
def test_it_agrees_with_a_set_and_never_outgrows_its_bound(claims: list[list[str]]) -> None:
    window, small, known = Window(), Window(most=10), set[str]()
    for keys in claims:
        is_new = known.isdisjoint(keys)
        assert window.claim(keys) is is_new
        known |= set(keys) if is_new else set()
        small.claim(keys)
        assert len(small) <= 10
