"""What a gateway's refusal means: statuses, error bodies and `Retry-After` to our errors.

Nothing of a body gets into an error's text: gateways quote prompts and keys in theirs.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from server.errors import (
    LLMBadResponse,
    LLMContextOverflow,
    LLMError,
    LLMRateLimited,
    LLMRejected,
    LLMTimeout,
    LLMUnauthorized,
    LLMUnavailable,
)

RETRY_AFTER_CAP_SECONDS = 30.0
"""Longer waits are cut: a person watches, and a run has better ways to wait than a held task."""

_OVERFLOW_STATUSES = frozenset({400, 413, 422, 500})
"""500 is llama.cpp's answer before it had a code of its own."""

_OVERFLOW = re.compile(
    r"context.?length|maximum context|context.?window|available context|exceed_context_size"
    r"|(prompt|input|request) is too (long|large)|prompt too long|input.?length"
    r"|too many input tokens"
    r"|model token limit|maximum number of (input )?tokens|max(imum)? (input|prompt) tokens"
    r"|reduce the length of|上下文长度|输入长度|输入过长|超(过|出).{0,12}(上下文|最大长度)",
    re.IGNORECASE,
)

_MEANINGS: tuple[tuple[re.Pattern[str], type[LLMError]], ...] = (
    (re.compile(r"rate.?limit|too_many_requests|throttl|quota", re.I), LLMRateLimited),
    (re.compile(r"api.?key|auth|permission|forbidden", re.I), LLMUnauthorized),
    (re.compile(r"time.?out|timed.?out", re.I), LLMTimeout),
    (re.compile(r"overload|unavailable|server_?error|internal|api_error", re.I), LLMUnavailable),
    (re.compile(r"invalid|not_found|unsupported|content_?(policy|filter)", re.I), LLMRejected),
)


def from_status(status: int, body: bytes, retry_after_seconds: float | None = None) -> LLMError:
    """The error that an answer with *status* stands for."""
    detail = f"the gateway answered with status {status}"
    if status in _OVERFLOW_STATUSES and _OVERFLOW.search(body.decode("utf-8", "replace")):
        return LLMContextOverflow(f"{detail}: the prompt is too long")
    if status in (401, 403):
        return LLMUnauthorized(detail)
    if status == 429:
        return LLMRateLimited(detail, retry_after_seconds=retry_after_seconds)
    if status == 408:
        return LLMTimeout(detail, retry_after_seconds=retry_after_seconds)
    if status == 409 or status >= 500:
        return LLMUnavailable(detail, retry_after_seconds=retry_after_seconds)
    return LLMRejected(detail)


def from_error(error: object) -> LLMError:
    """The error that an `error` object inside a good answer stands for."""
    words, facts, status = _read(error)
    if status is not None:
        return from_status(status, facts.encode("utf-8", "replace"))
    if _OVERFLOW.search(facts):
        return LLMContextOverflow("the gateway reported that the prompt is too long")
    for pattern, meaning in _MEANINGS:
        if pattern.search(words):
            return meaning("the gateway reported an error inside its answer")
    return LLMBadResponse("the gateway reported an error inside its answer")


def names_field(body: bytes, field: str) -> bool:
    """Whether a refusal speaks of *field* of the request."""
    return field.encode() in body


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds to wait by a `Retry-After` header, which has seconds or a date; capped."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = _seconds_until(value, now)
    if seconds != seconds:
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_CAP_SECONDS)


def _seconds_until(date: str, now: datetime) -> float:
    try:
        when = parsedate_to_datetime(date)
    except ValueError:
        return float("nan")
    return (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds()


def _read(error: object) -> tuple[str, str, int | None]:
    """An error's code and type, all its words, and the HTTP status that it carries, if any."""
    if not isinstance(error, Mapping):
        return str(error), str(error), None
    status = None
    for name in ("status", "status_code", "http_code", "code"):
        status = status or _http_status(error.get(name))
    words = " ".join(str(error.get(name) or "") for name in ("code", "type", "status"))
    return words, f"{words} {error.get('message') or ''}", status


def _http_status(value: object) -> int | None:
    try:
        status = msgspec.convert(value, int, strict=False)
    except msgspec.ValidationError:
        return None
    return status if 400 <= status < 600 else None
