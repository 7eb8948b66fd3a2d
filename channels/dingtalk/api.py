"""DingTalk's HTTP faces, as far as a bot needs them: token, messages, cards, files, discovery.

The SDK's own calls block, report no failure and never renew a token, so none of them is used.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp
from yarl import URL

from channels.clock import SYSTEM, Clock
from channels.dingtalk.codes import Kind, Refused, classify_api, classify_oapi
from channels.dingtalk.decode import Address
from channels.dingtalk.frames import TOPICS
from channels.dingtalk.reach import CALL_SECONDS, is_unreached, unreached
from channels.errors import LineError
from channels.throttle import Budget, Budgets

log = logging.getLogger(__name__)

T = TypeVar("T")

DOWNLOAD_SECONDS = 120.0
DOWNLOAD_BYTES = 50 * 1024 * 1024
"""What is taken of one file; models read less."""
ANSWER_BYTES = 1024 * 1024
TOKEN_MARGIN_SECONDS = 300.0
"""A token is renewed so long before its end; the platform then already gives a new one."""
CALLS_PER_SECOND = 15
"""For each interface and the whole app; about 20 are allowed."""
CALLS_AT_ONCE = 5
"""Few, since those that are late on their way meet the next ones at the platform."""
WEBHOOK_PER_MINUTE = 18
"""For each chat; after 20 the platform refuses all for ten minutes."""
BACKOFF_SECONDS = (2.0, 30.0)
"""First and longest pause after a refusal for too many calls."""

TOKEN_PATH = "/v1.0/oauth2/accessToken"
DISCOVERY_PATH = "/v1.0/gateway/connections/open"
DISCOVERY = "discovery: "
"""How the reason begins why the platform lets us connect nowhere."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a stream connection may be opened, once and soon."""

    url: str
    ticket: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """An app and where its platform is."""

    client_id: str
    client_secret: str = field(repr=False)
    api_base: str
    """Without a slash at the end."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    renew_at: float


@asynccontextmanager
async def open_api(
    credentials: Credentials, clock: Clock = SYSTEM, call_seconds: float = CALL_SECONDS
) -> AsyncIterator["DingTalkApi"]:
    """The faces of one app, with a pool of connections of their own."""
    timeout = aiohttp.ClientTimeout(total=call_seconds)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as http:
        yield DingTalkApi(http, credentials, clock)


class DingTalkApi:
    """What one app can ask DingTalk; every method raises `Refused` and nothing else."""

    def __init__(
        self, http: aiohttp.ClientSession, credentials: Credentials, clock: Clock = SYSTEM
    ) -> None:
        self._http = http
        self._credentials = credentials
        self._clock = clock
        self._token: _Token | None = None
        self._renewing = asyncio.Lock()
        self._budgets = Budgets(
            lambda: Budget(CALLS_PER_SECOND, CALLS_AT_ONCE, clock.monotonic, clock.sleep)
        )
        self._webhooks = Budgets(
            lambda: Budget(
                WEBHOOK_PER_MINUTE / 60, WEBHOOK_PER_MINUTE, clock.monotonic, clock.sleep
            )
        )

    @property
    def throttle_waits(self) -> int:
        """Calls that had to wait for their turn."""
        return self._budgets.waits + self._webhooks.waits

    async def token(self) -> str:
        """A token that is good for some minutes; one request at a time fetches it."""
        async with self._renewing:
            known = self._token
            if known is None or self._clock.monotonic() >= known.renew_at:
                known = self._token = await self._new_token()
            return known.text

    async def send_webhook(self, address: Address, title: str, text: str) -> None:
        """Answer through the message's own address; needs no token."""
        await self._webhooks.of(address.conversation_id).take()
        body: dict[str, object] = {
            "msgtype": "markdown",
            "markdown": {"title": title, "text": text},
        }
        if address.is_group and address.staff_id:
            body["at"] = {"atUserIds": [address.staff_id]}
        answer = await self._ask("POST", address.webhook, body)
        if refused := classify_oapi(_number(answer, "errcode", default=-1)):
            raise refused

    async def send_person(self, robot_code: str, staff_id: str, title: str, text: str) -> None:
        """Send to one person, in the chat with the bot alone."""
        answer = await self.call(
            "POST",
            "/v1.0/robot/oToMessages/batchSend",
            {"robotCode": robot_code, "userIds": [staff_id], **_markdown(title, text)},
        )
        if answer.get("invalidStaffIdList"):
            raise Refused(Kind.GONE, "invalidStaffIdList")
        if answer.get("flowControlledStaffIdList"):
            raise Refused(Kind.THROTTLED, "flowControlledStaffIdList")

    async def send_group(
        self, robot_code: str, conversation_id: str, title: str, text: str
    ) -> None:
        """Send to a group that the bot is in."""
        body = {"robotCode": robot_code, "openConversationId": conversation_id}
        await self.call(
            "POST", "/v1.0/robot/groupMessages/send", {**body, **_markdown(title, text)}
        )

    async def create_card(self, body: Mapping[str, object]) -> None:
        """Create a card and put it into its chat; see `card.render_new`."""
        answer = await self.call("POST", "/v1.0/card/instances/createAndDeliver", body)
        result = answer.get("result")
        delivered = result.get("deliverResults") if isinstance(result, Mapping) else None
        if isinstance(delivered, list) and any(
            isinstance(one, Mapping) and one.get("success") is False for one in delivered
        ):
            raise Refused(Kind.GONE, "not_delivered")

    async def stream_card(self, body: Mapping[str, object]) -> None:
        """Show a text on a card; see `card.render_text`."""
        await self.call("PUT", "/v1.0/card/streaming", body)

    async def update_card(self, body: Mapping[str, object]) -> None:
        """Set variables of a card; see `card.render_settled`."""
        await self.call("PUT", "/v1.0/card/instances", body)

    async def make_card(self, body: Mapping[str, object]) -> None:
        """Create a card that nobody sees."""
        await self.call("POST", "/v1.0/card/instances", body)

    async def react(self, address: Address, emotion: str, *, remove: bool = False) -> None:
        """Put a small text under a person's message, or take it away again."""
        body = {
            "robotCode": address.robot_code,
            "openMsgId": address.message_id,
            "openConversationId": address.conversation_id,
            "emotionType": 2,
            "emotionName": emotion,
            "textEmotion": {
                "emotionId": "2659900",
                "emotionName": emotion,
                "text": emotion,
                "backgroundId": "im_bg_1",
            },
        }
        verb = "recall" if remove else "reply"
        await self.call("POST", f"/v1.0/robot/emotion/{verb}", body)

    async def download(self, download_code: str, robot_code: str) -> tuple[bytes, str]:
        """The bytes of a file that a message brought, and its media type as far as known."""
        answer = await self.call(
            "POST",
            "/v1.0/robot/messageFiles/download",
            {"downloadCode": download_code, "robotCode": robot_code},
        )
        url = answer.get("downloadUrl")
        if not isinstance(url, str) or not url:
            raise Refused(Kind.BAD, "no_download_url")
        return await self._read_file(url)

    async def discover(self) -> Endpoint:
        """Where to open a stream connection.

        Raises:
            LineError: Nowhere now; its reason has the platform's code, or where to look.
        """
        body = {
            "clientId": self._credentials.client_id,
            "clientSecret": self._credentials.client_secret,
            "subscriptions": [{"type": "CALLBACK", "topic": topic} for topic in TOPICS],
            "ua": "headway",
            "localIp": "127.0.0.1",
        }
        try:
            answer = await self._ask("POST", self._credentials.api_base + DISCOVERY_PATH, body)
        except Refused as refused:
            raise LineError(self._why_not(refused.code)) from None
        url, ticket = answer.get("endpoint"), answer.get("ticket")
        if not isinstance(url, str) or not isinstance(ticket, str):
            raise LineError(f"{DISCOVERY}no endpoint in the answer")
        return Endpoint(url, ticket)

    def _why_not(self, code: str) -> str:
        if not is_unreached(code):
            return DISCOVERY + code
        base = self._credentials.api_base
        return unreached(URL(base).host or base, code)

    async def call(
        self, method: str, path: str, body: Mapping[str, object]
    ) -> Mapping[str, object]:
        """One OpenAPI call; a token that is refused is renewed once."""
        token = await self.token()
        await self._budgets.of(path).take()
        try:
            return await self._call(method, path, body, token)
        except Refused as refused:
            if refused.kind != Kind.TOKEN:
                raise
        self._drop(token)
        return await self._call(method, path, body, await self.token())

    async def insist(
        self, attempt: Callable[[], Awaitable[T]], seconds: float, *, is_repeatable: bool
    ) -> T:
        """Do *attempt* again after refusals for too many calls, for at most *seconds* of pauses.

        Args:
            is_repeatable: Doing it twice does no harm, so the platform's own troubles are
                answered by another try as well.
        """
        pause, longest = BACKOFF_SECONDS
        while True:
            try:
                return await attempt()
            except Refused as refused:
                passes = refused.is_passing if is_repeatable else refused.kind == Kind.THROTTLED
                wait = max(pause, refused.retry_after_seconds or 0.0)
                if not passes or wait > seconds:
                    raise
            seconds -= wait
            await self._clock.sleep(wait)
            pause = min(pause * 2, longest)

    async def _call(
        self, method: str, path: str, body: Mapping[str, object], token: str
    ) -> Mapping[str, object]:
        headers = {"x-acs-dingtalk-access-token": token}
        try:
            return await self._ask(method, self._credentials.api_base + path, body, headers)
        except Refused as refused:
            if refused.kind == Kind.THROTTLED:
                self._budgets.of(path).pause(refused.retry_after_seconds or 1.0)
            raise

    async def _new_token(self) -> _Token:
        body = {
            "appKey": self._credentials.client_id,
            "appSecret": self._credentials.client_secret,
        }
        answer = await self._ask("POST", self._credentials.api_base + TOKEN_PATH, body)
        text = answer.get("accessToken")
        if not isinstance(text, str) or not text:
            raise Refused(Kind.BROKEN, "no_token")
        lasts = _number(answer, "expireIn", default=0)
        margin = min(TOKEN_MARGIN_SECONDS, lasts / 2)
        return _Token(text, self._clock.monotonic() + lasts - margin)

    def _drop(self, token: str) -> None:
        """Forget *token*, unless somebody has renewed it already."""
        if self._token is not None and self._token.text == token:
            self._token = None

    async def _ask(
        self,
        method: str,
        url: str,
        body: Mapping[str, object],
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, object]:
        """One request; an answer with HTTP 200 is given as it is."""
        try:
            async with self._http.request(
                method, URL(url, encoded=True), json=body, headers=headers
            ) as response:
                raw = await _read(response, ANSWER_BYTES)
                status, after = response.status, response.headers.get("Retry-After", "")
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise Refused(Kind.BROKEN, type(error).__name__) from None
        answer = _decoded(raw)
        if status < 400 and answer is not None:
            return answer
        if status < 400:
            raise Refused(Kind.BROKEN, "not_json")
        code = (answer or {}).get("code")
        wait = float(after) if after.isdigit() else None
        raise classify_api(status, str(code) if code is not None else "", wait)

    async def _read_file(self, url: str) -> tuple[bytes, str]:
        timeout = aiohttp.ClientTimeout(total=DOWNLOAD_SECONDS, connect=CALL_SECONDS)
        try:
            async with self._http.get(URL(url, encoded=True), timeout=timeout) as response:
                if response.status >= 400:
                    raise classify_api(response.status, "")
                return await _read(response, DOWNLOAD_BYTES), response.content_type
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise Refused(Kind.BROKEN, type(error).__name__) from None


async def _read(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    data = bytearray()
    async for piece in response.content.iter_any():
        data += piece
        if len(data) > most_bytes:
            raise Refused(Kind.CONTENT, "too_big")
    return bytes(data)


def _markdown(title: str, text: str) -> dict[str, object]:
    param = json.dumps({"title": title, "text": text}, ensure_ascii=False)
    return {"msgKey": "sampleMarkdown", "msgParam": param}


def _decoded(raw: bytes) -> dict[str, object] | None:
    try:
        answer = json.loads(raw or b"{}")
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _number(answer: Mapping[str, object], name: str, *, default: int) -> int:
    value = answer.get(name)
    return value if isinstance(value, int) else default
