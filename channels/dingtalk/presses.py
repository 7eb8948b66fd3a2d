"""What becomes of a press of a card's button: its run stops, or its question is answered."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from channels import sentences
from channels.dingtalk.card import render_note, render_stopping, run_id_of
from channels.dingtalk.decode import Action, Click, decode_click
from channels.dingtalk.frames import OK, Answer
from channels.dingtalk.people import People
from channels.dingtalk.rules import Rules
from channels.errors import InboxRefused, InboxUnavailable, Undecodable
from channels.port import Inbox

log = logging.getLogger(__name__)

T = TypeVar("T")

CLICK_SECONDS = 2.0
"""Until a press is answered, whatever the application does; people wait for it."""

Start = Callable[[Coroutine[Any, Any, None]], object]
"""Runs work that belongs to the channel."""


class Presses:
    """Takes presses on the application's loop."""

    def __init__(self, rules: Rules, inbox: Inbox, people: People, start: Start) -> None:
        self._rules = rules
        self._inbox = inbox
        self._people = people
        self._start = start

    async def handle(self, raw: str) -> Answer:
        """Do what a press asks for, and say what it changes on its card at once."""
        try:
            click = decode_click(raw)
        except Undecodable as error:
            log.warning("[dingtalk] not decodable: %s", error)
            return Answer(OK)
        work = self._work_of(click)
        if work is None:
            return Answer(OK)
        locale = self._rules.locale
        if not self._rules.allows(click.user_id, click.conversation_id):
            return Answer(OK, render_note(sentences.not_allowed(locale, click.user_id)))
        try:
            return Answer(OK, await work())
        except InboxUnavailable:
            return Answer(OK, render_note(sentences.not_received(locale)))

    def _work_of(self, click: Click) -> Callable[[], Awaitable[dict[str, object]]] | None:
        run_id = run_id_of(click.card_id) or click.params.get("run")
        decision, question_id = click.decision, click.params.get("question")
        if click.wants_stop and run_id:
            return partial(self._stop, run_id)
        if decision is not None and question_id:
            return partial(self._decide, question_id, decision, click)
        return None

    async def _stop(self, run_id: str) -> dict[str, object]:
        is_stopping = await self._in_time(self._inbox.cancel_run(run_id), True)
        says = sentences.stopping if is_stopping else sentences.already_over
        return render_stopping(says(self._rules.locale))

    async def _decide(self, question_id: str, decision: Action, click: Click) -> dict[str, object]:
        by = self._people.name_of(click.user_id)
        text = click.params.get("answer", "")
        deciding = self._inbox.decide(question_id, decision, by, text)
        try:
            line = await self._in_time(deciding, sentences.taken(self._rules.locale))
        except InboxRefused as refused:
            line = refused.user_text
        return render_note(line)

    async def _in_time(self, work: Coroutine[Any, Any, T], otherwise: T) -> T:
        """What *work* gives, or *otherwise* if that takes too long; then it goes on by itself."""
        task = asyncio.create_task(work, name="dingtalk-press")
        await asyncio.wait({task}, timeout=CLICK_SECONDS)
        if task.done():
            return task.result()
        self._start(_finish(task))
        return otherwise


async def _finish(task: "asyncio.Task[Any]") -> None:
    with suppress(InboxUnavailable, InboxRefused):  # nobody is left to be told; the card tells
        await task
