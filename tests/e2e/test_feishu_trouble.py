"""A Feishu bot of the running server while its platform makes trouble, watched from the chat."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    visible,
)
from tests.e2e.process import open_server
from tests.fakes.feishu import FakeFeishu, serve_feishu
from tests.fakes.feishu_calls import Call
from tests.fakes.feishu_chats import Bubble
from tests.fakes.llm import Quirks, ScriptedReply, forever, reply, serve_gateway
from tests.house import is_title

SENTENCES = [f"这是第{number:04d}句话。" for number in range(1, 1201)]
WHOLE = "\n".join(SENTENCES)
"""Too long for one card: it ends as a card and a message."""


def paced(sentences: int, **quirks: Any) -> ScriptedReply:
    """So many sentences, ten a second."""
    size = len(SENTENCES[0]) + 1
    slow = Quirks(piece_chars=size, pace_seconds=0.1, **quirks)
    return reply("\n".join(SENTENCES[:sentences]), quirks=slow)


def held(until: asyncio.Event) -> ScriptedReply:
    """The long answer, whose second half comes when the event does."""
    return reply(WHOLE, quirks=Quirks(piece_chars=600, hold_at=10, hold=until))


def told(bubbles: Sequence[Bubble]) -> list[str]:
    """The sentences that stand there, in order."""
    lines = "\n".join(bubble.text for bubble in bubbles).split("\n")
    return [line for line in lines if line.startswith("这是")]


def is_last_write(call: Call) -> bool:
    """A write of the whole card that ends its typing."""
    if call.method != "PUT" or "card" not in call.body:
        return False
    return not json.loads(call.body["card"]["data"])["config"]["streaming_mode"]


async def test_card_that_the_platform_closes_in_mid_answer_is_reopened_and_ends_whole(
    tmp_path: Path,
) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([paced(60)], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        feishu.tenant.stream_seconds = 1.0
        await connected(feishu)
        feishu.say(CHAT, "写一篇长文")

        for times in (1, 2):
            await closed(feishu, times)
            await goes_on(feishu, cards(feishu)[0])
        card = await card_with(feishu, DONE)
        assert visible(feishu) == [await only_card(feishu)]
        assert told([card]) == SENTENCES[:60]
        assert card.buttons == []
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def closed(feishu: FakeFeishu, times: int) -> None:
    """Wait until a text came so often for a card that types no more."""
    over = (200850, 300309)
    await feishu.until(lambda: sum(one.code in over for one in feishu.calls) >= times)


async def goes_on(feishu: FakeFeishu, card: Bubble) -> None:
    """Wait until the card types again, and says more than now."""
    before = len(told([card]))
    await feishu.until(lambda: card.is_typing and len(told([card])) > before)
    assert DONE not in card.text


API_LIMIT = {"code": 99991400, "status": 429, "headers": {"x-ogw-ratelimit-reset": "1"}}
CHAT_LIMIT = {"code": 230020}


@pytest.mark.parametrize("limit", [API_LIMIT, CHAT_LIMIT], ids=["of the api", "of the chat"])
async def test_answer_that_is_throttled_in_mid_run_and_at_its_end_arrives_whole(
    tmp_path: Path, limit: dict[str, Any]
) -> None:
    rest = asyncio.Event()
    async with (
        serve_feishu() as feishu,
        serve_gateway([held(rest)], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        feishu.say(CHAT, "写一篇长文")
        await card_with(feishu, SENTENCES[0])
        writes = feishu.fail("PUT", "/cardkit/v1/cards/", times=999, **limit)
        posts = feishu.fail("POST", "/im/v1/messages", times=2, **limit)
        rest.set()
        await feishu.until(lambda: any(one.code and is_last_write(one) for one in feishu.calls))
        [card] = visible(feishu)
        assert card.is_typing
        writes.times = 0
        await card_with(feishu, DONE)
        await feishu.until(lambda: len(told(visible(feishu))) == len(SENTENCES))
        assert posts.times == 0
        assert await only_card(feishu) == card
        assert told(visible(feishu)) == SENTENCES
        assert [bubble.kind for bubble in visible(feishu)] == ["interactive"] * 2
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_token_that_is_revoked_in_mid_run_is_renewed_once_for_all_chats(
    tmp_path: Path,
) -> None:
    chats = ("oc_one", "oc_two", "oc_three")
    rest = asyncio.Event()
    async with (
        serve_feishu() as feishu,
        serve_gateway(forever(paced(30, hold_at=3, hold=rest)), title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        for chat_id in chats:
            feishu.say(chat_id, "写一篇长文")
        for chat_id in chats:
            await card_with(feishu, SENTENCES[0], chat_id)
        app = feishu.app()
        assert app.tokens_given == 1
        on_their_way, renewed = asyncio.Event(), asyncio.Event()
        writes = feishu.fail("PUT", "/cardkit/v1/cards/", gate=on_their_way, times=len(chats))
        feishu.fail("POST", "/tenant_access_token", gate=renewed)
        rest.set()
        await feishu.until(lambda: writes.times == 0)
        app.tokens.clear()
        on_their_way.set()

        refused = 99991663
        await feishu.until(lambda: [one.code for one in feishu.calls].count(refused) == len(chats))
        renewed.set()
        for chat_id in chats:
            card = await card_with(feishu, DONE, chat_id)
            assert told([card]) == SENTENCES[:30]
            assert visible(feishu, chat_id) == [card]
            assert not card.is_typing
        assert app.tokens_given == 2
        assert [one.code for one in feishu.calls].count(refused) == len(chats)
        assert {session["status"] for session in await sessions(server)} == {"COMPLETED"}


@pytest.mark.parametrize("moment", ["before its card is shown", "while it is answered"])
async def test_question_that_is_withdrawn_is_answered_all_the_same_and_once(
    tmp_path: Path, moment: str
) -> None:
    rest = asyncio.Event()
    async with (
        serve_feishu() as feishu,
        serve_gateway([held(rest)], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        making = feishu.fail("POST", "/cardkit/v1/cards", gate=asyncio.Event())
        assert making.gate is not None
        question = feishu.say(CHAT, "写一篇长文").event["event"]["message"]["message_id"]
        await making.met.wait()
        if moment == "while it is answered":
            making.gate.set()
            await card_with(feishu, SENTENCES[0])
        withdrawn = feishu.withdraw(question)
        await withdrawn.done.wait()
        assert withdrawn.acks == [200]
        making.gate.set()
        card = await card_with(feishu, SENTENCES[0])
        rest.set()
        await feishu.until(lambda: len(told(visible(feishu))) == len(SENTENCES))
        assert await only_card(feishu) == card
        assert DONE in card.text
        assert told(visible(feishu)) == SENTENCES
        was_answered = question if moment == "while it is answered" else ""
        assert [bubble.parent_id for bubble in visible(feishu)] == [was_answered, ""]
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_line_that_is_cut_in_mid_run_costs_neither_the_run_nor_the_next_message(
    tmp_path: Path,
) -> None:
    rest = asyncio.Event()
    script = [held(rest), reply("第二个回答。")]
    async with (
        serve_feishu() as feishu,
        serve_gateway(script, title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        lines = feishu.app().lines
        lines.ladder = (0.1,) * 99
        lines.live[0].is_mute = True  # so the acknowledgement is lost with the line
        first = feishu.say(CHAT, "写一篇长文")
        card = await card_with(feishu, SENTENCES[0])
        await lines.cut()
        await connected(feishu, 2)
        await first.done.wait()
        assert first.is_acked
        assert first.tries >= 2
        assert card.is_typing
        await feishu.say(CHAT, "还在吗").done.wait()
        rest.set()
        await feishu.until(lambda: any("第二个回答。" in one.text for one in visible(feishu)))
        await feishu.until(lambda: all(DONE in one.text for one in cards(feishu)))
        assert len(cards(feishu)) == 2
        assert told(visible(feishu)) == SENTENCES
        assert not any(one.is_typing for one in visible(feishu))
        assert len(gateway.requests) == 2
        assert [one.text for one in visible(feishu)].count(f"第二个回答。\n{DONE}") == 1
        [session] = await sessions(server)
        assert session["status"] == "COMPLETED"


async def test_message_that_is_pushed_again_at_any_time_is_answered_once(tmp_path: Path) -> None:
    rest = asyncio.Event()
    async with (
        serve_feishu() as feishu,
        serve_gateway([held(rest)], title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, feishu)
        event = feishu.message_event(CHAT, "text", {"text": "只回答一次"})

        async def push_twice(number: int) -> None:
            """In the same tick: the same event, and one that only the message has in common."""
            header = event["header"] | {"event_id": f"ev_other_{number}"}
            pushes = [feishu.send(event), feishu.send(event | {"header": header})]
            await asyncio.gather(*(push.done.wait() for push in pushes))
            assert [push.acks for push in pushes] == [[200], [200]]

        async with open_server(place):
            await connected(feishu)
            await push_twice(1)
            await card_with(feishu, SENTENCES[0])
            await push_twice(2)
            rest.set()
            await feishu.until(lambda: len(told(visible(feishu))) == len(SENTENCES))
            await push_twice(3)
        async with open_server(place) as server:
            await connected(feishu, 2)
            await push_twice(4)
            await server.sigkill()
        async with open_server(place) as server:
            await connected(feishu, 3)
            await push_twice(5)
            assert len(await sessions(server)) == 1
        assert len(gateway.requests) == 1
        assert len(visible(feishu)) == 2
        assert told(visible(feishu)) == SENTENCES
