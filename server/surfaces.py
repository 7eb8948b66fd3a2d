"""The platforms that show runs in chats: while they go, and how they ended."""

from collections.abc import Iterator, Mapping
from typing import Final

from channels.errors import DeliveryError
from channels.events import OutcomeStatus, RunEvent
from channels.port import Delivery, Question, RunSink, Surface, Turn
from server import sentences
from server.errors import NotFound
from server.late import LATE, late_delivery
from server.outbox import TRIES
from server.outbox import Surface as Deliverer
from server.outcome import RUN_STATUS
from server.store.approvals import Approval, approvals_of
from server.store.engine import Store
from server.store.messages import last_words
from server.store.outbox import OutboxItem
from server.store.runs import Run, load_run
from server.store.sessions import Session, load_session

_OUTCOMES: Final[Mapping[str, OutcomeStatus]] = {
    status: outcome for outcome, status in RUN_STATUS.items()
}


def is_chat(run: Run) -> bool:
    """Whether the run is shown in a chat."""
    return run.input is not None and run.input.chat is not None


def turn_of(run: Run, session: Session) -> Turn | None:
    """The run as its chat's surface knows it; None for a run that no chat began."""
    asked = run.input
    if asked is None or asked.chat is None:
        return None
    return Turn(
        session_id=session.id,
        run_id=run.id,
        chat=asked.chat,
        reply_to=asked.reply_to,
        handle=run.card_handle,
        locale=session.locale,
        label=asked.label,
        reach=asked.reach,
    )


class Fan:
    """A sink that passes events on to several."""

    def __init__(self, *sinks: RunSink) -> None:
        self._sinks = sinks

    def emit(self, event: RunEvent) -> None:
        """Give *event* to each."""
        for sink in self._sinks:
            sink.emit(event)


class Ways(Mapping[str, Deliverer]):
    """Every way out by its name: the bots that are open."""

    def __init__(self, bots: Mapping[str, Surface], store: Store) -> None:
        self._bots = bots
        self._store = store

    def __getitem__(self, name: str) -> Deliverer:
        return ChatSurface(self._bots[name], self._store)

    def __iter__(self) -> Iterator[str]:
        return iter(self._bots)

    def __len__(self) -> int:
        return len(self._bots)


class ChatSurface:
    """Tells a chat how a run ended, from what is stored; so the outbox can do it after a crash.

    Also that messages came too late, which is told like a run that nobody asked for.
    """

    def __init__(self, surface: Surface, store: Store) -> None:
        self._surface = surface
        self._store = store

    async def deliver(self, item: OutboxItem) -> None:
        """Tell it; raises `DeliveryError`."""
        try:
            delivery = await self._delivery(item)
        except NotFound:
            raise DeliveryError("the run was deleted", retryable=False, trouble="fault") from None
        try:
            await self._surface.deliver(delivery)
        except DeliveryError as error:
            if error.retryable and delivery.attempt >= TRIES:
                self._surface.forget(delivery.turn)
            raise

    async def _delivery(self, item: OutboxItem) -> Delivery:
        if item.kind == LATE:
            async with self._store.read() as db:
                return await late_delivery(db, item)
        if item.run_id is None:
            raise NotFound("there is no such run")
        async with self._store.read() as db:
            run = await load_run(db, item.run_id)
            session = await load_session(db, run.session_id)
            answer = await last_words(db, run.id)
            asked = await approvals_of(db, run.id)
        if run.trigger == "compact" and run.status == "COMPLETED":
            answer = sentences.compacted(session.locale)
        turn = turn_of(run, session)
        if turn is None:
            raise NotFound("the run belongs to no chat")
        return Delivery(
            id=item.id,
            attempt=item.attempts + 1,
            turn=turn,
            status=_OUTCOMES[run.status],
            code=run.outcome_code or "",
            text=run.outcome_text or "",
            answer=answer,
            questions=[_question(approval, session) for approval in asked],
        )


def _question(approval: Approval, session: Session) -> Question:
    if approval.is_open:
        return Question(approval.interrupt)
    verdict = sentences.verdict(session.locale, approval.status, approval.answered_by)
    return Question(approval.interrupt, verdict)
