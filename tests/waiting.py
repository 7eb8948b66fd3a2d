"""Waiting for something that tells nobody when it happens."""

import asyncio
from collections.abc import Awaitable, Callable

LOOK_SECONDS = 0.01


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    """Look again and again until *holds*; for files and rows that no event announces."""
    async with asyncio.timeout(seconds):
        while True:
            if await holds():
                return
            await asyncio.sleep(LOOK_SECONDS)
