"""Where AG-UI clients come in; what they need is imported when the first of them comes.

Their protocol's models take a tenth of a second to make, and most servers see no such client.
"""

import asyncio
from collections.abc import Sequence
from importlib import import_module

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from server.state import State

MAX_INPUT_BYTES = 20 * 1024 * 1024
"""Clients send all of their history each time."""


async def post_agui(request: Request[State]) -> Response:
    """`POST /agui`."""
    await _import()
    from server.agui_http import post_agui as answer

    return await answer(request)


async def get_capabilities(request: Request[State]) -> Response:
    """What AG-UI clients may expect."""
    await _import()
    from server.agui_http import get_capabilities as answer

    return await answer(request)


async def get_events(request: Request[State]) -> Response:
    """A session's events as a stream."""
    await _import()
    from server.agui_http import get_events as answer

    return await answer(request)


async def _import() -> None:
    """In a thread: streams that are under way must not stand still for it."""
    await asyncio.to_thread(import_module, "server.agui_http")


def routes() -> Sequence[BaseRoute]:
    """The AG-UI side; they come before those that catch everything below `/api`."""
    return [
        Route("/agui", post_agui, methods=["POST"], max_body_size=MAX_INPUT_BYTES),
        Route("/agui/capabilities", get_capabilities),
        Route("/api/sessions/{session_id}/events", get_events),
    ]
