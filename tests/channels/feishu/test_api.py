"""The HTTP calls against the local platform: tokens, limits, refusals, downloads."""

import asyncio
import json
import time

import aiohttp
import pytest

from channels.feishu import call
from channels.feishu.api import FeishuApi, Place, idempotency_key
from channels.feishu.call import TooBig, chat_budgets
from channels.feishu.codes import Meaning, Refused, Unreachable, refusal
from channels.feishu.config import FeishuConfig, Patience
from tests.channels.feishu.clock import MovedClock
from tests.fakes.feishu import BOT, SECRET, FakeFeishu, serve_feishu
from tests.fakes.feishu_chats import Bubble

CHAT = Place("oc_1")


def text(words: str) -> str:
    return json.dumps({"text": words})


@pytest.fixture
def api(feishu: FakeFeishu, http: aiohttp.ClientSession) -> FeishuApi:
    return api_of(feishu, http)


def api_of(
    feishu: FakeFeishu,
    http: aiohttp.ClientSession,
    secret: str = SECRET,
    patience: Patience | None = None,
) -> FeishuApi:
    config = FeishuConfig(BOT, secret, domain=feishu.url + "/")
    chats = chat_budgets()
    return FeishuApi(http, config, chats, patience=patience or Patience())


async def post(api: FeishuApi, words: str, place: Place = CHAT, key: str = "") -> str:
    return await api.post(place, "text", text(words), key or idempotency_key(words))


def said(feishu: FakeFeishu, chat_id: str = "oc_1") -> list[str]:
    return [bubble.text for bubble in feishu.chat(chat_id).visible()]


# Tokens


async def test_many_calls_at_once_fetch_one_token(feishu: FakeFeishu, api: FeishuApi) -> None:
    await asyncio.gather(*(api.bot_open_id() for _ in range(20)))
    assert feishu.app().tokens_given == 1


async def test_a_refused_token_is_renewed_once_and_the_call_made_again(
    feishu: FakeFeishu, api: FeishuApi
) -> None:
    assert await api.bot_open_id() == "ou_bot"
    feishu.app().tokens.clear()
    assert await post(api, "hello")
    assert feishu.app().tokens_given == 2
    assert said(feishu) == ["hello"]


async def test_calls_that_are_refused_together_renew_the_token_once(
    feishu: FakeFeishu, api: FeishuApi
) -> None:
    await api.bot_open_id()
    feishu.app().tokens.clear()
    await asyncio.gather(*(api.bot_open_id() for _ in range(10)))
    assert feishu.app().tokens_given == 2


async def test_a_token_is_renewed_before_it_ends(http: aiohttp.ClientSession) -> None:
    clock = MovedClock()
    async with serve_feishu(clock.monotonic) as feishu:
        chats = chat_budgets(clock.channels)
        config = FeishuConfig(BOT, SECRET, domain=feishu.url)
        api = FeishuApi(http, config, chats, clock.channels)
        await api.bot_open_id()
        clock.advance(7200 - call.TOKEN_MARGIN_SECONDS + 1)
        await api.bot_open_id()
        assert feishu.app().tokens_given == 2
        assert all(one.code == 0 for one in feishu.calls)


async def test_a_wrong_secret_is_told_as_such_and_not_tried_again(
    feishu: FakeFeishu, http: aiohttp.ClientSession
) -> None:
    with pytest.raises(Refused) as refused:
        await post(api_of(feishu, http, "wrong"), "hello")
    assert refused.value.meaning is Meaning.CREDENTIALS
    assert not refused.value.retryable
    assert len(feishu.called("POST", "tenant_access_token")) == 1


async def test_a_token_endpoint_that_is_down_for_a_while_loses_nothing(
    feishu: FakeFeishu, api: FeishuApi
) -> None:
    feishu.fail("POST", "tenant_access_token", status=500, body="<html>", times=2)
    await post(api, "hello")
    assert said(feishu) == ["hello"]


async def test_calls_that_wait_for_one_token_do_not_wait_for_each_other(
    feishu: FakeFeishu, http: aiohttp.ClientSession
) -> None:
    api = api_of(feishu, http, patience=Patience(call_seconds=0.5))
    feishu.fail("POST", "/tenant_access_token", seconds=5, times=99)
    began = time.monotonic()
    asked = (api.replace_card("card_1", "{}", number) for number in range(20))
    failures = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(one, Unreachable) for one in failures)
    assert time.monotonic() - began < 2


