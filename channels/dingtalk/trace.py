"""What has to be known of a run's card and words after a crash, and where it is remembered."""

import json
import logging
from collections import OrderedDict
from dataclasses import dataclass

from channels.errors import InboxUnavailable
from channels.port import Inbox, Turn

log = logging.getLogger(__name__)

REMEMBERED_MAX = 1000
"""Runs; the oldest go first. The application knows of them still."""


@dataclass(frozen=True, slots=True)
class Trace:
    """How far a run is told."""

    card_id: str = ""
    """Written down before the card is made: its id is ours, so it can be ended either way."""
    told: int = 0
    """Parts of the last words that are in the chat."""
    is_ended: bool = False
    """Nothing is left to be done to end the card."""
    answered: int = 0
    """Answers to what was asked that are in the chat."""

    @property
    def has_open_card(self) -> bool:
        """There may be a card that would spin for ever."""
        return bool(self.card_id) and not self.is_ended

    def shown(self, answered: int) -> "Trace":
        """The card is over and shows the first part, with so many answers."""
        return Trace(self.card_id, max(self.told, 1), is_ended=True, answered=answered)

    def encode(self) -> str:
        """The text that the application keeps."""
        known = {
            "card": self.card_id,
            "told": self.told,
            "ended": self.is_ended,
            "answered": self.answered,
        }
        return json.dumps(known)


def decode_trace(text: str | None) -> Trace:
    """The other way; nothing is known of what is no trace of ours."""
    try:
        known = json.loads(text or "{}")
        return Trace(
            str(known.get("card", "")),
            int(known.get("told", 0)),
            known.get("ended") is True,
            int(known.get("answered", 0)),
        )
    except (ValueError, AttributeError, TypeError):
        return Trace()


class Traces:
    """The traces of one bot's runs, here and in the application."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._known: OrderedDict[str, Trace] = OrderedDict()
        """By run; newer than what the application gives back."""

    def of(self, turn: Turn) -> Trace:
        """What is known of a run."""
        return self._known.get(turn.run_id) or decode_trace(turn.handle)

    def set(self, run_id: str, trace: Trace) -> None:
        """Remember it here."""
        self._known[run_id] = trace
        self._known.move_to_end(run_id)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)

    async def keep(self, run_id: str, trace: Trace) -> None:
        """Remember it here and in the application.

        Raises:
            InboxUnavailable: Here alone.
        """
        self.set(run_id, trace)
        await self._inbox.keep(run_id, trace.encode())

    async def note(self, run_id: str, trace: Trace) -> Trace:
        """Remember what was done; it cannot be undone, so this never raises."""
        try:
            await self.keep(run_id, trace)
        except InboxUnavailable:
            log.warning("[dingtalk] what was told is not noted; a crash now would tell it twice")
        return trace
