"""The HTTP faces, against a local platform."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from channels.dingtalk.api import (
    DOWNLOAD_BYTES,
    Credentials,
    DingTalkApi,
    open_api,
)
from channels.dingtalk.card import render_new, render_text
from channels.dingtalk.codes import Kind, Refused
from channels.dingtalk.decode import Address
from channels.dingtalk.sender import Sender
from channels.errors import LineError
from tests.channels.dingtalk.house import GROUP_CHAT, PRIVATE_CHAT, TEMPLATE, config, in_time
from tests.fakes.clock import Clock
from tests.fakes.dingtalk import FakeDingTalk, Refusal, oapi, serve_dingtalk
from tests.fakes.dingtalk_world import BAD_TOKEN, QPS_REFUSAL


@pytest.fixture
def clock() -> Clock:
    """Time that the test moves."""
    return Clock()


@pytest.fixture
async def platform(clock: Clock) -> AsyncIterator[FakeDingTalk]:
    """A platform in the test's time that pings nobody."""
    async with serve_dingtalk(system_ping_seconds=None, clock=clock.monotonic) as running:
        yield running


@pytest.fixture
async def api(platform: FakeDingTalk, clock: Clock) -> AsyncIterator[DingTalkApi]:
    """The faces of the platform's app."""
    async with open_api(config(platform).credentials, clock.channels) as opened:
        yield opened


@pytest.fixture
def sender(api: DingTalkApi, clock: Clock) -> Sender:
    """A sender over it."""
    return Sender(api, clock.channels, "zh-CN")


def address(platform: FakeDingTalk, *, group: bool = False, lasts_seconds: float = 5400) -> Address:
    """Where a message of Alice wants its answer."""
    message = platform.message(group=group)
    return Address(
        conversation_id=message["conversationId"],
        is_group=group,
        staff_id=message["senderStaffId"],
        robot_code=message["robotCode"],
        webhook=message["sessionWebhook"],
        webhook_until_ms=int((Clock().wall() + lasts_seconds) * 1000),
        message_id=message["msgId"],
    )


async def test_many_calls_at_once_fetch_one_token(platform: FakeDingTalk, api: DingTalkApi) -> None:
    tokens = await asyncio.gather(*(api.token() for _ in range(10)))
    assert len(set(tokens)) == 1
    assert len(platform.called("accessToken")) == 1


async def test_a_token_is_renewed_before_its_end(
    platform: FakeDingTalk, api: DingTalkApi, clock: Clock
) -> None:
    first = await api.token()
    clock.advance(7200 - 301)
    assert await api.token() == first
    clock.advance(2)
    assert await api.token() != first


async def test_a_bad_token_is_renewed_once_and_the_call_repeated(
    platform: FakeDingTalk, api: DingTalkApi
) -> None:
    await api.token()
    platform.expire_tokens()
    platform.message()
    await api.send_person("ding_test", "staff01", "t", "x")
    assert platform.chat() == ["x"]
    assert [call.status for call in platform.called("batchSend")] == [400, 200]
    assert len(platform.called("accessToken")) == 2


async def test_tokens_that_many_calls_find_bad_are_renewed_once(
    platform: FakeDingTalk, api: DingTalkApi
) -> None:
    platform.message()
    await api.token()
    platform.expire_tokens()
    await asyncio.gather(*(api.send_person("r", "staff01", "t", "x") for _ in range(5)))
    assert len(platform.called("accessToken")) == 2


async def test_a_call_that_hears_late_of_its_bad_token_takes_the_one_that_is_new_already(
    platform: FakeDingTalk, api: DingTalkApi
) -> None:
    platform.message()
    await api.token()
    hold = platform.script("groupMessages/send").hold = asyncio.Event()
    late = asyncio.create_task(api.send_group("r", GROUP_CHAT, "t", "late"))
    await platform.until(lambda: bool(platform.called("groupMessages/send")))
    platform.expire_tokens()
    platform.groups.add(GROUP_CHAT)
    await api.send_person("r", "staff01", "t", "x")
    hold.set()
    await late
    assert platform.chat(GROUP_CHAT) == ["late"]
    assert len(platform.called("accessToken")) == 2


