"""What a DingTalk bot of the running server takes in, and how; nothing is lost or done twice."""

import asyncio
import sqlite3
import time
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest
from PIL import Image

from channels import sentences
from tests.e2e.dingtalk_chat import (
    GROUP,
    PRIVATE,
    SLOW,
    cards,
    ended,
    installed,
    open_platform,
    sessions,
    showing,
)
from tests.e2e.process import ADMIN, Installation, open_server
from tests.fakes.dingtalk import Ack, FakeDingTalk
from tests.fakes.llm import Quirks, call, forever, reply, serve_gateway
from tests.house import is_title
from tests.postgres import PostgresServer
from tests.waiting import until

ZH: Final = "zh-CN"
SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])


def minutes_ago(minutes: float) -> int:
    """A time as the platform writes it."""
    return int((time.time() - minutes * 60) * 1000)


def picture() -> bytes:
    """A small PNG."""
    data = BytesIO()
    Image.new("RGB", (8, 8), "red").save(data, "PNG")
    return data.getvalue()


async def whole(platform: FakeDingTalk, chat_id: str, count: int) -> list[str]:
    """The texts of a chat, once there are so many: its cards that are over, then its messages."""

    def found() -> list[str]:
        over = [card for card in platform.cards.values() if card.is_over]
        return [card.text for card in over if card.chat_id == chat_id] + platform.chat(chat_id)

    await platform.until(lambda: len(found()) >= count, 60)
    return found()


async def until_logged(place: Installation, words: str, count: int) -> None:
    """Wait until the server has written *words* so often."""

    async def is_logged() -> bool:
        return place.log.count(words) >= count

    await until(is_logged, seconds=60)


async def test_everything_is_acknowledged_within_a_second_while_model_and_files_are_waited_for(
    tmp_path: Path,
) -> None:
    async with (
        open_platform() as platform,
        serve_gateway(forever(SLOW), title=is_title) as gateway,
        open_server(
            installed(tmp_path, gateway.url, platform, DINGTALK_ALLOW="staff01,mallory-friend")
        ),
    ):
        await platform.connected()
        hold = platform.script("messageFiles/download").hold = asyncio.Event()
        acks: dict[str, Ack] = {}
        first = platform.message("写一篇长文")
        acks["message"] = await platform.push(first)
        await showing(platform, "一二")
        acks["repeat"] = await platform.push(first)
        acks["queued"] = await platform.say("第二条")
        sent: dict[str, Any] = {"msgtype": "picture", "content": {"downloadCode": "d1"}}
        acks["picture"] = await platform.say(**sent, group=True)
        await platform.until(lambda: bool(platform.called("messageFiles/download")))
        acks["late"] = await platform.say("旧的", createAt=minutes_ago(15))
        acks["late command"] = await platform.say("/stop", createAt=minutes_ago(2))
        acks["not allowed"] = await platform.say("让我用用", senderStaffId="mallory")
        acks["unreadable"] = await platform.say(msgtype="unknownMsgType")
        acks["speech"] = await platform.say(msgtype="audio", content={"downloadCode": "d2"})
        acks["bare"] = await platform.say("@Bot\u2005", group=True)
        acks["no JSON"] = await platform.push("not json")
        for command in ("/status", "/help", "/approve", "/compact"):
            acks[command] = await platform.say(command)
        acks["/side"] = await platform.say("/side 到哪了")
        await platform.until(lambda: len(platform.cards) == 3)
        acks["button"] = await platform.click(list(platform.cards)[2])
        acks["/STOP"] = await platform.say("/STOP")
        acks["group /stop"] = await platform.say("@Bot\u3000/stop", group=True)
        acks["/new"] = await platform.say("/new")
        assert {what: ack.code for what, ack in acks.items()} == dict.fromkeys(acks, 200)
        assert {what: ack.seconds for what, ack in acks.items() if ack.seconds >= 1} == {}
        hold.set()
        await cards(platform, 3)
        assert {card.params["state"] for card in platform.cards.values()} == {"已停止"}


