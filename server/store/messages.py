"""Messages: the history of a session, and what of it the prompt is made from."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from server.errors import NotFound
from server.message import (
    Content,
    Evidence,
    FilePart,
    Message,
    Part,
    Picture,
    Summary,
    TextPart,
    ToolCall,
    Usage,
)
from server.store.codec import from_json, to_json
from server.store.rows import changed, lock_session
from server.store.tables import (
    MessageRow,
    RunRow,
    SessionRow,
    SubagentExecutionRow,
    table_of,
)

T = TypeVar("T")

_MESSAGE = table_of(MessageRow)
_SESSION = table_of(SessionRow)
_RUN = table_of(RunRow)
_EXECUTION = table_of(SubagentExecutionRow)

# Built once, since they are sent in every round: building one costs as much as running it.
_LAST_SEQ = sa.select(sa.func.max(_MESSAGE.c.seq)).where(
    _MESSAGE.c.session_id == sa.bindparam("of_session")
)
_INSERT = sa.insert(_MESSAGE)


class _Text(msgspec.Struct, tag="text", rename="camel"):
    text: str


class _File(msgspec.Struct, tag="file", rename="camel", omit_defaults=True):
    file_id: str
    media_type: str
    name: str
    size_bytes: int
    locator: str | None = None


class _Evidence(msgspec.Struct, rename="camel", omit_defaults=True):
    action_digest: str
    result_digest: str
    exempt: bool
    error_class: str | None = None
    elapsed_ms: int = 0
    wall_ms: int | None = None
    harness: bool = False
    known: bool = False
    kind: str = "unknown"
    contract: str = ""
    values: dict[str, int | float | str | bool] = {}
    facts: dict[str, str] = {}


class _Picture(msgspec.Struct, rename="camel"):
    file_id: str
    media_type: str


class _Usage(msgspec.Struct, rename="camel"):
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    """The object in `metadata_json`; what a message does not have is left out."""

    synthetic: bool | None = None
    """On every user message, so that none has to be judged by its text."""
    aside: bool = False
    parts: list[_Text | _File] | None = None
    """Only when the content is made of parts; `content` then has their text again."""
    reasoning: str | None = None
    reasoning_field: str | None = None
    evidence: _Evidence | None = None
    picture: _Picture | None = None
    is_error: bool = False
    usage: _Usage | None = None
    model_ms: int = 0


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    """A call in the shape of chat completions, as other readers of the column know it."""

    id: str
    function: _Function
    type: str = "function"


async def append_messages(
    db: AsyncConnection, session_id: str, messages: Sequence[Message], *, after: int | None = None
) -> list[Message]:
    """Add *messages* at the end of the session, in one statement; they come back with `seq`.

    Args:
        after: The last `seq`, where the caller is the session's only writer and knows it.
    Raises:
        Duplicate: *after* is not the last one.
        NotFound: There is no such session.
    """
    if not messages:
        return []
    last = after
    if last is None:
        await lock_session(db, session_id)
        last = await last_seq(db, session_id)
    stored = [replace(m, seq=seq) for seq, m in enumerate(messages, start=last + 1)]
    rows = [{**encode(message), "session_id": session_id} for message in stored]
    await db.execute(_INSERT, rows)
    return stored


async def load_prompt_messages(
    db: AsyncConnection, session_id: str, *, up_to_seq: int | None = None
) -> list[Message]:
    """What the prompt is made from: the latest summary if there is one, then all it kept.

    Older summaries and superseded messages are left out. It is one statement, so that others may
    write to the session meanwhile.

    Args:
        up_to_seq: The window as it stood when this was the newest message.
    """
    visible = _visible(session_id)
    if up_to_seq is not None:
        visible = visible.where(_MESSAGE.c.seq <= up_to_seq)
    is_summary = _MESSAGE.c.first_kept_seq.is_not(None)
    latest = visible.where(is_summary).order_by(_MESSAGE.c.seq.desc()).limit(1).cte("latest")
    first_kept = sa.func.coalesce(sa.select(latest.c.first_kept_seq).scalar_subquery(), 0)
    kept = visible.where(sa.not_(is_summary), _MESSAGE.c.seq >= first_kept)
    window = await _load(db, sa.union_all(sa.select(latest), kept))
    return sorted(window, key=lambda message: (message.summary_of is None, message.seq))


async def load_page(
    db: AsyncConnection,
    session_id: str,
    *,
    before_seq: int | None,
    limit: int,
    include_superseded: bool = False,
) -> list[Message]:
    """The newest *limit* messages, or the newest before *before_seq*, in ascending order.

    What the session inherited is no part of its chat.
    """
    query = sa.select(_MESSAGE).where(_MESSAGE.c.session_id == session_id)
    if not include_superseded:
        query = _visible(session_id)
    inherited = sa.select(_SESSION.c.inherited_seq).where(_SESSION.c.id == session_id)
    query = query.where(_MESSAGE.c.seq > inherited.scalar_subquery())
    if before_seq is not None:
        query = query.where(_MESSAGE.c.seq < before_seq)
    page = await _load(db, query.order_by(_MESSAGE.c.seq.desc()).limit(limit))
    page.reverse()
    return page


async def load_from(db: AsyncConnection, session_id: str, first_seq: int) -> list[Message]:
    """The visible messages from *first_seq* on, in order."""
    query = _visible(session_id).where(_MESSAGE.c.seq >= first_seq)
    return await _load(db, query.order_by(_MESSAGE.c.seq))


async def load_before(
    db: AsyncConnection, session_id: str, first_kept_seq: int, *, whole: bool
) -> list[Message]:
    """What a compaction took from the prompt, in order.

    Args:
        whole: All of it, or only what belongs to the turn that goes on with *first_kept_seq*:
            nothing where that message begins one. A user message that is no summary is a person's.
    """
    is_summary = _MESSAGE.c.first_kept_seq.is_not(None)
    taken = _visible(session_id).where(sa.not_(is_summary), _MESSAGE.c.seq < first_kept_seq)
    if not whole:
        is_person = sa.and_(_MESSAGE.c.role == "user", sa.not_(is_summary))
        turn = _visible(session_id).where(is_person, _MESSAGE.c.seq <= first_kept_seq)
        newest = turn.order_by(_MESSAGE.c.seq.desc()).limit(1).cte("newest")
        begin = sa.func.coalesce(sa.select(newest.c.seq).scalar_subquery(), 0)
        taken = taken.where(_MESSAGE.c.seq >= begin)
    return await _load(db, taken.order_by(_MESSAGE.c.seq))


async def evidence_of_children(db: AsyncConnection, session_id: str) -> list[Evidence]:
    """That of all that the session's subagents got from their tools, the oldest first.

    What was superseded is left out, and so are subagents whose calls were.
    """
    answer = _MESSAGE.alias("answer")
    is_withdrawn = sa.exists().where(
        answer.c.session_id == session_id,
        answer.c.tool_call_id == _EXECUTION.c.tool_call_id,
        answer.c.superseded_by_run_id.is_not(None),
    )
    children = (
        sa.select(_EXECUTION.c.child_session_id)
        .join(_RUN, _RUN.c.id == _EXECUTION.c.run_id)
        .where(_RUN.c.session_id == session_id, sa.not_(is_withdrawn))
    )
    query = sa.select(_MESSAGE.c.metadata_json).where(  # the results themselves may be large
        _MESSAGE.c.session_id.in_(children),
        _MESSAGE.c.role == "tool",
        _MESSAGE.c.superseded_by_run_id.is_(None),
    )
    stored = await db.scalars(query.order_by(_MESSAGE.c.created_at, _MESSAGE.c.seq))
    found = [_as(Evidence, from_json(text, _Metadata).evidence) for text in stored]
    return [evidence for evidence in found if evidence is not None]


async def last_seq(db: AsyncConnection, session_id: str) -> int:
    """The `seq` of the session's newest message, superseded or not; 0 if it has none."""
    query = sa.select(sa.func.max(_MESSAGE.c.seq)).where(_MESSAGE.c.session_id == session_id)
    return await db.scalar(query) or 0


