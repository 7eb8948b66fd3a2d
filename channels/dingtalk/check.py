"""What an operator has to mend before a bot can work: asked of the platform, no chat sees it."""

import uuid
from collections.abc import AsyncIterator

from yarl import URL

from channels.dingtalk.api import DISCOVERY, DingTalkApi, open_api
from channels.dingtalk.card import render_text
from channels.dingtalk.channel import DingTalkConfig
from channels.dingtalk.codes import Kind, Refused
from channels.dingtalk.reach import unreached
from channels.errors import LineError
from channels.port import Check


async def check_dingtalk(config: DingTalkConfig) -> list[Check]:
    """Look at credentials, connection and card template; later looks need the earlier ones."""
    host = URL(config.api_base).host or config.api_base
    async with open_api(config.credentials) as api:
        checks = [await check_credentials(api, host)]
        if checks[0].is_good:
            checks.append(await check_connection(api))
            checks += [check async for check in check_card(api, config.card_template_id, host)]
        return checks


async def check_credentials(api: DingTalkApi, host: str) -> Check:
    """Whether the app gets a token."""
    try:
        await api.token()
    except Refused as refused:
        text = f"no token ({refused.code}); compare client id and secret with 凭证与基础信息"
        if refused.is_passing:
            text = unreached(host, refused.code)
        return Check("credentials", False, text)
    return Check("credentials", True, "a token was issued")


async def check_connection(api: DingTalkApi) -> Check:
    """Whether the platform would let us connect; opens nothing."""
    try:
        await api.discover()
    except LineError as error:
        text = error.reason
        if text.startswith(DISCOVERY):
            text += "; set 消息接收模式 of the robot to Stream, then publish the app"
        return Check("connection", False, text)
    return Check("connection", True, "stream mode is on")


async def check_card(api: DingTalkApi, template_id: str, host: str) -> AsyncIterator[Check]:
    """Whether cards can be made of the template and written to."""
    if not template_id:
        yield Check("card", True, "no card_template_id: answers come as Markdown messages")
        return
    card_id = f"headway-check-{uuid.uuid4().hex}"
    body = {
        "cardTemplateId": template_id,
        "outTrackId": card_id,
        "cardData": {"cardParamMap": {"content": "", "flowStatus": "3"}},
    }
    try:
        await api.make_card(body)
    except Refused as refused:
        yield Check("card", False, _mend(refused, "Card.Instance.Write", host))
        return
    yield Check("card", True, "the template is published")
    try:
        await api.stream_card(render_text(card_id, uuid.uuid4().hex, "", is_last=True))
    except Refused as refused:
        yield Check("card text", False, _mend(refused, "Card.Streaming.Write", host))
        return
    yield Check("card text", True, "the template streams `content`")


def _mend(refused: Refused, scope: str, host: str) -> str:
    match refused.kind:
        case Kind.PERMISSION:
            return f"grant {scope} under 权限管理"
        case Kind.TEMPLATE:
            return (
                f"{refused.code}: in the card platform (卡片平台) bind the template to this app, "
                "give it a streamed variable `content`, and publish it"
            )
        case Kind.BROKEN:
            return unreached(host, refused.code)
        case _:
            return f"refused ({refused.code})"
