"""What each request does. Every session that a request names is checked against its user."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from channels.port import Inbound, InboundFile, Submitted, WhenBusy
from server.approvals import Word
from server.contract import contract_json, stored_contract
from server.errors import BadRequest, NotFound
from server.state import State
from server.store.codec import to_json
from server.store.sessions import load_session
from server.ws import wire
from server.ws.connection import Connection
from server.ws.faults import Refused
from server.ws.objects import SessionObject, Wire, session_object
from server.ws.policy import Policy


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what is there to answer with."""

    connection: Connection
    state: State
    policy: Policy

    async def check(self, session_id: str) -> None:
        """Whether the user may see the session.

        Raises:
            NotFound: There is none, or it is somebody else's: which of both is not told.
        """
        async with self.state["store"].read() as db:
            session = await load_session(db, session_id)
        if not self.connection.user.may_see(session.owner):
            raise NotFound("no such session")

    def leave(self, session_id: str) -> None:
        """Follow the session no more, nor what was followed through it."""
        for followed in (*self.connection.followed_through(session_id), session_id):
            self.state["board"].unwatch(followed, self.connection)
            self.connection.unfollow(followed)


Method = Callable[[Caller, Any], Awaitable[Wire]]
"""Takes the params that stand beside it in `wire.REQUESTS`."""


async def create_session(caller: Caller, params: wire.CreateSession) -> SessionObject:
    """Make a session, or answer with the one of this id."""
    inbox, user = caller.state["inbox"], caller.connection.user
    if params.session is not None:
        try:
            await caller.check(params.session)
        except NotFound:
            pass
        else:
            return session_object(await inbox.state_of(params.session))
    session = await inbox.create_session(
        user.name,
        title=params.title,
        model=params.model,
        contract_json=stored_contract(params.contract),
        session_id=params.session,
        locale=caller.connection.locale,
    )
    return session_object(await inbox.state_of(session.id))


async def unsubscribe(caller: Caller, params: wire.Unsubscribe) -> wire.Done:
    """Follow the session no more."""
    caller.leave(params.session)
    return wire.Done()


async def start_run(caller: Caller, params: wire.StartRun) -> wire.StartResult:
    """Submit a person's message."""
    if params.retry_of is None and not params.content:
        raise BadRequest("must not be empty", "content")
    if params.contract is not None and params.when_busy == "steer":
        raise BadRequest("a message that joins a run has no contract of its own", "contract")
    await caller.check(params.session)
    inbound = _inbound(caller, params, params.when_busy)
    submitted = await caller.state["inbox"].submit(inbound)
    return _start_result(submitted)


def _start_result(submitted: Submitted) -> wire.StartResult:
    match submitted.state:
        case "started":
            return wire.StartResult(run_id=submitted.run_id)
        case "queued":
            queued = wire.QueuedResult(submitted.run_id, submitted.position or 1)
            return wire.StartResult(queued=queued)
        case "steered":
            return wire.StartResult(steered=wire.ItemResult(submitted.run_id))


async def start_sideline(caller: Caller, params: wire.StartSideline) -> wire.SidelineResult:
    """Submit a side question; it is answered in a session of its own."""
    if not params.content:
        raise BadRequest("must not be empty", "content")
    await caller.check(params.session)
    text, files = _split(params.content)
    inbound = Inbound(
        origin="web",
        text=text,
        keys=(f"ws-side:{params.session}:{params.client_msg_id}",),
        session_id=params.session,
        message_id=params.client_msg_id,
        files=[InboundFile(file_id) for file_id in files],
        is_sideline=True,
        from_message=params.from_message,
    )
    submitted = await caller.state["inbox"].submit(inbound)
    return wire.SidelineResult(submitted.session_id, submitted.run_id)


async def steer_run(caller: Caller, params: wire.SteerRun) -> wire.ItemResult:
    """Submit a message that joins the run that is under way."""
    if not params.content:
        raise BadRequest("must not be empty", "content")
    await caller.check(params.session)
    state = await caller.state["inbox"].state_of(params.session)
    if state.run is None or state.run.id != params.run_id:
        raise Refused("steer_unavailable")
    submitted = await caller.state["inbox"].submit(_inbound(caller, params, "steer"))
    return wire.ItemResult(submitted.run_id)


