"""What refusals mean."""

from datetime import timedelta
from email.utils import format_datetime

import pytest

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
from server.llm.failure import from_error, from_status, parse_retry_after
from tests.server.llm.asking import NOW


@pytest.mark.parametrize(
    ("status", "meaning", "retryable"),
    [
        (400, LLMRejected, False),
        (401, LLMUnauthorized, False),
        (403, LLMUnauthorized, False),
        (404, LLMRejected, False),
        (408, LLMTimeout, True),
        (409, LLMUnavailable, True),
        (413, LLMRejected, False),
        (422, LLMRejected, False),
        (429, LLMRateLimited, True),
        (500, LLMUnavailable, True),
        (503, LLMUnavailable, True),
        (529, LLMUnavailable, True),
        (301, LLMRejected, False),
    ],
)
def test_a_status_says_what_happened(status: int, meaning: type[LLMError], retryable: bool) -> None:
    error = from_status(status, b"{}")
    assert (type(error), error.retryable) == (meaning, retryable)


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"code":"context_length_exceeded"}}',
        "This model's maximum context length is 8192 tokens. However, you requested 9000",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "Range of input length should be [1, 30720]",
        "Input is too long for requested model.",
        "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
        "Your request exceeded model token limit: 8192",
        "the request exceeds the available context size",
        "Please reduce the length of the messages.",
        "输入内容超出模型上下文长度",
    ],
)
def test_wordings_of_a_prompt_that_is_too_long_are_known(status: int, body: str) -> None:
    error = from_status(status, body.encode())
    assert isinstance(error, LLMContextOverflow)
    assert error.code == "context_overflow"


@pytest.mark.parametrize("body", ["max_tokens is too large", "invalid tool schema", "", "\xff"])
def test_other_refusals_are_not_taken_for_it(body: str) -> None:
    assert type(from_status(400, body.encode("latin-1"))) is LLMRejected


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        ({"code": "401", "message": "m"}, LLMUnauthorized),
        ({"status": 503}, LLMUnavailable),
        ({"code": "invalid_api_key"}, LLMUnauthorized),
        ({"type": "rate_limit_error"}, LLMRateLimited),
        ({"code": "insufficient_quota"}, LLMRateLimited),
        ({"type": "overloaded_error"}, LLMUnavailable),
        ({"type": "server_error"}, LLMUnavailable),
        ({"code": "timeout"}, LLMTimeout),
        ({"type": "invalid_request_error", "message": "no such tool"}, LLMRejected),
        ({"type": "invalid_request_error", "message": "prompt too long"}, LLMContextOverflow),
        ({"code": 400, "message": "maximum context length is 1"}, LLMContextOverflow),
        ({"message": "authority"}, LLMBadResponse),
        ({"code": 1000}, LLMBadResponse),
        ("oops", LLMBadResponse),
        (["oops"], LLMBadResponse),
    ],
)
def test_an_error_inside_an_answer_is_read(error: object, meaning: type[LLMError]) -> None:
    assert type(from_error(error)) is meaning


def test_nothing_of_a_body_gets_into_an_errors_text() -> None:
    secret = "sk-secret prompt of the user"
    for error in (from_status(400, secret.encode()), from_error({"message": secret, "code": 500})):
        assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("2", 2.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("3600", 30.0),
        ("soon", None),
        ("nan", None),
        (format_datetime(NOW + timedelta(seconds=7), usegmt=True), 7.0),
        (format_datetime(NOW - timedelta(hours=1), usegmt=True), 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_capped(
    value: str | None, seconds: float | None
) -> None:
    assert parse_retry_after(value, NOW) == seconds
