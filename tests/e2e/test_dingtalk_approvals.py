"""Questions, side questions and what nobody asked for, as people in a DingTalk chat see them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.dingtalk_chat import (
    GROUP,
    PRIVATE,
    SLOW,
    asking,
    cards,
    ended,
    open_platform,
    post,
    sessions,
    showing,
)
from tests.e2e.process import ADMIN, ServerProcess, open_server
from tests.fakes.dingtalk import FakeDingTalk
from tests.fakes.dingtalk_world import Card
from tests.fakes.llm import Play, Recorded, call, reply, serve_gateway
from tests.house import is_title
from tests.waiting import until
from tests.wire import open_client

WRITE = reply("我来写。", calls=[call("write_file", {"path": "a.txt", "content": "kept"})])
ASK = reply(calls=[call("ask_user", {"question": "哪个群？", "options": ["甲", "乙"]})])
DONE = reply("办好了。")


def last_result(request: Recorded) -> Any:
    """The newest tool result in a request, decoded."""
    results = [message for message in request.messages if message["role"] == "tool"]
    return json.loads(results[-1]["content"])


def write_then_done(request: Recorded) -> Play:
    """The same answers, however often a killed server has to ask."""
    return DONE if request.messages[-1]["role"] == "tool" else WRITE


async def says(platform: FakeDingTalk, card: Card, words: str) -> None:
    """Wait until these words stand at the card's end."""
    await platform.until(lambda: card.text.endswith(words), 30)


@pytest.mark.parametrize("is_group", [False, True])
async def test_call_is_agreed_to_by_the_button_of_its_card(tmp_path: Path, is_group: bool) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([WRITE, DONE], title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, platform)
        async with open_server(place) as server:
            await platform.connected()
            await platform.say("写文件", group=is_group)
            card = await ended(platform)
            assert card.text.startswith("我来写。\n\n---\n\n❓ 要执行 write_file 吗？")
            assert '"content": "kept"' in card.text
            assert not (place.workspace / "a.txt").exists()
            [session] = await sessions(server)
            assert session["status"] == "WAITING"
            ack = await platform.press(card.card_id, "同意")
            changed = ack.data["response"]["cardData"]["cardParamMap"]
            assert (ack.code, changed) == (200, {"note": "Alice 已同意"})
            _, answer = await cards(platform, 2)
            assert (answer.text, answer.params["state"]) == ("办好了。", "已完成")
            await says(platform, card, "☑ Alice 已同意")
            assert (place.workspace / "a.txt").read_text() == "kept"
            await platform.until(lambda: platform.emotions == {"msg1==": []})
        assert not platform.chats, "the cards say it all"
        assert "kept" not in place.log
        assert "Alice" not in place.log


