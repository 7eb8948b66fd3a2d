"""Side questions: a session of its own that begins with a copy of another one's history.

The copy is a part of the child's prompt and not of its chat. It is read in one statement and then
belongs to the child alone, so neither session ever waits for the other.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from server.errors import NotFound
from server.message import Message, Summary, files_of
from server.store.ids import new_id
from server.store.messages import (
    append_messages,
    load_before,
    load_message,
    load_prompt_messages,
)
from server.store.sessions import Session, child_of, insert_session

SIDELINE: Final = "sideline"
"""Kind of a side question's session."""


async def load_inheritance(
    db: AsyncConnection, parent: Session, from_message: str | None
) -> list[Message]:
    """What a side question on *parent* begins with: its prompt, and what a compaction took of the
    turn that goes on there, since reminders follow from it.

    Args:
        from_message: The last message that it sees; None for the newest.
    Raises:
        NotFound: The chat of *parent* has no such message.
    """
    up_to_seq = None if from_message is None else await _seq_of(db, parent, from_message)
    window = await load_prompt_messages(db, parent.id, up_to_seq=up_to_seq)
    head = window[0].summary_of if window else None
    taken: list[Message] = []
    if head is not None:
        taken = await load_before(db, parent.id, head.first_kept_seq, whole=False)
    return _inherited(taken, _whole_rounds(window))


async def insert_sideline(
    db: AsyncConnection, parent: Session, inheritance: Sequence[Message], now: datetime
) -> Session:
    """Add a child of *parent* that begins with *inheritance*.

    Raises:
        NotFound: At the latest at the transaction's end, if *parent* was deleted meanwhile.
    """
    child = replace(
        child_of(parent, new_id(), SIDELINE, now),
        inherited_seq=len(inheritance),
        toolset=parent.toolset,
    )
    await insert_session(db, child)
    await append_messages(db, child.id, inheritance, after=0)
    return child


async def _seq_of(db: AsyncConnection, parent: Session, message_id: str) -> int:
    session_id, message = await load_message(db, message_id, include_superseded=False)
    if session_id != parent.id:
        raise NotFound("there is no such message")
    return message.seq


def _whole_rounds(window: Sequence[Message]) -> Sequence[Message]:
    """*window* up to a round that lacks results.

    A last message whose files are still being fetched is left out too: what its run will send is
    not known yet.
    """
    start = 0
    while start < len(window):
        first, end = window[start], start + 1
        lacking = {call.id for call in first.tool_calls}
        while end < len(window) and window[end].role == "tool":
            lacking.discard(window[end].tool_call_id or "")
            end += 1
        is_fetched = end < len(window) or not any(f.locator for f in files_of(first.content))
        if lacking or not is_fetched:
            break
        start = end
    return window[:start]


def _inherited(taken: Sequence[Message], window: Sequence[Message]) -> list[Message]:
    """Copies of both that no run wrote, numbered anew from 1 in the order of their birth.

    That order matters beside the prompt's: what a summary kept is older than it, and how large the
    provider counted it says nothing of the prompt after the summary.
    """
    by_birth = sorted([*taken, *window], key=lambda message: message.seq)
    copies = [
        replace(message, id=new_id(), run_id=None, seq=seq)
        for seq, message in enumerate(by_birth, start=1)
    ]
    kept_from = next((one.seq for one in window if one.summary_of is None), None)
    born = [one.seq for one in by_birth]
    first_kept = len(copies) + 1 if kept_from is None else born.index(kept_from) + 1
    return [
        copy if copy.summary_of is None else replace(copy, summary_of=Summary(first_kept))
        for copy in copies
    ]
