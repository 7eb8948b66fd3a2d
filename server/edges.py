"""Joins what begins runs and what tells their ends: inbox, chats, tasks, answers, bots, outbox."""

from asyncio import Event
from contextlib import AsyncExitStack
from dataclasses import dataclass

from channels.clock import Clock
from server.approvals import Approvals, open_approvals_watch
from server.bots import open_bots
from server.chats import ChatInbox
from server.children import Children
from server.ground import Ground
from server.inbox import Birth, SessionInbox
from server.outbox import Outbox, open_outbox
from server.runs import Runs, open_runs
from server.schedule import Scheduler, open_scheduler
from server.surfaces import Ways


@dataclass(frozen=True, slots=True)
class Edges:
    """The ways in, and what people and clocks may do to runs."""

    approvals: Approvals
    inbox: SessionInbox
    chats: ChatInbox
    scheduler: Scheduler


def join_outbox(ground: Ground) -> Outbox:
    """The outbox over the bots."""
    ways = Ways(ground.bots.surfaces, ground.store)
    return Outbox(ground.store, ways, ground.metrics, ground.board, is_alone=ground.is_alone)


def join_edges(
    ground: Ground,
    runs: Runs,
    outbox: Outbox,
    children: Children,
    *,
    tasks_changed: Event,
    clock: Clock,
) -> Edges:
    """The ways in to *runs*; nothing comes in before `open_edges`."""
    settings, store, board = ground.settings, ground.store, ground.board
    approvals = Approvals(store=store, runs=runs, board=board, told=outbox.wake)
    inbox = SessionInbox(
        store=store,
        runs=runs,
        approvals=approvals,
        logs=ground.logs,
        board=board,
        children=children,
        birth=Birth(settings.locale, settings.timezone),
    )
    chats = ChatInbox(
        store=store, inbox=inbox, approvals=approvals, runs=runs, locale=settings.locale
    )
    scheduler = Scheduler(
        store=store,
        runs=runs,
        locale=settings.locale,
        awake=tasks_changed,
        delete_session=inbox.delete_session,
        metrics=ground.metrics,
        clock=clock,
    )
    ground.signals.tell_of_ends(scheduler.run_ended)
    return Edges(approvals, inbox, chats, scheduler)


async def open_edges(
    opened: AsyncExitStack, ground: Ground, runs: Runs, outbox: Outbox, edges: Edges
) -> None:
    """Let everything in and out, what is recovered and what is owed included.

    Bots first, since it goes out by them; so they are closed last, when the runs have ended.
    """
    await opened.enter_async_context(open_bots(ground.bots, ground.settings, edges.chats))
    ground.metrics.watch_channels(ground.bots.health)
    await opened.enter_async_context(open_runs(runs))
    await opened.enter_async_context(open_approvals_watch(edges.approvals))
    await opened.enter_async_context(open_outbox(outbox))
    await opened.enter_async_context(open_scheduler(edges.scheduler))
