"""Alive, ready, counted: `/healthz`, `/readyz`, `/metrics`."""

import time

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from channels.port import Health
from server.state import State
from server.tools.mcp import McpHealth


async def healthz(request: Request[State]) -> Response:
    """Alive: the event loop turns. Looks at nothing else, so it never fails with a database."""
    seconds = round(time.monotonic() - request.state["started_at"], 1)
    return _json({"status": "ok", "uptimeSeconds": seconds})


async def readyz(request: Request[State]) -> Response:
    """Ready for messages, or 503 and what is missing."""
    state = request.state
    checks = {"store": await _store_check(state), "model": await _model_check(state)}
    channels = [_channel_check(bot) for bot in state["bots"].health()]
    is_closing = state["closing"].is_set()
    is_ready = not is_closing and all(check["ok"] for check in [*checks.values(), *channels])
    status = "ready" if is_ready else "closing" if is_closing else "not_ready"
    servers = [_server_check(server) for server in state["mcp"].health()]
    answer = {"status": status, "checks": checks, "channels": channels, "mcp": servers}
    return _json(answer, 200 if is_ready else 503)


async def metrics(request: Request[State]) -> Response:
    """The counters in Prometheus' text form."""
    return Response(
        request.state["metrics"].render(), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )


async def _store_check(state: State) -> dict[str, object]:
    reason = await state["store_probe"].ask()
    return {"ok": True} if reason is None else {"ok": False, "reason": reason}


def _channel_check(bot: Health) -> dict[str, object]:
    """A degraded bot still answers; one that is down does not, whatever else is well."""
    found: dict[str, object] = {
        "ok": bot.state != "down",
        "platform": bot.platform,
        "app": bot.app_id,
        "state": bot.state,
    }
    if bot.reason:
        found["reason"] = bot.reason
    if bot.last_frame_seconds is not None:
        found["lastFrameSeconds"] = round(bot.last_frame_seconds, 1)
    return found


def _server_check(server: McpHealth) -> dict[str, object]:
    """Without a server its tools say that they are not available, and all else goes on."""
    found: dict[str, object] = {
        "ok": True,
        "name": server.name,
        "state": server.state,
        "tools": server.tools,
    }
    if server.reason:
        found["reason"] = server.reason
    return found


async def _model_check(state: State) -> dict[str, object]:
    checked = await state["probe"].ask()
    age = round(checked.age_seconds, 1)
    if checked.reason is None:
        return {"ok": True, "ageSeconds": age}
    return {"ok": False, "ageSeconds": age, "reason": checked.reason}


def _json(value: object, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(value),
        status,
        headers={"Content-Type": "application/json", "Cache-Control": "no-store"},
    )


ROUTES = (
    Route("/healthz", healthz),
    Route("/readyz", readyz),
    Route("/metrics", metrics),
)
