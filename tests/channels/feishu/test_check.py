"""What the operator is told before a bot can work."""

from dataclasses import replace

import pytest

from channels.feishu.channel import FeishuConfig
from channels.feishu.check import check_feishu
from tests.fakes.feishu import FakeFeishu


async def checked(config: FeishuConfig) -> dict[str, tuple[bool, str]]:
    return {check.subject: (check.is_good, check.text) for check in await check_feishu(config)}


async def test_a_bot_that_is_well_set_up_passes_every_look(
    feishu: FakeFeishu, config: FeishuConfig
) -> None:
    looks = await checked(config)
    assert list(looks) == ["bot", "connection", "permissions", "cards"]
    assert all(is_good for is_good, _ in looks.values())
    assert feishu.app().lines.accepted == 0
    assert feishu.tenant.bubbles == {}


async def test_a_wrong_secret_is_named_and_nothing_more_is_asked(config: FeishuConfig) -> None:
    looks = await checked(replace(config, app_secret="wrong"))
    assert list(looks) == ["bot"]
    assert not looks["bot"][0]
    assert "secret" in looks["bot"][1]
    assert "wrong" not in looks["bot"][1]


async def test_a_platform_that_is_not_reached_says_what_to_look_at(
    feishu: FakeFeishu, config: FeishuConfig
) -> None:
    told: dict[str, str] = {}
    for domain in ("http://127.0.0.1:1", "http://feishu.invalid", feishu.url.replace("p:", "ps:")):
        looks = await checked(replace(config, domain=domain))
        is_good, told[domain] = looks["bot"]
        assert not is_good
        assert domain in told[domain]
        assert "check domain" in told[domain]
        assert "Error" not in told[domain]
    refused, unknown, plain = told.values()
    assert "proxy variables are not used" in refused
    assert "DNS" in unknown
    assert "TLS" in plain


async def test_a_host_that_is_no_platform_is_told_as_such(
    feishu: FakeFeishu, config: FeishuConfig
) -> None:
    feishu.fail("GET", "/bot/v3/info", status=200, body="<html>", times=9)
    is_good, text = (await checked(config))["bot"]
    assert not is_good
    assert "check the domain" in text


@pytest.mark.parametrize("scope", ["im:resource", "cardkit:card:write"])
async def test_a_missing_permission_is_named(
    feishu: FakeFeishu, config: FeishuConfig, scope: str
) -> None:
    feishu.app().scopes |= {scope, "im:message"}
    is_good, text = (await checked(config))["permissions"]
    assert not is_good
    assert "权限管理" in text


async def test_cards_without_their_permission_say_what_happens_instead(
    feishu: FakeFeishu, config: FeishuConfig
) -> None:
    feishu.app().scopes.add("cardkit:card:write")
    is_good, text = (await checked(config))["cards"]
    assert not is_good
    assert "cardkit:card:write" in text


async def test_a_refused_connection_says_where_it_is_switched_on(
    feishu: FakeFeishu, config: FeishuConfig
) -> None:
    feishu.app().discovery = {"code": 1000040346, "msg": "not enabled"}
    is_good, text = (await checked(config))["connection"]
    assert not is_good
    assert "长连接" in text


@pytest.mark.parametrize(("token", "is_good"), [("", False), ("vt_1", True)])
async def test_a_webhook_without_any_proof_is_warned_of(
    config: FeishuConfig, token: str, is_good: bool
) -> None:
    hooked = replace(config, mode="webhook", verification_token=token)
    assert (await checked(hooked))["webhook"][0] is is_good
