"""What becomes of a press of a card's button: its run stops, or its question is answered."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from channels import sentences
from channels.dedupe import Window
from channels.errors import InboxRefused, InboxUnavailable
from channels.feishu import card, fields
from channels.feishu.config import FeishuConfig
from channels.feishu.decode import Click
from channels.feishu.fields import Fields
from channels.feishu.people import People
from channels.feishu.questions import Action
from channels.feishu.rules import Rules
from channels.port import Inbox

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLICK_SECONDS = 2.0
"""Until a press is answered, whatever the application does; the platform waits 3 s."""

_ACTIONS: dict[str, Action] = {"approve": "approve", "deny": "deny"}


class Presses:
    """Takes presses, and says what whoever pressed is shown.

    The card is changed by what follows: until a press is answered nothing can be written on it.
    """

    def __init__(self, config: FeishuConfig, inbox: Inbox, people: People, window: Window) -> None:
        """*window* knows the events that were heard."""
        self._config = config
        self._locale = config.locale
        self._inbox = inbox
        self._people = people
        self._window = window
        self._tasks: set[asyncio.Task[Any]] = set()

    async def answer(self, click: Click, rules: Rules, until: float) -> Fields:
        """The answer to a press, which leaves before *until* by the clock of the loop."""
        run_id, question_id = fields.text(click.value, "run"), fields.text(click.value, "question")
        do = fields.text(click.value, "do")
        is_stop = do == card.STOP and run_id != ""
        action = _ACTIONS.get(do) if question_id else None
        if not is_stop and action is None:
            return fields.EMPTY
        is_there = fields.text(click.value, "chat") == click.chat_id
        if not is_there or not rules.admits(click.operator, click.chat_id):
            text = sentences.not_allowed(self._locale, click.operator.open_id)
            return card.toast(text, is_warning=True)
        if not self._is_new(click):
            says = sentences.taken if action else sentences.stopping
            return card.toast(says(self._locale))
        if action is None:
            return await self._stop(run_id, until)
        return await self._decide(question_id, action, click, until)

    def _is_new(self, click: Click) -> bool:
        key = f"feishu:{self._config.app_id}:ev:{click.event_id}"
        return not click.event_id or self._window.claim([key])

    async def _stop(self, run_id: str, until: float) -> Fields:
        task = self._start(self._inbox.cancel_run(run_id))
        await _in_time(task, until)
        if task.done() and not _is_whole(task):  # it goes on, and must not be said to stop
            return card.toast(sentences.not_stopped(self._locale), is_warning=True)
        is_over = _is_whole(task) and not task.result()
        says = sentences.already_over if is_over else sentences.stopping
        return card.toast(says(self._locale))

    async def _decide(self, question_id: str, action: Action, click: Click, until: float) -> Fields:
        task = self._start(self._decided(question_id, action, click))
        await _in_time(task, until)
        if not task.done() or task.cancelled():
            return card.toast(sentences.taken(self._locale))
        try:
            return card.toast(task.result())
        except InboxRefused as refused:
            return card.toast(refused.user_text, is_warning=True)
        except InboxUnavailable:
            return card.toast(sentences.not_received(self._locale), is_warning=True)

    async def _decided(self, question_id: str, action: Action, click: Click) -> str:
        by = await self._people.name_of(click.operator.open_id)
        text = fields.text(click.value, "answer") or click.answer
        return await self._inbox.decide(question_id, action, by, text)

    def _start(self, work: Coroutine[None, None, T]) -> "asyncio.Task[T]":
        """Work that goes on by itself if it takes too long; then the card tells what came of it."""
        task = asyncio.create_task(work, name="feishu-press")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            kind = type(error).__name__
            logger.warning("[feishu] app=%s a press failed: %s", self._config.app_id, kind)

    async def close(self) -> None:
        """Take nothing more."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _in_time(task: "asyncio.Task[T]", until: float) -> None:
    left_seconds = until - asyncio.get_running_loop().time()
    await asyncio.wait({task}, timeout=max(0.0, min(CLICK_SECONDS, left_seconds)))


def _is_whole(task: "asyncio.Task[T]") -> bool:
    """It has a result."""
    return task.done() and not task.cancelled() and task.exception() is None
