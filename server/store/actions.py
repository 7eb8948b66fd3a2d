"""What is known of the effect of each call that writes or sends.

A row is stored before the call begins, so a call without one has done nothing.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.errors import Fenced
from server.store.rows import changed
from server.store.runs import fence
from server.store.tables import ActionRow, RunRow, table_of

ActionState = Literal["STARTED", "DONE", "UNKNOWN"]
"""It began; its result is in the history; it was cut, and nobody could tell how it ended."""

_ACTION = table_of(ActionRow)
_RUN = table_of(RunRow)

# Built once, since they are sent with every call: building one costs as much as running it.
_NAMES = [column.name for column in _ACTION.c]
_OF_RUNNING = (
    sa.select(*(sa.bindparam(f"its_{name}", type_=_ACTION.c[name].type) for name in _NAMES))
    .where(
        _RUN.c.id == sa.bindparam("its_run_id"),
        _RUN.c.attempt == sa.bindparam("of_attempt"),
        _RUN.c.status == "RUNNING",
    )
    .with_for_update()  # a claim waits for the row, so whoever takes the run over sees it
)
_START = sa.insert(_ACTION).from_select(_NAMES, _OF_RUNNING).returning(_ACTION.c.call_id)
_IS_ONE = sa.and_(
    _ACTION.c.session_id == sa.bindparam("of_session"),
    _ACTION.c.call_id.in_(sa.bindparam("calls", expanding=True)),
)
_FINISH = sa.update(_ACTION).where(_IS_ONE)
_FINISH = _FINISH.values(state=sa.bindparam("to_state"), ended_at=sa.bindparam("now"))


@dataclass(frozen=True, slots=True)
class Action:
    """A call that writes or sends, once it began."""

    session_id: str
    call_id: str
    run_id: str
    """The run that began it last."""
    tool_name: str
    state: ActionState
    mark: str
    """What its tool noted before it began."""
    created_at: datetime
    ended_at: datetime | None = None


async def start_action(db: AsyncConnection, action: Action, attempt: int) -> None:
    """Fence as `runs.fence` does, and store that the call begins, in one statement.

    Raises:
        Fenced: The run is over, or was claimed by another process.

    `Duplicate` at the transaction's end if the call began before.
    """
    values = {f"its_{name}": value for name, value in asdict(action).items()}
    if await db.scalar(_START, values | {"of_attempt": attempt}) is None:
        raise Fenced(action.run_id)


async def restart_action(db: AsyncConnection, action: Action, attempt: int) -> None:
    """Store that a call that began in vain begins anew; raises as `start_action`."""
    await fence(db, action.run_id, attempt)
    again = sa.update(_ACTION).where(
        _ACTION.c.session_id == action.session_id, _ACTION.c.call_id == action.call_id
    )
    await db.execute(again.values(asdict(action)))


async def finish_actions(
    db: AsyncConnection,
    session_id: str,
    call_ids: Collection[str],
    state: ActionState,
    now: datetime,
) -> None:
    """Store what is known from now on of those of the calls that began."""
    values = {"of_session": session_id, "calls": list(call_ids), "to_state": state, "now": now}
    await db.execute(_FINISH, values)


async def prune_actions(db: AsyncConnection, before: datetime) -> int:
    """Forget the calls that ended before this time; how many they were."""
    return await changed(db, sa.delete(_ACTION).where(_ACTION.c.ended_at < before))


async def load_actions(
    db: AsyncConnection, session_id: str, call_ids: Collection[str]
) -> dict[str, Action]:
    """Those of the calls that began, by call id."""
    query = sa.select(_ACTION).where(_IS_ONE)
    rows = await db.execute(query, {"of_session": session_id, "calls": list(call_ids)})
    return {row["call_id"]: Action(**row) for row in rows.mappings()}