async def test_a_token_endpoint_that_hangs_is_given_up_in_time(
    feishu: FakeFeishu, http: aiohttp.ClientSession
) -> None:
    fault = feishu.fail("POST", "tenant_access_token", gate=asyncio.Event(), times=99)
    api = api_of(feishu, http, patience=Patience(discovery_seconds=0.2, call_seconds=0.2))
    try:
        with pytest.raises(Unreachable) as unreachable:
            await api.scopes()
        assert unreachable.value.retryable
    finally:
        assert fault.gate is not None
        fault.gate.set()


# Limits


@pytest.mark.parametrize("status", [429, 400])
async def test_the_rate_limit_is_waited_for_as_the_header_says(
    feishu: FakeFeishu, api: FeishuApi, status: int
) -> None:
    headers = {"x-ogw-ratelimit-reset": "2"}
    feishu.fail("POST", "/messages", 99991400, status=status, headers=headers)
    began = time.monotonic()
    await post(api, "hello")
    assert time.monotonic() - began >= 2
    assert said(feishu) == ["hello"]


async def test_twelve_messages_to_one_chat_arrive_in_order_and_others_do_not_wait(
    feishu: FakeFeishu, api: FeishuApi
) -> None:
    async def twelve() -> None:
        for number in range(12):
            await post(api, f"part {number}")

    sending = asyncio.create_task(twelve())
    await feishu.until(lambda: len(said(feishu)) >= 5)
    began = time.monotonic()
    await post(api, "other", Place("oc_2"))
    assert time.monotonic() - began < 0.5
    await sending
    assert said(feishu) == [f"part {number}" for number in range(12)]
    assert not [one for one in feishu.calls if one.code == 230020]
    assert api.waits > 0


async def test_a_chat_that_is_busy_with_others_is_waited_for(
    feishu: FakeFeishu, api: FeishuApi
) -> None:
    feishu.fail("POST", "/messages", 230020, times=2)
    await post(api, "hello")
    assert said(feishu) == ["hello"]


# Messages


async def test_a_repeat_after_a_lost_answer_posts_nothing_twice(
    feishu: FakeFeishu, http: aiohttp.ClientSession
) -> None:
    api = api_of(feishu, http, patience=Patience(call_seconds=0.3))
    await api.bot_open_id()
    feishu.fail("POST", "/messages", is_late=True, seconds=1)
    assert await post(api, "hello") == feishu.chat("oc_1").visible()[0].message_id
    assert said(feishu) == ["hello"]
    assert len(feishu.called("POST", "/messages")) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"code": 230011, "msg": "withdrawn"},
        {"code": 231003, "msg": "x"},
        {"message": "The message was withdrawn."},
        {"msg": "The message was withdrawn."},
    ],
)
async def test_an_answer_to_a_message_that_is_gone_goes_into_the_chat(
    feishu: FakeFeishu, api: FeishuApi, body: dict[str, object]
) -> None:
    feishu.tenant.add(Bubble("om_1", "oc_1", "text", {"text": "hi"}, "ou_alice"))
    feishu.fail("POST", "/reply", status=400, body=body)
    await post(api, "hello", Place("oc_1", "om_1"))
    [bubble] = feishu.chat("oc_1").visible()
    assert bubble.parent_id == ""


@pytest.mark.parametrize("code", [230002, 230013, 230018, 230053, 232009])
async def test_a_chat_that_is_closed_is_not_tried_again(
    feishu: FakeFeishu, api: FeishuApi, code: int
) -> None:
    feishu.chat("oc_1").closed_with = code
    with pytest.raises(Refused) as refused:
        await post(api, "hello")
    assert refused.value.meaning is Meaning.CHAT_GONE
    assert not refused.value.retryable
    assert len(feishu.called("POST", "/messages")) == 1


async def test_an_html_page_from_a_gateway_is_no_answer(feishu: FakeFeishu, api: FeishuApi) -> None:
    feishu.fail("POST", "/messages", status=502, body="<html>bad gateway</html>")
    await post(api, "hello")
    assert said(feishu) == ["hello"]


async def test_nobody_there_is_told_without_an_address(
    feishu: FakeFeishu, http: aiohttp.ClientSession
) -> None:
    config = FeishuConfig(BOT, SECRET, domain="http://127.0.0.1:1")
    api = FeishuApi(http, config, chat_budgets())
    with pytest.raises(Unreachable) as unreachable:
        await api.discover()
    assert "127.0.0.1" not in str(unreachable.value)


