"""What an operator has to mend before a bot can work: asked of the platform, no chat sees it."""

from collections.abc import Mapping, Sequence

import aiohttp

from channels.errors import DeliveryError
from channels.feishu import card
from channels.feishu.api import FeishuApi
from channels.feishu.call import chat_budgets
from channels.feishu.card import Ending
from channels.feishu.codes import Meaning, Refused
from channels.feishu.config import PATIENT, FeishuConfig, Patience
from channels.port import Check

NEEDED_SCOPES: Mapping[str, Sequence[str]] = {
    "receive private messages": ("im:message", "im:message.p2p_msg:readonly"),
    "receive mentions in groups": ("im:message", "im:message.group_at_msg:readonly"),
    "send messages": ("im:message", "im:message:send_as_bot"),
    "read files of messages": ("im:resource",),
    "add reactions": ("im:message", "im:message.reactions:write_only"),
    "stream cards": ("cardkit:card:write",),
}
"""What the bot does, and the permissions of which one is enough for it."""


async def check_feishu(config: FeishuConfig, patience: Patience = PATIENT) -> list[Check]:
    """Look at credentials, bot, way in, permissions and cards; later looks need the earlier."""
    async with aiohttp.ClientSession() as http:
        chats = chat_budgets()
        api = FeishuApi(http, config, chats, patience=patience)
        checks = [await check_bot(api, config)]
        if checks[0].is_good:
            checks.append(await check_way_in(api, config))
            checks.append(await check_scopes(api))
            checks.append(await check_cards(api))
        return checks


async def check_bot(api: FeishuApi, config: FeishuConfig) -> Check:
    """Whether the app gets a token and has a bot."""
    try:
        await api.bot_open_id()
    except Refused as refused:
        if refused.meaning is Meaning.CREDENTIALS:
            text = "compare app id and secret with 凭证与基础信息"
        elif refused.retryable:
            text = "the platform has trouble; try again"
        else:
            text = "add the capability 机器人 under 应用能力, then publish a version"
        return Check("bot", False, f"{text} (code {refused.code})")
    except DeliveryError as error:
        return Check("bot", False, f"{config.domain} {error}")
    return Check("bot", True, "the platform knows the bot")


async def check_way_in(api: FeishuApi, config: FeishuConfig) -> Check:
    """Whether messages can reach us; opens nothing."""
    if config.mode == "webhook":
        if config.encrypt_key or config.verification_token:
            return Check("webhook", True, "calls are checked before they are believed")
        text = "set encrypt key or verification token as under 事件与回调 > 加密策略"
        return Check("webhook", False, text)
    try:
        await api.discover()
    except Refused as refused:
        text = f"{refused}; choose 使用长连接接收 for events and for callbacks under 事件与回调"
        return Check("connection", False, text)
    except DeliveryError as error:
        return Check("connection", False, f"{config.domain} {error}")
    return Check("connection", True, "a long connection would be let in")


async def check_scopes(api: FeishuApi) -> Check:
    """Whether the permissions are granted."""
    try:
        granted = await api.scopes()
    except DeliveryError:
        return Check("permissions", True, "not told by the platform; look under 权限管理")
    lacking = [
        f"{scopes[-1]} ({what})"
        for what, scopes in NEEDED_SCOPES.items()
        if granted.isdisjoint(scopes)
    ]
    if lacking:
        text = f"grant under 权限管理, then publish a version: {', '.join(lacking)}"
        return Check("permissions", False, text)
    return Check("permissions", True, "all are granted")


async def check_cards(api: FeishuApi) -> Check:
    """Whether progress cards can be made; the one made here is never shown."""
    try:
        await api.create_card(card.ended(Ending("check", ""), ""))
    except Refused as refused:
        if refused.meaning is Meaning.SCOPE:
            text = "grant cardkit:card:write under 权限管理; until then answers come as messages"
        else:
            text = f"refused (code {refused.code})"
        return Check("cards", False, text)
    except DeliveryError as error:
        return Check("cards", False, str(error))
    return Check("cards", True, "cards can be made")
