"""The long connection: the real SDK against a platform that pushes, drops and goes silent."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from channels.errors import LineError
from channels.feishu.api import Discovered
from channels.feishu.channel import FeishuConfig, Patience, open_feishu
from channels.feishu.stream import Ack, FeishuLine, SdkThread, open_line
from channels.supervise import LineHealth
from tests.channels.feishu.clock import FACTOR, quick
from tests.channels.feishu.inbox import MemoryInbox
from tests.fakes.feishu import BOT, SECRET, FakeFeishu
from tests.fakes.feishu_frames import CONTROL, DATA, Frame, decode, encode
from tests.fakes.feishu_lines import Lines


@pytest.fixture
async def thread() -> AsyncIterator[SdkThread]:
    started = SdkThread()
    yield started
    await started.close()


class Ears:
    """Hears events and answers them as told."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.acks: list[Ack] = []
        self.gate: asyncio.Event | None = None

    async def hear(self, payload: bytes) -> Ack:
        event = json.loads(payload)
        self.heard.append(event)
        if self.gate is not None and event.get("n") == 1:
            await self.gate.wait()
        return self.acks.pop(0) if self.acks else Ack(200)


def lines(feishu: FakeFeishu) -> Lines:
    return feishu.app().lines


@asynccontextmanager
async def opened(
    feishu: FakeFeishu, thread: SdkThread, ears: Ears, ping_seconds: float = 120
) -> AsyncIterator[FeishuLine]:
    url = f"ws{feishu.url.removeprefix('http')}/ws?device_id=d&service_id=1&ticket=k-{BOT}"
    found = Discovered(url, ping_seconds)
    async with open_line(thread, found, ears.hear, LineHealth(), 30.0) as line:
        await lines(feishu).until_live()
        yield line


def test_frames_come_out_as_they_went_in() -> None:
    frame = Frame(DATA, {"type": "event", "空": ""}, b"\x00" * 300, 2**64 - 1, 5, 7)
    assert decode(encode(frame)) == frame
    with pytest.raises(ValueError, match="cut short"):
        decode(encode(Frame(CONTROL))[:-1])


async def test_an_event_is_heard_and_acknowledged(feishu: FakeFeishu, thread: SdkThread) -> None:
    ears = Ears()
    async with opened(feishu, thread, ears):
        push = lines(feishu).push({"n": 1, "text": "你好"})
        await push.done.wait()
    assert push.acks == [200]
    assert push.answer is None
    assert ears.heard == [{"n": 1, "text": "你好"}]


async def test_the_answer_to_a_click_travels_in_the_acknowledgement(
    feishu: FakeFeishu, thread: SdkThread
) -> None:
    ears = Ears()
    ears.acks = [Ack(200, {"toast": {"content": "好"}})]
    async with opened(feishu, thread, ears):
        push = lines(feishu).push({"n": 1})
        await push.done.wait()
    assert push.answer == {"toast": {"content": "好"}}


async def test_what_was_not_kept_is_pushed_again(feishu: FakeFeishu, thread: SdkThread) -> None:
    lines(feishu).ladder = (0.05, 0.05)
    ears = Ears()
    ears.acks = [Ack(500), Ack(500), Ack(200)]
    async with opened(feishu, thread, ears):
        push = lines(feishu).push({"n": 1})
        await push.done.wait()
    assert push.acks == [500, 500, 200]
    assert push.tries == 3


async def test_an_event_in_five_parts_of_any_order_is_acknowledged_once(
    feishu: FakeFeishu, thread: SdkThread
) -> None:
    lines(feishu).parts = 5
    ears = Ears()
    event = {"n": 1, "text": "字" * 1000}
    async with opened(feishu, thread, ears):
        push = lines(feishu).push(event)
        await push.done.wait()
    assert push.acks == [200]
    assert ears.heard == [event]


