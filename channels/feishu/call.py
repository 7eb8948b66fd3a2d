"""How a call to Feishu goes: token, turn, time-out, repeat, and what its refusal means.

The SDK's own client is not used: it never renews a refused token, does not tell why a call failed,
and blocks the loop while it fetches a token.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.message import Message as MimeHeaders
from typing import TypeVar

import aiohttp

from channels.clock import SYSTEM, Clock
from channels.feishu import fields
from channels.feishu.codes import Meaning, Refused, Unreachable, refusal
from channels.feishu.config import FeishuConfig, Patience
from channels.feishu.fields import Fields
from channels.throttle import Budget, Budgets

T = TypeVar("T")

TRIES = 4
"""Of a call that may be repeated: with the pauses below about as long as a person waits."""
PAUSE_SECONDS = (0.5, 2.0, 5.0)
"""Before a repeat where the platform does not name one."""

TOKEN_MARGIN_SECONDS = 300.0
"""A token is renewed so long before it ends; the platform gives a new one from 30 min on."""

API_PER_SECOND, API_BURST = 16.0, 480
"""Per API 50/s and 1000/min: 480 in any 30 s keep the minute, `_SECOND_BURST` the second."""
_SECOND_BURST = 45
CHAT_PER_SECOND, CHAT_BURST = 4.5, 5
"""5/s to one person, and to one group for all bots together; a little less, since one call may
take longer to get there than the next."""

SCOPE_SECONDS = 3600.0
"""After which a permission that was refused, and not asked for since, may have been granted."""

DOWNLOAD_BYTES_MAX = 50 * 2**20
"""Half of what the platform gives; the whole file is held in memory."""


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A file of a message."""

    data: bytes
    name: str
    """Empty if the platform told none."""
    media_type: str


class TooBig(Exception):
    """A download is over `DOWNLOAD_BYTES_MAX`."""


