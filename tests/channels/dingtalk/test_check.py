"""What an operator is told of a bot that cannot work."""

import aiohttp
import pytest

from channels.dingtalk.check import check_dingtalk
from channels.dingtalk.reach import unreached
from tests.channels.dingtalk.house import config
from tests.fakes.dingtalk import FakeDingTalk, Refusal, api_refusal


async def test_a_good_app_passes_every_check(platform: FakeDingTalk) -> None:
    checks = await check_dingtalk(config(platform))
    assert [check.subject for check in checks] == ["credentials", "connection", "card", "card text"]
    assert all(check.is_good for check in checks)
    assert platform.chats == {}
    assert platform.deliveries == []


async def test_an_app_without_a_template_needs_no_card(platform: FakeDingTalk) -> None:
    checks = await check_dingtalk(config(platform, card_template_id=""))
    assert all(check.is_good for check in checks)
    assert platform.cards == {}


async def test_a_wrong_secret_is_the_first_thing_to_mend(platform: FakeDingTalk) -> None:
    (check,) = await check_dingtalk(config(platform, client_secret="no"))
    assert not check.is_good
    assert "凭证与基础信息" in check.text


async def test_stream_mode_that_is_off_is_named(platform: FakeDingTalk) -> None:
    platform.faults.refuse = api_refusal(403, "streamModeOff")
    checks = await check_dingtalk(config(platform))
    assert [check.is_good for check in checks] == [True, False, True, True]
    assert "streamModeOff" in checks[1].text


@pytest.mark.parametrize("scope", ["Card.Instance.Write", "Card.Streaming.Write"])
async def test_a_missing_scope_is_named(platform: FakeDingTalk, scope: str) -> None:
    platform.app.scopes.remove(scope)
    *_, last = await check_dingtalk(config(platform))
    assert not last.is_good
    assert scope in last.text


async def test_a_template_that_is_unpublished_or_lacks_the_variable_is_named(
    platform: FakeDingTalk,
) -> None:
    platform.app.templates["other"] = frozenset({"msgContent"})
    for template_id, code in (("none", "param.templateUnpublished"), ("other", "unknownError")):
        *_, last = await check_dingtalk(config(platform, card_template_id=template_id))
        assert not last.is_good
        assert code in last.text


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("http://127.0.0.1:1", "check host and port of api_base, and the firewall"),
        ("https://127.0.0.1:{port}", "it speaks no TLS there"),
    ],
)
async def test_a_platform_that_cannot_be_reached_is_told_with_what_to_look_at(
    platform: FakeDingTalk, base: str, words: str
) -> None:
    port = platform.url.rpartition(":")[2]
    (check,) = await check_dingtalk(config(platform, api_base=base.format(port=port)))
    assert not check.is_good
    assert check.text.startswith("127.0.0.1 cannot be asked (")
    assert words in check.text


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (aiohttp.ClientConnectorDNSError.__name__, "DNS"),
        (aiohttp.ClientConnectorCertificateError.__name__, "certificate"),
        (aiohttp.ConnectionTimeoutError.__name__, "firewall"),
        (aiohttp.SocketTimeoutError.__name__, "HTTPS_PROXY is not used"),
        (TimeoutError.__name__, "no answer within 10 s"),
        (aiohttp.ServerDisconnectedError.__name__, "api_base"),
        ("not_json", "what answers there is not DingTalk"),
    ],
)
def test_each_way_not_to_be_reached_says_where_to_look(code: str, words: str) -> None:
    text = unreached("api.dingtalk.com", code)
    assert text.startswith(f"api.dingtalk.com cannot be asked ({code}): ")
    assert words in text


async def test_a_line_that_cannot_be_had_for_the_network_is_no_matter_of_the_console(
    platform: FakeDingTalk,
) -> None:
    platform.faults.drops_discovery = True
    checks = await check_dingtalk(config(platform))
    assert [check.is_good for check in checks] == [True, False, True, True]
    assert "ServerDisconnectedError" in checks[1].text
    assert "firewall" in checks[1].text
    assert "Stream" not in checks[1].text


async def test_trouble_of_the_platform_itself_is_named_as_such(platform: FakeDingTalk) -> None:
    platform.script("accessToken", Refusal(502, {}))
    (check,) = await check_dingtalk(config(platform))
    assert "try again later" in check.text
    platform.script("/v1.0/card/instances", Refusal(503, {}))
    *_, last = await check_dingtalk(config(platform))
    assert "try again later" in last.text
