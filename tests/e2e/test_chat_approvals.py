"""Questions, side questions and what nobody asked for, as people in a chat see them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.e2e.dingtalk_chat import post, sessions
from tests.e2e.process import ADMIN, ServerProcess, open_server
from tests.e2e.rooms import FeishuRoom, Kind, Room, button, ended, open_room, verdict_on
from tests.fakes.llm import NEVER, Play, Quirks, Recorded, call, reply, serve_gateway
from tests.house import is_title
from tests.waiting import until
from tests.wire import open_client

WRITE = reply("我来写。", calls=[call("write_file", {"path": "a.txt", "content": "kept"})])
ASK = reply(calls=[call("ask_user", {"question": "哪个群？", "options": ["甲", "乙"]})])
DONE = reply("办好了。")
SLOW = reply("一二三四五六七八" * 4, quirks=Quirks(piece_chars=4, hold_at=4, hold=NEVER))
"""A text that breaks off in the middle and goes on for ever."""


@pytest.fixture(params=get_args(Kind))
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each platform."""
    chosen: Kind = request.param
    return chosen


@pytest.fixture(params=[False, True], ids=["private", "group"])
async def room(request: pytest.FixtureRequest, kind: Kind) -> AsyncIterator[Room]:
    """Each kind of chat on each platform."""
    async with open_room(kind, is_group=request.param) as opened:
        yield opened


@pytest.fixture
async def private(kind: Kind) -> AsyncIterator[Room]:
    """A private chat on each platform."""
    async with open_room(kind) as opened:
        yield opened


@pytest.fixture
async def group(kind: Kind) -> AsyncIterator[Room]:
    """A group on each platform."""
    async with open_room(kind, is_group=True) as opened:
        yield opened


def last_result(request: Recorded) -> Any:
    """The newest tool result in a request, decoded."""
    results = [message for message in request.messages if message["role"] == "tool"]
    return json.loads(results[-1]["content"])


def write_then_done(request: Recorded) -> Play:
    """The same answers, however often a killed server has to ask."""
    return DONE if request.messages[-1]["role"] == "tool" else WRITE


async def test_call_is_agreed_to_by_the_button_of_its_card(tmp_path: Path, room: Room) -> None:
    async with serve_gateway([WRITE, DONE], title=is_title) as gateway:
        place = room.asking(tmp_path, gateway.url)
        async with open_server(place) as server:
            await room.connected()
            await room.say("写文件")
            [card] = await ended(room)
            assert card.words.startswith("我来写。\n❓ 要执行 write_file 吗？")
            assert '"content": "kept"' in card.words
            assert not (place.workspace / "a.txt").exists()
            [session] = await sessions(server)
            assert session["status"] == "WAITING"
            assert await room.press(card, button(card, "同意")) == "Alice 已同意"
            _, answer = await ended(room, 2)
            assert answer.words == "办好了。"
            await verdict_on(room, card, "Alice 已同意")
            assert (place.workspace / "a.txt").read_text() == "kept"
            await room.unmarked()
        assert not room.messages(), "the cards say it all"
        assert "kept" not in place.log
        assert "Alice" not in place.log


async def test_only_in_a_group_the_bot_has_to_be_mentioned(tmp_path: Path, room: Room) -> None:
    async with (
        serve_gateway([WRITE], title=is_title) as gateway,
        open_server(room.asking(tmp_path, gateway.url)),
    ):
        await room.connected()
        await room.say("写文件")
        [card] = await ended(room)
        assert ("在群里请 @ 我" in card.words) is ("group" in room.address["chatId"].lower())


async def test_refused_call_does_not_run_and_the_run_goes_on(tmp_path: Path, private: Room) -> None:
    room = private
    async with serve_gateway([WRITE, reply("那就不写。")], title=is_title) as gateway:
        place = room.asking(tmp_path, gateway.url)
        async with open_server(place):
            await room.connected()
            await room.say("写文件")
            [card] = await ended(room)
            await room.press(card, button(card, "拒绝"))
            _, answer = await ended(room, 2)
            assert answer.words == "那就不写。"
            await verdict_on(room, card, "Alice 已拒绝")
            assert last_result(gateway.requests[1])["error"] == "denied"
            assert not (place.workspace / "a.txt").exists()


async def test_question_of_a_chat_that_the_page_answers_says_who_did(
    tmp_path: Path, private: Room
) -> None:
    room = private
    async with (
        serve_gateway([WRITE, DONE], title=is_title) as gateway,
        open_server(room.asking(tmp_path, gateway.url)) as server,
    ):
        await room.connected()
        await room.say("写文件")
        [card] = await ended(room)
        old = button(card, "拒绝")
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
        await verdict_on(room, card, "admin 已同意")
        await ended(room, 2)
        assert await room.press(card, old) == "这个问题已经处理过了：admin 已同意。"
        assert len(gateway.requests) == 2