def test_secrets_do_not_show_in_the_configuration() -> None:
    config = FeishuConfig("cli_1", "s3cret", encrypt_key="k3y", verification_token="t0ken")
    for secret in ("s3cret", "k3y", "t0ken"):
        assert secret not in repr(config)


# Files


async def test_a_file_is_downloaded_with_its_name(feishu: FakeFeishu, api: FeishuApi) -> None:
    feishu.resources["f_1"] = (b"%PDF", "报告.pdf", "application/pdf")
    found = await api.download("om_1", "f_1", "file")
    assert (found.data, found.name, found.media_type) == (b"%PDF", "报告.pdf", "application/pdf")


async def test_a_file_that_is_json_is_no_refusal(feishu: FakeFeishu, api: FeishuApi) -> None:
    feishu.resources["f_1"] = (b'{"code": 7}', "a.json", "application/json")
    assert (await api.download("om_1", "f_1", "file")).data == b'{"code": 7}'


async def test_a_missing_permission_is_named_and_not_tried_again(
    feishu: FakeFeishu, api: FeishuApi
) -> None:
    feishu.app().scopes.add("im:resource")
    with pytest.raises(Refused) as refused:
        await api.download("om_1", "f_1", "file")
    assert refused.value.scopes == ("im:resource",)
    assert api.missing_scopes == {"im:resource"}
    assert len(feishu.called("GET", "/resources/")) == 1


async def test_a_permission_that_was_granted_since_is_missing_no_more(
    feishu: FakeFeishu, http: aiohttp.ClientSession
) -> None:
    clock = MovedClock()
    config = FeishuConfig(BOT, SECRET, domain=feishu.url)
    api = FeishuApi(http, config, chat_budgets(), clock.channels)
    feishu.app().scopes.add("im:resource")
    with pytest.raises(Refused):
        await api.download("om_1", "f_1", "file")
    assert api.missing_scopes == {"im:resource"}
    clock.advance(3601)
    assert api.missing_scopes == frozenset()


async def test_a_file_over_the_limit_is_not_taken(feishu: FakeFeishu, api: FeishuApi) -> None:
    feishu.resources["f_1"] = (b"x" * (call.DOWNLOAD_BYTES_MAX + 1), "big", "x/y")
    with pytest.raises(TooBig):
        await api.download("om_1", "f_1", "file")


# Codes


@pytest.mark.parametrize(
    ("status", "code", "words", "meaning", "retryable"),
    [
        (400, 99991663, "", Meaning.TOKEN, True),
        (400, 99991400, "", Meaning.RATE, True),
        (429, None, "", Meaning.RATE, True),
        (400, 230049, "", Meaning.BUSY, True),
        (400, 200810, "", Meaning.BUSY, True),
        (200, 2200, "", Meaning.INTERNAL, True),
        (503, None, "", Meaning.INTERNAL, True),
        (400, 300317, "", Meaning.SEQUENCE, True),
        (400, 200850, "", Meaning.STREAM_OVER, False),
        (400, 230025, "", Meaning.TOO_LONG, False),
        (400, 230022, "", Meaning.AUDIT, False),
        (400, 200740, "", Meaning.CARD_GONE, False),
        (400, 987654, "whatever", Meaning.UNKNOWN, False),
        (400, None, "The message was recalled", Meaning.MESSAGE_GONE, False),
    ],
)
def test_a_code_means_one_thing(
    status: int, code: int | None, words: str, meaning: Meaning, retryable: bool
) -> None:
    refused = refusal(status, code, words, {})
    assert refused.meaning is meaning
    assert refused.retryable is retryable


def test_the_cause_inside_a_refused_card_is_read_and_its_words_are_not_kept() -> None:
    words = "Failed to create card content, ext=ErrCode: 11310; ErrMsg: secret text"
    refused = refusal(400, 230099, words, {})
    assert refused.inner == 11310
    assert "secret" not in str(refused)


@pytest.mark.parametrize(("told", "seconds"), [("3", 3), ("0", 1), ("x", 1), ("9999", 60)])
def test_a_told_pause_is_believed_within_reason(told: str, seconds: float) -> None:
    refused = refusal(429, 99991400, "", {"x-ogw-ratelimit-reset": told})
    assert refused.retry_after_seconds == seconds
