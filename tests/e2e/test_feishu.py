"""A Feishu bot of the running server, watched as the people in its chat see it."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.feishu_chat import (
    CHAT,
    DONE,
    card_with,
    cards,
    connected,
    installed,
    only_card,
    sessions,
)
from tests.e2e.process import open_server
from tests.fakes.feishu import serve_feishu
from tests.fakes.feishu_chats import Bubble
from tests.fakes.llm import NEVER, Quirks, call, forever, refuse, reply, serve_gateway
from tests.house import is_title

SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
SLOW = reply("一二三四五六七八" * 4, quirks=Quirks(piece_chars=4, hold_at=4, hold=NEVER))


async def test_answer_with_a_tool_streams_into_one_card(tmp_path: Path) -> None:
    script = [reply(calls=[call("list_dir", {"path": "."})]), reply("这里是空的。")]
    async with (
        serve_feishu() as feishu,
        serve_gateway(script, title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        push = feishu.say(CHAT, "看看有什么")
        await push.done.wait()
        assert push.is_acked
        await feishu.until(lambda: cards(feishu) and "这里是空的。" in cards(feishu)[0].text)
        card = await only_card(feishu)
        assert card.buttons == []
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_incident_ends_as_a_failed_card_with_the_reason(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway(forever(SEARCH), title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        feishu.say(CHAT, "补充机器人文档")
        reason = "连续 15 轮重复执行同一组工具调用(grep_search)"
        await feishu.until(lambda: cards(feishu) and reason in cards(feishu)[0].text)
        card = await only_card(feishu)
        assert card.buttons == []
        assert card.card is not None
        assert "群名" not in "".join(card.card.texts)
        assert len(gateway.requests) == 15
        [session] = await sessions(server)
        assert session["executionError"]["code"] == "no_progress_loop"


async def test_stop_button_stops_the_run_everywhere(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([SLOW], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        feishu.say(CHAT, "写一篇长文")
        await feishu.until(lambda: cards(feishu) and "一二" in cards(feishu)[0].text)
        [card] = cards(feishu)
        click = feishu.click(card, card.buttons[0])
        async with asyncio.timeout(3):
            await click.done.wait()
            await gateway.requests[0].abandoned.wait()
        assert click.answer["toast"]
        await feishu.until(lambda: "停止" in card.text)
        assert not card.is_typing
        [session] = await sessions(server)
        assert session["status"] == "CANCELLED"


async def test_card_that_a_kill_left_open_is_closed_once(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([SLOW, reply("到此为止。")], title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, feishu)
        async with open_server(place) as server:
            await connected(feishu)
            feishu.say(CHAT, "写一篇长文")
            await feishu.until(lambda: cards(feishu) and "一二" in cards(feishu)[0].text)
            await server.sigkill()
        async with open_server(place):
            await feishu.until(lambda: "到此为止。" in cards(feishu)[0].text)
            await only_card(feishu)
        assert len(feishu.chat(CHAT).visible()) == 1


@pytest.mark.parametrize("mode", ["cards", "messages"])
async def test_failure_is_told_even_where_cards_are_refused(tmp_path: Path, mode: str) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway(forever(refuse(401)), title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)),
    ):
        if mode == "messages":
            feishu.fail("POST", "/open-apis/cardkit/v1/cards", 300000, times=99)
        await connected(feishu)
        feishu.say(CHAT, "hi")
        await feishu.until(
            lambda: any("HEADWAY_MODEL_API_KEY" in b.text for b in feishu.chat(CHAT).visible())
        )


async def test_forward_and_voice_message_reach_the_model(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([reply("看过了"), reply("收到语音")], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        feishu.names["ou_bob"] = "Bob"
        feishu.resources["f_v"] = (b"OggS and so on", "", "audio/ogg")
        placeholder = "Merged and Forwarded Message"
        event = feishu.message_event(CHAT, "merge_forward", placeholder, message_id="om_f")
        feishu.tenant.bubble("om_f").children = [
            Bubble("om_c", "oc_9", "text", {"text": "周五发布"}, "ou_bob")
        ]
        feishu.send(event)
        await card_with(feishu, "看过了")
        assert "> Bob: 周五发布" in str(gateway.requests[0].messages[-1]["content"])
        spoken = {"file_key": "f_v", "duration": 2000}
        feishu.send(feishu.message_event(CHAT, "audio", spoken))
        await feishu.until(lambda: len(cards(feishu)) == 2 and DONE in cards(feishu)[1].text)
        assert "voice.opus" in str(gateway.requests[1].messages[-1]["content"])
        assert {session["status"] for session in await sessions(server)} == {"COMPLETED"}


async def test_line_that_is_cut_comes_back(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([reply("still here")], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)),
    ):
        await connected(feishu)
        await feishu.app().lines.cut()
        await connected(feishu, 2)
        feishu.say(CHAT, "还在吗")
        await feishu.until(lambda: cards(feishu) and "still here" in cards(feishu)[0].text)
