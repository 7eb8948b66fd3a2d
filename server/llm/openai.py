"""Streaming client of OpenAI-compatible chat completions."""

import asyncio
import io
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import aiohttp
import msgspec
from yarl import URL

from server.errors import (
    LLMBadResponse,
    LLMContextOverflow,
    LLMError,
    LLMTimeout,
    LLMUnavailable,
    Locale,
)
from server.llm.body import Patience, read_lines, read_up_to
from server.llm.failure import from_status, names_field, parse_retry_after
from server.llm.port import AttemptFailed, ModelEvent, ModelRequest, Reply
from server.llm.reducer import Reducer

_log = logging.getLogger(__name__)

BACKOFF_SECONDS = (0.5, 8.0)
"""Shortest and longest pause before another try, when the gateway names none."""
CHECK_SECONDS = 5.0
"""How long `check` waits; people and probes wait for it."""
REFUSAL_BYTES = 64 * 1024
"""What is read of a refusal: enough to tell why."""
WHOLE_ANSWER_BYTES = 16 * 1024 * 1024
"""What is read of an answer that is not a stream."""
OPTIONAL_FIELDS = ("stream_options", "prompt_cache_key", "max_tokens", "tool_choice")
"""Fields of the request that a gateway may not know; each is left out once it refused it."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Where the model is and how long to wait for it."""

    base_url: str
    """With or without `/v1`, a trailing slash or the whole path; a query is kept."""
    model: str
    api_key: str = field(default="", repr=False)
    connect_seconds: float = 10.0
    first_byte_seconds: float = 120.0
    """From sending the request to the first byte of the answer's body; long prompts take long."""
    between_chunks_seconds: float = 60.0
    silent_seconds: float = 300.0
    """How long keep-alive comments alone count as life."""
    tries: int = 3
    """Requests made before the first delta; a reply that breaks off later is asked once more."""
    locale: Locale = "zh-CN"
    """Language of what `check` says."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The clocks, the pause and the dice of the retries."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random


@asynccontextmanager
async def open_model(
    settings: ModelSettings, timing: Timing | None = None
) -> AsyncIterator["OpenAIModel"]:
    """The model at the configured gateway, with its own pool of connections."""
    connector = aiohttp.TCPConnector(limit=0)  # each session streams on a connection of its own
    timeout = aiohttp.ClientTimeout(total=None, connect=settings.connect_seconds)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
    ) as http:
        yield OpenAIModel(settings, http, timing or Timing())


def endpoint(base_url: str, name: str) -> URL:
    """The address of *name* (`chat/completions`, `models`) below a base in any usual spelling."""
    url = URL(base_url.strip())
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return url.with_path(f"{path or '/v1'}/{name}", keep_query=True)


class _Attempt:
    """One request: what came of it so far, and when."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.reducer = Reducer()
        self.first_token_ms: int | None = None
        self.dropped_field = False
        """It failed over a field that the next one leaves out."""
        self._monotonic = monotonic
        self._started = monotonic()

    def note_first_token(self) -> None:
        if self.first_token_ms is None:
            self.first_token_ms = self.elapsed_ms

    @property
    def elapsed_ms(self) -> int:
        return round((self._monotonic() - self._started) * 1000)

    @property
    def streamed(self) -> bool:
        return self.first_token_ms is not None

    def reply(self, model: str) -> Reply:
        return self.reducer.reply(model, self.first_token_ms, self.elapsed_ms)

    def failed(self, error: LLMError) -> AttemptFailed:
        return AttemptFailed(
            error.code, self.streamed, self.elapsed_ms, self.reducer.usage, self.first_token_ms
        )


class _Tries:
    """Counts failures, and says how long to wait before the next request, if there is one."""

    def __init__(self, tries: int, dice: Callable[[], float]) -> None:
        self._tries = tries
        self._dice = dice
        self._unstreamed = 0
        self._streamed = 0

    def pause_seconds(self, attempt: _Attempt, error: LLMError) -> float | None:
        """None when the failure stands."""
        if attempt.dropped_field:
            return 0.0
        if not error.retryable:
            return None
        if attempt.streamed:
            self._streamed += 1
        else:
            self._unstreamed += 1
        if self._streamed > 1 or self._unstreamed >= self._tries:
            return None
        if error.retry_after_seconds is not None:
            return error.retry_after_seconds
        shortest, longest = BACKOFF_SECONDS
        bound = min(longest, shortest * 4.0 ** (self._streamed + self._unstreamed))
        return shortest + self._dice() * (bound - shortest)


