"""Sessions: one row per chat of a user."""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.errors import Locale, NotFound
from server.store.codec import to_json
from server.store.files import abandon_files
from server.store.rows import changed
from server.store.tables import MessageRow, SessionRow, table_of

_SESSION = table_of(SessionRow)
_MESSAGE = table_of(MessageRow)

_ERROR_KEY = "executionError"
_UNDELIVERED_KEY = "undelivered"
_IN_JSON = frozenset({"execution_error", "undelivered"})

CHILD_KINDS: Final = frozenset({"sideline", "subagent"})
"""Sessions that stand under another one and are shown there."""

UNLISTED_KINDS: Final = CHILD_KINDS | {"scheduled"}
"""Sessions that are shown with their parent or their task; a list has them when asked for them."""

KINDS: Final = UNLISTED_KINDS | {"main", "chat"}

SHOWN_CHILDREN: Final = 50
"""The most children that are shown with their parent."""


@dataclass(frozen=True, slots=True)
class ExecutionError:
    """Why the last run of a session failed; shown until the next one starts."""

    code: str
    message: str
    retryable: bool
    run_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Undelivered:
    """That the end of a run could not be told where it was asked for."""

    surface: str
    reason: str
    run_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Session:
    """One chat of a user."""

    id: str
    kind: str
    title: str | None
    status: str
    parent_session_id: str | None
    owner: str
    origin: str
    model: str | None
    locale: Locale
    timezone: str
    external_id: str | None
    queue_paused: bool
    execution_error: ExecutionError | None
    created_at: datetime
    updated_at: datetime
    undelivered: Undelivered | None = None
    """Shown until the next run starts."""
    inherited_seq: int = 0
    """Messages up to this are a copy of the parent's, for the prompt alone."""
    toolset: str | None = None
    """Digest of the tools as the model first saw them; None before the first run."""
    contract_json: str | None = None
    """The progress contract that its runs are judged by."""


def child_of(parent: Session, child_id: str, kind: str, now: datetime) -> Session:
    """A new session under *parent*, with its owner, language, zone and model."""
    return replace(
        parent,
        id=child_id,
        kind=kind,
        title=None,
        status="IDLE",
        parent_session_id=parent.id,
        external_id=None,
        queue_paused=False,
        execution_error=None,
        created_at=now,
        updated_at=now,
        undelivered=None,
        inherited_seq=0,
        toolset=None,
        contract_json=None,
    )


async def insert_session(db: AsyncConnection, session: Session) -> None:
    """Add a session; `Duplicate` if its owner has one with this external id."""
    row = {name: value for name, value in asdict(session).items() if name not in _IN_JSON}
    row["runtime_status_json"] = _with_error("{}", session.execution_error)
    await db.execute(sa.insert(_SESSION).values(row))


async def load_session(db: AsyncConnection, session_id: str) -> Session:
    """The session, or `NotFound`."""
    found = await _first(db, sa.select(_SESSION).where(_SESSION.c.id == session_id))
    if found is None:
        raise NotFound("there is no such session")
    return found


async def find_by_external_id(db: AsyncConnection, external_id: str, owner: str) -> Session | None:
    """The owner's session with this id of a client's making."""
    return await _first(
        db,
        sa.select(_SESSION).where(_SESSION.c.external_id == external_id, _SESSION.c.owner == owner),
    )


