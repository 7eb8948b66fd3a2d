"""The one place where objects are built and joined."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from starlette.applications import Starlette

from channels.clock import SYSTEM, Clock
from server import hooks
from server.agent.journal import Journal
from server.agent_setup import Agent, join_agent, open_chosen_model
from server.agui_routes import routes as agui_routes
from server.attachments import Attachments
from server.auth import OriginPolicy, Users
from server.board import Board
from server.children import open_children
from server.edges import Edges, join_edges, join_outbox, open_edges
from server.execution import Executor
from server.ground import Ground, open_ground
from server.http import middleware, routes
from server.llm.port import Model
from server.outbox import Outbox
from server.probe import ModelProbe, StoreProbe, open_probe
from server.rest import ERROR_HANDLERS
from server.runs import Runs
from server.schedule import time_of
from server.settings import Settings
from server.state import State
from server.telling import Teller
from server.titles import Titles, open_titles
from server.tools.mcp import McpServers, open_mcp
from server.tools.schedule import Tasks
from server.tools.shell import Shells
from server.tracing import Tracer, open_tracing
from server.upkeep import open_upkeep
from server.ws.endpoint import Sockets


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
    ground = await open_ground(opened, settings)
    store, board = ground.store, ground.board
    provider = "headway" if settings.model.is_builtin else "openai"
    tracer = await opened.enter_async_context(open_tracing(environment, provider))
    model = await open_chosen_model(opened, settings)
    shells = await opened.enter_async_context(Shells(environment))
    children = await opened.enter_async_context(open_children(store, board))
    journal = Journal(store, ground.metrics)
    titles = await opened.enter_async_context(open_titles(Titles(store, journal, model, board)))
    mcp = await opened.enter_async_context(open_mcp(settings.mcp, environment))
    ground.metrics.watch_mcp(mcp.health)
    tasks_changed = asyncio.Event()
    tasks = Tasks(store, partial(time_of, clock), tasks_changed.set)
    agent = join_agent(ground, model, shells, mcp, tasks)
    outbox = join_outbox(ground)
    runs = _runs(ground, agent, shells, outbox, titles, tracer)
    edges = join_edges(ground, runs, outbox, children, tasks_changed=tasks_changed, clock=clock)
    await open_edges(opened, ground, runs, outbox, edges)
    await opened.enter_async_context(open_upkeep(store, ground.blobs, settings.workspace))
    await opened.enter_async_context(_farewell(closing, board))
    probe = await opened.enter_async_context(open_probe(model))
    return _state(ground, edges, model, mcp, probe, closing)


def _runs(
    ground: Ground, agent: Agent, shells: Shells, outbox: Outbox, titles: Titles, tracer: Tracer
) -> Runs:
    """The runs, with what executes them and what tells of them."""
    store, surfaces = ground.store, ground.bots.surfaces
    teller = Teller(logs=ground.logs, board=ground.board, metrics=ground.metrics, surfaces=surfaces)
    executor = Executor(
        store=store,
        history=agent.history,
        loop=agent.loop,
        attachments=Attachments(store, ground.blobs, surfaces),
        teller=teller,
        shells=shells,
        tracer=tracer,
        on_restart=ground.settings.on_restart,
    )
    return Runs(
        store=store,
        executor=executor,
        teller=teller,
        shells=shells,
        told=outbox.wake,
        first_finished=titles.ask,
        signals=ground.signals,
        is_alone=ground.is_alone,
    )


def _state(
    ground: Ground,
    edges: Edges,
    model: Model,
    mcp: McpServers,
    probe: ModelProbe,
    closing: asyncio.Event,
) -> State:
    """What handlers get."""
    return State(
        settings=ground.settings,
        store=ground.store,
        blobs=ground.blobs,
        inbox=edges.inbox,
        approvals=edges.approvals,
        signals=ground.signals,
        scheduler=edges.scheduler,
        chats=edges.chats,
        bots=ground.bots,
        mcp=mcp,
        logs=ground.logs,
        board=ground.board,
        users=Users.from_settings(ground.settings),
        origins=OriginPolicy.from_settings(ground.settings),
        model=model,
        probe=probe,
        store_probe=StoreProbe(ground.store),
        metrics=ground.metrics,
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