@pytest.mark.parametrize("refusal", [BAD_TOKEN, Refusal(401, {}), Refusal(401, {"code": "x"})])
async def test_a_token_that_stays_bad_is_not_asked_for_again_and_again(
    platform: FakeDingTalk, api: DingTalkApi, refusal: Refusal
) -> None:
    platform.script("card/streaming", refusal, refusal)
    with pytest.raises(Refused) as refused:
        await api.stream_card(render_text("c1", "g1", "x"))
    assert refused.value.kind == Kind.TOKEN
    assert len(platform.called("card/streaming")) == 2


async def test_a_wrong_secret_is_a_refusal_without_the_secret(platform: FakeDingTalk) -> None:
    credentials = replace(config(platform).credentials, client_secret="not-it")
    assert "not-it" not in repr(credentials)
    async with open_api(credentials) as api:
        with pytest.raises(Refused) as refused:
            await api.token()
        assert refused.value.code == "invalidClientIdOrSecret"
        assert "not-it" not in str(refused.value)
        with pytest.raises(LineError, match="authFailed"):
            await api.discover()


async def test_a_webhook_that_answers_200_with_an_error_has_failed(
    platform: FakeDingTalk, api: DingTalkApi
) -> None:
    where = address(platform)
    platform.script("sendBySession", oapi(300001, "session 不存在"))
    with pytest.raises(Refused) as refused:
        await api.send_webhook(where, "t", "x")
    assert refused.value.kind == Kind.EXPIRED


@pytest.mark.parametrize(
    "answer", [Refusal(200, {}), Refusal(502, {"a": 1}), Refusal(200, {"errcode": "0"})]
)
async def test_an_answer_that_does_not_say_yes_is_none(
    platform: FakeDingTalk, api: DingTalkApi, answer: Refusal
) -> None:
    where = address(platform)
    platform.script("sendBySession", answer)
    with pytest.raises(Refused) as refused:
        await api.send_webhook(where, "t", "x")
    assert refused.value.kind == Kind.BROKEN


async def test_nobody_listening_is_a_refusal_that_passes() -> None:
    async with open_api(Credentials("c", "s", "http://127.0.0.1:1")) as api:
        with pytest.raises(Refused) as refused:
            await api.token()
        assert refused.value.is_passing
        with pytest.raises(LineError):
            await api.discover()


async def test_a_person_who_got_nothing_is_noticed(
    platform: FakeDingTalk, api: DingTalkApi
) -> None:
    with pytest.raises(Refused) as refused:
        await api.send_person("ding_test", "stranger", "t", "x")
    assert refused.value.kind == Kind.GONE
    lists = {"invalidStaffIdList": [], "flowControlledStaffIdList": ["staff01"]}
    platform.script("batchSend", Refusal(200, {"processQueryKey": "q", **lists}))
    with pytest.raises(Refused) as refused:
        await api.send_person("ding_test", "staff01", "t", "x")
    assert refused.value.kind == Kind.THROTTLED


async def test_a_card_that_reached_no_chat_was_not_delivered(
    platform: FakeDingTalk, api: DingTalkApi
) -> None:
    nowhere = Address("cidNone", is_group=True, robot_code="ding_test")
    with pytest.raises(Refused) as refused:
        await api.create_card(render_new("c1", TEMPLATE, nowhere, "zh-CN"))
    assert refused.value.code == "not_delivered"
    assert platform.cards == {}


async def test_calls_keep_below_the_rate_of_the_app() -> None:
    async with serve_dingtalk() as platform, open_api(config(platform).credentials) as api:
        platform.message()
        await asyncio.gather(*(api.send_person("r", "staff01", "t", "x") for _ in range(40)))
        assert len(platform.chat()) == 40
        assert {call.status for call in platform.called("batchSend")} == {200}
        assert api.throttle_waits == 35


async def test_a_refusal_for_too_many_calls_is_waited_out_with_growing_pauses(
    platform: FakeDingTalk, api: DingTalkApi, clock: Clock
) -> None:
    platform.message()
    platform.script("batchSend", QPS_REFUSAL, QPS_REFUSAL, QPS_REFUSAL)

    async def send() -> None:
        await api.insist(lambda: api.send_person("r", "staff01", "t", "x"), 60, is_repeatable=False)

    seconds = await in_time(clock, send())
    assert platform.chat() == ["x"]
    assert 14 <= seconds < 18  # 2 + 4 + 8