async def test_next_message_answers_what_the_model_asks(tmp_path: Path, group: Room) -> None:
    room = group
    async with (
        serve_gateway([ASK, DONE], title=is_title) as gateway,
        open_server(room.asking(tmp_path, gateway.url)),
    ):
        await room.connected()
        await room.say("发通知")
        [card] = await ended(room)
        assert card.words.startswith("❓ 哪个群？\n- 甲\n- 乙\n直接回复即可作答")
        await room.say("丙群", "Bob")
        _, answer = await ended(room, 2)
        await verdict_on(room, card, "Bob 已回答")
        assert last_result(gateway.requests[1]) == {"answer": "丙群"}
        assert answer.words == "办好了。"
        await room.unmarked()
        assert not room.messages(), "an answer does not queue"
        if isinstance(room, FeishuRoom):
            assert room.replies == 2, "to the one who asked, and to the one who answered"


async def test_option_is_an_answer(tmp_path: Path, private: Room) -> None:
    room = private
    async with (
        serve_gateway([ASK, DONE], title=is_title) as gateway,
        open_server(room.asking(tmp_path, gateway.url)),
    ):
        await room.connected()
        await room.say("发通知")
        [card] = await ended(room)
        assert await room.press(card, button(card, "乙")) == "Alice 已回答"
        await ended(room, 2)
        await verdict_on(room, card, "Alice 已回答")
        assert last_result(gateway.requests[1]) == {"answer": "乙"}


async def test_field_of_a_feishu_card_answers(tmp_path: Path) -> None:
    async with (
        open_room("feishu") as room,
        serve_gateway([ASK, DONE], title=is_title) as gateway,
        open_server(room.asking(tmp_path, gateway.url)),
    ):
        assert isinstance(room, FeishuRoom)
        await room.connected()
        await room.say("发通知")
        [card] = await ended(room)
        await room.fill_in(card, "丙")
        await ended(room, 2)
        await verdict_on(room, card, "Alice 已回答")
        assert last_result(gateway.requests[1]) == {"answer": "丙"}


async def test_two_questions_are_answered_one_by_one(tmp_path: Path, private: Room) -> None:
    room = private
    paths = [{"path": "a.txt", "content": "1"}, {"path": "b.txt", "content": "2"}]
    both = reply(calls=[call("write_file", path) for path in paths])
    async with serve_gateway([both, DONE], title=is_title) as gateway:
        place = room.asking(tmp_path, gateway.url)
        async with open_server(place):
            await room.connected()
            await room.say("写两个")
            [card] = await ended(room)
            await room.press(card, button(card, "拒绝", 1))
            await room.until(lambda: len(card.buttons) == 2)
            assert len(gateway.requests) == 1
            await room.press(card, button(card, "同意"))
            await ended(room, 2)
            await room.until(lambda: not card.buttons)
            assert "☑ Alice 已同意" in card.words
            assert "☑ Alice 已拒绝" in card.words
            assert (place.workspace / "a.txt").exists()
            assert not (place.workspace / "b.txt").exists()


async def test_without_cards_words_answer(tmp_path: Path, private: Room) -> None:
    room = private
    async with serve_gateway([WRITE, DONE], title=is_title) as gateway:
        place = room.asking(tmp_path, gateway.url, has_cards=False)
        async with open_server(place):
            await room.connected()
            await room.say("写文件")
            await room.until(lambda: len(room.messages()) == 1)
            assert "发送 /approve 同意，/deny 拒绝。" in room.messages()[0]
            await room.say("/Approve")
            await room.until(lambda: len(room.messages()) == 4)
        question, *told = room.messages()
        assert '"path": "a.txt"' in question
        verdict = "❓ 要执行 write_file 吗？\n☑ Alice 已同意"
        assert sorted(told) == sorted(["Alice 已同意", verdict, "办好了。"])
        assert not room.cards()
        assert (place.workspace / "a.txt").exists()


async def test_button_works_though_the_server_was_killed_since(
    tmp_path: Path, private: Room
) -> None:
    room = private
    async with serve_gateway([WRITE, DONE], title=is_title) as gateway:
        place = room.asking(tmp_path, gateway.url)
        async with open_server(place) as server:
            await room.connected()
            await room.say("写文件")
            [card] = await ended(room)
            await room.unmarked()
            await server.sigkill()
        who = {"dingtalk": "staff01", "feishu": "Alice"}[room.kind]  # DingTalk tells only an id
        async with open_server(place):
            await room.connected(2)
            assert await room.press(card, button(card, "同意")) == f"{who} 已同意"
            _, answer = await ended(room, 2)
            await verdict_on(room, card, f"{who} 已同意")
            assert answer.words == "办好了。"
            assert (place.workspace / "a.txt").exists()
        assert (len(gateway.requests), len(room.cards())) == (2, 2)
        assert not room.messages()
        if isinstance(room, FeishuRoom):
            assert not room.refused(300317), "a sequence that does not rise"


