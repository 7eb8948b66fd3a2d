"""Sessions, their history, their runs and what they cost."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server.contract import ProgressContract, stored_contract
from server.errors import BadRequest, NotFound
from server.message import Usage
from server.rest import (
    answer,
    body_of,
    locale_of,
    number_in,
    session_of,
    signed_in,
    time_of,
    whole_in,
)
from server.session_state import SessionState
from server.state import State
from server.store.decisions import (
    RuleFinding,
    StateValue,
    load_decisions,
    load_shadow_decisions,
)
from server.store.messages import load_page
from server.store.runs import Run, load_run
from server.store.sessions import KINDS, Session, list_sessions
from server.store.usage import run_usage, session_usage, usage_by_model, usage_of
from server.ws.objects import (
    MessageObject,
    SessionObject,
    UsageObject,
    message_object,
    session_object,
    usage_object,
)

MAX_TITLE_CHARACTERS = 500
_ACTIVE = frozenset({"RUNNING", "QUEUED", "WAITING"})
"""Of these a list shows the run too."""


class SessionList(msgspec.Struct, rename="camel", omit_defaults=True):
    """A page of sessions, last changed first."""

    sessions: Sequence[SessionObject]
    has_more: bool
    next: str | None = None
    """What `before` takes to get the next page."""


class SessionForm(msgspec.Struct):
    """A new session."""

    title: str | None = None
    model: str | None = None
    contract: ProgressContract | None = None


class SessionPatch(msgspec.Struct):
    """What of a session a person may change."""

    title: str | msgspec.UnsetType = msgspec.UNSET
    model: str | None | msgspec.UnsetType = msgspec.UNSET
    """None is the server's own again."""
    contract: ProgressContract | None | msgspec.UnsetType = msgspec.UNSET
    """Of later runs; None takes it away."""


class MessageList(msgspec.Struct, rename="camel"):
    """A page of history, oldest first."""

    messages: Sequence[MessageObject]
    has_more: bool
    """Whether there are older ones; `before` takes the first one's `seq`."""


class RunAnswer(msgspec.Struct, rename="camel", omit_defaults=True):
    """One execution and how it ended."""

    id: str
    session: str
    trigger: str
    status: str
    rounds: int
    attempt: int
    usage: UsageObject
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: "OutcomeObject | None" = None


class OutcomeObject(msgspec.Struct):
    """How a run ended."""

    code: str
    text: str


class RoundObject(msgspec.Struct, rename="camel", omit_defaults=True):
    """What the run's policy saw and said of one closed round; as `Decision`."""

    round: int
    action_digest: str
    result_digest: str
    exempt: bool
    streak: int
    verdict: str
    rule: str
    policy: str
    created_at: datetime
    tool_status: str
    streaks: Mapping[str, int]
    findings: Sequence[RuleFinding]
    threshold_source: str
    trace_id: str
    state_version: int = 0
    state_diff: Mapping[str, Sequence[StateValue]] = {}
    budgets_left: Mapping[str, int] = {}
    stop_reason: str = ""
    contract_id: str | None = None
    contract_version: int | None = None


class ShadowObject(msgspec.Struct, rename="camel"):
    """What a policy that only records would have said of a round."""

    round: int
    policy: str
    verdict: str
    rule: str
    streak: int
    stop_reason: str


class RoundList(msgspec.Struct):
    """Every closed round of a run, in order."""

    rounds: Sequence[RoundObject]
    shadows: Sequence[ShadowObject]


class ModelUsage(msgspec.Struct):
    """What one model was asked in a session."""

    model: str
    usage: UsageObject


class UsageAnswer(msgspec.Struct):
    """What a session cost, as a whole and per model."""

    usage: UsageObject
    models: Sequence[ModelUsage]


async def get_sessions(request: Request[State]) -> Response:
    """Whoever asks' sessions, the admin's being all.

    `search`, `kind`, `parent`, `limit`, `before` narrow them. Without the first three, sessions
    that are shown with their parent or their task are left out.
    """
    user = signed_in(request)
    limit = number_in(request, "limit", 50, 200)
    owner = None if user.is_admin else user.name
    before = _place_in(request)
    parent_id = request.query_params.get("parent")
    if parent_id is not None:
        await session_of(request, parent_id)
    async with request.state["store"].read() as db:
        found = await list_sessions(
            db,
            owner,
            before=before,
            limit=limit + 1,
            search=request.query_params.get("search"),
            kind=_kind_in(request),
            parent_id=parent_id,
        )
        shown = found[:limit]
        usage = await usage_of(db, [session.id for session in shown])
    states = [await _listed(request, session, usage[session.id]) for session in shown]
    has_more = len(found) > limit
    last = shown[-1] if has_more else None
    following = f"{last.updated_at.isoformat()},{last.id}" if last is not None else None
    return answer(SessionList([session_object(state) for state in states], has_more, following))


def _place_in(request: Request[State]) -> tuple[datetime, str] | None:
    """Where the page before ended: `next` of it, or a time alone."""
    before = request.query_params.get("before")
    if before is None:
        return None
    changed_at, _, session_id = before.partition(",")
    return time_of(changed_at, "before"), session_id


