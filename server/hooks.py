"""Where Feishu calls bots that have no long connection: `POST /hooks/feishu/{app_id}`."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server.rest import error_answer
from server.state import State

MAX_HOOK_BYTES = 1024 * 1024
"""Events are a few kilobytes; files are fetched, not pushed."""


async def feishu_hook(request: Request[State]) -> Response:
    """Hand a call to its bot, which alone can tell whether it is the platform's."""
    channel = request.state["bots"].feishu.get(request.path_params["app_id"])
    if channel is None or channel.config.mode != "webhook":
        return error_answer(404, "not_found", "no such address")
    answer = await channel.webhook(dict(request.headers), await request.body())
    return Response(answer.body, answer.status, media_type="application/json")


ROUTES = (
    Route("/hooks/feishu/{app_id}", feishu_hook, methods=["POST"], max_body_size=MAX_HOOK_BYTES),
)
