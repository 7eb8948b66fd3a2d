"""The one place where objects are built and joined."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Final

from starlette.applications import Starlette

from channels.clock import SYSTEM, Clock
from guard import Rules
from server import hooks, schedule
from server.agent.calls import CallRunner
from server.agent.compaction import CompactionSettings, Compactor
from server.agent.consent import Consent
from server.agent.history import History
from server.agent.journal import Journal
from server.agent.loop import AgentLoop
from server.agui_http import routes as agui_routes
from server.approvals import Approvals, open_approvals_watch
from server.attachments import Attachments
from server.auth import OriginPolicy, Users
from server.board import Board
from server.bots import Bots, open_bots
from server.chats import ChatInbox
from server.children import open_children
from server.delegate import SUBAGENT, Delegate
from server.delivery import Deliveries
from server.eventlog import EventLogs
from server.execution import Executor
from server.http import middleware, routes
from server.inbox import Birth, SessionInbox
from server.llm.builtin import BuiltinModel
from server.llm.openai import ModelSettings, open_model
from server.llm.port import Model
from server.metrics import Metrics
from server.outbox import Outbox, open_outbox
from server.probe import open_probe
from server.rest import ERROR_HANDLERS
from server.runs import Runs, open_runs
from server.schedule import Scheduler, open_scheduler
from server.settings import Settings
from server.signals import RunSignals
from server.state import State
from server.store.blobs import Blobs
from server.store.engine import Store, open_store
from server.store.lock import hold_lock
from server.surfaces import Ways
from server.telling import Teller
from server.titles import Titles, open_titles
from server.tools.ask import AskUser
from server.tools.base import Registry, Tool
from server.tools.files import EditFile, ListDir, ReadFile, WriteFile
from server.tools.image import ViewImage
from server.tools.mcp import open_mcp
from server.tools.schedule import (
    NORMALISER,
    SCHEDULE_TASK,
    ListScheduledTasks,
    ScheduleTask,
    Tasks,
)
from server.tools.search import GrepSearch, find_ripgrep
from server.tools.send import SEND_MESSAGE, SEND_NORMALISER, SendMessage
from server.tools.shell import Shells, ShellTool, child_environment
from server.tools.subagents import SpawnSubagent, WaitSubagents
from server.upkeep import open_upkeep
from server.websurface import WebSurface
from server.ws.endpoint import Sockets

RULES: Final = Rules(
    normalisers=MappingProxyType(
        {
            SCHEDULE_TASK: NORMALISER,
            SEND_MESSAGE: SEND_NORMALISER,
        }
    )
)
"""What the guard is told of our tools' results."""

WEB_SURFACES: Final = ("web", "agui", SUBAGENT, schedule.TRIGGER)
"""Origins whose people watch the event log; their outbox only refreshes lists."""


def create_app(settings: Settings, environment: Mapping[str, str]) -> Starlette:
    """The application.

    Args:
        environment: Of this process; what child processes inherit is chosen from it.

    `app.state.closing` is for whoever runs the server to set when it begins to end.
    """
    closing = asyncio.Event()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[State]:
        async with open_state(settings, environment, closing) as state:
            yield state

    app = Starlette(
        routes=[*Sockets().routes(), *agui_routes(), *hooks.ROUTES, *routes()],
        middleware=middleware(settings),
        exception_handlers=ERROR_HANDLERS,
        lifespan=lifespan,
    )
    app.state.closing = closing
    return app


@asynccontextmanager
async def open_state(
    settings: Settings,
    environment: Mapping[str, str],
    closing: asyncio.Event,
    clock: Clock = SYSTEM,
) -> AsyncIterator[State]:
    """The opened application without its HTTP side; scheduled tasks go by *clock*."""
    async with AsyncExitStack() as opened:
        yield await _open(opened, settings, environment, closing, clock)


