"""A DingTalk bot of the running server, watched as the people in its chat see it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.process import ADMIN, Installation, ServerProcess, open_server
from tests.fakes.dingtalk import FakeDingTalk, serve_dingtalk
from tests.fakes.dingtalk_world import Card
from tests.fakes.llm import NEVER, Quirks, call, forever, reply, serve_gateway
from tests.house import is_title

SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
SLOW = reply("一二三四五六七八" * 4, quirks=Quirks(piece_chars=4, hold_at=4, hold=NEVER))


@asynccontextmanager
async def open_platform() -> AsyncIterator[FakeDingTalk]:
    async with serve_dingtalk(system_ping_seconds=1.0, cut_seconds=1.0) as platform:
        yield platform


def installed(folder: Path, gateway_url: str, platform: FakeDingTalk, **more: str) -> Installation:
    variables = {
        "DINGTALK_CLIENT_ID": platform.app.client_id,
        "DINGTALK_CLIENT_SECRET": platform.app.client_secret,
        "DINGTALK_CARD_TEMPLATE_ID": next(iter(platform.app.templates)),
        "DINGTALK_API_BASE": platform.url,
        "DINGTALK_OAPI_BASE": platform.url,
        "DINGTALK_ALLOW": "*",
    }
    return Installation(folder, gateway_url, variables | more)


async def ended(platform: FakeDingTalk) -> Card:
    await platform.until(lambda: bool(platform.cards) and platform.only_card.is_over, 30)
    return platform.only_card


async def sessions(server: ServerProcess) -> list[dict[str, Any]]:
    _, body = await server.get("/api/sessions", ADMIN)
    found: list[dict[str, Any]] = body["sessions"]
    return found


async def test_answer_with_a_tool_streams_into_one_card(tmp_path: Path) -> None:
    script = [reply(calls=[call("list_dir", {"path": "."})]), reply("这里是空的。")]
    async with (
        open_platform() as platform,
        serve_gateway(script, title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        ack = await platform.say("看看有什么")
        assert ack.code == 200
        card = await ended(platform)
        assert card.flow == "3"
        assert card.text == "这里是空的。"
        await platform.until(lambda: card.params["stoppable"] == "false")
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_incident_ends_as_a_failed_card_with_the_reason(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway(forever(SEARCH), title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        await platform.say("补充机器人文档")
        card = await ended(platform)
        assert card.flow == "5"
        shown = card.text + "".join(card.params.values())
        assert "连续 15 轮重复执行同一组工具调用(grep_search)" in shown
        assert len(gateway.requests) == 15
        [session] = await sessions(server)
        assert session["status"] == "FAILED"
        assert session["executionError"]["code"] == "no_progress_loop"
        assert "群名" not in "".join(card.seen), "a card names tools, not their arguments"


async def test_stop_button_stops_the_run_everywhere(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([SLOW], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        await platform.say("写一篇长文")
        await platform.until(lambda: bool(platform.cards) and "一二" in platform.only_card.text)
        await platform.click(platform.only_card.card_id)
        async with asyncio.timeout(2):
            await gateway.requests[0].abandoned.wait()
        card = await ended(platform)
        assert card.flow == "3"
        assert "停止" in "".join(card.params.values())
        [session] = await sessions(server)
        assert session["status"] == "CANCELLED"


async def test_same_message_again_is_run_once_even_after_a_restart(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([reply("once")], title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, platform)
        message = platform.message("只回答一次")
        async with open_server(place):
            await platform.connected()
            acks = await asyncio.gather(platform.push(message), platform.push(message))
            assert [ack.code for ack in acks] == [200, 200]
            await ended(platform)
            await platform.push(message)
        async with open_server(place) as server:
            await platform.connected(2)
            await platform.push(message)
            [session] = await sessions(server)
            assert session["status"] == "COMPLETED"
        assert len(gateway.requests) == 1
        assert len(platform.cards) == 1


async def test_card_that_a_kill_left_open_is_closed_once(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([SLOW, reply("到此为止。")], title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, platform)
        async with open_server(place) as server:
            await platform.connected()
            await platform.say("写一篇长文")
            await platform.until(lambda: bool(platform.cards) and "一二" in platform.only_card.text)
            await server.sigkill()
        async with open_server(place):
            card = await ended(platform)
            assert card.flow == "3"
            assert card.text == "到此为止。"
        assert len(platform.cards) == 1
        assert platform.chat() == [], "the card says it all"


async def test_line_that_is_cut_comes_back(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([reply("first"), reply("second")], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)),
    ):
        platform.cut(await platform.connected())
        await platform.connected(2)
        await platform.say("还在吗")
        assert (await ended(platform)).text == "first"
        await platform.announce_disconnect(platform.connections[-1])
        await platform.connected(3)
        await platform.say("现在呢")
        await platform.until(lambda: len(platform.cards) == 2)


async def test_commands_are_answered(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)),
    ):
        await platform.connected()
        await platform.say("/HELP")
        await platform.until(lambda: any("/stop" in text for text in platform.chat()))
        await platform.say("/status")
        await platform.until(lambda: any("空闲" in text for text in platform.chat()))
