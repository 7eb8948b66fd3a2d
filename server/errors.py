"""What the backend raises on purpose.

ServerError
├─ SettingsError          at start only; names the variable, never its value
├─ NotFound               404
├─ Conflict               409, with the code the socket answers
│  └─ Busy, QueueFull, …
├─ BadRequest             400; `path` names the field
├─ StoreUnavailable       the database is locked, full or gone
├─ StoreRefused           the database cannot take a statement as it is: our own fault
├─ Duplicate              the store has a row with this key already
├─ Fenced                 another process owns the run now; this one must let go
├─ RunError               ends a run as FAILED; `code` is stable, `user_text` safe to show
│  ├─ EmptyReplies
│  ├─ ContextOverflow
│  └─ ContractUnreadable
└─ LLMError               `code`, `retryable`
   ├─ LLMTimeout, LLMUnavailable, LLMRateLimited, LLMUnauthorized, LLMBadResponse
   └─ LLMRejected
      └─ LLMContextOverflow
ToolError                 becomes the result the model sees; never ends a run
"""

from collections.abc import Mapping
from typing import Literal

Locale = Literal["zh-CN", "en"]


class ServerError(Exception):
    """Base of all that the backend raises on purpose."""


class SettingsError(ServerError):
    """A setting is missing or wrong; the text names it and says what is right."""


class BadRequest(ServerError):
    """The caller sent something that is not of the protocol's form.

    The text is for the client's developer, in English; about a task it is for people.
    """

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class NotFound(ServerError):
    """There is no such thing, or it is not the caller's."""


class Conflict(ServerError):
    """The state does not allow it; `code` is a `res.error.code` of the socket.

    `words` say so to people, where the standing text of the code would say too little.
    """

    def __init__(
        self,
        code: str,
        words: str = "",
        *,
        retryable: bool = False,
        details: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(words or code)
        self.code = code
        self.words = words
        self.retryable = retryable
        self.details = dict(details or {})


class StoreUnavailable(ServerError):
    """The database does not answer: locked, full, or gone."""


class StoreRefused(ServerError):
    """The database cannot take a statement as it is: a fault of this code, not of the world."""


class Duplicate(ServerError):
    """The store has a row with this key already."""


class Fenced(ServerError):
    """The run's lease went to another process; nothing more may be written for it."""


class RunError(ServerError):
    """Ends a run as FAILED."""

    code = "internal"
    retryable = True

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or self.code)


class EmptyReplies(RunError):
    """The model answered nothing, ten times in a row."""

    code = "empty_response"


class ContextOverflow(RunError):
    """The prompt does not fit the model, and compaction could not make it fit."""

    code = "context_overflow"


class ContractUnreadable(RunError):
    """The run's progress contract was stored by another version; the detail is the wrong part."""

    code = "contract_unreadable"
    retryable = False


class LLMError(ServerError):
    """The model gateway did not give a reply."""

    code = "model_bad_response"
    retryable = False

    def __init__(self, detail: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class LLMTimeout(LLMError):
    """No answer in time."""

    code = "model_timeout"
    retryable = True


class LLMUnavailable(LLMError):
    """Connection refused or broken, or a 5xx answer."""

    code = "model_overloaded"
    retryable = True


class LLMRateLimited(LLMError):
    """The gateway answered 429."""

    code = "model_rate_limited"
    retryable = True


class LLMUnauthorized(LLMError):
    """The gateway refused the key."""

    code = "model_auth"


class LLMRejected(LLMError):
    """The gateway refused the request as it is (4xx)."""


class LLMContextOverflow(LLMRejected):
    """The gateway says that the prompt is too long."""

    code = "context_overflow"


class LLMBadResponse(LLMError):
    """The answer makes no sense: not a stream, not JSON, or cut before its end."""

    retryable = True


class ToolError(ServerError):
    """Becomes `{"error": code, "message": …}` for the model; never ends a run."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


_TEXTS: dict[str, tuple[str, str]] = {
    "empty_response": (
        "模型连续多次没有返回任何内容，本次执行已停止。请稍后重试。",
        "The model returned nothing several times in a row, so this run was stopped. "
        "Please try again later.",
    ),
    "model_auth": (
        "模型网关拒绝了密钥。请管理员检查 HEADWAY_MODEL_API_KEY。",
        "The model gateway refused the key. Ask your administrator to check HEADWAY_MODEL_API_KEY.",
    ),
    "model_rate_limited": (
        "模型网关限流，重试后仍未成功。请稍后再试。",
        "The model gateway is limiting requests and retries did not help. Please try again later.",
    ),
    "model_overloaded": (
        "模型服务暂时不可用，重试后仍未成功。请稍后再试。",
        "The model is unavailable and retries did not help. Please try again later.",
    ),
    "model_timeout": (
        "模型在规定时间内没有响应。请稍后再试。",
        "The model did not answer in time. Please try again later.",
    ),
    "model_bad_response": (
        "模型返回了无法识别的内容，本次执行已停止。请重试；若反复出现，请管理员检查模型网关。",
        "The model sent an answer that could not be understood, so this run was stopped. "
        "Try again; if it keeps happening, ask your administrator to check the gateway.",
    ),
    "context_overflow": (
        "对话内容超过了模型的上下文长度，压缩后仍放不下。请发送 /compact 或新建会话。",
        "The conversation is longer than the model's context, even after compaction. "
        "Send /compact or start a new session.",
    ),
    "contract_unreadable": (
        "本次执行的进展契约由其他版本的服务写入，当前版本无法读取，本次执行已停止。"
        "请重新设置会话或定时任务的契约（或将其移除），然后重新发送。",
        "This run's progress contract was written by another version of the server, and this one "
        "cannot read it, so the run was stopped. Give the session or the scheduled task its "
        "contract again, or take it away, and send your message anew.",
    ),
    "store_unavailable": (
        "存储暂时不可用（数据库被锁、磁盘已满或连接中断），本次执行已停止。请稍后重试。",
        "The store is unavailable (locked, full or disconnected), so this run was stopped. "
        "Please try again later.",
    ),
    "server_restart": (
        "服务重启，本次执行被中断。请重试。",
        "The server restarted and this run was interrupted. Please try again.",
    ),
    "run_moved": (
        "本次执行已离开当前服务进程，可能正在其他进程中继续。请刷新查看最新状态，确认失败后再重试。",
        "This run left this server process and may be going on in another one. Reload to see how "
        "it stands, and try again only if it failed.",
    ),
    "interrupt_expired": (
        "等待确认已超时，无人答复，本次执行已结束。请重试。",
        "Nobody answered in time, so this run was ended. Please try again.",
    ),
    "interrupt_mismatch": (
        "答复与正在等待的问题不符，请刷新后重新答复。",
        "The answer does not match what is waited for. Reload and answer again.",
    ),
    "internal": (
        "服务内部错误，本次执行已停止。请重试；若反复出现，请联系管理员并提供运行编号。",
        "Something went wrong inside the server, so this run was stopped. Try again; if it "
        "keeps happening, give your administrator the run's id.",
    ),
}


def text_in(texts: tuple[str, str], locale: Locale) -> str:
    """That of *texts*, Chinese and English, which is in *locale*."""
    chinese, english = texts
    return english if locale == "en" else chinese


def user_text(code: str, locale: Locale) -> str:
    """The sentence a person sees for *code*; codes without one get the text of `internal`."""
    return text_in(_TEXTS.get(code, _TEXTS["internal"]), locale)
