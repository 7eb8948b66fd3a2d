"""The calls that the local Feishu got, and what goes wrong with them."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Call:
    """An HTTP call as it came in."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]
    token: str
    at: float
    code: int
    """What it was answered."""


@dataclass
class Fault:
    """What goes wrong with the calls that match; each use is one less of `times`."""

    method: str
    path: str
    """A part of the path or of what is asked for behind it."""
    status: int = 400
    body: Any = None
    """JSON, or a str to send as it is."""
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    """Wait before the answer; with no body the call then goes through."""
    is_late: bool = False
    """The call goes through at once, and the waiting, or the body, is for its answer."""
    gate: asyncio.Event | None = None
    """Wait for this first."""
    times: int = 1
    met: asyncio.Event = field(default_factory=asyncio.Event)

    def fits(self, request: web.Request) -> bool:
        """Whether it is for this call."""
        is_there = self.path in request.path or self.path in request.query_string
        return self.times > 0 and request.method == self.method and is_there


def written(fault: Fault) -> web.StreamResponse | None:
    """The answer that it gives, if it gives one."""
    if fault.body is None:
        return None
    if isinstance(fault.body, str):
        return web.Response(status=fault.status, text=fault.body, headers=fault.headers)
    return web.json_response(fault.body, status=fault.status, headers=fault.headers)
