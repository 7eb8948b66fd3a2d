"""The bots that the settings name, opened and known to the application as surfaces."""

from collections.abc import AsyncIterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from channels.dingtalk.channel import DingTalkConfig, open_dingtalk
from channels.feishu.channel import FeishuChannel, FeishuConfig, open_feishu
from channels.port import Health, Inbox, Surface
from server.settings import DingTalkSettings, FeishuSettings, Settings


@dataclass(frozen=True, slots=True)
class Bots:
    """The open bots."""

    surfaces: MutableMapping[str, Surface] = field(default_factory=dict)
    """By name, as `ChatAddress.surface` has it."""
    feishu: MutableMapping[str, FeishuChannel] = field(default_factory=dict)
    """By app id, for their webhooks."""

    def add(self, *surfaces: Surface) -> None:
        """Make bots known as soon as they are open: their first message may be there already."""
        for surface in surfaces:
            health = surface.health()
            self.surfaces[f"{health.platform}:{health.app_id}"] = surface

    def health(self) -> list[Health]:
        """How each is."""
        return [surface.health() for surface in self.surfaces.values()]


@asynccontextmanager
async def open_bots(bots: Bots, settings: Settings, inbox: Inbox) -> AsyncIterator[Bots]:
    """Open every bot that is configured; one that cannot be reached is tried again for ever.

    Leaving ends their connections; what they owe to chats stays in the outbox.
    """
    async with AsyncExitStack() as opened:
        if settings.feishu:
            configs = [feishu_config(bot, settings) for bot in settings.feishu]
            bots.feishu.update(await opened.enter_async_context(open_feishu(configs, inbox)))
            bots.add(*bots.feishu.values())
        for bot in settings.dingtalk:
            config = dingtalk_config(bot, settings)
            bots.add(await opened.enter_async_context(open_dingtalk(config, inbox)))
        yield bots


def feishu_config(bot: FeishuSettings, settings: Settings) -> FeishuConfig:
    """What the Feishu channel is told of one bot."""
    return FeishuConfig(
        app_id=bot.app_id,
        app_secret=bot.app_secret.get_secret_value(),
        domain=bot.domain,
        mode=bot.mode,
        encrypt_key=bot.encrypt_key.get_secret_value() if bot.encrypt_key else "",
        verification_token=(
            bot.verification_token.get_secret_value() if bot.verification_token else ""
        ),
        allow=bot.allow,
        locale=settings.locale,
        respond_to_mention_all=bot.respond_to_mention_all,
        allow_bots=bot.allow_bots,
    )


def dingtalk_config(bot: DingTalkSettings, settings: Settings) -> DingTalkConfig:
    """What the DingTalk channel is told of one bot."""
    return DingTalkConfig(
        client_id=bot.client_id,
        client_secret=bot.client_secret.get_secret_value(),
        robot_code=bot.robot_code,
        card_template_id=bot.card_template_id or "",
        api_base=bot.api_base,
        oapi_base=bot.oapi_base,
        allow=bot.allow,
        locale=settings.locale,
    )
