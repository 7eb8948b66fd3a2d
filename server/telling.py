"""Tells whoever watches what becomes of a run: its log, the board, its chat, the counters."""

import logging
from collections.abc import Iterable, Mapping

from channels.events import Discarded, Outcome, RunStarted
from channels.port import RunSink, Surface, Turn
from server.agent.speaker import attached_files
from server.begin import Begun
from server.board import Board
from server.ending import Written
from server.eventlog import EventLogs
from server.metrics import Metrics
from server.patches import (
    approvals_patch,
    queue_patch,
    run_patch,
    status_patch,
    undelivered_patch,
    usage_patch,
)
from server.session_state import QueueItem, RunState
from server.store.runs import Run
from server.store.sessions import Session
from server.surfaces import Fan, turn_of

log = logging.getLogger(__name__)


class Teller:
    """The one place from which runs are shown."""

    def __init__(
        self, *, logs: EventLogs, board: Board, metrics: Metrics, surfaces: Mapping[str, Surface]
    ) -> None:
        self._logs = logs
        self._board = board
        self._metrics = metrics
        self._surfaces = surfaces

    def sink(self, run: Run, session: Session) -> RunSink:
        """Where the run's events go: to the session's log, and to the chat that began it."""
        events = self._logs.sink(session.id, session.locale)
        turn = turn_of(run, session)
        surface = self._surface_of(turn)
        if turn is None or surface is None:
            return events
        return Fan(events, surface.watch(turn))

    def dropped(self, run: Run, session: Session) -> None:
        """The run was taken out of the queue before it began."""
        turn = turn_of(run, session)
        surface = self._surface_of(turn)
        if turn is not None and surface is not None:
            surface.forget(turn)

    def _surface_of(self, turn: Turn | None) -> Surface | None:
        return self._surfaces.get(turn.chat.surface) if turn is not None else None

    def begun(self, begun: Begun, sink: RunSink) -> None:
        """The run's first events."""
        message = begun.message
        sink.emit(
            RunStarted(
                run_id=begun.run.id,
                message_id=message.id if message is not None else None,
                text=message.text if message is not None else "",
                files=attached_files(message),
                history_seq=begun.history_seq,
                attempt=begun.run.attempt,
                parent_run_id=begun.run.input.resumes if begun.run.input is not None else None,
            )
        )
        if begun.withdrawn:
            call_ids = [call.id for message in begun.withdrawn for call in message.tool_calls]
            sink.emit(Discarded([message.id for message in begun.withdrawn], call_ids))

    def running(self, session: Session, run: RunState) -> None:
        """The run goes on, or is about to be stopped."""
        changes = status_patch("RUNNING", None) | run_patch(run)
        changes |= undelivered_patch(None)
        changes["title"] = session.title
        self._board.patch(session.id, session.owner, changes)

    def queue(self, session: Session, items: Iterable[QueueItem]) -> None:
        """What waits in the session now."""
        self._board.patch(session.id, session.owner, queue_patch(items))

    def let_go(self, session: Session) -> None:
        """The run goes on in another process, which tells chats of its end."""
        self._logs.let_go(session.id, session.locale)

    def ended(self, outcome: Outcome, written: Written, seconds: float) -> None:
        """The outcome stands in the store, and its event in the log."""
        session = written.session
        changes = status_patch(session.status, session.execution_error)
        changes |= run_patch(None) | queue_patch(written.queue) | usage_patch(written.usage)
        changes |= approvals_patch(written.approvals)
        self._board.patch(session.id, session.owner, changes)
        self._metrics.run_ended(outcome.status, outcome.code, outcome.rounds)
        if written.task is not None:
            self._metrics.task_ended(written.task.status, is_paused=written.task.is_paused_now)
        log.info(
            "[run] ended session=%s run=%s outcome=%s code=%s rounds=%d prompt_tokens=%d "
            "cached_tokens=%d completion_tokens=%d seconds=%.1f",
            session.id,
            outcome.run_id,
            outcome.status,
            outcome.code,
            outcome.rounds,
            outcome.prompt_tokens,
            outcome.cached_tokens,
            outcome.completion_tokens,
            seconds,
        )
