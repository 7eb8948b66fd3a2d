"""A DingTalk bot as the application sees it: opened with its connection, closed with it."""

import asyncio
import logging
import mimetypes
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from channels import sentences
from channels.clock import SYSTEM, Clock
from channels.dedupe import Window
from channels.dingtalk.api import DOWNLOAD_BYTES, Credentials, DingTalkApi, open_api
from channels.dingtalk.codes import Kind, Refused
from channels.dingtalk.content import UNKNOWN_TYPE, decode_locator
from channels.dingtalk.decode import PLATFORM, Address
from channels.dingtalk.frames import Answer
from channels.dingtalk.reactions import Reactions
from channels.dingtalk.receiver import Reactor, Receiver
from channels.dingtalk.rules import Rules
from channels.dingtalk.sender import Sender
from channels.dingtalk.telling import Parts
from channels.dingtalk.trace import Traces
from channels.dingtalk.turns import Turns
from channels.errors import FetchError
from channels.pictures import picture_type
from channels.port import Delivery, Fetched, Health, Inbox, Locale, RemoteFile, RunSink, Turn
from channels.supervise import LineHealth, keep_alive

log = logging.getLogger(__name__)

CLOSE_SECONDS = 2.0
"""What sentences on their way are given when the channel closes."""
FETCH_SECONDS = 10.0
"""How long a file's run waits out refusals that pass, before its person has to send it again."""
FORBIDDEN_SECONDS = 3600.0
"""Between two complaints in one chat about a right that only an operator can give."""


@dataclass(frozen=True, slots=True)
class DingTalkConfig:
    """One DingTalk bot."""

    client_id: str
    client_secret: str = field(repr=False)
    robot_code: str = ""
    """The client id where the console shows no other."""
    card_template_id: str = ""
    """Without it answers come as Markdown messages."""
    api_base: str = "https://api.dingtalk.com"
    oapi_base: str = "https://oapi.dingtalk.com"
    """The old face. Its session webhooks come with their whole address, so nothing else is asked
    of it until files are sent."""
    allow: tuple[str, ...] = ()
    """Staff ids or conversation ids; `*` is everyone, nothing is nobody."""
    locale: Locale = "zh-CN"

    @property
    def robot(self) -> str:
        """The robot's code."""
        return self.robot_code or self.client_id

    @property
    def credentials(self) -> Credentials:
        """What the platform's HTTP faces need."""
        base = self.api_base.rstrip("/")
        return Credentials(self.client_id, self.client_secret, base)


@asynccontextmanager
async def open_dingtalk(
    config: DingTalkConfig, inbox: Inbox, clock: Clock = SYSTEM
) -> AsyncIterator["DingTalkChannel"]:
    """A bot that listens and answers.

    Ready once entered, also while the platform refuses it: `health()` says why, and its connection
    is tried again for ever. Leaving takes at most 5 s; runs that go on keep their cards.
    """
    # Only here, since it brings the SDK, which takes long to import and is not always needed.
    from channels.dingtalk.stream import open_stream

    async with open_api(config.credentials, clock) as api:
        channel = DingTalkChannel(config, inbox, api, clock)
        async with open_stream(
            config.client_id, api.discover, channel.handle, channel.line.heard
        ) as stream:
            name = f"dingtalk:{config.client_id}"
            keeping = asyncio.create_task(
                keep_alive(stream.connect, name=name, health=channel.line, clock=clock), name=name
            )
            try:
                yield channel
            finally:
                keeping.cancel()
                await asyncio.wait({keeping})
                await channel.close()