async def test_a_slow_event_delays_neither_pings_nor_other_events(
    feishu: FakeFeishu, thread: SdkThread
) -> None:
    lines(feishu).ping_seconds = 1
    ears = Ears()
    ears.gate = asyncio.Event()
    async with opened(feishu, thread, ears, ping_seconds=1):
        connection = await lines(feishu).until_live()
        slow = lines(feishu).push({"n": 1}, again=False)
        quick = lines(feishu).push({"n": 2})
        await quick.done.wait()
        assert quick.ack_seconds is not None
        assert quick.ack_seconds < 1
        pings = connection.pings
        await feishu.until(lambda: connection.pings >= pings + 2)
        assert not slow.is_acked
        ears.gate.set()


async def test_leaving_says_goodbye(feishu: FakeFeishu, thread: SdkThread) -> None:
    async with opened(feishu, thread, Ears()):
        connection = await lines(feishu).until_live()
    async with asyncio.timeout(5):
        await connection.closed.wait()
    assert connection.got_close_frame


async def test_a_line_that_is_cut_is_lost_at_once(feishu: FakeFeishu, thread: SdkThread) -> None:
    async with opened(feishu, thread, Ears()) as line:
        (await lines(feishu).until_live()).drop()
        async with asyncio.timeout(2):
            lost = await line.wait_lost()
    assert "ConnectionClosed" in lost.reason
    assert "ticket" not in lost.reason


async def test_a_refused_handshake_is_told_by_its_number(
    feishu: FakeFeishu, thread: SdkThread
) -> None:
    lines(feishu).welcome = "reject"
    with pytest.raises(LineError) as error:
        async with opened(feishu, thread, Ears()):
            pass
    assert error.value.reason == "ClientException 403"


async def test_two_lines_share_the_thread_and_one_may_fall(
    feishu: FakeFeishu, thread: SdkThread
) -> None:
    ears, others = Ears(), Ears()
    async with opened(feishu, thread, ears) as line:
        first = await lines(feishu).until_live()
        url = f"ws{feishu.url.removeprefix('http')}/ws?device_id=d&service_id=1&ticket=k-cli_B"
        feishu.app("cli_B")
        found = Discovered(url, 120)
        async with open_line(thread, found, others.hear, LineHealth(), 30.0):
            await feishu.app("cli_B").lines.until_live()
            first.drop()
            await line.wait_lost()
            push = feishu.app("cli_B").lines.push({"n": 2})
            await push.done.wait()
    assert others.heard == [{"n": 2}]
    assert ears.heard == []


async def test_a_thread_that_ended_is_begun_anew(feishu: FakeFeishu, thread: SdkThread) -> None:
    async with opened(feishu, thread, Ears()) as line:
        loop = await thread.ready()
        loop.call_soon_threadsafe(loop.stop)
        lost = await line.wait_lost()
    assert lost.reason == "the SDK's thread has ended"
    ears = Ears()
    async with opened(feishu, thread, ears):
        push = lines(feishu).push({"n": 1})
        await push.done.wait()
    assert ears.heard == [{"n": 1}]


# With the supervisor


