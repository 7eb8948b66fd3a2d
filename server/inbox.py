"""Where every edge brings what it heard: finds the session, then starts, queues or steers a run."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from channels.port import QUEUE_MAX, Inbound, Submitted
from server.approvals import Approvals
from server.asked import asked_run, check_said
from server.begin import Begun, begin_run
from server.board import Board
from server.children import Children
from server.errors import Conflict, Duplicate, Locale, NotFound
from server.eventlog import EventLogs
from server.message import clean_text
from server.patches import queue_patch
from server.runs import Runs
from server.session_state import SessionState, load_state, queue_items
from server.sideline import insert_sideline, load_inheritance
from server.store.chats import set_reach
from server.store.engine import Store
from server.store.finish import finish
from server.store.ids import new_id
from server.store.inbound import find_inbound, insert_inbound
from server.store.rows import lock_session
from server.store.runs import (
    Run,
    delete_queued,
    insert_run,
    load_run,
    queued,
    running,
    update_queued_text,
)
from server.store.sessions import (
    Session,
    delete_session,
    family_of,
    find_by_external_id,
    insert_session,
    load_session,
    set_contract,
    set_model,
    set_queue_paused,
    set_title,
)


@dataclass(frozen=True, slots=True)
class Birth:
    """What a session is given at its birth and keeps."""

    locale: Locale
    timezone: str


class SessionInbox:
    """The inbox over sessions in the store; also what people do to a session beside talking."""

    def __init__(
        self,
        *,
        store: Store,
        runs: Runs,
        approvals: Approvals,
        logs: EventLogs,
        board: Board,
        children: Children,
        birth: Birth,
    ) -> None:
        self._store = store
        self._runs = runs
        self._approvals = approvals
        self._logs = logs
        self._board = board
        self._children = children
        self._birth = birth

    async def submit(self, inbound: Inbound) -> Submitted:
        """Store *inbound* and start, queue or steer its run; returns after the commit.

        Raises:
            NotFound: There is no such session, message or file.
            Conflict: Busy under `reject`, nothing to steer, or the queue is full.
            BadRequest: There is nothing to run.
            StoreUnavailable: Nothing was kept.
        """
        try:
            # Whoever asks may leave meanwhile; a run that is kept is launched all the same.
            work = self._ask_aside(inbound) if inbound.is_sideline else self._submit(inbound)
            return await finish(work)
        except Duplicate:
            # The same message came twice at once, and the other one was first.
            async with self._store.read() as db:
                known = await _known(db, inbound.keys)
            if known is None:
                raise
            return known

    async def _submit(self, inbound: Inbound) -> Submitted:
        begun: Begun | None = None
        async with self._store.write() as db:
            session = await self._session_of(db, inbound)
            known = await _known(db, inbound.keys)
            if known is not None:
                return known
            run = await asked_run(db, session, inbound)
            active = await running(db, session.id)
            waiting = await queued(db, session.id)
            if session.queue_paused and not waiting:
                session = await _unheld(db, session)
            is_busy = active is not None or session.status == "WAITING"
            is_busy = is_busy or (bool(waiting) and not session.queue_paused)
            if is_busy or self._runs.is_closing:
                answer = await _wait(db, session, run, inbound, active, waiting)
                waiting.append(run)
            else:
                placed = await insert_run(db, run, front=True)
                begun = await begin_run(db, session, placed, self._runs.lease(), datetime.now(UTC))
                answer = Submitted(session.id, run.id, "started")
            await insert_inbound(
                db,
                inbound.keys,
                session.id,
                run.id,
                answer.state,
                answer.position,
                datetime.now(UTC),
            )
            await _remember_reach(db, inbound)
        if begun is not None:
            self._runs.launch(begun)
        else:
            self._show_queue(session, waiting)
            if answer.state == "steered":
                self._runs.steer(session.id)
        return answer

    async def _ask_aside(self, inbound: Inbound) -> Submitted:
        """Give a side question a session of its own and start its run there, whatever else runs.

        What it inherits is read before the transaction that keeps it, so that the parent's run
        waits on SQLite for no more than that.
        """
        async with self._store.read() as db:
            known = await _known(db, inbound.keys)
            if known is not None:
                return known
            parent = await load_session(db, _named_session(inbound))
            inheritance = await load_inheritance(db, parent, inbound.from_message)
        async with self._store.write() as db:
            now = datetime.now(UTC)
            child = await insert_sideline(db, parent, inheritance, now)
            run = await insert_run(db, await asked_run(db, child, inbound))
            begun = await begin_run(db, child, run, self._runs.lease(), now)
            assert begun is not None  # nobody else has heard of it yet
            await insert_inbound(db, inbound.keys, child.id, run.id, "started", None, now)
            await _remember_reach(db, inbound)
        self._runs.launch(begun)
        return Submitted(child.id, run.id, "started")

    async def cancel(self, session_id: str, run_id: str | None, by: str) -> bool:
        """Ask the session's run to stop; False if there is none (or another than *run_id*).

        What waits for an answer is cancelled as well.
        """
        if await self._runs.cancel(session_id, run_id):
            return True
        if await self._approvals.cancel(session_id, by, run_id=run_id):
            return True
        return await self._runs.cancel(session_id, run_id)  # one that an answer began meanwhile

    async def remove_queued(self, session_id: str, item_id: str) -> None:
        """Take a message out of the queue; `NotFound` if it has started or never was there."""
        async with self._store.write() as db:
            session, run = await _queued_run(db, session_id, item_id)
            await delete_queued(db, item_id)
            waiting = await queued(db, session_id)
        self._runs.dropped(session, [run])
        self._show_queue(session, waiting)

    async def update_queued(self, session_id: str, item_id: str, text: str) -> None:
        """Change the words of a queued message; `NotFound` as `remove_queued`.

        Raises:
            BadRequest: Nothing would be left of it.
        """
        async with self._store.write() as db:
            session, run = await _queued_run(db, session_id, item_id)
            check_said(text, run.input.files if run.input is not None else ())
            await update_queued_text(db, item_id, clean_text(text))
            waiting = await queued(db, session_id)
        self._show_queue(session, waiting)

    async def resume_queue(self, session_id: str) -> None:
        """Let a queue go on that a stop, a failure or a restart held."""
        async with self._store.write() as db:
            session = await load_session(db, session_id)
            await set_queue_paused(db, session_id, False)
            waiting = await queued(db, session_id)
        items = queue_items(waiting, paused=False)
        self._board.patch(session_id, session.owner, queue_patch(items))
        await finish(self._runs.advance(session_id))

    async def state_of(self, session_id: str) -> SessionState:
        """What the session looks like now; `NotFound` if there is none."""
        async with self._store.read() as db:
            return await load_state(db, await load_session(db, session_id))

    async def create_session(
        self,
        owner: str,
        *,
        kind: str = "main",
        origin: str = "web",
        title: str | None = None,
        model: str | None = None,
        session_id: str | None = None,
        external_id: str | None = None,
        locale: Locale | None = None,
        contract_json: str | None = None,
    ) -> Session:
        """Make a session, or give back the owner's one with the same id.

        Raises:
            Conflict: The id belongs to somebody else.
        """
        now = datetime.now(UTC)
        session = Session(
            id=session_id or new_id(),
            kind=kind,
            title=title and clean_text(title),
            status="IDLE",
            parent_session_id=None,
            owner=owner,
            origin=origin,
            model=model and clean_text(model),
            locale=locale or self._birth.locale,
            timezone=self._birth.timezone,
            external_id=external_id,
            queue_paused=False,
            execution_error=None,
            created_at=now,
            updated_at=now,
            contract_json=contract_json,
        )
        try:
            async with self._store.write() as db:
                await insert_session(db, session)
        except Duplicate:
            return await self._existing(session)
        self._forget(session.id)  # one of this id may have been deleted by another process
        self._board.changed(owner, [session.id])
        return session

    def _forget(self, session_id: str) -> None:
        self._logs.drop(session_id)
        self._board.forget(session_id)

    async def delete_session(self, session_id: str) -> None:
        """Stop what runs in the session and below it, and delete all of that.

        Raises:
            NotFound: There is none.
        """
        async with self._store.read() as db:
            session = await load_session(db, session_id)
        stopped: dict[str, str | None] = {}
        while at_work := await self._delete_unless_at_work(session_id, stopped):
            for member in at_work:
                await self._runs.dismiss(member)
            stopped |= at_work
        for member in stopped:
            self._forget(member)
        self._board.changed(session.owner, [session_id, *(stopped.keys() - {session_id})])
        if session.parent_session_id is not None:
            self._children.lost(session.parent_session_id)

    async def _delete_unless_at_work(
        self, session_id: str, stopped: Mapping[str, str | None]
    ) -> dict[str, str | None]:
        """Delete the session with all below it, if all of that is *stopped*; else what is not.

        Both name sessions with the run that was under way there. One that somebody began since
        then, by a message or an answer, is stopped as well.
        """
        at_work: dict[str, str | None] = {}
        async with self._store.write() as db:
            await lock_session(db, session_id)  # nothing is born below it meanwhile
            for member in await family_of(db, session_id):
                with suppress(NotFound):  # it goes by itself just now
                    await lock_session(db, member)
                run = await running(db, member)
                run_id = run.id if run is not None else None
                if member not in stopped or run_id not in (None, stopped[member]):
                    at_work[member] = run_id
            if not at_work:
                await delete_session(db, session_id, datetime.now(UTC))
        return at_work

    async def rename_session(self, session_id: str, title: str) -> None:
        """Give the session a title of a person's choice; `NotFound` if there is none."""
        async with self._store.write() as db:
            session = await load_session(db, session_id)
            await set_title(db, session_id, clean_text(title), datetime.now(UTC))
        self._board.patch(session_id, session.owner, {"title": clean_text(title)})

    async def set_model(self, session_id: str, model: str | None) -> None:
        """Choose the model of later runs; `NotFound` if there is no such session."""
        async with self._store.write() as db:
            await set_model(db, session_id, model and clean_text(model), datetime.now(UTC))

    async def set_contract(self, session_id: str, contract_json: str | None) -> None:
        """Give later runs this progress contract; `NotFound` if there is no such session."""
        async with self._store.write() as db:
            await set_contract(db, session_id, contract_json, datetime.now(UTC))

    async def _session_of(self, db: AsyncConnection, inbound: Inbound) -> Session:
        session_id = _named_session(inbound)
        await lock_session(db, session_id)
        return await load_session(db, session_id)

    async def _existing(self, wanted: Session) -> Session:
        async with self._store.read() as db:
            if wanted.external_id is not None:
                found = await find_by_external_id(db, wanted.external_id, wanted.owner)
                if found is not None:
                    return found
            found = await load_session(db, wanted.id)
        if found.owner != wanted.owner:
            raise Conflict("bad_request", "this session id is taken")
        return found

    def _show_queue(self, session: Session, waiting: Sequence[Run]) -> None:
        items = queue_items(waiting, paused=session.queue_paused)
        self._board.patch(session.id, session.owner, queue_patch(items))