async def _listed(request: Request[State], session: Session, usage: Usage) -> SessionState:
    """The state for a list; only sessions at work are asked for their run and queue."""
    if session.status not in _ACTIVE:
        return SessionState(session, None, (), usage)
    try:
        return await request.state["inbox"].state_of(session.id)
    except NotFound:  # deleted since the list was read
        return SessionState(session, None, (), usage)


def _kind_in(request: Request[State]) -> str | None:
    kind = request.query_params.get("kind")
    if kind is not None and kind not in KINDS:
        raise BadRequest(f"must be one of {', '.join(sorted(KINDS))}", "kind")
    return kind


async def post_session(request: Request[State]) -> Response:
    """Make a session for whoever asks."""
    user = signed_in(request)
    form = await body_of(request, SessionForm)
    session = await request.state["inbox"].create_session(
        user.name,
        title=None if form.title is None else _title(form.title),
        model=form.model or None,
        contract_json=stored_contract(form.contract),
        locale=locale_of(request),
    )
    return await _now(request, session.id, 201)


async def get_session(request: Request[State]) -> Response:
    """One session as it stands now."""
    session = await session_of(request, request.path_params["session_id"])
    return await _now(request, session.id)


async def patch_session(request: Request[State]) -> Response:
    """Rename it, or give it another model or progress contract."""
    session = await session_of(request, request.path_params["session_id"])
    patch = await body_of(request, SessionPatch)
    inbox = request.state["inbox"]
    if patch.title is not msgspec.UNSET:
        await inbox.rename_session(session.id, _title(patch.title))
    if patch.model is not msgspec.UNSET:
        await inbox.set_model(session.id, patch.model or None)
    if patch.contract is not msgspec.UNSET:
        await inbox.set_contract(session.id, stored_contract(patch.contract))
    return await _now(request, session.id)


def _title(text: str) -> str:
    title = " ".join(text.split())
    if not title or len(title) > MAX_TITLE_CHARACTERS:
        raise BadRequest(f"must have 1 to {MAX_TITLE_CHARACTERS} characters", "title")
    return title


async def delete_session(request: Request[State]) -> Response:
    """Stop its run and forget everything of it."""
    session = await session_of(request, request.path_params["session_id"])
    await request.state["inbox"].delete_session(session.id)
    return Response(status_code=204)


async def _now(request: Request[State], session_id: str, status: int = 200) -> Response:
    return answer(session_object(await request.state["inbox"].state_of(session_id)), status)


async def get_messages(request: Request[State]) -> Response:
    """History, newest page first; what a retry or an edit replaced is left out."""
    session = await session_of(request, request.path_params["session_id"])
    limit = number_in(request, "limit", 50, 200)
    before = whole_in(request, "before")
    async with request.state["store"].read() as db:
        page = await load_page(db, session.id, before_seq=before, limit=limit + 1)
    shown = page[-limit:]
    return answer(MessageList([message_object(m) for m in shown], len(page) > limit))


async def get_usage(request: Request[State]) -> Response:
    """What a session cost."""
    session = await session_of(request, request.path_params["session_id"])
    async with request.state["store"].read() as db:
        total = await session_usage(db, session.id)
        models = await usage_by_model(db, session.id)
    per_model = [ModelUsage(model, usage_object(usage)) for model, usage in models.items()]
    return answer(UsageAnswer(usage_object(total), per_model))


async def get_run(request: Request[State]) -> Response:
    """One run and how it ended."""
    run = await _run_of(request)
    async with request.state["store"].read() as db:
        usage = await run_usage(db, run.id)
    return answer(_run_answer(run, usage))


async def get_rounds(request: Request[State]) -> Response:
    """What the guard saw and said, round by round: why a run was stopped."""
    run = await _run_of(request)
    async with request.state["store"].read() as db:
        decisions = await load_decisions(db, run.id)
        shadows = await load_shadow_decisions(db, run.id)
    return answer(
        RoundList(
            [msgspec.convert(one, RoundObject, from_attributes=True) for one in decisions],
            [msgspec.convert(one, ShadowObject, from_attributes=True) for one in shadows],
        )
    )


async def _run_of(request: Request[State]) -> Run:
    signed_in(request)
    async with request.state["store"].read() as db:
        run = await load_run(db, request.path_params["run_id"])
    await session_of(request, run.session_id)
    return run


def _run_answer(run: Run, usage: Usage) -> RunAnswer:
    code = run.outcome_code
    return RunAnswer(
        id=run.id,
        session=run.session_id,
        trigger=run.trigger,
        status=run.status,
        rounds=run.rounds,
        attempt=run.attempt,
        usage=usage_object(usage),
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        outcome=None if code is None else OutcomeObject(code, run.outcome_text or ""),
    )


ROUTES = (
    Route("/api/sessions", get_sessions),
    Route("/api/sessions", post_session, methods=["POST"]),
    Route("/api/sessions/{session_id}", get_session),
    Route("/api/sessions/{session_id}", patch_session, methods=["PATCH"]),
    Route("/api/sessions/{session_id}", delete_session, methods=["DELETE"]),
    Route("/api/sessions/{session_id}/messages", get_messages),
    Route("/api/sessions/{session_id}/usage", get_usage),
    Route("/api/runs/{run_id}", get_run),
    Route("/api/runs/{run_id}/rounds", get_rounds),
)
