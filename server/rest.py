"""What every REST handler shares: who asks, how values are read and answered, how errors look."""

import logging
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, TypeVar, cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from channels.faults import fault_of
from server.auth import User
from server.errors import (
    BadRequest,
    Conflict,
    Locale,
    NotFound,
    ServerError,
    StoreUnavailable,
    text_in,
)
from server.state import State
from server.store.sessions import Session, load_session
from server.ws.faults import words_of
from server.ws.wire import ErrorBody, ErrorCode

logger = logging.getLogger(__name__)

T = TypeVar("T")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_JSON_BYTES = 1024 * 1024
"""Of a request's JSON, as of a frame on the socket; files have their own limit."""

_CODES = {
    400: "bad_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "unsupported_method",
    413: "payload_too_large",
    429: "rate_limited",
}

_TEXTS: dict[str, tuple[str, str]] = {
    "unauthenticated": ("请先登录。", "Please log in first."),
    "forbidden": ("不允许的访问。", "This access is not allowed."),
    "not_found": ("没有找到。", "Not found."),
    "payload_too_large": ("内容过大。", "This is too large."),
    "store_unavailable": (
        "存储暂时不可用，请稍后重试。",
        "The store is unavailable. Please try again later.",
    ),
    "internal": ("服务内部错误。", "Something went wrong inside the server."),
}


class Refused(ServerError):
    """The edge does not let a request through."""

    def __init__(self, status: int, detail: str = "") -> None:
        super().__init__(detail or _CODES[status])
        self.status = status
        self.code = _CODES[status]


class ErrorAnswer(msgspec.Struct):
    """The body of every answer that is not a 2xx."""

    error: ErrorBody


def answer(value: object, status: int = 200) -> Response:
    """*value* as JSON; no cache keeps it."""
    return Response(
        msgspec.json.encode(value),
        status,
        headers={"Content-Type": "application/json", "Cache-Control": "no-store"},
    )


