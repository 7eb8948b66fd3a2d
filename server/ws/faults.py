"""Errors of the application as clients are told of them."""

import logging

from msgspec import UNSET

from server.errors import BadRequest, Conflict, Locale, NotFound, ServerError, StoreUnavailable
from server.ws.wire import ErrorBody, ErrorCode

logger = logging.getLogger(__name__)

RETRY_AFTER_MS = 1000


class Refused(ServerError):
    """The socket does not do a request; `code` says why."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


_TEXTS: dict[ErrorCode, tuple[str, str]] = {
    "unauthenticated": ("请先登录。", "Please log in first."),
    "not_found": ("没有找到。", "Not found."),
    "rate_limited": ("请求过于频繁，请稍后再试。", "Too many requests. Please try again shortly."),
    "unsupported_protocol": (
        "客户端版本与服务器不兼容，请刷新页面。",
        "This client and the server do not speak the same version. Please reload.",
    ),
    "unsupported_method": ("服务器不支持这个操作。", "The server cannot do this."),
    "shutting_down": (
        "服务正在重启，请稍后再试。",
        "The server is restarting. Please try again shortly.",
    ),
    "steer_unavailable": ("这次执行已经结束。", "That run is already over."),
    "internal": ("服务内部错误，请稍后重试。", "Something went wrong. Please try again later."),
}
_STORE_TEXT = (
    "存储暂时不可用，请稍后重试。",
    "The store is unavailable. Please try again later.",
)
RESTART_TEXT = (
    "服务即将重启，连接会自动恢复。",
    "The server is about to restart; the connection will come back by itself.",
)
LOGIN_OVER_TEXT = (
    "登录已过期，请重新登录；正在执行的任务会继续。",
    "Your login has ended. Please log in again; what runs goes on.",
)
_RETRYABLE: frozenset[ErrorCode] = frozenset({"rate_limited", "shutting_down", "internal"})


def text_in(texts: tuple[str, str], locale: Locale) -> str:
    """The one of *texts* that is in *locale*."""
    return texts[1] if locale == "en" else texts[0]


def error_body(error: Exception, locale: Locale) -> ErrorBody:
    """What the client is told of *error*; nothing of one that was not foreseen."""
    match error:
        case BadRequest():
            details = UNSET if error.path is None else {"path": error.path}
            return ErrorBody("bad_request", str(error), False, details=details)
        case Conflict():
            return ErrorBody(
                error.code,  # type: ignore[arg-type]
                str(error),
                error.retryable,
                details=error.details or UNSET,
            )
        case NotFound():
            return _fixed("not_found", locale)
        case Refused():
            return _fixed(error.code, locale)
        case StoreUnavailable():
            text = text_in(_STORE_TEXT, locale)
            return ErrorBody("internal", text, True, retry_after_ms=RETRY_AFTER_MS)
        case _:
            return _fixed("internal", locale)


def _fixed(code: ErrorCode, locale: Locale) -> ErrorBody:
    retryable = code in _RETRYABLE
    after = RETRY_AFTER_MS if retryable else UNSET
    return ErrorBody(code, text_in(_TEXTS[code], locale), retryable, retry_after_ms=after)