async def test_a_line_that_is_cut_comes_back(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    async with open_feishu([config], inbox, quick()) as channels:
        for _ in range(3):
            await lines(feishu).cut()
        await lines(feishu).until_live()
        push = feishu.say("oc_1", "hello")
        await push.done.wait()
        health = channels[BOT].health()
    assert len(inbox.taken) == 1
    assert health.state == "up"
    assert health.reconnects == 3


async def test_a_half_open_line_is_noticed_and_a_quiet_one_is_kept(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    lines(feishu).ping_seconds = 1
    clock = quick()
    async with open_feishu([config], inbox, clock, Patience(pong_grace_seconds=60)) as channels:
        connection = await lines(feishu).until_live()
        await feishu.until(lambda: connection.pings >= 6)  # more than the silence that is allowed
        assert lines(feishu).accepted == 1
        connection.is_mute = True
        await feishu.until(lambda: channels[BOT].health().state == "degraded")
        assert lines(feishu).accepted == 1
        await feishu.until(lambda: lines(feishu).accepted == 2)
        await feishu.until(lambda: channels[BOT].health().state == "up")


async def test_a_platform_that_hangs_does_not_hold_the_application(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    gate = asyncio.Event()
    fault = feishu.fail("POST", "/callback/ws/endpoint", gate=gate)
    lags: list[float] = []

    async def tick() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append(time.monotonic() - began - 0.01)

    async with open_feishu([config], inbox, quick(), Patience(discovery_seconds=0.5)):
        ticking = asyncio.create_task(tick())
        await fault.met.wait()
        await lines(feishu).until_live()
        ticking.cancel()
        gate.set()
    assert max(lags) < 0.2


async def test_a_wrong_secret_lets_the_application_start_and_says_why(
    feishu: FakeFeishu, inbox: MemoryInbox
) -> None:
    config = FeishuConfig(BOT, "wrong", domain=feishu.url, allow=("*",))
    async with open_feishu([config], inbox, quick()) as channels:
        await feishu.until(lambda: "credentials" in channels[BOT].health().reason)
        assert channels[BOT].health().state == "down"
        feishu.app().secret = "wrong"
        await lines(feishu).until_live()
        await feishu.until(lambda: channels[BOT].health().state == "up")


async def test_a_platform_that_is_not_reached_is_down_and_says_what_to_look_at(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    nowhere = replace(config, domain="http://127.0.0.1:1")
    async with open_feishu([nowhere], inbox, quick()) as channels:
        await feishu.until(lambda: "check domain" in channels[BOT].health().reason)
        assert channels[BOT].health().state == "down"


async def test_a_refusal_that_looks_final_is_tried_again(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    feishu.app().discovery = {"code": 1000040350, "msg": "too many connections"}
    async with open_feishu([config], inbox, quick()) as channels:
        await feishu.until(lambda: len(feishu.called("POST", "/callback/ws/endpoint")) >= 3)
        assert "1000040350" in channels[BOT].health().reason
        feishu.app().discovery = None
        await lines(feishu).until_live()


async def test_a_platform_that_drops_every_line_is_not_stormed(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    lines(feishu).welcome = "drop"
    async with open_feishu([config], inbox, quick()):
        began = time.monotonic()
        await feishu.until(lambda: len(feishu.called("POST", "/callback/ws/endpoint")) >= 4)
        seconds = (time.monotonic() - began) * FACTOR
    assert seconds > 1 + 3 + 9


async def test_opening_again_leaves_one_line_of_the_new_settings(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    for _ in range(3):
        async with open_feishu([config], inbox):
            await lines(feishu).until_live()
    async with open_feishu([config], inbox):
        await lines(feishu).until_live()
        assert len(lines(feishu).live) == 1
        assert lines(feishu).accepted == 4


async def test_two_bots_each_answer_their_own(feishu: FakeFeishu, inbox: MemoryInbox) -> None:
    feishu.app("cli_B")
    configs = [
        FeishuConfig(app_id, f"secret-of-{app_id}", domain=feishu.url, allow=("*",))
        for app_id in (BOT, "cli_B")
    ]
    async with open_feishu(configs, inbox):
        await asyncio.gather(*(feishu.app(one).lines.cut() for one in (BOT, "cli_B")))
        for app_id in (BOT, "cli_B"):
            await feishu.app(app_id).lines.until_live()
            await feishu.say("oc_1", f"to {app_id}", app_id=app_id).done.wait()
        stray = feishu.message_event("oc_1", "text", {"text": "x"}, feishu.app("cli_B"))
        push = lines(feishu).push(stray)
        await push.done.wait()
    assert push.acks == [200]
    assert [(one.chat.app_id, one.text) for one, _ in inbox.taken if one.chat] == [
        (BOT, f"to {BOT}"),
        ("cli_B", "to cli_B"),
    ]


def test_the_secret_of_the_local_platform_is_the_one_it_prints() -> None:
    assert FakeFeishu().app().secret == SECRET