async def test_a_message_whose_answer_was_lost_is_not_sent_again_by_itself(
    platform: FakeDingTalk, api: DingTalkApi
) -> None:
    platform.message()
    platform.script("batchSend").drops = 1
    with pytest.raises(Refused) as refused:
        await api.insist(lambda: api.send_person("r", "staff01", "t", "x"), 60, is_repeatable=False)
    assert refused.value.kind == Kind.BROKEN
    assert platform.chat() == ["x"]


async def test_an_answer_goes_by_the_webhook_while_it_lasts(
    platform: FakeDingTalk, sender: Sender, clock: Clock
) -> None:
    where = address(platform, lasts_seconds=5400)
    await sender.say(where, "first")
    clock.advance(5400 - 59)
    await sender.say(where, "second")
    assert platform.chat() == ["first", "second"]
    assert len(platform.called("sendBySession")) == 1
    assert len(platform.called("batchSend")) == 1


@pytest.mark.parametrize(("group", "ending"), [(False, "batchSend"), (True, "groupMessages/send")])
async def test_a_dead_webhook_is_tried_once_and_then_left_alone(
    platform: FakeDingTalk, sender: Sender, group: bool, ending: str
) -> None:
    where = address(platform, group=group)
    platform.dead_webhooks.update(platform.webhooks)
    await sender.say(where, "first")
    await sender.say(where, "second")
    assert platform.chat(GROUP_CHAT if group else PRIVATE_CHAT) == ["first", "second"]
    assert len(platform.called("sendBySession")) == 1
    assert len(platform.called(ending)) == 2


async def test_a_chat_that_got_too_much_in_a_minute_is_answered_another_way(
    platform: FakeDingTalk, sender: Sender
) -> None:
    where = address(platform)
    platform.script("sendBySession", oapi(130101, "send too fast"))
    await sender.say(where, "first")
    await sender.say(where, "second")
    assert platform.chat() == ["first", "second"]
    assert len(platform.called("sendBySession")) == 1


async def test_the_rate_of_a_chats_webhook_is_kept(
    platform: FakeDingTalk, sender: Sender, clock: Clock
) -> None:
    where = address(platform)

    async def many() -> None:
        for number in range(25):
            await sender.say(where, str(number))

    seconds = await in_time(clock, many())
    assert platform.chat() == [str(number) for number in range(25)]
    assert seconds >= 60
    assert not platform.called("batchSend")


async def test_a_person_from_outside_is_answered_by_the_webhook_alone(
    platform: FakeDingTalk, sender: Sender
) -> None:
    where = replace(address(platform), staff_id="")
    await sender.say(where, "hi")
    assert platform.chat() == ["hi"]
    platform.dead_webhooks.update(platform.webhooks)
    with pytest.raises(Refused) as refused:
        await sender.say(where, "hi")
    assert refused.value.kind == Kind.GONE


async def test_a_long_answer_arrives_in_parts_in_order(
    platform: FakeDingTalk, sender: Sender
) -> None:
    line = "".join(chr(ord("a") + number % 26) for number in range(60_000))
    await sender.say(address(platform), f"```text\n{line}\n```")
    assert len(platform.chat()) == 4
    joined = "".join(part.replace("```text\n", "").replace("\n```", "") for part in platform.chat())
    assert joined.replace("\n", "") == line


async def test_a_file_is_read_and_one_too_big_is_not(
    platform: FakeDingTalk, api: DingTalkApi
) -> None:
    platform.files["d1"] = (b"%PDF", "application/pdf")
    platform.files["d2"] = (bytes(DOWNLOAD_BYTES + 1), "application/pdf")
    assert await api.download("d1", "ding_test") == (b"%PDF", "application/pdf")
    with pytest.raises(Refused) as refused:
        await api.download("d2", "ding_test")
    assert refused.value.code == "too_big"
    with pytest.raises(Refused) as refused:
        await api.download("d1", "")
    assert refused.value.kind == Kind.BAD
