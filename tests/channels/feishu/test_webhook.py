"""Calls of the platform to us: proof, encryption, repeats, and an answer before any run."""

import asyncio
import base64
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from Crypto.Cipher import AES

from channels.errors import BadSignature, Undecodable
from channels.feishu.channel import FeishuChannel, FeishuConfig, open_feishu
from channels.feishu.webhook import AGE_SECONDS, Called, Challenge, Door, decrypt
from tests.channels.feishu.clock import MovedClock
from tests.channels.feishu.inbox import MemoryInbox, begin, finish
from tests.channels.questions import asking, may_write, which
from tests.fakes.feishu import BOT, SECRET, FakeFeishu

KEY = "encrypt-key"
TOKEN = "vt_1"


def encrypted(clear: bytes, key: str = KEY) -> bytes:
    """As the platform does it."""
    padding = 16 - len(clear) % 16
    vector = os.urandom(16)
    cipher = AES.new(hashlib.sha256(key.encode()).digest(), AES.MODE_CBC, vector)
    secret = vector + cipher.encrypt(clear + bytes([padding]) * padding)
    return json.dumps({"encrypt": base64.b64encode(secret).decode()}).encode()


def signed(
    body: bytes, key: str = KEY, *, at: float | None = None, nonce: str = ""
) -> dict[str, str]:
    """Headers as an ASGI server gives them, in lower case."""
    told_at = str(int(time.time() if at is None else at))
    nonce = nonce or os.urandom(8).hex()
    signature = hashlib.sha256((told_at + nonce + key).encode() + body).hexdigest()
    return {
        "x-lark-request-timestamp": told_at,
        "x-lark-request-nonce": nonce,
        "x-lark-signature": signature,
    }


def door(key: str = KEY, token: str = TOKEN) -> Door:
    return Door(key, token)


def event(token: str = TOKEN) -> bytes:
    return json.dumps({"schema": "2.0", "header": {"token": token}, "event": {}}).encode()


# Proof


def test_a_signed_call_is_let_in_whatever_the_case_of_its_headers() -> None:
    headers = signed(event())
    assert door().open(headers, event()) == Called(event(), _nonces(headers))
    upper = {name.title(): value for name, value in headers.items()}
    assert isinstance(door().open(upper, event()), Called)


def _nonces(headers: Mapping[str, str]) -> tuple[str]:
    return (f"{headers['x-lark-request-timestamp']}\0{headers['x-lark-request-nonce']}",)


def test_an_encrypted_call_is_decrypted() -> None:
    body = encrypted(event())
    call = door().open(signed(body), body)
    assert isinstance(call, Called)
    assert call.payload == event()


@pytest.mark.parametrize("name", ["timestamp", "nonce", "signature"])
def test_a_header_that_is_no_text_is_refused_like_any_other(name: str) -> None:
    headers = signed(event())
    part = f"x-lark-{name}" if name == "signature" else f"x-lark-request-{name}"
    with pytest.raises(BadSignature):
        door().open({**headers, part: "\udce9"}, event())


def test_a_token_that_is_no_text_is_refused_like_any_other() -> None:
    with pytest.raises(BadSignature):
        door(key="").open({}, b'{"header": {"token": "\\ud800"}}')


@pytest.mark.parametrize("left_out", ["timestamp", "nonce", "signature", "all"])
def test_a_call_without_its_proof_is_refused(left_out: str) -> None:
    headers = {
        name: value
        for name, value in signed(event()).items()
        if left_out != "all" and not name.endswith(left_out)
    }
    with pytest.raises(BadSignature):
        door().open(headers, event())


def test_a_call_with_another_body_or_key_is_refused() -> None:
    with pytest.raises(BadSignature):
        door().open(signed(event()), event() + b" ")
    with pytest.raises(BadSignature):
        door().open(signed(event(), "other"), event())


def test_a_call_that_comes_twice_is_refused_unless_it_was_given_back() -> None:
    headers, guarded = signed(event()), door()
    call = guarded.open(headers, event())
    with pytest.raises(BadSignature):
        guarded.open(headers, event())
    assert isinstance(call, Called)
    guarded.forget(call)
    assert isinstance(guarded.open(headers, event()), Called)