async def test_what_is_acknowledged_is_answered_though_the_server_is_killed_at_once(
    tmp_path: Path,
) -> None:
    async with (
        open_platform() as platform,
        serve_gateway(forever(reply("到。")), title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, platform)
        late = platform.message("旧的", group=True, createAt=minutes_ago(15))
        async with open_server(place) as server:
            await platform.connected()
            await platform.push(late)
            await platform.say("在吗")
            await server.sigkill()
        async with open_server(place):
            await platform.connected(2)
            await platform.push(late)
            assert await whole(platform, PRIVATE, 1) == ["到。"]
            assert await whole(platform, GROUP, 1) == [sentences.stale(ZH, 1)]
            await platform.say("还在吗")
            assert await whole(platform, PRIVATE, 2) == ["到。"] * 2
        assert await whole(platform, GROUP, 1) == [sentences.stale(ZH, 1)]


async def test_backlog_is_told_of_once_in_each_chat_and_never_run(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([SLOW], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)),
    ):
        await platform.connected()
        await platform.say("写一篇长文")
        running = await showing(platform, "一二")
        backlog = [platform.message("旧的", createAt=minutes_ago(age)) for age in (40, 30, 20, 11)]
        backlog.append(platform.message("/stop", createAt=minutes_ago(2)))
        backlog.append(platform.message("旧的", group=True, createAt=minutes_ago(15)))
        acks = [await platform.push_only(message) for message in [*backlog, *backlog]]
        assert {(await ack).code for ack in acks} == {200}
        assert await whole(platform, GROUP, 1) == [sentences.stale(ZH, 1)]
        assert await whole(platform, PRIVATE, 1) == [sentences.stale(ZH, 5)]
        assert not running.is_over, "a late /stop stops nothing"
        await platform.click(running.card_id)
        await platform.until(lambda: running.is_over, 30)
        assert len(gateway.requests) == 1


async def test_message_that_the_store_cannot_keep_is_refused_and_asked_for_once_it_can(
    tmp_path: Path,
) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([reply("收到了。")], title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, platform)
        async with open_server(place):
            await platform.connected()
            await platform.say("/help")
            await platform.until(lambda: len(platform.chat()) == 1)
            holder = sqlite3.connect(place.data_dir / "headway.db", isolation_level=None)
            try:
                holder.execute("BEGIN EXCLUSIVE")
                again = platform.message("请处理", group=True)
                acks = await asyncio.gather(
                    platform.say("请处理"), platform.say("/new"), platform.push(again)
                )
                assert [ack.code for ack in acks] == [500] * 3
                assert max(ack.seconds for ack in acks) < 1
                await until_logged(place, "a message could not be kept", 3)
                assert len(platform.chat()) == 1
                assert not platform.chat(GROUP)
                holder.execute("ROLLBACK")
            finally:
                holder.close()
            await platform.until(
                lambda: bool(len(platform.chat()) == 2 and platform.chat(GROUP)), 60
            )
            assert platform.chat()[1] == sentences.not_received(ZH)
            assert platform.chat(GROUP)[0].startswith(sentences.not_received(ZH))
            assert (await platform.push(again)).code == 200, "as the platform may"
            assert (await whole(platform, GROUP, 2))[0] == "收到了。"
            assert len(platform.chat()) + len(platform.chat(GROUP)) == 3


async def test_stop_button_stops_at_once_though_the_store_is_away(
    tmp_path: Path, postgres: PostgresServer, postgres_url: str
) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([SLOW], title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, platform, DATABASE_URL=postgres_url)
        async with open_server(place):
            await platform.connected()
            await platform.say("写一篇长文")
            card = await showing(platform, "一二")
            postgres.stop()
            try:
                pressing = asyncio.create_task(platform.click(card.card_id))
                async with asyncio.timeout(2):
                    await gateway.requests[0].abandoned.wait()
                assert (await pressing).seconds < 3
                assert card.params["note"] == sentences.stopping(ZH)
            finally:
                postgres.start()  # in this thread, with which it ends
            await platform.until(lambda: card.is_over, 60)
            assert card.params["state"] == "已停止"


async def test_stop_button_may_be_pressed_twice_at_once_and_after_the_end(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([SLOW], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)),
    ):
        await platform.connected()
        await platform.say("写一篇长文", group=True)
        card = await showing(platform, "一二")
        at_once = await asyncio.gather(
            platform.click(card.card_id), platform.click(card.card_id, "staff02")
        )
        assert [ack.code for ack in at_once] == [200, 200]
        await ended(platform)
        text = card.text
        assert text.endswith("⏹ 已停止")
        assert (await platform.click(card.card_id)).code == 200
        assert card.params["note"] == sentences.already_over(ZH)
        assert (card.text, card.params["state"], card.flow) == (text, "已停止", "3")
        assert len(gateway.requests) == 1
        assert not platform.chats