async def test_refused_call_does_not_run_and_the_run_goes_on(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([WRITE, reply("那就不写。")], title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, platform)
        async with open_server(place):
            await platform.connected()
            await platform.say("写文件")
            card = await ended(platform)
            await platform.press(card.card_id, "拒绝")
            _, answer = await cards(platform, 2)
            assert answer.text == "那就不写。"
            await says(platform, card, "☑ Alice 已拒绝")
            assert last_result(gateway.requests[1])["error"] == "denied"
            assert not (place.workspace / "a.txt").exists()


async def test_question_of_a_chat_that_the_page_answers_says_who_did(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([WRITE, DONE], title=is_title) as gateway,
        open_server(asking(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        await platform.say("写文件")
        card = await ended(platform)
        old = card.look.buttons["拒绝"]
        [session] = await sessions(server)
        async with open_client(server.url, token=ADMIN) as client:
            followed = await client.subscribe(session["id"])
            [approval] = followed["approvals"]
            await client.request(
                "approval.respond",
                session=session["id"],
                interruptId=approval["id"],
                decision="approve",
            )
        await says(platform, card, "☑ admin 已同意")
        assert not card.look.buttons
        await cards(platform, 2)
        await platform.click(card.card_id, action=old["actionId"], params=old["params"])
        assert card.params["note"] == "这个问题已经处理过了：admin 已同意。"
        assert len(gateway.requests) == 2


async def test_next_message_answers_what_the_model_asks(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([ASK, DONE], title=is_title) as gateway,
        open_server(asking(tmp_path, gateway.url, platform)),
    ):
        await platform.connected()
        await platform.say("发通知", group=True)
        card = await ended(platform)
        assert card.text.startswith("❓ 哪个群？\n\n- 甲\n- 乙\n\n直接回复即可作答")
        bob = {"senderStaffId": "bob", "senderId": "$:bob", "senderNick": "Bob"}
        assert (await platform.say("丙群", group=True, **bob)).code == 200
        _, answer = await cards(platform, 2)
        await says(platform, card, "☑ Bob 已回答")
        assert last_result(gateway.requests[1]) == {"answer": "丙群"}
        assert answer.text == "办好了。"
        await platform.until(lambda: platform.emotions == {"msg1==": [], "msg2==": []})
        assert not platform.chats, "an answer does not queue"


async def test_option_is_an_answer(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([ASK, DONE], title=is_title) as gateway,
        open_server(asking(tmp_path, gateway.url, platform)),
    ):
        await platform.connected()
        await platform.say("发通知")
        card = await ended(platform)
        await platform.press(card.card_id, "乙")
        await cards(platform, 2)
        await says(platform, card, "☑ Alice 已回答")
        assert last_result(gateway.requests[1]) == {"answer": "乙"}


async def test_two_questions_are_answered_one_by_one(tmp_path: Path) -> None:
    both = reply(
        calls=[
            call("write_file", {"path": "a.txt", "content": "1"}),
            call("write_file", {"path": "b.txt", "content": "2"}),
        ]
    )
    async with (
        open_platform() as platform,
        serve_gateway([both, DONE], title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, platform)
        async with open_server(place):
            await platform.connected()
            await platform.say("写两个")
            card = await ended(platform)
            await platform.press(card.card_id, "2. 拒绝")
            await platform.until(lambda: list(card.look.buttons) == ["1. 同意", "1. 拒绝"])
            assert len(gateway.requests) == 1
            await platform.press(card.card_id, "1. 同意")
            await cards(platform, 2)
            await platform.until(lambda: card.params["state"] == "已答复")
            assert "☑ Alice 已同意" in card.text
            assert "☑ Alice 已拒绝" in card.text
            assert (place.workspace / "a.txt").exists()
            assert not (place.workspace / "b.txt").exists()


async def test_without_a_template_words_answer(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([WRITE, DONE], title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, platform, DINGTALK_CARD_TEMPLATE_ID="")
        async with open_server(place):
            await platform.connected()
            await platform.say("写文件")
            await platform.until(lambda: len(platform.chat()) == 1, 30)
            assert "发送 /approve 同意，/deny 拒绝。" in platform.chat()[0]
            await platform.say("/Approve")
            await platform.until(lambda: len(platform.chat()) == 4, 30)
        question, *told = platform.chat()
        assert '"path": "a.txt"' in question
        verdict = "❓ 要执行 write_file 吗？\n\n☑ Alice 已同意"
        assert sorted(told) == sorted(["Alice 已同意", verdict, "办好了。"])
        assert (place.workspace / "a.txt").exists()


async def test_button_works_though_the_server_was_killed_since(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([WRITE, DONE], title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, platform)
        async with open_server(place) as server:
            await platform.connected()
            await platform.say("写文件")
            card = await ended(platform)
            await platform.until(lambda: platform.emotions == {"msg1==": []})
            await server.sigkill()
        async with open_server(place):
            await platform.connected(2)
            await platform.press(card.card_id, "同意")
            _, answer = await cards(platform, 2)
            await says(platform, card, "☑ staff01 已同意")
            assert answer.text == "办好了。"
            assert (place.workspace / "a.txt").exists()
        assert (len(gateway.requests), len(platform.deliveries)) == (2, 2)
        assert not platform.chats


async def test_kill_between_an_answer_and_its_telling_tells_it_once(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway(write_then_done, title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, platform)
        async with open_server(place) as server:
            await platform.connected()
            await platform.say("写文件")
            card = await ended(platform)
            updates = len(platform.called("/v1.0/card/instances"))
            held = platform.script("/v1.0/card/instances")
            held.hold = asyncio.Event()
            await platform.press(card.card_id, "同意")
            await platform.until(lambda: len(platform.called("/v1.0/card/instances")) > updates)
            await server.sigkill()
        held.hold.set()
        held.hold = None
        async with open_server(place):
            await cards(platform, 2)
            await says(platform, card, "☑ Alice 已同意")
        assert len(platform.deliveries) == 2
        assert not platform.chats


async def test_side_question_is_answered_beside_what_is_at_work(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([SLOW, reply("到第三步了。")], title=is_title) as gateway,
        open_server(asking(tmp_path, gateway.url, platform)) as server,
    ):
        await platform.connected()
        await platform.say("写一篇长文")
        main = await showing(platform, "一二")
        await platform.say(" @Bot /Side 到哪一步了？")
        [side] = await cards(platform, 1)
        assert side.text == "**旁路提问**\n\n到第三步了。"
        assert {text.split("\n")[0] for text in side.seen} == {"**旁路提问**"}
        assert not main.is_over
        assert gateway.requests[1].messages[-1]["content"].endswith("到哪一步了？")
        await platform.click(main.card_id)
        await platform.until(lambda: main.is_over, 30)
        assert "停止" in main.params["state"]
        await platform.say("/side")
        await platform.until(lambda: any("/side 后面" in text for text in platform.chat()))
        assert len(await sessions(server)) == 1, "the chat speaks to the session of before"


async def test_next_message_answers_what_a_side_question_asks(tmp_path: Path) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([SLOW, ASK, DONE], title=is_title) as gateway,
        open_server(asking(tmp_path, gateway.url, platform)),
    ):
        await platform.connected()
        await platform.say("写一篇长文")
        main = await showing(platform, "一二")
        await platform.say("/side 发个通知")
        [side] = await cards(platform, 1)
        assert side.text.startswith("**旁路提问**\n\n❓ 哪个群？")
        assert (await platform.say("丙群")).code == 200
        _, answer = await cards(platform, 2)
        assert answer.text == "**旁路提问**\n\n办好了。"
        await says(platform, side, "☑ Alice 已回答")
        assert last_result(gateway.requests[2]) == {"answer": "丙群"}
        assert not main.is_over
        assert not platform.chats, "an answer does not queue"
        await platform.click(main.card_id)
        await platform.until(lambda: main.is_over, 30)


async def scheduled(server: ServerProcess, chat_id: str) -> str:
    """Id of a task that tells its answers in a chat and was started just now."""
    chat = {"platform": "dingtalk", "appId": "ding_test", "chatId": chat_id}
    task = await post(
        server,
        "/api/tasks",
        {
            "prompt": "今天天气如何",
            "title": "每日简报",
            "schedule": {"kind": "interval", "seconds": 86_400},
            "delivery": {"chat": chat},
        },
    )
    await post(server, f"/api/tasks/{task['id']}/run")
    return str(task["id"])


async def delivered(server: ServerProcess, task_id: str) -> None:
    """Wait until the task's answer counts as told."""

    async def is_told() -> bool:
        _, body = await server.get(f"/api/tasks/{task_id}/runs", ADMIN)
        return [run["deliveryStatus"] for run in body["runs"]] == ["DELIVERED"]

    await until(is_told, seconds=40)


@pytest.mark.parametrize("chat_id", [PRIVATE, GROUP])
@pytest.mark.parametrize("has_cards", [True, False])
async def test_what_a_task_tells_finds_a_chat_that_was_silent_since_the_start(
    tmp_path: Path, chat_id: str, has_cards: bool
) -> None:
    long = "晴，20 度。" * 1500
    async with (
        open_platform() as platform,
        serve_gateway([reply("你好"), reply(long)], title=is_title) as gateway,
    ):
        more = {} if has_cards else {"DINGTALK_CARD_TEMPLATE_ID": ""}
        place = asking(tmp_path, gateway.url, platform, **more)
        async with open_server(place):
            await platform.connected()
            old = {"sessionWebhookExpiredTime": 1_700_000_000_000}
            await platform.say("你好", group=chat_id == GROUP, **old)
            await platform.until(lambda: platform.emotions == {"msg1==": []}, 30)
        before = list(platform.chat(chat_id))
        async with open_server(place) as server:
            await delivered(server, await scheduled(server, chat_id))
        told = platform.chat(chat_id)[len(before) :]
        if has_cards:
            card = list(platform.cards.values())[1]
            assert (len(card.looks), card.chat_id) == (1, chat_id)
            told = [card.text, *told]
        assert "".join(told).replace("\n", "") == f"**每日简报**{long}"
        assert not platform.called("sendBySession")
        assert platform.emotions == {"msg1==": []}, "nobody is answered"


async def test_what_a_task_tells_is_told_once_though_the_server_is_killed_at_it(
    tmp_path: Path,
) -> None:
    async with (
        open_platform() as platform,
        serve_gateway([reply("你好"), reply("晴，20 度。")], title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, platform)
        async with open_server(place) as server:
            await platform.connected()
            await platform.say("你好")
            await ended(platform)
            held = platform.script("createAndDeliver")
            held.hold_answers = asyncio.Event()
            task_id = await scheduled(server, PRIVATE)
            await platform.until(lambda: len(platform.cards) == 2, 30)
            await server.sigkill()
        held.hold_answers.set()
        held.hold_answers = None
        async with open_server(place) as server:
            await delivered(server, task_id)
        assert len(platform.deliveries) == 2
        assert list(platform.cards.values())[1].text == "**每日简报**\n\n晴，20 度。"
        assert not platform.chats