class OpenAIModel:
    """A model behind an OpenAI-compatible gateway; made by `open_model`."""

    def __init__(
        self, settings: ModelSettings, http: aiohttp.ClientSession, timing: Timing
    ) -> None:
        self._settings = settings
        self._http = http
        self._timing = timing
        self._url = endpoint(settings.base_url, "chat/completions")
        self._headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # a proxy that compresses holds deltas back
            "Content-Type": "application/json",
            "User-Agent": "headway",
        }
        if settings.api_key:
            self._headers["Authorization"] = f"Bearer {settings.api_key}"
        self._refused_fields: set[str] = set()

    @property
    def name(self) -> str:
        """The configured model's name."""
        return self._settings.model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask and stream the reply; see `Model.stream`.

        Raises:
            LLMError: See there.
        """
        tries = _Tries(self._settings.tries, self._timing.random)
        while True:
            attempt = _Attempt(self._timing.monotonic)
            try:
                async with aclosing(self._ask(request, attempt)) as batches:
                    async for events in batches:
                        for event in events:
                            yield event
                reply = attempt.reply(request.model or self.name)
            except LLMError as error:
                failure = error
            else:
                yield reply
                return
            yield attempt.failed(failure)
            pause = tries.pause_seconds(attempt, failure)
            if pause is None:
                raise failure
            await self._timing.sleep(pause)

    async def check(self) -> str | None:
        """None if the gateway can be asked, else what is wrong and how to mend it."""
        url = endpoint(self._settings.base_url, "models")
        timeout = aiohttp.ClientTimeout(total=CHECK_SECONDS)
        try:
            async with self._http.get(
                url, headers=self._headers, timeout=timeout, allow_redirects=False
            ) as response:
                status = response.status
        except TimeoutError:
            return _CHECK_TEXTS["silent"][self._settings.locale]
        except (aiohttp.ClientError, OSError):
            return _CHECK_TEXTS["unreachable"][self._settings.locale]
        return _complaint(status, self._settings.locale)

    async def _ask(
        self, request: ModelRequest, attempt: _Attempt
    ) -> AsyncGenerator[list[ModelEvent], None]:
        """Make one request and give out its events, those of one read together.

        Closes the connection unless the answer was read to its end.
        """
        began = asyncio.get_running_loop().time()
        sent = self._optional_fields(request)
        with _translated(), closing(await self._post(self._body(request))) as response:
            if response.status != 200:
                raise await self._refusal(response, attempt, sent)
            async with aclosing(await self._lines(response, attempt.reducer, began)) as batches:
                async for lines in batches:
                    events, failure = _feed(attempt.reducer, lines)
                    if events:
                        attempt.note_first_token()
                        yield events
                    if failure is not None:
                        raise failure

    async def _lines(
        self, response: aiohttp.ClientResponse, reducer: Reducer, began: float
    ) -> AsyncGenerator[list[bytes], None]:
        """The data lines of a good answer; one that is no stream is a line of its own."""
        first_byte_until = began + self._settings.first_byte_seconds
        if response.content_type == "text/html":
            raise LLMBadResponse("the gateway answered with a web page")
        if response.content_type == "application/json":
            async with asyncio.timeout_at(first_byte_until):
                return _single(await read_up_to(response, WHOLE_ANSWER_BYTES))
        patience = Patience(
            first_byte_until, self._settings.between_chunks_seconds, self._settings.silent_seconds
        )
        return read_lines(response, reducer, patience)

    def _body(self, request: ModelRequest) -> bytes:
        """The request as bytes.

        The messages stand last, so that the body of a conversation's next request begins with
        this one up to its two closing brackets: what a provider caches stays equal. That the
        tools may not be used follows them, since it is said of a last request alone.
        """
        is_barred = "tool_choice" in self._optional_fields(request)
        end = b'],"tool_choice":"none"}' if is_barred else b"]}"
        return b"".join((self._head(request), b",".join(request.messages), end))

    def _optional_fields(self, request: ModelRequest) -> frozenset[str]:
        """Those of `OPTIONAL_FIELDS` that the request is sent with now."""
        given = {
            "stream_options": True,
            "prompt_cache_key": request.prompt_cache_key is not None,
            "max_tokens": request.max_tokens is not None,
            "tool_choice": bool(request.tools) and not request.may_call,
        }
        return frozenset(name for name in OPTIONAL_FIELDS if given[name]) - self._refused_fields

    def _head(self, request: ModelRequest) -> bytes:
        fields: list[tuple[str, bytes]] = [
            ("model", msgspec.json.encode(request.model or self.name)),
            ("stream", b"true"),
            ("stream_options", b'{"include_usage":true}'),
        ]
        if request.tools:
            fields.append(("tools", request.tools))
        if request.prompt_cache_key is not None:
            fields.append(("prompt_cache_key", msgspec.json.encode(request.prompt_cache_key)))
        if request.max_tokens is not None:
            fields.append(("max_tokens", b"%d" % request.max_tokens))
        parts = [
            b'"%s":%s' % (name.encode(), value)
            for name, value in fields
            if name not in self._refused_fields
        ]
        return b"{" + b",".join(parts) + b',"messages":['

    async def _post(self, body: bytes) -> aiohttp.ClientResponse:
        """Send the request and await the answer's head."""
        async with asyncio.timeout(self._settings.first_byte_seconds):
            return await self._http.post(
                self._url,
                data=io.BytesIO(body),  # plain bytes above 1 MB draw a warning
                headers=self._headers,
                allow_redirects=False,
            )

    async def _refusal(
        self, response: aiohttp.ClientResponse, attempt: _Attempt, sent: Collection[str]
    ) -> LLMError:
        async with asyncio.timeout(self._settings.between_chunks_seconds):
            body = await read_up_to(response, REFUSAL_BYTES)
        _log.debug("model refused status=%d bytes=%d", response.status, len(body))
        retry_after = parse_retry_after(response.headers.get("Retry-After"), self._timing.now())
        error = from_status(response.status, body, retry_after)
        # A prompt that is too long is refused with words on `max_tokens` as well.
        if response.status in (400, 422) and not isinstance(error, LLMContextOverflow):
            attempt.dropped_field = self._drop_field(body, sent)
        return error

    def _drop_field(self, body: bytes, sent: Collection[str]) -> bool:
        """Leave out for good the field of those *sent* that a refusal speaks of, if it does."""
        for name in OPTIONAL_FIELDS:
            if name in sent and names_field(body, name):
                self._refused_fields.add(name)
                _log.warning("the model gateway refuses the field %s; it is left out now", name)
                return True
        return False