@pytest.mark.parametrize("seconds", [AGE_SECONDS + 5, -AGE_SECONDS - 5])
def test_a_call_of_another_time_is_refused(seconds: float) -> None:
    with pytest.raises(BadSignature):
        door().open(signed(event(), at=time.time() - seconds), event())


def test_a_time_in_milliseconds_is_understood() -> None:
    assert isinstance(door().open(signed(event(), at=time.time() * 1000), event()), Called)


def test_an_old_call_cannot_be_played_again_when_its_nonce_is_forgotten() -> None:
    clock = MovedClock()
    guarded = Door(KEY, TOKEN, clock.channels)
    headers = signed(event())
    guarded.open(headers, event())
    clock.advance(3 * AGE_SECONDS)
    with pytest.raises(BadSignature):
        guarded.open(headers, event())


def test_without_an_encrypt_key_the_token_is_the_proof() -> None:
    assert isinstance(door(key="").open({}, event()), Called)
    with pytest.raises(BadSignature):
        door(key="").open({}, event("wrong"))
    with pytest.raises(BadSignature):
        door(key="", token="").open({}, event(""))


def test_a_signed_call_with_another_token_is_refused() -> None:
    with pytest.raises(BadSignature):
        door().open(signed(event("wrong")), event("wrong"))


# The check of the address


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_the_check_of_the_address_is_answered_unsigned(is_encrypted: bool) -> None:
    asked = {"type": "url_verification", "challenge": "c 1", "token": TOKEN}
    body = json.dumps(asked).encode()
    call = door().open({}, encrypted(body) if is_encrypted else body)
    assert isinstance(call, Challenge)
    assert json.loads(call.answer) == {"challenge": "c 1"}


def test_the_check_of_the_address_by_somebody_else_is_refused() -> None:
    asked = {"type": "url_verification", "challenge": "c", "token": "wrong"}
    with pytest.raises(BadSignature):
        door().open({}, json.dumps(asked).encode())


# Encryption


@pytest.mark.parametrize(
    "secret", ["", "!!!", "YQ==", base64.b64encode(bytes(40)).decode(), "YWJj" * 8]
)
def test_what_is_not_encrypted_as_agreed_is_refused(secret: str) -> None:
    with pytest.raises(Undecodable):
        decrypt(secret, KEY)


def test_another_key_is_noticed() -> None:
    refused = 0
    for _ in range(50):
        body = encrypted(b'{"a": 1}', "other")
        try:
            door().open(signed(body), body)
        except (Undecodable, BadSignature):
            refused += 1
    assert refused == 50