class DingTalkChannel:
    """Implements `port.Surface`; made by `open_dingtalk`."""

    def __init__(
        self, config: DingTalkConfig, inbox: Inbox, api: DingTalkApi, clock: Clock
    ) -> None:
        self.line = LineHealth(clock)
        self._config = config
        self._api = api
        self._tasks: set[asyncio.Task[None]] = set()
        self._forbidden = Window(FORBIDDEN_SECONDS, clock.monotonic)
        self._sender = Sender(api, clock, config.locale)
        self._reactions = Reactions(api, clock, config.locale)
        rules = Rules(config.client_id, config.robot, frozenset(config.allow), config.locale)
        reactor = Reactor(self._say, self._start, self._sender.remember)
        self._receiver = Receiver(rules, inbox, reactor, clock)
        self._turns = Turns(
            Parts(
                api,
                self._sender,
                self._reactions,
                Traces(inbox),
                clock,
                config.card_template_id,
                config.robot,
                self._start,
            )
        )

    async def handle(self, topic: str, raw: str) -> Answer:
        """Take a pushed frame and say how to acknowledge it; never raises."""
        return await self._receiver.handle(topic, raw)

    def watch(self, turn: Turn) -> RunSink:
        """Show the run in its chat while it goes; see `Surface`."""
        return self._turns.watch(turn)

    async def deliver(self, delivery: Delivery) -> None:
        """Tell how the run ended; see `Surface`.

        Raises:
            DeliveryError: See there.
        """
        await self._turns.deliver(delivery)

    def forget(self, turn: Turn) -> None:
        """Nothing more comes of the run; see `Surface`."""
        self._turns.forget(turn)

    async def say(self, turn: Turn, text: str) -> None:
        """Write one line beside the card; see `Surface`."""
        is_forbidden = text == sentences.files_forbidden(self._config.locale)
        if is_forbidden and not self._forbidden.claim((turn.chat.chat_id,)):
            return
        # The run that says it does not wait for the platform.
        self._say(self._turns.address(turn), text)

    async def fetch(self, file: RemoteFile) -> Fetched:
        """Download a file; see `Surface`.

        Raises:
            FetchError: See there.
        """
        code, robot_code = decode_locator(file.locator)
        try:
            data, media_type = await self._api.insist(
                lambda: self._api.download(code, robot_code or self._config.robot),
                FETCH_SECONDS,
                is_repeatable=True,
            )
        except Refused as refused:
            log.warning("[dingtalk] no file: %s (%s)", refused.kind, refused.code)
            raise FetchError(str(refused), self._sorry(refused, file.name)) from None
        media_type = _media_type(data, media_type, file)
        return Fetched(data, _with_ending(file.name, media_type), media_type)

    def health(self) -> Health:
        """How the channel is now."""
        counts = self._receiver.counts
        return Health(
            platform=PLATFORM,
            app_id=self._config.client_id,
            state=self.line.state,
            reason=self.line.reason,
            last_frame_seconds=self.line.last_frame_seconds,
            reconnects=self.line.reconnects,
            duplicates=counts.duplicates,
            stale=counts.stale,
            throttle_waits=self._api.throttle_waits,
            acks=counts.acks,
            ack_seconds_max=counts.ack_seconds_max,
        )

    async def close(self) -> None:
        """Finish what is being said, within `CLOSE_SECONDS`; the connection is closed already."""
        await self._turns.close()
        await self._reactions.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _say(self, address: Address, text: str) -> None:
        self._start(self._said(address, text))

    async def _said(self, address: Address, text: str) -> None:
        try:
            await self._sender.say(address, text)
        except Refused as refused:
            log.warning("[dingtalk] not said: %s (%s)", refused.kind, refused.code)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="dingtalk-work")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _sorry(self, refused: Refused, name: str) -> str:
        locale = self._config.locale
        if refused.kind == Kind.PERMISSION:
            return sentences.files_forbidden(locale)
        if refused.code == "too_big":
            return sentences.file_too_big(locale, name, DOWNLOAD_BYTES >> 20)
        return sentences.file_unavailable(locale, name)


def _media_type(data: bytes, told: str, file: RemoteFile) -> str:
    """What a file is: by its first bytes, else what was told, else by its name.

    The store that holds pictures often does not say what they are.
    """
    return picture_type(data) or (file.media_type if told == UNKNOWN_TYPE else told)


def _with_ending(name: str, media_type: str) -> str:
    """A name by which people and programs see what the file is."""
    if "." in name:
        return name
    return name + (mimetypes.guess_extension(media_type) or "")