async def _open(
    opened: AsyncExitStack,
    settings: Settings,
    environment: Mapping[str, str],
    closing: asyncio.Event,
    clock: Clock,
) -> State:
    """Open everything, the store first, so that it is closed last."""
    store = await opened.enter_async_context(open_store(settings.database_url.get_secret_value()))
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    is_alone = store.dialect == "sqlite"
    if is_alone:
        opened.enter_context(hold_lock(settings.data_dir))
    settings.workspace.mkdir(parents=True, exist_ok=True)
    blobs = Blobs(settings.data_dir / "files")
    metrics, board, logs = Metrics(), Board(), EventLogs()
    metrics.watch_event_log(logs.kept)
    model = await _open_model(opened, settings)
    shells = await opened.enter_async_context(Shells(child_environment(environment)))
    children = await opened.enter_async_context(open_children(store, board))
    titles = await opened.enter_async_context(open_titles(Titles(store, model, board)))
    bots = Bots()
    web = WebSurface(board, store)
    ways = Ways(dict.fromkeys(WEB_SURFACES, web), bots.surfaces, store)
    outbox = Outbox(store, ways, metrics, board, is_alone=is_alone)
    signals = RunSignals()
    delegate = Delegate(store=store, signals=signals, board=board, limits=settings.subagents)
    mcp = await opened.enter_async_context(open_mcp(settings.mcp, environment))
    metrics.watch_mcp(mcp.health)
    tasks_changed = asyncio.Event()
    tasks = Tasks(store, partial(schedule.time_of, clock), tasks_changed.set)
    deliveries = Deliveries(store, signals)
    registry = Registry(_tools(settings, shells, delegate, tasks, deliveries), mcp)
    history = History(store, blobs, RULES, settings.workspace.resolve(), registry)
    teller = Teller(logs=logs, board=board, metrics=metrics, surfaces=bots.surfaces)
    executor = Executor(
        store=store,
        history=history,
        loop=_loop(settings, model, history, Journal(store, metrics), store, blobs, registry),
        attachments=Attachments(store, blobs, bots.surfaces),
        teller=teller,
        shells=shells,
        on_restart=settings.on_restart,
    )
    runs = Runs(
        store=store,
        executor=executor,
        teller=teller,
        shells=shells,
        told=outbox.wake,
        first_finished=titles.ask,
        signals=signals,
        is_alone=is_alone,
    )
    birth = Birth(settings.locale, settings.timezone)
    approvals = Approvals(store=store, runs=runs, board=board, told=outbox.wake)
    inbox = SessionInbox(
        store=store,
        runs=runs,
        approvals=approvals,
        logs=logs,
        board=board,
        children=children,
        birth=birth,
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
        clock=clock,
    )
    # Bots first: what is recovered and what is still owed goes out by them.
    await opened.enter_async_context(open_bots(bots, settings, chats))
    metrics.watch_channels(bots.health)
    await opened.enter_async_context(open_runs(runs))
    await opened.enter_async_context(open_approvals_watch(approvals))
    await opened.enter_async_context(open_outbox(outbox))
    await opened.enter_async_context(open_scheduler(scheduler))
    await opened.enter_async_context(open_upkeep(store))
    await opened.enter_async_context(_farewell(closing, board))
    return State(
        settings=settings,
        store=store,
        blobs=blobs,
        inbox=inbox,
        approvals=approvals,
        signals=signals,
        scheduler=scheduler,
        chats=chats,
        bots=bots,
        mcp=mcp,
        logs=logs,
        board=board,
        users=Users.from_settings(settings),
        origins=OriginPolicy.from_settings(settings),
        model=model,
        probe=await opened.enter_async_context(open_probe(model)),
        metrics=metrics,
        started_at=time.monotonic(),
        closing=closing,
    )


@asynccontextmanager
async def _farewell(closing: asyncio.Event, board: Board) -> AsyncIterator[None]:
    """Tell every client when the server begins to end; connections are ended before this is."""

    async def wait() -> None:
        await closing.wait()
        board.close()

    task = asyncio.create_task(wait(), name="farewell")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _open_model(opened: AsyncExitStack, settings: Settings) -> Model:
    chosen = settings.model
    if chosen.base_url is None:
        return BuiltinModel()
    key = chosen.api_key.get_secret_value() if chosen.api_key is not None else ""
    return await opened.enter_async_context(
        open_model(
            ModelSettings(
                base_url=chosen.base_url,
                model=chosen.name,
                api_key=key,
                context_tokens=chosen.context_tokens,
                locale=settings.locale,
            )
        )
    )


def _loop(
    settings: Settings,
    model: Model,
    history: History,
    journal: Journal,
    store: Store,
    blobs: Blobs,
    registry: Registry,
) -> AgentLoop:
    consent = Consent(registry, settings.approvals)
    compactor = Compactor(
        model=model,
        history=history,
        journal=journal,
        rules=RULES,
        settings=CompactionSettings(
            context_tokens=settings.model.context_tokens,
            trigger_ratio=settings.compaction.trigger_ratio,
            keep_rounds=settings.compaction.keep_rounds,
        ),
    )
    return AgentLoop(
        model=model,
        history=history,
        calls=CallRunner(registry, consent, store, blobs, RULES),
        journal=journal,
        compactor=compactor,
        consent=consent,
    )


def _tools(
    settings: Settings, shells: Shells, delegate: Delegate, tasks: Tasks, deliveries: Deliveries
) -> list[Tool]:
    tools: list[Tool] = [
        ReadFile(),
        WriteFile(),
        EditFile(),
        ListDir(),
        ViewImage(),
        GrepSearch(find_ripgrep()),
        AskUser(),
        ScheduleTask(tasks),
        ListScheduledTasks(tasks),
        SendMessage(deliveries),
    ]
    if settings.shell.enabled:
        tools.append(ShellTool(shells))
    if settings.subagents.depth > 0:
        tools += [SpawnSubagent(delegate), WaitSubagents(delegate)]
    return tools
