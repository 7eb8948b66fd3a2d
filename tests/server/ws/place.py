"""The application on a free port with a database of its own, and sessions to speak about."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from channels.events import Outcome, RunEvent, RunStarted
from server import agui_routes, http
from server.app import open_state
from server.eventring import EventRing
from server.rest import ERROR_HANDLERS
from server.state import State
from server.ws.endpoint import Sockets
from server.ws.policy import Policy
from tests.house import ENVIRONMENT, settings_for
from tests.serve import serve

ADMIN, ANN, BOB = "admin-token", "ann-token", "bob-token"


@dataclass(frozen=True, slots=True)
class Place:
    """A running server and the inside of it."""

    url: str
    state: State

    async def session(self, owner: str = "ann", **given: Any) -> str:
        """The id of a new session."""
        return (await self.state["inbox"].create_session(owner, **given)).id

    def ring(self, session_id: str) -> EventRing:
        """The log of a session."""
        return self.state["logs"].of(session_id)

    def emit(self, session_id: str, *events: RunEvent) -> None:
        """Write into the log of a session as its run would."""
        sink = self.state["logs"].sink(session_id, "zh-CN")
        for event in events:
            sink.emit(event)

    def emit_run(self, session_id: str, run_id: str, *events: RunEvent) -> None:
        """Write a run that begins and ends."""
        began = RunStarted(run_id, f"message-{run_id}", "hi")
        self.emit(session_id, began, *events, Outcome(run_id, "finished", "completed"))


@asynccontextmanager
async def open_place(
    folder: Path,
    database_url: str,
    gateway_url: str | None = None,
    *,
    policy: Policy | None = None,
    **variables: str,
) -> AsyncIterator[Place]:
    """Serve the application; without a gateway, its built-in model answers."""
    settings = settings_for(folder, database_url, gateway_url, **variables)
    async with open_state(settings, ENVIRONMENT, asyncio.Event()) as state:

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[State]:
            yield state

        app = Starlette(
            routes=[*Sockets(policy).routes(), *agui_routes.routes(), *http.routes()],
            middleware=http.middleware(settings),
            exception_handlers=ERROR_HANDLERS,
            lifespan=lifespan,
        )
        async with serve(app) as url:
            yield Place(url, state)


def kinds(frames: Sequence[dict[str, Any]]) -> list[str]:
    """The types of AG-UI events."""
    return [frame["type"] for frame in frames]