def _feed(reducer: Reducer, lines: list[bytes]) -> tuple[list[ModelEvent], LLMError | None]:
    """The events of *lines*, and the error that they end with, if any.

    What came before an error is given out all the same: whether both share a packet is chance.
    """
    events: list[ModelEvent] = []
    try:
        for line in lines:
            events += reducer.feed(line)
    except LLMError as error:
        return events, error
    return events, None


async def _single(line: bytes) -> AsyncGenerator[list[bytes], None]:
    yield [line]


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the HTTP library's errors into ours; theirs would carry the request's headers along."""
    try:
        yield
    except TimeoutError:
        raise LLMTimeout("the gateway did not answer in time") from None
    except (aiohttp.ClientError, OSError):
        raise LLMUnavailable("the gateway cannot be reached, or broke the connection") from None


_CHECK_TEXTS: dict[str, dict[Locale, str]] = {
    "unreachable": {
        "zh-CN": "无法连接模型网关。请检查 HEADWAY_MODEL_BASE_URL 以及本机到网关的网络。",
        "en": "The model gateway cannot be reached. Check HEADWAY_MODEL_BASE_URL and the network "
        "between this machine and the gateway.",
    },
    "silent": {
        "zh-CN": "模型网关在 5 秒内没有应答。请检查 HEADWAY_MODEL_BASE_URL 和网关是否正常运行。",
        "en": "The model gateway did not answer within 5 seconds. Check HEADWAY_MODEL_BASE_URL "
        "and whether the gateway is running.",
    },
    "unauthorized": {
        "zh-CN": "模型网关拒绝了密钥。请检查 HEADWAY_MODEL_API_KEY。",
        "en": "The model gateway refused the key. Check HEADWAY_MODEL_API_KEY.",
    },
    "redirected": {
        "zh-CN": "模型网关要求跳转到别处。请把 HEADWAY_MODEL_BASE_URL 改为最终地址（例如 https）。",
        "en": "The model gateway redirects elsewhere. Set HEADWAY_MODEL_BASE_URL to the final "
        "address (https, for example).",
    },
    "failing": {
        "zh-CN": "模型网关返回服务端错误。请检查网关是否正常运行。",
        "en": "The model gateway answers with a server error. Check whether it is running well.",
    },
}


def _complaint(status: int, locale: Locale) -> str | None:
    """What a status of the list of models says; many gateways have no such list."""
    if status in (401, 403):
        return _CHECK_TEXTS["unauthorized"][locale]
    if 300 <= status < 400:
        return _CHECK_TEXTS["redirected"][locale]
    if status >= 500:
        return _CHECK_TEXTS["failing"][locale]
    return None