class Token:
    """The app's access token: fetched once however many need it, renewed before it ends."""

    def __init__(self, fetch: Callable[[], Awaitable[tuple[str, float]]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._value = ""
        self._until = 0.0
        self._fetching: asyncio.Task[str] | None = None

    async def get(self) -> str:
        """The token; who waits for another's fetch gets what that one got, a failure too.

        Otherwise everybody would wait for the failures of all before, one time-out after another.
        """
        if self._value and self._clock.monotonic() < self._until:
            return self._value
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._renew(), name="feishu-token")
            self._fetching.add_done_callback(self._fetched)
        return await asyncio.shield(self._fetching)

    async def _renew(self) -> str:
        self._value, seconds = await self._fetch()
        margin = min(TOKEN_MARGIN_SECONDS, seconds / 2)
        self._until = self._clock.monotonic() + seconds - margin
        return self._value

    def _fetched(self, task: "asyncio.Task[str]") -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # looked at, though all who waited may be gone

    def drop(self, value: str) -> None:
        """Forget *value*, which was refused, unless a newer one is there already."""
        if value == self._value:
            self._value = ""


def budgets(per_second: float, burst: int, clock: Clock) -> Budgets:
    """A budget of that size for each key."""
    return Budgets(lambda: Budget(per_second, burst, clock.monotonic, clock.sleep))


def chat_budgets(clock: Clock = SYSTEM) -> Budgets:
    """What all bots of a process may send into each chat."""
    return budgets(CHAT_PER_SECOND, CHAT_BURST, clock)


class Caller:
    """Calls in the name of one app."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        config: FeishuConfig,
        chats: Budgets,
        clock: Clock,
        patience: Patience,
    ) -> None:
        self._http = http
        self._config = config
        self._domain = config.domain.rstrip("/")
        self._clock = clock
        self._patience = patience
        self._token = Token(self._fetch_token, clock)
        self._minutes = budgets(API_PER_SECOND, API_BURST, clock)
        self._seconds = budgets(_SECOND_BURST, _SECOND_BURST, clock)
        self._chats = chats
        self._refused_scopes: dict[str, float] = {}
        """Those that the platform named when it refused a call."""

    @property
    def waits(self) -> int:
        """Calls that had to wait for their turn."""
        return sum(kind.waits for kind in (self._minutes, self._seconds, self._chats))

    @property
    def missing_scopes(self) -> frozenset[str]:
        """Permissions for lack of which a call was refused lately."""
        since = self._clock.monotonic() - SCOPE_SECONDS
        return frozenset(scope for scope, at in self._refused_scopes.items() if at >= since)

    def excuse(self, scopes: Iterable[str]) -> None:
        """Forget that these are missing: nothing fails without them."""
        for scope in scopes:
            self._refused_scopes.pop(scope, None)

    async def turn(self, api: str) -> None:
        """Wait until *api* may be called."""
        await self._minutes.of(api).take()
        await self._seconds.of(api).take()

    async def call(
        self,
        api: str,
        method: str,
        path: str,
        *,
        body: Fields | None = None,
        chat_id: str = "",
    ) -> Fields:
        """Ask in turn and repeatedly; see `repeated` and `ask`."""
        return await self.repeated(api, lambda: self.ask(method, path, body=body), chat_id=chat_id)

    async def repeated(self, api: str, once: Callable[[], Awaitable[T]], *, chat_id: str = "") -> T:
        """Call until it is answered, refused for good, or `TRIES` were in vain."""
        for pause in PAUSE_SECONDS[: TRIES - 1]:
            try:
                return await self._in_turn(api, chat_id, once)
            except Refused as refused:
                if not refused.retryable:
                    raise
                await self._learn(api, chat_id, refused, pause)
            except Unreachable:
                await self._clock.sleep(pause)
        return await self._in_turn(api, chat_id, once)

    async def _in_turn(self, api: str, chat_id: str, once: Callable[[], Awaitable[T]]) -> T:
        if chat_id:
            await self._chats.of(chat_id).take()
        await self.turn(api)
        return await once()

    async def _learn(self, api: str, chat_id: str, refused: Refused, pause: float) -> None:
        """Wait as the platform says, and let all wait who share the limit."""
        seconds = refused.retry_after_seconds
        if self.heed(api, refused, chat_id):
            return
        await self._clock.sleep(pause if seconds is None else seconds)

    def heed(self, api: str, refused: Refused, chat_id: str = "") -> bool:
        """Hold back all who share the limit that was hit; False if none of ours was."""
        seconds = refused.retry_after_seconds
        if refused.meaning is not Meaning.RATE or seconds is None:
            return False
        if refused.is_shared:
            self._seconds.of(api).pause(seconds)
        elif chat_id:
            self._chats.of(chat_id).pause(seconds)
        else:
            return False
        return True

    async def ask(self, method: str, path: str, *, body: Fields | None = None) -> Fields:
        """Ask once, with the token; a refused token is renewed and the call made again."""
        return await self._with_token(
            lambda headers: self.answer(method, path, headers=headers, json=body)
        )

    async def _with_token(self, once: Callable[[Mapping[str, str]], Awaitable[T]]) -> T:
        """Call with the token; if it is refused, with a new one, and no third time."""
        token = await self._token.get()
        try:
            return await once({"Authorization": f"Bearer {token}"})
        except Refused as refused:
            if refused.meaning is not Meaning.TOKEN:
                raise
        self._token.drop(token)
        return await once({"Authorization": f"Bearer {await self._token.get()}"})

    async def _fetch_token(self) -> tuple[str, float]:
        answer = await self.answer(
            "POST",
            "/open-apis/auth/v3/tenant_access_token/internal",
            json={"app_id": self._config.app_id, "app_secret": self._config.app_secret},
        )
        token = fields.text(answer, "tenant_access_token")
        if not token:
            raise Unreachable("the answer holds no token")
        return token, fields.number(answer, "expire") or 0.0

    async def answer(
        self,
        method: str,
        path: str,
        *,
        seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
        json: Fields | None = None,
    ) -> Fields:
        """One call; its JSON answer, whose code is 0."""
        async with (
            _translated(),
            asyncio.timeout(self._patience.call_seconds if seconds is None else seconds),
            self._http.request(method, self._domain + path, headers=headers, json=json) as response,
        ):
            return self._checked(response, await response.read())

    async def download(self, path: str) -> Downloaded:
        async def once(headers: Mapping[str, str]) -> Downloaded:
            async with (
                _translated(),
                asyncio.timeout(self._patience.download_seconds),
                self._http.get(self._domain + path, headers=headers) as response,
            ):
                disposition = response.headers.get("Content-Disposition", "")
                is_json = response.content_type == "application/json"
                if response.status != 200 or (is_json and not disposition):
                    self._checked(response, await response.read())
                name = _file_name(disposition)
                return Downloaded(await _limited(response), name, response.content_type)

        return await self._with_token(once)

    def _checked(self, response: aiohttp.ClientResponse, body: bytes) -> Fields:
        answer = fields.parse(body)
        code = fields.number(answer, "code") if answer is not None else None
        if answer is not None and response.status < 400 and code == 0:
            return answer
        if answer is None and response.status < 500:
            raise Unreachable(f"the answer is no JSON (HTTP {response.status}); check the domain")
        words = fields.text(answer, "msg") or fields.text(answer, "message") if answer else ""
        refused = refusal(
            response.status, None if code is None else int(code), words, response.headers
        )
        self._refused_scopes.update(dict.fromkeys(refused.scopes, self._clock.monotonic()))
        raise refused


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """Foreign errors as ours; none of their texts, which may name an address with a secret."""
    try:
        yield
    except TimeoutError:
        raise Unreachable("no answer in time; check network and firewall") from None
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"not reached: {_cause(error)}") from None


def _cause(error: Exception) -> str:
    """Why there was no answer, and what an operator has to look at."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "the name of the host is not resolved; check domain and DNS"
        case aiohttp.ClientSSLError():
            return "no TLS with the host; check domain, certificates and any proxy in between"
        case aiohttp.ClientConnectorError():
            return (
                "no connection to the host; check domain, network and firewall "
                "(it is called directly, proxy variables are not used)"
            )
        case _:
            return f"the call broke off ({type(error).__name__})"


async def _limited(response: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > DOWNLOAD_BYTES_MAX:
            raise TooBig
    return bytes(data)


def _file_name(disposition: str) -> str:
    """The name in a `Content-Disposition`, also in the form for other alphabets."""
    headers = MimeHeaders()
    headers["Content-Disposition"] = disposition
    return headers.get_filename("")