async def _unheld(db: AsyncConnection, session: Session) -> Session:
    """A hold ends with the messages it held; later ones wait for their turn alone."""
    await set_queue_paused(db, session.id, False)
    return replace(session, queue_paused=False)


def _named_session(inbound: Inbound) -> str:
    if inbound.session_id is None:
        raise NotFound("there is no such session")
    return inbound.session_id


async def _remember_reach(db: AsyncConnection, inbound: Inbound) -> None:
    """Keep what the newest message of a chat tells of how to write there unasked.

    Comes last in its transaction: other rows are locked before the chat's, by everybody.
    """
    if inbound.chat is not None and inbound.reply_to is not None:
        await set_reach(db, inbound.chat, inbound.reply_to)


async def _known(db: AsyncConnection, keys: Collection[str]) -> Submitted | None:
    """What was answered when one of *keys* came first."""
    event = await find_inbound(db, keys)
    if event is None:
        return None
    state = event.state
    return Submitted(event.session_id, event.run_id, state, event.position, duplicate=True)


async def _wait(
    db: AsyncConnection,
    session: Session,
    run: Run,
    inbound: Inbound,
    active: Run | None,
    waiting: Sequence[Run],
) -> Submitted:
    """Put *run* behind the one under way, or let it join that one."""
    if inbound.when_busy == "reject" and active is None and session.status == "WAITING":
        raise Conflict("interrupts_pending")
    if inbound.when_busy == "reject":
        raise Conflict("busy", retryable=True)
    if len(waiting) >= QUEUE_MAX:
        raise Conflict("queue_full", retryable=True)
    if run.steer and active is None:
        raise Conflict("steer_unavailable")
    await insert_run(db, run)
    if run.steer:
        return Submitted(run.session_id, run.id, "steered")
    return Submitted(run.session_id, run.id, "queued", len(waiting) + 1)


async def _queued_run(db: AsyncConnection, session_id: str, item_id: str) -> tuple[Session, Run]:
    """The item, which stays in the queue until the transaction ends."""
    await lock_session(db, session_id)
    session = await load_session(db, session_id)
    run = await load_run(db, item_id)
    if run.session_id != session_id or run.status != "QUEUED":
        raise NotFound("there is no such queued message")
    return session, run
