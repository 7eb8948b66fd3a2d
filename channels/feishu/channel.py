"""A Feishu bot: what it hears, what it shows, and the connection in between."""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import aiohttp

from channels.clock import SYSTEM, Clock
from channels.errors import BadSignature, DeliveryError, LineError, Undecodable
from channels.feishu.api import FeishuApi
from channels.feishu.call import chat_budgets
from channels.feishu.config import PATIENT, FeishuConfig, Patience
from channels.feishu.files import Files
from channels.feishu.intake import Intake
from channels.feishu.outbound import Outbound
from channels.feishu.people import People
from channels.feishu.place import place_for
from channels.feishu.rules import Rules
from channels.feishu.stream import FeishuLine, SdkThread, open_line
from channels.feishu.webhook import Challenge, Door, WebhookAnswer
from channels.port import Delivery, Fetched, Health, Inbox, RemoteFile, RunSink, Turn
from channels.supervise import LineHealth, Lost, keep_alive
from channels.throttle import Budgets

logger = logging.getLogger(__name__)

__all__ = ["FeishuChannel", "FeishuConfig", "Patience", "WebhookAnswer", "open_feishu"]

_STOP_SECONDS = 5.0


class _Open:
    """Stands for a line where the platform calls us."""

    silence_seconds = math.inf

    async def wait_lost(self) -> Lost:
        """Never."""
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


class FeishuChannel:
    """One bot; a `Surface` of the application."""

    def __init__(
        self,
        config: FeishuConfig,
        inbox: Inbox,
        http: aiohttp.ClientSession,
        thread: SdkThread,
        chats: Budgets,
        clock: Clock,
        patience: Patience,
    ) -> None:
        self.config = config
        self._api = FeishuApi(http, config, chats, clock, patience)
        self._patience = patience
        self._thread = thread
        self._clock = clock
        self._line = LineHealth(clock)
        self._outbound = Outbound(self._api, inbox, clock)
        self._people = People(self._api, clock)
        self._intake = Intake(
            config,
            self.rules,
            inbox,
            self._outbound,
            self._people,
            self._api.posted.__contains__,
            clock,
        )
        self._files = Files(self._api, config.locale, clock)
        self._door = Door(config.encrypt_key, config.verification_token, clock)
        self._rules: Rules | None = None
        self._asking = asyncio.Lock()

    # As the application sees it

    def watch(self, turn: Turn) -> RunSink:
        """Show the run on a card; see `Surface.watch`."""
        return self._outbound.watch(turn)

    async def deliver(self, delivery: Delivery) -> None:
        """Tell how the run ended; see `Surface.deliver`."""
        await self._outbound.deliver(delivery)

    def forget(self, turn: Turn) -> None:
        """See `Surface`."""
        self._outbound.forget(turn)

    async def say(self, turn: Turn, text: str) -> None:
        """Write one line beside the card; see `Surface.say`."""
        await self._outbound.say(place_for(turn), text)

    async def fetch(self, file: RemoteFile) -> Fetched:
        """Download a file of a message; see `Surface.fetch`."""
        return await self._files.fetch(file)

    def health(self) -> Health:
        """How the bot is; a missing permission makes it degraded, since something does not work."""
        state, reason = self._line.state, self._line.reason
        if state == "up" and self._api.missing_scopes:
            state = "degraded"
            reason = f"missing permission: {', '.join(sorted(self._api.missing_scopes))}"
        counts = self._intake.counts
        return Health(
            platform="feishu",
            app_id=self.config.app_id,
            state=state,
            reason=reason,
            last_frame_seconds=self._line.last_frame_seconds,
            reconnects=self._line.reconnects,
            duplicates=counts.duplicates,
            stale=counts.stale,
            throttle_waits=self._api.waits,
            acks=counts.acks,
            ack_seconds_max=counts.ack_seconds_max,
        )

    # The ways in

    async def webhook(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Take a call of the platform; answered before anything is run.

        Args:
            headers: Names in any case.
            body: As it came.
        """
        try:
            call = self._door.open(headers, body)
        except BadSignature as error:
            logger.warning("[feishu] app=%s a call was refused: %s", self.config.app_id, error)
            return _webhook_answer(401, {"msg": "unauthorized"})
        except Undecodable as error:
            logger.warning("[feishu] app=%s a call was refused: %s", self.config.app_id, error)
            return _webhook_answer(400, {"msg": "bad request"})
        if isinstance(call, Challenge):
            return WebhookAnswer(200, call.answer)
        self._line.heard()
        ack = await self._intake.hear(call.payload)
        if ack.code != 200:
            self._door.forget(call)
            return _webhook_answer(503, {"msg": "try again"})
        return _webhook_answer(200, ack.answer or {})

    async def rules(self) -> Rules:
        """Who is answered; asks the platform who the bot is, until it has said so.

        Raises:
            DeliveryError: It did not.
        """
        async with self._asking:
            if self._rules is None:
                config = self.config
                self._rules = Rules(
                    config.app_id,
                    await self._api.bot_open_id(),
                    config.allow,
                    config.respond_to_mention_all,
                    config.allow_bots,
                )
            return self._rules

    # Its life

    async def run(self) -> None:
        """Be reachable, until cancelled."""
        name = f"feishu {self.config.app_id}"
        connect = self._connect if self.config.mode == "websocket" else self._stand_by
        await keep_alive(connect, name=name, health=self._line, clock=self._clock)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[FeishuLine]:
        try:
            await self.rules()
            found = await self._api.discover()
        except DeliveryError as error:
            raise LineError(str(error)) from None
        async with open_line(
            self._thread,
            found,
            self._intake.hear,
            self._line,
            self._patience.pong_grace_seconds,
        ) as line:
            yield line

    @asynccontextmanager
    async def _stand_by(self) -> AsyncIterator[_Open]:
        """Nothing is held open for a webhook; that the platform knows the bot is all there is."""
        try:
            await self.rules()
        except DeliveryError as error:
            raise LineError(str(error)) from None
        yield _Open()

    async def close(self) -> None:
        """Take nothing more in, then end what is under way."""
        await self._intake.close()
        await self._people.close()
        await self._outbound.close()


def _webhook_answer(status: int, body: Mapping[str, object]) -> WebhookAnswer:
    return WebhookAnswer(status, json.dumps(body, ensure_ascii=False).encode())


@asynccontextmanager
async def open_feishu(
    configs: Sequence[FeishuConfig],
    inbox: Inbox,
    clock: Clock = SYSTEM,
    patience: Patience = PATIENT,
) -> AsyncIterator[Mapping[str, FeishuChannel]]:
    """Bots by app id, which share one thread of the SDK; ready at once, connected or not.

    Leaving closes the connections first, so that the platform pushes nothing to a deaf process.
    """
    thread = SdkThread()
    chats = chat_budgets(clock)  # of all bots, as the platform counts
    async with aiohttp.ClientSession() as http:
        channels = {
            config.app_id: FeishuChannel(config, inbox, http, thread, chats, clock, patience)
            for config in configs
        }
        running = {
            asyncio.create_task(channel.run(), name=f"feishu {app_id}")
            for app_id, channel in channels.items()
        }
        try:
            yield channels
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=_STOP_SECONDS)
            for channel in channels.values():
                await channel.close()
            await thread.close()