async def cancel_run(caller: Caller, params: wire.CancelRun) -> wire.CancelResult:
    """Ask the run to stop."""
    await caller.check(params.session)
    by = caller.connection.user.name
    found = await caller.state["inbox"].cancel(params.session, params.run_id, by)
    return wire.CancelResult("cancelling" if found else "not_running")


async def respond_approval(caller: Caller, params: wire.RespondApproval) -> wire.RespondResult:
    """Answer what a waiting run asked."""
    await caller.check(params.session)
    word = Word(
        decision=params.decision,
        by=caller.connection.user.name,
        edited_arguments=None if params.edited_args is None else to_json(params.edited_args),
        text=_answer_text(params.payload) or params.note,
    )
    given = await caller.state["approvals"].answer(params.interrupt_id, word, params.session)
    return wire.RespondResult(
        interrupt_id=params.interrupt_id,
        status=given.approval.status,  # type: ignore[arg-type] # an answer leaves it not open
        run_id=given.run_id or UNSET,
    )


def _answer_text(payload: Any) -> str:
    """The words of an answer: a text, or `{"answer": text}` as the question's schema says."""
    if isinstance(payload, dict):
        payload = payload.get("answer", "")
    if payload is None:
        return ""
    if not isinstance(payload, str):
        raise BadRequest('must be a text or {"answer": text}', "payload")
    return payload


async def remove_queued(caller: Caller, params: wire.RemoveQueued) -> wire.Done:
    """Take a message out of the queue."""
    await caller.check(params.session)
    await caller.state["inbox"].remove_queued(params.session, params.item_id)
    return wire.Done()


async def update_queued(caller: Caller, params: wire.UpdateQueued) -> wire.Done:
    """Change the text of a message in the queue."""
    text, files = _split(params.content)
    if files or not text:
        raise BadRequest("must be a text; files stay as they are", "content")
    await caller.check(params.session)
    await caller.state["inbox"].update_queued(params.session, params.item_id, text)
    return wire.Done()


async def resume_queue(caller: Caller, params: wire.ResumeQueue) -> wire.Done:
    """Let a paused queue go on."""
    await caller.check(params.session)
    await caller.state["inbox"].resume_queue(params.session)
    return wire.Done()


def _inbound(caller: Caller, params: wire.StartRun | wire.SteerRun, when_busy: WhenBusy) -> Inbound:
    text, files = _split(params.content)
    start = params if isinstance(params, wire.StartRun) else None
    return Inbound(
        origin="web",
        text=text,
        keys=(f"ws:{params.session}:{params.client_msg_id}",),
        session_id=params.session,
        message_id=params.client_msg_id,
        files=[InboundFile(file_id) for file_id in files],
        when_busy=when_busy,
        retry_of=None if start is None else start.retry_of,
        edit_of=None if start is None else start.edit_of,
        model=None if start is None else start.model,
        contract=_contract(params),
    )


def _contract(params: wire.StartRun | wire.SteerRun) -> Mapping[str, object] | None:
    if isinstance(params, wire.SteerRun) or params.contract is None:
        return None
    return contract_json(params.contract)


def _split(content: wire.Content) -> tuple[str, list[str]]:
    """The words of *content*, and the ids of the files in it."""
    if isinstance(content, str):
        return content, []
    texts = [part.text for part in content if isinstance(part, wire.TextInput)]
    return "\n".join(texts), [part.file_id for part in content if isinstance(part, wire.FileInput)]


METHODS: Mapping[str, Method] = {
    "session.create": create_session,
    "session.unsubscribe": unsubscribe,
    "run.start": start_run,
    "run.steer": steer_run,
    "sideline.start": start_sideline,
    "run.cancel": cancel_run,
    "queue.remove": remove_queued,
    "queue.update": update_queued,
    "queue.resume": resume_queue,
    "approval.respond": respond_approval,
}
"""`hello` comes before them and `session.subscribe` stands by itself."""