async def test_messages_that_wait_are_told_their_places_and_answered_in_order(
    tmp_path: Path,
) -> None:
    more = asyncio.Event()
    first = reply("第零个", quirks=Quirks(hold_at=1, hold=more))
    numbers = "一二三"
    script = [first, *(reply(f"第{one}个") for one in numbers)]
    async with (
        open_platform() as platform,
        serve_gateway(script, title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)),
    ):
        await platform.connected()
        await platform.say("零", group=True)
        await gateway.wait_for_requests(1)
        for number in numbers:
            await platform.say(number, group=True, senderStaffId=f"staff-{number}")
        await platform.until(lambda: len(platform.chat(GROUP)) == 3)
        assert [text.split("\n")[0] for text in platform.chat(GROUP)] == [
            sentences.queued(ZH, place) for place in (1, 2, 3)
        ]
        more.set()
        over = await cards(platform, 4)
        assert [card.text for card in over] == [f"第{one}个" for one in "零一二三"]
        asked = [request.messages[-1]["content"] for request in gateway.requests]
        assert [str(text)[-1] for text in asked] == [*"零一二三"]


async def test_pictures_and_files_reach_the_model_and_the_session(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([reply("看过了。")], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        platform.files["p1"] = (picture(), "application/octet-stream")
        platform.files["q1"] = (b"before: 42", "text/plain")
        content = {
            "richText": [
                {"text": "@Bot 这是什么"},
                {"type": "picture", "downloadCode": "p1"},
                {"type": "picture"},
            ],
            "isReplyMsg": True,
            "repliedMsg": {
                "msgType": "file",
                "content": {"downloadCode": "q1", "fileName": "../../etc/记录.txt"},
            },
        }
        await platform.say(msgtype="richText", content=content, group=True)
        await ended(platform)
        shown = gateway.requests[0].messages[-1]["content"]
        words = "".join(part.get("text", "") for part in shown)
        assert "这是什么[picture]" in words
        assert "[记录.txt]\nbefore: 42" in words
        pictures = [part for part in shown if part["type"] == "image_url"]
        assert [one["image_url"]["url"][:22] for one in pictures] == ["data:image/png;base64,"]
        [session] = await sessions(server)
        _, body = await server.get(f"/api/sessions/{session['id']}/messages", ADMIN)
        kept = [part for part in body["messages"][0]["content"] if part["type"] == "file"]
        assert [(file["name"], file["mediaType"]) for file in kept] == [
            ("picture.png", "image/png")
        ]


@pytest.mark.parametrize("is_shown", [False, True])
async def test_question_that_is_withdrawn_is_answered_all_the_same_and_once(
    tmp_path: Path, is_shown: bool
) -> None:
    more = asyncio.Event()
    text = "一二三四五六七八" * 4
    held = reply(text, quirks=Quirks(piece_chars=4, hold_at=4, hold=more))
    async with (
        open_platform() as platform,
        serve_gateway([held], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        making = platform.script("createAndDeliver").hold = asyncio.Event()
        question = platform.message("写一篇长文", group=True)
        if is_shown:
            making.set()
        else:
            platform.withdrawn.add(question["msgId"])
        await platform.push(question)
        if is_shown:
            await showing(platform, "一二")
            platform.withdrawn.add(question["msgId"])
        making.set()
        more.set()
        card = await ended(platform)
        assert (card.text, card.params["state"]) == (text, "已完成")
        assert len(platform.cards) == 1
        assert not platform.chats
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_kill_between_a_failure_and_its_telling_tells_it_once(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway(forever(SEARCH), title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, platform)
        async with open_server(place) as server:
            await platform.connected()
            held = platform.script("/v1.0/card/instances")
            held.hold = asyncio.Event()
            await platform.say("补充机器人文档")
            await platform.until(lambda: bool(platform.called("/v1.0/card/instances")), 60)
            [session] = await sessions(server)
            assert session["status"] == "FAILED"
            assert not platform.only_card.is_over
            await server.sigkill()
        held.hold.set()
        held.hold = None
        async with open_server(place):
            card = await ended(platform)
            assert (card.flow, card.params["state"]) == ("5", "失败")
            assert "连续 15 轮重复执行同一组工具调用(grep_search)" in card.text
            await platform.until(lambda: platform.emotions == {"msg1==": ["❌失败"]})
        assert len(gateway.requests) == 15
        assert len(platform.deliveries) == 1
        assert not platform.chats