async def list_sessions(
    db: AsyncConnection,
    owner: str | None,
    *,
    before: tuple[datetime, str] | None,
    limit: int,
    search: str | None = None,
    kind: str | None = None,
    parent_id: str | None = None,
) -> list[Session]:
    """Sessions, last changed first.

    Without a search, a kind or a parent, `UNLISTED_KINDS` are left out.

    Args:
        owner: Whose; None for all.
        before: When the last session of the page before was changed, and its id. Of those
            changed at the same time come the ones with a smaller id.
        search: Words in the title or in what was said, whatever the case.
        kind: Only those of this kind.
        parent_id: Only those under this session.
    """
    query = sa.select(_SESSION).order_by(_SESSION.c.updated_at.desc(), _SESSION.c.id.desc())
    if owner is not None:
        query = query.where(_SESSION.c.owner == owner)
    if before is not None:
        changed_at, session_id = before
        is_next = sa.and_(_SESSION.c.updated_at == changed_at, _SESSION.c.id < session_id)
        query = query.where(sa.or_(_SESSION.c.updated_at < changed_at, is_next))
    if search:
        query = query.where(_mentions(search))
    if kind is not None:
        query = query.where(_SESSION.c.kind == kind)
    if parent_id is not None:
        query = query.where(_SESSION.c.parent_session_id == parent_id)
    if not search and kind is None and parent_id is None:
        query = query.where(_SESSION.c.kind.not_in(UNLISTED_KINDS))
    return await _load(db, query.limit(limit))


async def existing_sessions(db: AsyncConnection, session_ids: Collection[str]) -> set[str]:
    """Those of the ids that are a session's."""
    query = sa.select(_SESSION.c.id).where(_SESSION.c.id.in_(session_ids))
    return set(await db.scalars(query))


async def children_of(db: AsyncConnection, session_id: str) -> list[Session]:
    """Side questions and subagents of the session, newest first, as many as are shown."""
    query = sa.select(_SESSION).where(
        _SESSION.c.parent_session_id == session_id, _SESSION.c.kind.in_(CHILD_KINDS)
    )
    newest_first = query.order_by(_SESSION.c.created_at.desc(), _SESSION.c.id.desc())
    return await _load(db, newest_first.limit(SHOWN_CHILDREN))


async def parents_of(db: AsyncConnection, session_ids: Collection[str]) -> set[str]:
    """Ids of the sessions that these stand under; none for those that are gone."""
    parent_id = _SESSION.c.parent_session_id
    query = sa.select(parent_id).where(_SESSION.c.id.in_(session_ids), parent_id.is_not(None))
    return set(await db.scalars(query))


async def family_of(db: AsyncConnection, session_id: str) -> set[str]:
    """The id of the session and of all below it; empty if there is no such session."""
    family = sa.select(_SESSION.c.id).where(_SESSION.c.id == session_id).cte(recursive=True)
    below = sa.select(_SESSION.c.id).join(family, _SESSION.c.parent_session_id == family.c.id)
    return set(await db.scalars(sa.select(family.union_all(below).c.id)))


async def set_status(
    db: AsyncConnection,
    session_id: str,
    status: str,
    *,
    error: ExecutionError | None,
    now: datetime,
) -> None:
    """Set where the session stands and why it failed; without *error* an older one is cleared.

    What could not be delivered is forgotten when a run starts.
    """
    runtime_status_json = _with_error(await _runtime_status(db, session_id), error)
    if status == "RUNNING":
        runtime_status_json = _with_undelivered(runtime_status_json, None)
    await _update(
        db,
        session_id,
        status=status,
        runtime_status_json=runtime_status_json,
        updated_at=now,
    )


async def set_undelivered(db: AsyncConnection, session_id: str, undelivered: Undelivered) -> None:
    """Note that the end of a run could not be told; or `NotFound`."""
    runtime_status_json = await _runtime_status(db, session_id)
    changed_json = _with_undelivered(runtime_status_json, undelivered)
    await _update(db, session_id, runtime_status_json=changed_json)


async def _runtime_status(db: AsyncConnection, session_id: str) -> str:
    query = sa.select(_SESSION.c.runtime_status_json).where(_SESSION.c.id == session_id)
    runtime_status_json: str | None = await db.scalar(query.with_for_update())
    if runtime_status_json is None:
        raise NotFound("there is no such session")
    return runtime_status_json


async def set_title(db: AsyncConnection, session_id: str, title: str, now: datetime) -> None:
    """Rename the session, or `NotFound`."""
    await _update(db, session_id, title=title, updated_at=now)


async def set_model(db: AsyncConnection, session_id: str, model: str | None, now: datetime) -> None:
    """Choose the model of later runs (None for the default), or `NotFound`."""
    await _update(db, session_id, model=model, updated_at=now)