async def test_kill_between_an_answer_and_its_telling_tells_it_once(
    tmp_path: Path, private: Room
) -> None:
    room = private
    async with serve_gateway(write_then_done, title=is_title) as gateway:
        place = room.asking(tmp_path, gateway.url)
        async with open_server(place) as server:
            await room.connected()
            await room.say("写文件")
            [card] = await ended(room)
            held = room.hold_update(card)
            await room.press(card, button(card, "同意"))
            await held.met()
            await server.sigkill()
        held.release()
        async with open_server(place):
            await ended(room, 2)
            await verdict_on(room, card, "Alice 已同意")
        assert not room.messages()


async def test_side_question_is_answered_beside_what_is_at_work(
    tmp_path: Path, group: Room
) -> None:
    room = group
    async with (
        serve_gateway([SLOW, reply("到第三步了。")], title=is_title) as gateway,
        open_server(room.asking(tmp_path, gateway.url)) as server,
    ):
        await room.connected()
        await room.say("写一篇长文")
        await room.until(lambda: bool(room.cards()) and "一二" in room.cards()[0].words)
        await room.say("/Side 到哪一步了？")
        await room.until(lambda: len(room.cards()) == 2 and room.cards()[1].is_over)
        main, side = room.cards()
        assert side.words == "**旁路提问**\n到第三步了。"
        assert not main.is_over
        assert gateway.requests[1].messages[-1]["content"].endswith("到哪一步了？")
        await room.stop(main)
        await room.until(lambda: main.is_over and "⏹" in main.words)
        await room.say("/side")
        await room.until(lambda: any("/side 后面" in text for text in room.messages()))
        assert len(await sessions(server)) == 1, "the chat speaks to the session of before"


async def test_next_message_answers_what_a_side_question_asks(
    tmp_path: Path, private: Room
) -> None:
    room = private
    async with (
        serve_gateway([SLOW, ASK, DONE], title=is_title) as gateway,
        open_server(room.asking(tmp_path, gateway.url)),
    ):
        await room.connected()
        await room.say("写一篇长文")
        await room.until(lambda: bool(room.cards()) and "一二" in room.cards()[0].words)
        await room.say("/side 发个通知")
        await room.until(lambda: len(room.cards()) == 2 and room.cards()[1].is_over)
        main, side = room.cards()
        assert side.words.startswith("**旁路提问**\n❓ 哪个群？")
        await room.say("丙群")
        await room.until(lambda: len(room.cards()) == 3 and room.cards()[2].is_over)
        assert room.cards()[2].words == "**旁路提问**\n办好了。"
        await verdict_on(room, side, "Alice 已回答")
        assert last_result(gateway.requests[2]) == {"answer": "丙群"}
        assert not main.is_over
        assert not room.messages(), "an answer does not queue"
        await room.stop(main)
        await room.until(lambda: main.is_over)


async def scheduled(server: ServerProcess, room: Room) -> str:
    """Id of a task that tells its answers in the chat and was started just now."""
    task = await post(
        server,
        "/api/tasks",
        {
            "prompt": "今天天气如何",
            "title": "每日简报",
            "schedule": {"kind": "interval", "seconds": 86_400},
            "delivery": {"chat": room.address},
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


@pytest.mark.parametrize("has_cards", [True, False])
async def test_what_a_task_tells_finds_a_chat_that_was_silent_since_the_start(
    tmp_path: Path, room: Room, has_cards: bool
) -> None:
    long = "晴，20 度。" * 3000
    async with serve_gateway([reply("你好"), reply(long)], title=is_title) as gateway:
        place = room.asking(tmp_path, gateway.url, has_cards=has_cards)
        async with open_server(place):
            await room.connected()
            await room.say("你好")
            await room.until(lambda: len([*room.cards(), *room.messages()]) == 1)
            await room.unmarked()
        room.expire()
        async with open_server(place) as server:
            await delivered(server, await scheduled(server, room))
        told = [card.words for card in room.cards()] + list(room.messages())
        assert bool(room.cards()) is has_cards
        told.remove("你好")
        assert "".join(told).replace("\n", "") == f"**每日简报**{long}"
        if isinstance(room, FeishuRoom):
            assert room.replies == 1, "a task answers nobody"


async def test_what_a_task_tells_is_told_once_though_the_server_is_killed_at_it(
    tmp_path: Path, private: Room
) -> None:
    room = private
    async with serve_gateway([reply("你好"), reply("晴，20 度。")], title=is_title) as gateway:
        place = room.asking(tmp_path, gateway.url)
        async with open_server(place) as server:
            await room.connected()
            await room.say("你好")
            await ended(room)
            await room.unmarked()
            held = room.hold_post()
            task_id = await scheduled(server, room)
            await held.met()
            await server.sigkill()
        held.release()
        async with open_server(place) as server:
            await delivered(server, task_id)
        told = [card.words for card in room.cards()] + list(room.messages())
        assert told == ["你好", "**每日简报**\n晴，20 度。"]
