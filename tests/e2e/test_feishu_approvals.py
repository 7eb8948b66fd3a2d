"""Questions, side questions and what nobody asked for, as people in a Feishu chat see them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.feishu_chat import (
    CHAT,
    DONE,
    asking,
    card_with,
    cards,
    connected,
    ended,
    post,
    sessions,
    visible,
)
from tests.e2e.process import ADMIN, ServerProcess, open_server
from tests.fakes.feishu import BOT, FakeFeishu, serve_feishu
from tests.fakes.feishu_chats import Bubble
from tests.fakes.llm import NEVER, Play, Quirks, Recorded, call, reply, serve_gateway
from tests.house import is_title
from tests.waiting import until
from tests.wire import open_client

GROUP = "oc_group"
UNASKED = "🔔 通知"
WRITE = reply("我来写。", calls=[call("write_file", {"path": "a.txt", "content": "kept"})])
ASK = reply(calls=[call("ask_user", {"question": "哪个群？", "options": ["甲", "乙"]})])
OVER = reply("办好了。")
SLOW = reply("一二三四五六七八" * 4, quirks=Quirks(piece_chars=4, hold_at=4, hold=NEVER))


def write_then_over(request: Recorded) -> Play:
    """The same answers, however often a killed server has to ask."""
    return OVER if request.messages[-1]["role"] == "tool" else WRITE


def last_result(request: Recorded) -> Any:
    """The newest tool result in a request, decoded."""
    results = [message for message in request.messages if message["role"] == "tool"]
    return json.loads(results[-1]["content"])


async def verdict_on(feishu: FakeFeishu, bubble: Bubble, verdict: str) -> None:
    """Wait until the card says who answered, for good."""
    await feishu.until(lambda: bubble.text.endswith(f"☑ {verdict}\n☑ 已答复"))
    assert not bubble.buttons
    assert not bubble.forms
    assert not bubble.is_typing


async def pressed(feishu: FakeFeishu, bubble: Bubble, words: str, sender: str = "ou_alice") -> str:
    """Press a button; what the person is shown."""
    push = feishu.press(bubble, words, sender)
    await push.done.wait()
    assert push.acks == [200]
    return str(push.answer["toast"]["content"])


@pytest.mark.parametrize("chat_id", [CHAT, GROUP])
async def test_call_is_agreed_to_by_the_button_of_its_card(tmp_path: Path, chat_id: str) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([WRITE, OVER], title=is_title) as gateway,
    ):
        feishu.names["ou_alice"] = "Alice"
        place = asking(tmp_path, gateway.url, feishu)
        async with open_server(place) as server:
            await connected(feishu)
            feishu.say(chat_id, "写文件", is_group=chat_id == GROUP)
            [card] = await ended(feishu, 1, chat_id)
            assert card.text.startswith("我来写。\n❓ 要执行 write_file 吗？")
            assert '"content": "kept"' in card.text
            assert ("在群里请 @ 我" in card.text) is (chat_id == GROUP)
            assert not (place.workspace / "a.txt").exists()
            [session] = await sessions(server)
            assert session["status"] == "WAITING"
            assert await pressed(feishu, card, "同意") == "Alice 已同意"
            _, answer = await ended(feishu, 2, chat_id)
            assert answer.text == f"办好了。\n{DONE}"
            await verdict_on(feishu, card, "Alice 已同意")
            assert (place.workspace / "a.txt").read_text() == "kept"
            person = feishu.chat(chat_id).bubbles[0]
            await feishu.until(lambda: not person.reactions)
        assert len(visible(feishu, chat_id)) == 2, "the cards say it all"
        assert "kept" not in place.log
        assert "Alice" not in place.log


async def test_refused_call_does_not_run_and_the_run_goes_on(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([WRITE, reply("那就不写。")], title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, feishu)
        async with open_server(place):
            await connected(feishu)
            feishu.say(CHAT, "写文件")
            [card] = await ended(feishu, 1)
            await pressed(feishu, card, "拒绝")
            _, answer = await ended(feishu, 2)
            assert answer.text == f"那就不写。\n{DONE}"
            await verdict_on(feishu, card, "ou_alice 已拒绝")
            assert last_result(gateway.requests[1])["error"] == "denied"
            assert not (place.workspace / "a.txt").exists()


async def test_question_of_a_chat_that_the_page_answers_says_who_did(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([WRITE, OVER], title=is_title) as gateway,
        open_server(asking(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        feishu.say(CHAT, "写文件")
        [card] = await ended(feishu, 1)
        old = card.labelled["拒绝"]
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
        await verdict_on(feishu, card, "admin 已同意")
        await ended(feishu, 2)
        late = feishu.click(card, old)
        await late.done.wait()
        assert late.answer["toast"]["content"] == "这个问题已经处理过了：admin 已同意。"
        assert len(gateway.requests) == 2


async def test_next_message_answers_what_the_model_asks(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([ASK, OVER], title=is_title) as gateway,
        open_server(asking(tmp_path, gateway.url, feishu)),
    ):
        feishu.names["ou_bob"] = "Bob"
        await connected(feishu)
        feishu.say(GROUP, "发通知", is_group=True)
        [card] = await ended(feishu, 1, GROUP)
        assert card.text.startswith("❓ 哪个群？\n\n- 甲\n- 乙\n直接回复即可作答")
        push = feishu.say(GROUP, "丙群", is_group=True, sender="ou_bob")
        await push.done.wait()
        assert push.is_acked
        _, answer = await ended(feishu, 2, GROUP)
        await verdict_on(feishu, card, "Bob 已回答")
        assert last_result(gateway.requests[1]) == {"answer": "丙群"}
        assert answer.text == f"办好了。\n{DONE}"
        assert answer.parent_id == push.event["event"]["message"]["message_id"]
        people = [one for one in feishu.chat(GROUP).bubbles if one.sender.startswith("ou_")]
        await feishu.until(lambda: not any(one.reactions for one in people))
        assert len(visible(feishu, GROUP)) == 2, "an answer does not queue"


@pytest.mark.parametrize("way", ["option", "field"])
async def test_option_or_field_of_the_card_answers(tmp_path: Path, way: str) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([ASK, OVER], title=is_title) as gateway,
        open_server(asking(tmp_path, gateway.url, feishu)),
    ):
        feishu.names["ou_alice"] = "Alice"
        await connected(feishu)
        feishu.say(CHAT, "发通知")
        [card] = await ended(feishu, 1)
        if way == "option":
            assert await pressed(feishu, card, "乙") == "Alice 已回答"
        else:
            await feishu.fill_in(card, "丙").done.wait()
        await ended(feishu, 2)
        await verdict_on(feishu, card, "Alice 已回答")
        assert last_result(gateway.requests[1]) == {"answer": "乙" if way == "option" else "丙"}


async def test_two_questions_are_answered_one_by_one(tmp_path: Path) -> None:
    both = reply(
        calls=[
            call("write_file", {"path": "a.txt", "content": "1"}),
            call("write_file", {"path": "b.txt", "content": "2"}),
        ]
    )
    async with (
        serve_feishu() as feishu,
        serve_gateway([both, OVER], title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, feishu)
        async with open_server(place):
            await connected(feishu)
            feishu.say(CHAT, "写两个")
            [card] = await ended(feishu, 1)
            assert len(card.buttons) == 4
            await feishu.click(card, card.buttons[3]).done.wait()
            await feishu.until(lambda: len(card.buttons) == 2)
            assert len(gateway.requests) == 1
            await pressed(feishu, card, "同意")
            await ended(feishu, 2)
            await feishu.until(lambda: card.text.endswith("☑ 已答复"))
            assert "☑ ou_alice 已同意" in card.text
            assert "☑ ou_alice 已拒绝" in card.text
            assert (place.workspace / "a.txt").exists()
            assert not (place.workspace / "b.txt").exists()


async def test_without_cards_words_answer(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([WRITE, OVER], title=is_title) as gateway,
    ):
        feishu.app().scopes.add("cardkit:card:write")
        place = asking(tmp_path, gateway.url, feishu)
        async with open_server(place):
            await connected(feishu)
            feishu.say(CHAT, "写文件")
            await feishu.until(lambda: visible(feishu))
            [question] = visible(feishu)
            assert "发送 /approve 同意，/deny 拒绝。" in question.text
            assert question.buttons == []
            feishu.say(CHAT, "/Approve")
            await feishu.until(lambda: len(visible(feishu)) == 4)
        told = [one.text for one in visible(feishu)[1:]]
        verdict = "❓ 要执行 write_file 吗？\n\n☑ ou_alice 已同意"
        assert sorted(told) == sorted(["ou_alice 已同意", verdict, f"办好了。\n{DONE}"])
        assert (place.workspace / "a.txt").exists()


async def test_button_works_though_the_server_was_killed_since(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([WRITE, OVER], title=is_title) as gateway,
    ):
        feishu.names["ou_alice"] = "Alice"
        place = asking(tmp_path, gateway.url, feishu)
        async with open_server(place) as server:
            await connected(feishu)
            feishu.say(CHAT, "写文件")
            [card] = await ended(feishu, 1)
            await server.sigkill()
        async with open_server(place):
            await connected(feishu, 2)
            assert await pressed(feishu, card, "同意") == "Alice 已同意"
            _, answer = await ended(feishu, 2)
            await verdict_on(feishu, card, "Alice 已同意")
            assert answer.text == f"办好了。\n{DONE}"
            assert (place.workspace / "a.txt").exists()
        assert len(gateway.requests) == 2
        assert len(visible(feishu)) == 2
        assert not [one for one in feishu.calls if one.code == 300317]


async def test_kill_between_an_answer_and_its_telling_tells_it_once(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway(write_then_over, title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, feishu)
        async with open_server(place) as server:
            await connected(feishu)
            feishu.say(CHAT, "写文件")
            [card] = await ended(feishu, 1)
            assert card.card is not None
            held = feishu.fail("PUT", f"/cards/{card.card.card_id}", gate=asyncio.Event())
            feishu.press(card, "同意")
            await asyncio.wait_for(held.met.wait(), 30)
            await server.sigkill()
        assert held.gate is not None
        held.gate.set()
        async with open_server(place):
            await ended(feishu, 2)
            await verdict_on(feishu, card, "ou_alice 已同意")
        assert len(visible(feishu)) == 2


async def test_side_question_is_answered_beside_what_is_at_work(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([SLOW, reply("到第三步了。")], title=is_title) as gateway,
        open_server(asking(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        feishu.say(GROUP, "写一篇长文", is_group=True)
        main = await card_with(feishu, "一二", GROUP)
        feishu.say(GROUP, "/Side 到哪一步了？", is_group=True)
        await feishu.until(lambda: len(cards(feishu, GROUP)) == 2)
        side = cards(feishu, GROUP)[1]
        await feishu.until(lambda: not side.is_typing)
        assert side.text == f"**旁路提问**\n到第三步了。\n{DONE}"
        assert main.is_typing
        assert gateway.requests[1].messages[-1]["content"].endswith("到哪一步了？")
        await pressed(feishu, main, "停止")
        await feishu.until(lambda: "⏹" in main.text)
        feishu.say(GROUP, "/side", is_group=True)
        await feishu.until(lambda: any("/side 后面" in b.text for b in visible(feishu, GROUP)))
        assert len(await sessions(server)) == 1, "the chat speaks to the session of before"


async def scheduled(server: ServerProcess, chat_id: str) -> str:
    """Id of a task that tells its answers in a chat and was started just now."""
    task = await post(
        server,
        "/api/tasks",
        {
            "prompt": "今天天气如何",
            "title": "每日简报",
            "schedule": {"kind": "interval", "seconds": 86_400},
            "delivery": {"chat": {"platform": "feishu", "appId": BOT, "chatId": chat_id}},
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


@pytest.mark.parametrize("chat_id", [CHAT, GROUP])
async def test_what_a_task_tells_finds_a_chat_that_was_silent_since_the_start(
    tmp_path: Path, chat_id: str
) -> None:
    long = "晴，20 度。" * 3000
    async with (
        serve_feishu() as feishu,
        serve_gateway([reply("你好"), reply(long)], title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, feishu)
        async with open_server(place):
            await connected(feishu)
            feishu.say(chat_id, "你好", is_group=chat_id == GROUP)
            await ended(feishu, 1, chat_id)
        async with open_server(place) as server:
            await delivered(server, await scheduled(server, chat_id))
        _, first, *others = visible(feishu, chat_id)
        assert first.text.startswith("**每日简报**\n晴")
        assert first.text.endswith(UNASKED)
        assert others
        assert "".join(one.text for one in (first, *others)).count("晴") == 3000
        assert not any(one.parent_id for one in (first, *others)), "nobody is answered"


async def test_what_a_task_tells_is_told_once_though_the_server_is_killed_at_it(
    tmp_path: Path,
) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([reply("你好"), reply("晴，20 度。")], title=is_title) as gateway,
    ):
        place = asking(tmp_path, gateway.url, feishu)
        async with open_server(place) as server:
            await connected(feishu)
            feishu.say(CHAT, "你好")
            await ended(feishu, 1)
            person = feishu.chat(CHAT).bubbles[0]
            await feishu.until(lambda: not person.reactions)
            feishu.fail("POST", "/im/v1/messages", is_late=True, seconds=30.0)
            task_id = await scheduled(server, CHAT)
            await feishu.until(lambda: len(visible(feishu)) == 2)
            await server.sigkill()
        async with open_server(place) as server:
            await delivered(server, task_id)
        assert [one.text for one in visible(feishu)][1:] == [
            f"**每日简报**\n晴，20 度。\n{UNASKED}"
        ]
