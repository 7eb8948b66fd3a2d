"""A round as a process leaves it that dies before it could store the results."""

from collections.abc import Sequence

import sqlalchemy as sa

from server.store.actions import Action, load_actions
from server.store.engine import Store, open_store
from tests.house import House

_SESSION = "session_id = (SELECT session_id FROM message WHERE tool_calls_json IS NOT NULL LIMIT 1)"
"""The only one in which a tool was used."""


async def reopen_last_round(url: str) -> None:
    """Take away the results of the last round, and all that came after it."""
    async with open_store(url) as store, store.write() as db:
        for statement in (
            f"DELETE FROM message WHERE {_SESSION} AND seq > (SELECT max(seq) FROM message "
            "WHERE tool_calls_json IS NOT NULL)",
            "DELETE FROM decision WHERE round = (SELECT max(round) FROM decision)",
            "DELETE FROM outbox",
            "UPDATE action SET state='STARTED', ended_at=NULL WHERE call_id NOT IN "
            "(SELECT tool_call_id FROM message WHERE role='tool')",
            "UPDATE run SET status='RUNNING', outcome_code=NULL, lease_owner='gone', "
            "lease_until='1970-01-01 00:00:00+00:00', ended_at=NULL WHERE id = (SELECT id FROM run "
            f"WHERE {_SESSION} ORDER BY created_at DESC LIMIT 1)",
            f"UPDATE session SET status='RUNNING' WHERE {_SESSION.removeprefix('session_')}",
        ):
            await db.execute(sa.text(statement))


async def actions_of(store: Store, session_id: str, call_ids: Sequence[str]) -> list[Action | None]:
    """What is stored of these calls."""
    async with store.read() as db:
        found = await load_actions(db, session_id, call_ids)
    return [found.get(call_id) for call_id in call_ids]


async def change(url: str, statement: str) -> None:
    """Change what is stored while no server runs."""
    async with open_store(url) as store, store.write() as db:
        await db.execute(sa.text(statement))


async def states(house: House, session_id: str) -> list[str]:
    """The states of the session's actions, in the order of their calls."""
    query = sa.text("SELECT state FROM action WHERE session_id=:id ORDER BY created_at")
    async with house.state["store"].read() as db:
        return list(await db.scalars(query, {"id": session_id}))