@pytest.mark.parametrize("body", [b"", b"[]", b"not json", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(Undecodable):
        door().open(signed(body), body)


def test_an_encrypted_call_without_a_key_is_refused() -> None:
    with pytest.raises(Undecodable):
        door(key="").open({}, encrypted(event()))


# Through the channel


@pytest.fixture
async def hooked(feishu: FakeFeishu, inbox: MemoryInbox) -> AsyncIterator[FeishuChannel]:
    """A bot that is called."""
    config = FeishuConfig(
        BOT,
        SECRET,
        domain=feishu.url,
        mode="webhook",
        encrypt_key=KEY,
        verification_token=TOKEN,
        allow=("*",),
    )
    async with open_feishu([config], inbox) as channels:
        yield channels[BOT]


async def call(channel: FeishuChannel, event: dict[str, Any]) -> tuple[int, Any]:
    body = encrypted(json.dumps(event).encode())
    answer = await channel.webhook(signed(body), body)
    return answer.status, json.loads(answer.body)


async def test_a_message_by_webhook_runs_once_and_is_answered_at_once(
    feishu: FakeFeishu, inbox: MemoryInbox, hooked: FeishuChannel
) -> None:
    event = feishu.message_event("oc_1", "text", {"text": "hello"})
    began = time.monotonic()
    assert await call(hooked, event) == (200, {})
    assert time.monotonic() - began < 1
    assert await call(hooked, event) == (200, {})
    assert len(inbox.taken) == 1
    turn = await inbox.turn()
    begin(hooked, turn)
    await finish(hooked, turn, "the answer")
    assert feishu.chat("oc_1").visible()[0].text == "the answer\n✅ 已完成"
    assert hooked.health().state == "up"
    assert hooked.health().last_frame_seconds is not None


async def test_a_click_by_webhook_is_answered_with_a_toast(
    feishu: FakeFeishu, inbox: MemoryInbox, hooked: FeishuChannel
) -> None:
    await call(hooked, feishu.message_event("oc_1", "text", {"text": "hello"}))
    turn = await inbox.turn()
    begin(hooked, turn)
    await feishu.until(lambda: feishu.chat("oc_1").visible())
    [bubble] = feishu.chat("oc_1").visible()
    click = feishu.click_event(bubble, bubble.buttons[0])
    status, answer = await call(hooked, click)
    assert (status, answer["toast"]["content"]) == (200, "正在停止")
    assert inbox.cancelled == [turn.run_id]


async def test_a_question_is_answered_by_webhook_with_a_button_or_a_field(
    feishu: FakeFeishu, inbox: MemoryInbox, hooked: FeishuChannel
) -> None:
    await call(hooked, feishu.message_event("oc_1", "text", {"text": "hello"}))
    turn = await inbox.turn()
    begin(hooked, turn)
    await hooked.deliver(asking(turn, may_write("q1"), which("q2")))
    [bubble] = feishu.chat("oc_1").visible()
    status, answer = await call(hooked, feishu.click_event(bubble, bubble.labelled["同意"]))
    assert (status, answer["toast"]["content"]) == (200, "ou_alice: approve")
    value = bubble.labelled["提交"]
    status, _ = await call(hooked, feishu.click_event(bubble, value, written={"answer_2": "丙"}))
    assert status == 200
    assert inbox.decided == [("q1", "approve", "ou_alice", ""), ("q2", "approve", "ou_alice", "丙")]


async def test_a_message_that_could_not_be_kept_is_called_for_again_unchanged(
    feishu: FakeFeishu, inbox: MemoryInbox, hooked: FeishuChannel
) -> None:
    body = encrypted(json.dumps(feishu.message_event("oc_1", "text", {"text": "hi"})).encode())
    headers = signed(body)
    inbox.is_unavailable = True
    assert (await hooked.webhook(headers, body)).status == 503
    inbox.is_unavailable = False
    assert (await hooked.webhook(headers, body)).status == 200
    assert len(inbox.taken) == 1


async def test_commands_by_webhook_go_through_the_same_window(
    feishu: FakeFeishu, inbox: MemoryInbox, hooked: FeishuChannel
) -> None:
    event = feishu.message_event("oc_1", "text", {"text": "/stop"})
    assert await call(hooked, event) == (200, {})
    assert await call(hooked, event) == (200, {})
    assert len(inbox.commands) == 1


async def test_a_forged_call_reaches_nothing(
    feishu: FakeFeishu, inbox: MemoryInbox, hooked: FeishuChannel
) -> None:
    body = json.dumps(feishu.message_event("oc_1", "text", {"text": "hi"})).encode()
    assert (await hooked.webhook({}, body)).status == 401
    assert (await hooked.webhook({}, b"nonsense")).status == 400
    assert inbox.taken == []


async def test_an_event_before_the_bot_knows_itself_is_called_for_again(
    feishu: FakeFeishu, inbox: MemoryInbox
) -> None:
    gate = asyncio.Event()
    feishu.fail("GET", "/bot/v3/info", gate=gate)
    config = FeishuConfig(
        BOT, SECRET, domain=feishu.url, mode="webhook", verification_token=TOKEN, allow=("*",)
    )
    event = json.dumps(feishu.message_event("oc_1", "text", {"text": "hi"})).encode()
    async with open_feishu([config], inbox) as channels:
        assert (await channels[BOT].webhook({}, event)).status == 503
        gate.set()
        await feishu.until(lambda: channels[BOT].health().state == "up")
        assert (await channels[BOT].webhook({}, event)).status == 200
    assert len(inbox.taken) == 1
