"""How a bot says that it is, and what it never says."""

import pytest

from channels.dingtalk.channel import open_dingtalk
from tests.channels.dingtalk.house import (
    MemoryInbox,
    config,
    delivery,
    open_bot,
)
from tests.fakes.dingtalk import FakeDingTalk, oapi
from tests.waiting import until


async def test_a_bot_opens_though_the_platform_refuses_it(platform: FakeDingTalk) -> None:
    wrong = config(platform, client_secret="wrong")
    async with open_dingtalk(wrong, MemoryInbox()) as channel:
        await platform.until(lambda: len(platform.called("connections/open")) >= 2)
        health = channel.health()
        assert (health.state, health.reason) == ("down", "discovery: authFailed")
        assert "wrong" not in repr(wrong)


async def test_a_platform_that_cannot_be_reached_is_named_with_what_to_look_at(
    platform: FakeDingTalk,
) -> None:
    nowhere = config(platform, api_base="http://127.0.0.1:1")
    async with open_dingtalk(nowhere, MemoryInbox()) as channel:

        async def is_told() -> bool:
            return "cannot be asked" in channel.health().reason

        await until(is_told)
        health = channel.health()
        assert health.state == "down"
        assert health.reason.startswith("127.0.0.1 cannot be asked (ClientConnectorError): ")
        assert "firewall" in health.reason


async def test_no_text_and_no_secret_reaches_a_log(
    platform: FakeDingTalk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with open_bot(platform, card_template_id="") as bot:
        await platform.say("geheim-1 @Bot")
        await platform.push('{"msgId": "geheim-2"}')
        platform.script("sendBySession", oapi(300001, "geheim-3"))
        await bot.channel.deliver(delivery(bot.turn(), answer="geheim-4"))
        await platform.announce_disconnect(platform.connections[0])
        await platform.connected(2)
    ours = [r.getMessage() for r in caplog.records if r.name.startswith(("channels", "dingtalk"))]
    assert ours
    secrets = ("geheim", "secret-1", "ticket=", "session=s1", "Alice", "staff01", "at-1")
    assert not [line for line in ours for secret in secrets if secret in line]
