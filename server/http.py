"""The HTTP side put together: health, REST, login, and the page below all of them."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from server import health, rest_files, rest_sessions, rest_tasks
from server.auth import COOKIE, COOKIE_SECONDS, User
from server.page import Page, SecurityHeaders
from server.rest import (
    Faults,
    Refused,
    answer,
    body_of,
    error_answer,
    signed_in,
)
from server.settings import Settings
from server.state import State

WEB = Path(__file__).parent / "web"

_MAX_LOGIN_BYTES = 64 * 1024
"""Nobody is known yet who could be trusted with more."""


class Login(msgspec.Struct):
    """What the page posts to log in."""

    token: str


class UserObject(msgspec.Struct, rename="camel"):
    """Who is logged in."""

    name: str
    is_admin: bool


class Me(msgspec.Struct, rename="camel"):
    """Who asks, and what the page has to know before it opens a socket."""

    user: UserObject
    locale: str
    max_file_bytes: int


async def login(request: Request[State]) -> Response:
    """Take a token and give the cookie that stands for it."""
    refused = request.state["origins"].check_read(request.headers)
    if refused is not None:
        raise Refused(403, refused)
    token = (await body_of(request, Login, _MAX_LOGIN_BYTES)).token
    user = request.state["users"].by_token(token)
    if user is None:
        raise Refused(401)
    response = answer(_me(request, user))
    response.set_cookie(
        COOKIE,
        request.state["users"].cookie_for(token),
        max_age=COOKIE_SECONDS,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return response


async def logout(request: Request[State]) -> Response:
    """Take the cookie back."""
    signed_in(request)
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="lax")
    return response


async def me(request: Request[State]) -> Response:
    """Who asks."""
    return answer(_me(request, signed_in(request)))


def _me(request: Request[State], user: User) -> Me:
    locale = request.state["settings"].locale
    return Me(UserObject(user.name, user.is_admin), locale, rest_files.MAX_FILE_BYTES)


async def unknown(request: Request[State]) -> Response:
    """Below `/api` there are no files to fall back to."""
    return error_answer(404, "not_found", "no such address")


def routes(web: Path = WEB) -> Sequence[BaseRoute]:
    """Every HTTP route of this side; the page takes what is left, so they come last."""
    return [
        *health.ROUTES,
        Route("/api/login", login, methods=["POST"]),
        Route("/api/logout", logout, methods=["POST"]),
        Route("/api/me", me),
        *rest_sessions.ROUTES,
        *rest_files.ROUTES,
        *rest_tasks.ROUTES,
        Route("/api/{rest:path}", unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        Mount("/", Page(web)),
    ]


def middleware(settings: Settings) -> Sequence[Middleware]:
    """What stands around every route.

    Pages of the public origins may use REST with a token; a cookie is only for our own page.
    """
    around = [Middleware(SecurityHeaders)]
    if settings.public_origins:
        around.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(settings.public_origins),
                allow_methods=["GET", "POST", "PATCH", "DELETE"],
                allow_headers=["Authorization", "Content-Type"],
            )
        )
    around.append(Middleware(Faults))
    return around
