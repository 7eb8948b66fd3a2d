"""A DingTalk bot of the running server, watched as the people in its chat see it."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.dingtalk_chat import (
    GROUP,
    PRIVATE,
    SLOW,
    ended,
    installed,
    open_platform,
    sessions,
    showing,
)
from tests.e2e.process import open_server
from tests.fakes.llm import call, forever, reply, serve_gateway
from tests.house import is_title

SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
REASON = "连续 15 轮重复执行同一组工具调用(grep_search)"


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
        assert card.params["state"] == "已完成"
        assert not platform.chat()
        await platform.until(lambda: platform.emotions == {"msg1==": []})
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
        assert REASON in shown
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
        await showing(platform, "一二")
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
            await platform.say("/help")
            await platform.until(lambda: bool(platform.chat()))
            [session] = await sessions(server)
            assert session["status"] == "COMPLETED"
        assert len(gateway.requests) == 1
        assert [card.text for card in platform.cards.values()] == ["once"]
        assert len(platform.chat()) == 1, "nothing but the help"


async def test_card_that_a_kill_left_open_is_closed_once_though_its_message_comes_again(
    tmp_path: Path,
) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([SLOW, reply("到此为止。")], title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, platform)
        message = platform.message("写一篇长文")
        async with open_server(place) as server:
            await platform.connected()
            await platform.push(message)
            await showing(platform, "一二")
            assert (await platform.push(message)).code == 200
            await platform.until(lambda: platform.emotions == {"msg1==": ["🤔思考中"]})
            await server.sigkill()
        async with open_server(place):
            await platform.connected(2)
            assert (await platform.push(message)).code == 200
            card = await ended(platform)
            assert card.flow == "3"
            assert card.text == "到此为止。"
            await platform.until(lambda: platform.emotions == {"msg1==": []})
            assert (await platform.push(message)).code == 200
        assert len(gateway.requests) == 2
        assert len(platform.cards) == 1
        assert platform.chat() == [], "the card says it all"


@pytest.mark.parametrize("on_restart", ["resume", "fail"])
async def test_mark_at_a_message_goes_after_a_kill_without_a_card(
    tmp_path: Path, on_restart: str
) -> None:
    script = [SLOW, reply("到此为止。")] if on_restart == "resume" else [SLOW]
    async with open_platform() as platform, serve_gateway(script, title=is_title) as gateway:
        more = {"DINGTALK_CARD_TEMPLATE_ID": "", "ON_RESTART": on_restart}
        place = installed(tmp_path, gateway.url, platform, **more)
        async with open_server(place) as server:
            await platform.connected()
            await platform.say("写一篇长文")
            await gateway.wait_for_requests(1)
            await platform.until(lambda: platform.emotions == {"msg1==": ["🤔思考中"]})
            await server.sigkill()
        left = {"resume": [], "fail": ["❌失败"]}[on_restart]
        async with open_server(place):
            await platform.until(lambda: bool(platform.chat()), 30)
            await platform.until(lambda: platform.emotions == {"msg1==": left})
        assert len(platform.chat()) == 1


@pytest.mark.parametrize("is_group", [False, True])
async def test_without_a_template_answers_and_incidents_are_messages(
    tmp_path: Path, is_group: bool
) -> None:
    answer = "## 结果\n\n| 名 | 值 |\n|---|---|\n| 甲 | 1 |"
    script = [reply(answer), *[SEARCH] * 15]
    async with open_platform() as platform, serve_gateway(script, title=is_title) as gateway:
        place = installed(tmp_path, gateway.url, platform, DINGTALK_CARD_TEMPLATE_ID="")
        chat = platform.chat(GROUP) if is_group else platform.chat(PRIVATE)
        async with open_server(place) as server:
            await platform.connected()
            await platform.say("看看结果", group=is_group)
            await platform.until(lambda: bool(platform.chats))
            await platform.say("补充机器人文档", group=is_group)
            await platform.until(lambda: len(platform.called("sendBySession")) == 2, 60)
            await platform.until(lambda: platform.emotions.get("msg2==") == ["❌失败"])
            [session] = await sessions(server)
            assert session["status"] == "FAILED"
        chat = platform.chat(GROUP if is_group else PRIVATE)
        assert chat[0] == answer
        assert chat[1].startswith("❌")
        assert REASON in chat[1]
        assert "群名" not in chat[1]
        assert len(chat) == 2
        sent = [call.body for call in platform.called("sendBySession")]
        assert [body["msgtype"] for body in sent] == ["markdown", "markdown"]
        assert sent[0]["markdown"]["title"] == "结果"
        assert not platform.cards


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