async def replace_content(db: AsyncConnection, message_id: str, content: Content) -> None:
    """Give a message other content: its files are here now. `NotFound` without such a message."""
    _, message = await load_message(db, message_id)
    row = encode(replace(message, content=content))
    changes = {name: row[name] for name in ("content", "metadata_json")}
    await db.execute(sa.update(_MESSAGE).where(_MESSAGE.c.id == message_id).values(changes))


async def last_words(db: AsyncConnection, run_id: str) -> str:
    """What the run said after its last call: its answer, and what its end said by itself."""
    of_run = _MESSAGE.c.run_id == run_id
    called = sa.select(sa.func.max(_MESSAGE.c.seq)).where(of_run, _MESSAGE.c.role == "tool")
    query = sa.select(_MESSAGE.c.content).where(
        of_run,
        _MESSAGE.c.role == "assistant",
        _MESSAGE.c.tool_calls_json.is_(None),
        _MESSAGE.c.seq > sa.func.coalesce(called.scalar_subquery(), 0),
    )
    said = await db.scalars(query.order_by(_MESSAGE.c.seq))
    return "\n\n".join(text for text in said if text.strip())


async def message_exists(db: AsyncConnection, message_id: str) -> bool:
    """Whether any session has a message with this id."""
    query = sa.select(_MESSAGE.c.id).where(_MESSAGE.c.id == message_id)
    return await db.scalar(query) is not None


