"""The inbox as platforms see it: a chat speaks to the session it is bound to."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from channels import sentences as chat_sentences
from channels.errors import InboxRefused, InboxUnavailable
from channels.port import QUEUE_MAX, ChatAddress, Command, Decision, Inbound, Submitted
from server import sentences
from server.approvals import Approvals, Taken, Word
from server.begin import COMPACT_COMMAND, UNASKED
from server.errors import (
    BadRequest,
    Conflict,
    Duplicate,
    Locale,
    NotFound,
    StoreUnavailable,
)
from server.inbox import SessionInbox
from server.late import keep_late, main_chat
from server.runs import Runs
from server.sideline import SIDELINE
from server.store.approvals import Approval, load_approval, open_approvals
from server.store.chats import bind_chat, bind_free_chat, bound_session
from server.store.engine import Store
from server.store.finish import finish
from server.store.inbound import find_inbound, insert_inbound
from server.store.rows import lock_session
from server.store.runs import delete_queue, keep_handle, load_run, queued, running
from server.store.sessions import Session, children_of, load_session
from server.surfaces import is_chat
from server.task_ending import CHAT_KIND


class ChatInbox:
    """Fits `channels.port.Inbox` by shape."""

    def __init__(
        self,
        *,
        store: Store,
        inbox: SessionInbox,
        approvals: Approvals,
        runs: Runs,
        locale: Locale,
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._approvals = approvals
        self._runs = runs
        self._locale = locale

    async def submit(self, inbound: Inbound) -> Submitted:
        """Store *inbound* in its chat's session and start or queue its run.

        A side question gets a session beside it; the chat goes on speaking to the same one.
        """
        is_empty = not (inbound.text.strip() or inbound.files or inbound.remote_files)
        if inbound.is_sideline and is_empty:
            raise InboxRefused(sentences.nothing_asked_aside(self._locale))
        with self._refusals():
            session = await self._session(inbound)
            answered = None if inbound.is_sideline else await self._answered(session, inbound)
            if answered is not None:
                return answered
            return await self._inbox.submit(replace(inbound, session_id=session.id))

    async def command(
        self,
        chat: ChatAddress,
        command: Command,
        keys: Sequence[str],
        sender: str,
        reply_to: str | None = None,
    ) -> str:
        """Do what a chat command says; the text to answer, empty if it was done before."""
        with self._refusals():
            async with self._store.read() as db:
                known = await find_inbound(db, keys)
            if known is None:
                try:
                    return await self._obey(chat, command, keys, sender, reply_to)
                except Duplicate:
                    return ""
            if command == "stop" and known.run_id:  # we may have died before the run heard of it
                await self._inbox.cancel(known.session_id, known.run_id, sender)
            return ""

    async def note_late(self, chat: ChatAddress, keys: Sequence[str], reply_to: str) -> bool:
        """Keep that a message came too late to be run; False if it was kept before."""
        with self._refusals():
            session = await self._session_of(main_chat(chat))
            try:
                async with self._store.write() as db:
                    await lock_session(db, session.id)
                    if await find_inbound(db, keys) is not None:
                        return False
                    await keep_late(db, session, chat, keys, reply_to)
            except Duplicate:
                return False
        return True

    async def is_ready(self) -> bool:
        """Whether a message would be kept now."""
        return await self._store.check() is None

    async def cancel_run(self, run_id: str) -> bool:
        """Ask a run to stop; False if it is over or none."""
        is_stopped = self._runs.stop(run_id)  # at once, however slow the store is
        with self._refusals():
            try:
                async with self._store.read() as db:
                    run = await load_run(db, run_id)
                return await self._runs.cancel(run.session_id, run_id) or is_stopped
            except NotFound:
                return False
            except StoreUnavailable:
                if not is_stopped:
                    raise
                return True

    async def decide(self, interrupt_id: str, decision: Decision, by: str, text: str = "") -> str:
        """Answer a question; one line for whoever pressed the button."""
        with self._refusals():
            try:
                given = await self._approvals.answer(
                    interrupt_id, Word(decision=decision, by=by, text=text)
                )
            except Conflict as error:
                return await self._too_late(interrupt_id, error)
        return self._verdict(given.approval)

    async def keep(self, run_id: str, handle: str) -> None:
        """Remember the card of a run."""
        with self._refusals():
            async with self._store.write() as db:
                await keep_handle(db, run_id, handle)

    async def _obey(
        self,
        chat: ChatAddress,
        command: Command,
        keys: Sequence[str],
        sender: str,
        reply_to: str | None,
    ) -> str:
        if command == "new":
            session = await self._new_session(chat, keys)
            return sentences.new_session(session.locale)
        session = await self._session_of(chat)
        if command == "stop":
            return await finish(self._stop(session, keys, sender))
        if command == "compact":
            return await self._compact(
                session,
                Inbound(
                    chat.platform,
                    COMPACT_COMMAND,
                    keys,
                    session_id=session.id,
                    chat=chat,
                    reply_to=reply_to,
                ),
            )
        if command in ("approve", "deny"):
            return await finish(self._answer_all(session, Word(command, sender), keys))
        async with self._store.write() as db:
            await _note(db, keys, session)
        if command == "status":
            return sentences.status(session.locale, await self._inbox.state_of(session.id))
        return sentences.help_text(session.locale)

    async def _answered(self, session: Session, inbound: Inbound) -> Submitted | None:
        """Take a message for the answer to what a model asked; None if it is not one.

        An answer is words alone: a message that brings files waits for its turn with them.
        """
        text = inbound.text.strip()
        if not text or inbound.files or inbound.remote_files:
            return None
        async with self._store.read() as db:
            known = await find_inbound(db, inbound.keys)
            question = await _question(db, session)
        if known is not None or question is None:
            return None
        word = Word(
            decision="approve",
            by=inbound.sender,
            text=text,
            keys=inbound.keys,
            reply_to=inbound.reply_to,
        )
        try:
            given = await self._approvals.answer(question.interrupt.id, word)
        except (Conflict, NotFound):
            return None  # answered or deleted a moment ago, or too late; a message like any other
        return Submitted(question.session_id, given.run_id or question.run_id, "started")

    async def _answer_all(self, session: Session, word: Word, keys: Sequence[str]) -> str:
        """Take *word* for all that the chat is asked, by its session and its side questions."""
        taken: list[Taken] = []
        async with self._store.write() as db:
            aside = [one.session_id for one in await _asked_aside(db, session)]
            for session_id in dict.fromkeys([session.id, *aside]):
                with suppress(NotFound):  # deleted a moment ago
                    found = await self._approvals.take_open(db, session_id, word)
                    taken += [found] if found is not None else []
            await _note(db, keys, session)
        for one in taken:
            self._approvals.tell(one)
        answered = [approval for one in taken for approval in one.answered]
        return self._verdict(answered[0]) if answered else sentences.nothing_asked(session.locale)

    async def _too_late(self, interrupt_id: str, error: Conflict) -> str:
        if error.code == "approval_expired":
            return self._verdict_line("EXPIRED", None)
        async with self._store.read() as db:
            approval = await load_approval(db, interrupt_id)
        return sentences.answered_before(self._locale, self._verdict(approval))

    def _verdict(self, approval: Approval) -> str:
        return self._verdict_line(approval.status, approval.answered_by)

    def _verdict_line(self, status: str, by: str | None) -> str:
        return sentences.verdict(self._locale, status, by)

    async def _compact(self, session: Session, asked: Inbound) -> str:
        submitted = await self._inbox.submit(asked)
        if submitted.duplicate:
            return ""
        if submitted.state == "queued":
            return chat_sentences.queued(session.locale, submitted.position or 1)
        return sentences.compacting(session.locale)

    async def _stop(self, session: Session, keys: Sequence[str], sender: str) -> str:
        taken: Taken | None = None
        async with self._store.write() as db:
            await lock_session(db, session.id)  # nothing of the queue begins meanwhile
            run = await running(db, session.id)
            dropped = [one for one in await queued(db, session.id) if one.trigger not in UNASKED]
            await delete_queue(db, session.id, but=UNASKED)
            if run is None:
                taken = await self._approvals.take_open(db, session.id, Word("cancel", sender))
            await _note(db, keys, session, run.id if run is not None else "")
        self._runs.dropped(session, dropped)
        self._approvals.tell(taken)
        was_running = taken is not None and bool(taken.answered)
        if run is not None:
            was_running = await self._inbox.cancel(session.id, run.id, sender)
        return sentences.stopped(session.locale, was_running=was_running, dropped=len(dropped))

    async def _session(self, inbound: Inbound) -> Session:
        if inbound.chat is None:
            raise NotFound("a platform's message comes from a chat")
        return await self._session_of(inbound.chat)

    async def _session_of(self, chat: ChatAddress) -> Session:
        async with self._store.read() as db:
            session_id = await bound_session(db, chat)
            if session_id is not None:
                return await load_session(db, session_id)
        return await self._first_session(chat)

    async def _first_session(self, chat: ChatAddress) -> Session:
        """The session of a chat that never spoke; of two first messages at once, for both."""
        session = await self._create(chat)
        async with self._store.write() as db:
            bound_id = await bind_free_chat(db, chat, session.id, datetime.now(UTC))
        if bound_id == session.id:
            return session
        await self._inbox.delete_session(session.id)  # nobody will ever speak to it
        async with self._store.read() as db:
            return await load_session(db, bound_id)

    async def _new_session(self, chat: ChatAddress, keys: Sequence[str]) -> Session:
        """Bind *chat* to a session of its own, and keep the *keys* of who asked for that."""
        session = await self._create(chat)
        try:
            async with self._store.write() as db:
                await bind_chat(db, chat, session.id, datetime.now(UTC))
                await _note(db, keys, session)
        except Duplicate:  # nobody will ever speak to it
            await self._inbox.delete_session(session.id)
            raise
        return session

    async def _create(self, chat: ChatAddress) -> Session:
        owner = f"{chat.platform}:{chat.app_id}"
        return await self._inbox.create_session(owner, kind=CHAT_KIND, origin=chat.platform)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Say what went wrong as platforms know it."""
        try:
            yield
        except StoreUnavailable as error:
            raise InboxUnavailable(str(error)) from error
        except Conflict as error:
            raise InboxRefused(self._refusal(error)) from error
        except (BadRequest, NotFound) as error:
            raise InboxRefused(sentences.cannot_be_handled(self._locale)) from error

    def _refusal(self, error: Conflict) -> str:
        if error.code == "queue_full":
            return sentences.queue_is_full(self._locale, QUEUE_MAX)
        return sentences.cannot_be_handled(self._locale)


async def _question(db: AsyncConnection, session: Session) -> Approval | None:
    """What the next message answers, if a model asked for words.

    While the chat's own session waits, a message is for that one alone. Else it is for the newest
    that its side questions ask, whatever is under way.
    """
    is_waiting = session.status == "WAITING"
    asked = await (open_approvals(db, session.id) if is_waiting else _asked_aside(db, session))
    return next((one for one in asked if one.interrupt.reason == "input_required"), None)


async def _asked_aside(db: AsyncConnection, session: Session) -> list[Approval]:
    """What its side questions wait for, the newest first.

    Only what was asked in the chat: nobody there has seen what a page asks.
    """
    asked: list[Approval] = []
    for child in await children_of(db, session.id):
        if child.kind == SIDELINE and child.status == "WAITING":
            asked += await open_approvals(db, child.id)
    seen = [one for one in asked if is_chat(await load_run(db, one.run_id))]
    return sorted(seen, key=lambda one: one.created_at, reverse=True)


async def _note(
    db: AsyncConnection, keys: Sequence[str], session: Session, run_id: str = ""
) -> None:
    """Keep a command's keys together with what it does, for the platform may push it again."""
    await insert_inbound(db, keys, session.id, run_id, "started", None, datetime.now(UTC))
