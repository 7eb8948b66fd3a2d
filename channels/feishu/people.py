"""The names of people: what is pushed tells their ids alone, others are shown who did what."""

import asyncio
import logging
from collections import OrderedDict

from channels.clock import Clock
from channels.errors import DeliveryError
from channels.feishu.api import FeishuApi
from channels.feishu.codes import Meaning, Refused
from channels.feishu.decode import Message

logger = logging.getLogger(__name__)

REMEMBERED_MAX = 1000
"""People; who was not heard of for longest goes first."""
NAME_SECONDS = 0.5
"""A name is waited for: whoever writes waits too, and an event has to be acknowledged in 3 s."""
FORBIDDEN_SECONDS = 3600.0
"""Before the platform is asked for names again, after it said that they are not for this app."""
NAME_CHARACTERS = 40
ID_CHARACTERS = 12
"""Of an id that stands for a name."""


class People:
    """Who was heard of since the start."""

    def __init__(self, api: FeishuApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._names: OrderedDict[str, str] = OrderedDict()
        """By open id; empty for those whom the platform does not name."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._ask_again_at = 0.0

    def meet(self, message: Message) -> None:
        """Learn the names of those whom a message mentions."""
        for mention in message.mentions:
            if mention.open_id and mention.name:
                self._learn(mention.open_id, mention.name)

    async def name_of(self, open_id: str) -> str:
        """What others are shown for a person: the name, else the beginning of the id."""
        if open_id not in self._names and self._clock.monotonic() >= self._ask_again_at:
            await asyncio.wait({self._ask(open_id)}, timeout=NAME_SECONDS)
        return self._names.get(open_id) or _shortened(open_id)

    def _ask(self, open_id: str) -> "asyncio.Task[None]":
        """Ask once, however many want to know; it goes on when nobody waits any more."""
        task = self._asking.get(open_id)
        if task is None:
            task = asyncio.create_task(self._look_up(open_id), name="feishu-name")
            self._asking[open_id] = task
            task.add_done_callback(lambda _: self._asking.pop(open_id))
        return task

    async def _look_up(self, open_id: str) -> None:
        try:
            self._learn(open_id, await self._api.person_name(open_id))
        except Refused as refused:
            logger.info("[feishu] a person's name is not told: %s", refused)
            if refused.meaning is Meaning.SCOPE:
                self._ask_again_at = self._clock.monotonic() + FORBIDDEN_SECONDS
            elif not refused.retryable:
                self._learn(open_id, "")
        except DeliveryError as error:
            logger.info("[feishu] a person's name is not known: %s", error)

    def _learn(self, open_id: str, name: str) -> None:
        self._names[open_id] = " ".join(name.split())[:NAME_CHARACTERS]
        self._names.move_to_end(open_id)
        while len(self._names) > REMEMBERED_MAX:
            self._names.popitem(last=False)

    async def close(self) -> None:
        """Ask no more."""
        for task in list(self._asking.values()):
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking.values())


def _shortened(open_id: str) -> str:
    return open_id if len(open_id) <= ID_CHARACTERS else f"{open_id[: ID_CHARACTERS - 1]}…"
