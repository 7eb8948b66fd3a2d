"""How a client begins to follow a session without a gap or a doubled event.

A position that the log still covers is replayed. Any other gets the stored messages up to the
run that is under way and then that run's events from its first on, which the log keeps whole.
"""

from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from server.errors import BadRequest
from server.eventring import EventRing, RunSpan
from server.message import Message
from server.session_state import SessionState
from server.store.messages import load_page
from server.ws import wire
from server.ws.family import Family
from server.ws.methods import Caller
from server.ws.objects import (
    MessageObject,
    approval_object,
    child_object,
    error_object,
    message_object,
    queue_object,
    run_object,
    status_of,
    undelivered_object,
    usage_object,
)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The end of what is stored, and the number of the first event that goes on from there."""

    messages: list[MessageObject]
    has_more: bool
    """There are older ones."""
    replay_from: int


async def subscribe(caller: Caller, params: wire.Subscribe) -> wire.SubscribeResult:
    """Follow a session; the frames begin right after the answer."""
    connection, board = caller.connection, caller.state["board"]
    session_id = params.session
    _check_count(caller, session_id)
    await caller.check(session_id)
    if params.children:
        connection.unfollow(session_id)  # its children go on where they are
    else:
        caller.leave(session_id)
    # Changes are kept back from here on: one that the state below does not show yet comes after.
    connection.hold(session_id)
    board.watch(session_id, connection)
    followed = False
    try:
        result = await _follow(caller, params)
        followed = True
    finally:
        if followed:
            connection.release(session_id)
        else:
            caller.leave(session_id)
    return result


def _check_count(caller: Caller, session_id: str) -> None:
    subscriptions = caller.connection.subscriptions
    most = caller.policy.subscriptions
    if len(subscriptions) >= most and session_id not in subscriptions:
        raise BadRequest(f"at most {most} sessions can be followed at once", "session")


async def _follow(caller: Caller, params: wire.Subscribe) -> wire.SubscribeResult:
    logs = caller.state["logs"]
    ring = logs.of(params.session)
    state = await caller.state["inbox"].state_of(params.session)
    cursor = _cursor(ring, params, logs.instance)
    snapshot = None
    if cursor is None:
        snapshot = await _snapshot(caller, params.session, ring)
        cursor = snapshot.replay_from - 1
    # No await from here to the answer: the position and the log's head belong together.
    caller.connection.follow(params.session, ring, cursor)
    if params.children:
        family = Family(caller, params.session)
        family.meet(child.id for child in state.children)
        caller.connection.with_family(params.session, family.changed)
    return _result(state, logs.instance, ring.head, cursor + 1, snapshot)


def _cursor(ring: EventRing, params: wire.Subscribe, instance: str) -> int | None:
    """The position to go on from, or None if the log cannot tell all that came after it."""
    if params.after is None or params.instance not in (None, instance):
        return None
    if params.after == "head":
        return ring.head
    return params.after if ring.covers(params.after) else None


async def _snapshot(caller: Caller, session_id: str, ring: EventRing) -> _Snapshot:
    """Stored messages and position that fit together: read again if a run began or ended."""
    while True:
        seam = _seam(ring)
        before_seq = None if ring.active is None else ring.active.history_seq + 1
        async with caller.state["store"].read() as db:
            page = await load_page(
                db, session_id, before_seq=before_seq, limit=caller.policy.page_messages + 1
            )
        if _seam(ring) == seam:
            replay_from = ring.head + 1 if ring.active is None else ring.active.first
            shown = _newest(page[-caller.policy.page_messages :], caller.policy.page_bytes)
            return _Snapshot(shown, len(shown) < len(page), replay_from)


def _seam(ring: EventRing) -> RunSpan | int:
    """Changes whenever stored messages and events meet at another place."""
    return ring.head if ring.active is None else ring.active


def _newest(page: list[Message], most_bytes: int) -> list[MessageObject]:
    """The newest of *page* that fit, the last one always."""
    kept: list[MessageObject] = []
    size = 0
    for message in reversed(page):
        size += len(message.text) + sum(len(call.arguments) for call in message.tool_calls)
        if kept and size > most_bytes:
            break
        kept.append(message_object(message))
    kept.reverse()
    return kept


def _result(
    state: SessionState, instance: str, head: int, replay_from: int, snapshot: _Snapshot | None
) -> wire.SubscribeResult:
    session = state.session
    messages: list[MessageObject] | UnsetType = UNSET if snapshot is None else snapshot.messages
    return wire.SubscribeResult(
        session=session.id,
        instance=instance,
        head=head,
        replay_from=replay_from,
        mode="replay" if snapshot is None else "snapshot",
        status=status_of(session.status),
        title=session.title or UNSET,
        run=run_object(state.run) or UNSET,
        execution_error=error_object(session.execution_error) or UNSET,
        undelivered=undelivered_object(session.undelivered) or UNSET,
        queue=[queue_object(item) for item in state.queue],
        approvals=[approval_object(one) for one in state.approvals],
        children=[child_object(child) for child in state.children],
        usage=usage_object(state.usage),
        messages=messages,
        has_more=snapshot is not None and snapshot.has_more,
        kind=session.kind,
        parent=session.parent_session_id or UNSET,
    )
