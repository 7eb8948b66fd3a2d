"""Errors of the application as clients are told of them."""

from typing import cast

from msgspec import UNSET

from server.errors import (
    BadRequest,
    Conflict,
    Locale,
    NotFound,
    ServerError,
    StoreUnavailable,
    text_in,
)
from server.ws.wire import ErrorBody, ErrorCode

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
    "busy": ("会话正在执行。", "The session is busy."),
    "queue_full": (
        "排队的消息已达上限，请稍后再试。",
        "The queue is full. Please try again later.",
    ),
    "interrupts_pending": ("请先回答正在等待的问题。", "A question waits for an answer first."),
    "approval_already_resolved": ("这个问题已经有人回答了。", "Somebody answered this before."),
    "approval_expired": ("没有人及时答复，这个问题已失效。", "Nobody answered in time."),
    "resync_required": (
        "这个位置之后的记录已不再保留，请重新读取消息。",
        "What came after this position is not kept. Please read the messages again.",
    ),
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


def words_of(error: Conflict, locale: Locale) -> str:
    """*error* for people."""
    return error.words or text_in(_TEXTS[cast(ErrorCode, error.code)], locale)


def error_body(error: Exception, locale: Locale) -> ErrorBody:
    """What the client is told of *error*; nothing of one that was not foreseen."""
    match error:
        case BadRequest():
            details = UNSET if error.path is None else {"path": error.path}
            return ErrorBody("bad_request", str(error), False, details=details)
        case Conflict():
            return ErrorBody(
                error.code,  # type: ignore[arg-type]
                words_of(error, locale),
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