async def load_message(
    db: AsyncConnection, message_id: str, *, include_superseded: bool = True
) -> tuple[str, Message]:
    """The id of its session and the message, or `NotFound`.

    Args:
        include_superseded: False for what a person sees: what was superseded or inherited is none.
    """
    query = sa.select(_MESSAGE).where(_MESSAGE.c.id == message_id)
    if not include_superseded:
        query = query.join(_SESSION, _SESSION.c.id == _MESSAGE.c.session_id).where(
            _MESSAGE.c.superseded_by_run_id.is_(None), _MESSAGE.c.seq > _SESSION.c.inherited_seq
        )
    row = (await db.execute(query)).mappings().first()
    if row is None:
        raise NotFound("there is no such message")
    return row["session_id"], decode(row)


async def supersede_from(db: AsyncConnection, session_id: str, from_seq: int, run_id: str) -> int:
    """Take all messages from *from_seq* on out of the history for *run_id*; how many they were."""
    return await changed(
        db,
        sa.update(_MESSAGE)
        .where(
            _MESSAGE.c.session_id == session_id,
            _MESSAGE.c.seq >= from_seq,
            _MESSAGE.c.superseded_by_run_id.is_(None),
        )
        .values(superseded_by_run_id=run_id),
    )


def encode(message: Message) -> dict[str, object]:
    """The row of *message*, but for its session."""
    summary = message.summary_of
    return {
        "id": message.id,
        "run_id": message.run_id,
        "seq": message.seq,
        "role": message.role,
        "content": message.text,
        "tool_calls_json": _encode_calls(message.tool_calls),
        "tool_call_id": message.tool_call_id,
        "metadata_json": to_json(_metadata_of(message)),
        "first_kept_seq": summary.first_kept_seq if summary else None,
        "created_at": message.created_at,
    }


def decode(row: sa.RowMapping) -> Message:
    """The message that `encode` made *row* of."""
    metadata = from_json(row["metadata_json"], _Metadata)
    return Message(
        id=row["id"],
        role=row["role"],
        content=_decode_content(row["content"], metadata.parts),
        created_at=row["created_at"],
        run_id=row["run_id"],
        seq=row["seq"],
        tool_calls=_decode_calls(row["tool_calls_json"]),
        tool_call_id=row["tool_call_id"],
        synthetic=bool(metadata.synthetic),
        is_aside=metadata.aside,
        reasoning=metadata.reasoning,
        reasoning_field=metadata.reasoning_field,
        evidence=_as(Evidence, metadata.evidence),
        picture=_as(Picture, metadata.picture),
        is_error=metadata.is_error,
        usage=_as(Usage, metadata.usage),
        model_ms=metadata.model_ms,
        summary_of=_summary_of(row["first_kept_seq"]),
    )


def _metadata_of(message: Message) -> _Metadata:
    is_marked = message.role == "user" or message.synthetic
    return _Metadata(
        synthetic=message.synthetic if is_marked else None,
        aside=message.is_aside,
        parts=_encode_parts(message.content),
        reasoning=message.reasoning,
        reasoning_field=message.reasoning_field,
        evidence=_as(_Evidence, message.evidence),
        picture=_as(_Picture, message.picture),
        is_error=message.is_error,
        usage=_as(_Usage, message.usage),
        model_ms=message.model_ms,
    )


def _encode_parts(content: Content) -> list[_Text | _File] | None:
    if isinstance(content, str):
        return None
    return [_encode_part(part) for part in content]


def _encode_part(part: Part) -> _Text | _File:
    if isinstance(part, TextPart):
        return _Text(part.text)
    return msgspec.convert(part, _File, from_attributes=True)


def _decode_content(text: str, parts: list[_Text | _File] | None) -> Content:
    if parts is None:
        return text
    return tuple(_decode_part(part) for part in parts)


def _decode_part(part: _Text | _File) -> Part:
    if isinstance(part, _Text):
        return TextPart(part.text)
    return msgspec.convert(part, FilePart, from_attributes=True)


def _encode_calls(calls: Sequence[ToolCall]) -> str | None:
    if not calls:
        return None
    return to_json([_Call(call.id, _Function(call.name, call.arguments)) for call in calls])


def _decode_calls(tool_calls_json: str | None) -> tuple[ToolCall, ...]:
    if tool_calls_json is None:
        return ()
    calls = from_json(tool_calls_json, list[_Call])
    return tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in calls)


def _summary_of(first_kept_seq: int | None) -> Summary | None:
    return None if first_kept_seq is None else Summary(first_kept_seq)


def _as(kind: type[T], value: object | None) -> T | None:
    """*value* as a *kind* with the same fields."""
    return None if value is None else msgspec.convert(value, kind, from_attributes=True)


def _visible(session_id: str) -> sa.Select[Any]:
    return sa.select(_MESSAGE).where(
        _MESSAGE.c.session_id == session_id, _MESSAGE.c.superseded_by_run_id.is_(None)
    )


async def _load(
    db: AsyncConnection, query: sa.Select[Any] | sa.CompoundSelect[Any]
) -> list[Message]:
    return [decode(row) for row in (await db.execute(query)).mappings()]