async def set_contract(
    db: AsyncConnection, session_id: str, contract_json: str | None, now: datetime
) -> None:
    """Give later runs this progress contract (None for none), or `NotFound`."""
    await _update(db, session_id, contract_json=contract_json, updated_at=now)


async def set_queue_paused(db: AsyncConnection, session_id: str, paused: bool) -> None:
    """Hold the queue, or let it go on; `NotFound` without such a session."""
    await _update(db, session_id, queue_paused=paused)


async def delete_session(db: AsyncConnection, session_id: str, now: datetime) -> None:
    """Delete the session with all that belongs to it, its child sessions too; or `NotFound`.

    The bytes of its files are left for a while, see `abandon_files`.
    """
    await abandon_files(db, await family_of(db, session_id), now)
    if not await changed(db, sa.delete(_SESSION).where(_SESSION.c.id == session_id)):
        raise NotFound("there is no such session")


async def _update(db: AsyncConnection, session_id: str, **values: object) -> None:
    statement = sa.update(_SESSION).where(_SESSION.c.id == session_id).values(values)
    if not await changed(db, statement):
        raise NotFound("there is no such session")


async def _first(db: AsyncConnection, query: sa.Select[Any]) -> Session | None:
    found = await _load(db, query.limit(1))
    return found[0] if found else None


async def _load(db: AsyncConnection, query: sa.Select[Any]) -> list[Session]:
    return [_decode(row) for row in (await db.execute(query)).mappings()]


def _mentions(search: str) -> sa.ColumnElement[bool]:
    said = sa.exists().where(
        _MESSAGE.c.session_id == _SESSION.c.id,
        _MESSAGE.c.seq > _SESSION.c.inherited_seq,
        _MESSAGE.c.role.in_(("user", "assistant")),
        _MESSAGE.c.superseded_by_run_id.is_(None),
        _MESSAGE.c.content.icontains(search, autoescape=True),
    )
    return sa.or_(_SESSION.c.title.icontains(search, autoescape=True), said)


def _decode(row: sa.RowMapping) -> Session:
    values: dict[str, Any] = dict(row)
    runtime_status_json = values.pop("runtime_status_json")
    return Session(
        **values,
        execution_error=_error_of(runtime_status_json),
        undelivered=_undelivered_of(runtime_status_json),
    )


def _error_of(runtime_status_json: str) -> ExecutionError | None:
    error = json.loads(runtime_status_json).get(_ERROR_KEY)
    if error is None:
        return None
    return ExecutionError(
        code=error["code"],
        message=error["message"],
        retryable=error["retryable"],
        run_id=error["runId"],
        at=datetime.fromisoformat(error["at"]),
    )


def _undelivered_of(runtime_status_json: str) -> Undelivered | None:
    found = json.loads(runtime_status_json).get(_UNDELIVERED_KEY)
    if found is None:
        return None
    at = datetime.fromisoformat(found["at"])
    return Undelivered(found["surface"], found["reason"], found["runId"], at)


def _with_undelivered(runtime_status_json: str, undelivered: Undelivered | None) -> str:
    status = json.loads(runtime_status_json)
    status.pop(_UNDELIVERED_KEY, None)
    if undelivered is not None:
        status[_UNDELIVERED_KEY] = {
            "surface": undelivered.surface,
            "reason": undelivered.reason,
            "runId": undelivered.run_id,
            "at": undelivered.at.astimezone(UTC).isoformat(),
        }
    return to_json(status)


def _with_error(runtime_status_json: str, error: ExecutionError | None) -> str:
    """The object with its error put in or taken out, all other keys as they were."""
    status = json.loads(runtime_status_json)
    status.pop(_ERROR_KEY, None)
    if error is not None:
        status[_ERROR_KEY] = {
            "code": error.code,
            "message": error.message,
            "retryable": error.retryable,
            "runId": error.run_id,
            "at": error.at.astimezone(UTC).isoformat(),
        }
    return to_json(status)