def error_answer(
    status: int,
    code: str,
    message: str,
    *,
    retryable: bool = False,
    path: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer of a request that failed; *path* names the field at fault."""
    details = {"path": path} if path else msgspec.UNSET
    known = cast(ErrorCode, code)  # errors carry their code as text
    response = answer(ErrorAnswer(ErrorBody(known, message, retryable, details=details)), status)
    response.headers.update(headers or {})
    return response


def signed_in(request: Request[State]) -> User:
    """Who asks, after the page's origin was found in order.

    Raises:
        Refused: 403 for a foreign page, 401 for nobody we know.
    """
    origins, users = request.state["origins"], request.state["users"]
    is_safe = request.method in SAFE_METHODS
    refused = (origins.check_read if is_safe else origins.check)(request.headers)
    if refused is not None:
        raise Refused(403, refused)
    user = users.from_headers(request.headers, request.cookies)
    if user is None:
        raise Refused(401)
    return user


async def session_of(request: Request[State], session_id: str) -> Session:
    """The session, if whoever asks may see it.

    Raises:
        Refused: Not logged in.
        NotFound: There is none, or it is somebody else's: which of both is not told.
    """
    user = signed_in(request)
    async with request.state["store"].read() as db:
        session = await load_session(db, session_id)
    if not user.may_see(session.owner):
        raise NotFound("no such session")
    return session


def number_in(request: Request[State], name: str, default: int, most: int) -> int:
    """The whole number *name* of the query, from 1 to *most*; larger ones become *most*."""
    value = whole_in(request, name)
    if value is None:
        return default
    if value < 1:
        raise BadRequest("must be at least 1", name)
    return min(value, most)


def whole_in(request: Request[State], name: str) -> int | None:
    """The whole number *name* of the query, None without one."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise BadRequest("must be a whole number", name)
    return int(text)


def time_in(request: Request[State], name: str) -> datetime | None:
    """The time *name* of the query, None without one."""
    text = request.query_params.get(name)
    return None if text is None else time_of(text, name)


def time_of(text: str, name: str) -> datetime:
    """The time that *text* is, which the query calls *name*."""
    try:
        # In a query, an unescaped plus sign arrives as a space.
        value = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        raise BadRequest("must be a time such as 2026-01-31T08:00:00+00:00", name) from None
    if value.tzinfo is None:
        raise BadRequest("must be a time with its offset from UTC", name)
    return value


def bounded(request: Request[State], most_bytes: int) -> Request[State]:
    """The same request, whose body is refused where it is longer than *most_bytes*.

    Raises:
        Refused: 413, here already if the header says so, else while the body is read.
    """
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > most_bytes:
        raise Refused(413)
    left_bytes = most_bytes

    async def receive() -> Message:
        nonlocal left_bytes
        message = await request.receive()
        left_bytes -= len(message.get("body", b""))
        if left_bytes < 0:
            raise Refused(413)
        return message

    return Request(request.scope, receive)


async def body_of(request: Request[State], kind: type[T], most_bytes: int = MAX_JSON_BYTES) -> T:
    """The request's JSON as a *kind*.

    Raises:
        BadRequest: It is not.
        Refused: It is too long.
    """
    body = await bounded(request, most_bytes).body()
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        text, _, path = str(error).partition(" - at `$")
        raise BadRequest(text, path.rstrip("`").lstrip(".") or None) from None


def _fixed(request: Request[Any], code: str) -> str:
    return text_in(_TEXTS[code], locale_of(request))


def locale_of(request: Request[Any]) -> Locale:
    """The language that a client likes best of those that we have; else the server's.

    Source: RFC 9110, 12.5.4 (`Accept-Language`) and 12.4.2 (weights).
    """
    default: Locale = request.state["settings"].locale
    liked = [_liking(part) for part in request.headers.get("accept-language", "").split(",")]
    best_first = sorted(liked, key=lambda liking: liking[0], reverse=True)
    found = (locale for weight, locale in best_first if weight > 0 and locale is not None)
    return next(found, default)


def _liking(part: str) -> tuple[float, Locale | None]:
    """How much a client likes a language, from 0 to 1, and which of ours it is."""
    language, _, parameters = part.strip().lower().partition(";")
    name, _, weight = parameters.strip().partition("=")
    try:
        liking = float(weight) if name == "q" else 1.0
    except ValueError:
        liking = 0.0
    match language.strip().split("-")[0]:
        case "zh":
            return liking, "zh-CN"
        case "en":
            return liking, "en"
        case _:
            return liking, None


async def _on_server_error(request: Request[Any], error: Exception) -> Response:
    match error:
        case BadRequest():
            return error_answer(400, "bad_request", str(error), path=error.path)
        case NotFound():
            return error_answer(404, "not_found", _fixed(request, "not_found"))
        case Conflict():
            text = words_of(error, locale_of(request))
            return error_answer(409, error.code, text, retryable=error.retryable)
        case Refused():
            text = _fixed(request, error.code) if error.code in _TEXTS else str(error)
            return error_answer(error.status, error.code, text)
        case StoreUnavailable():
            logger.warning("[store] unavailable reason=%s", error)
            text = _fixed(request, "store_unavailable")
            return error_answer(503, "internal", text, retryable=True, headers={"Retry-After": "2"})
        case _:
            raise error


async def _on_http_error(request: Request[Any], error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"
    code = _CODES.get(error.status_code, "internal")
    text = _fixed(request, code) if code in _TEXTS else HTTPStatus(error.status_code).phrase
    return error_answer(error.status_code, code, text, headers=error.headers)


ERROR_HANDLERS: Mapping[Any, ExceptionHandler] = {
    ServerError: _on_server_error,
    HTTPException: _on_http_error,
}


class Faults:
    """Answers what was not foreseen, and logs where it broke but not its words.

    Nothing gets past it: Starlette and uvicorn would log the error's own text, which may quote
    what people wrote.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_answered = False

        async def send_noting(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        except Exception as error:  # noqa: BLE001 - one request's fault is not the server's
            logger.error("[http] %s failed %s", scope["method"], fault_of(error))
            if not is_answered:
                text = _fixed(Request[Any](scope), "internal")
                response = error_answer(500, "internal", text, retryable=True)
                await response(scope, receive, send)
