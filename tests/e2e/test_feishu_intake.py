"""What a Feishu bot of the running server takes in: kept before it is acknowledged, and at once."""

import asyncio
import sqlite3
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from tests.e2e.feishu_chat import (
    CHAT,
    DONE,
    card_with,
    cards,
    connected,
    ended,
    installed,
    only_card,
    sessions,
    visible,
)
from tests.e2e.process import ADMIN, Installation, open_server
from tests.fakes.feishu import serve_feishu
from tests.fakes.feishu_lines import Push
from tests.fakes.llm import Quirks, forever, refuse, reply, serve_gateway
from tests.house import is_title
from tests.waiting import until


def picture() -> bytes:
    """A small one."""
    data = BytesIO()
    Image.new("RGB", (8, 8), "red").save(data, "PNG")
    return data.getvalue()


def in_time(push: Push) -> bool:
    """Whether it was taken, within the second that is promised."""
    return push.acks == [200] and push.ack_seconds is not None and push.ack_seconds < 1


async def test_neither_a_download_nor_the_model_delays_an_acknowledgement(tmp_path: Path) -> None:
    rest = asyncio.Event()
    script = [
        reply("看到图了。", quirks=Quirks(piece_chars=1, hold_at=2, hold=rest)),
        reply("好。"),
    ]
    async with (
        serve_feishu() as feishu,
        serve_gateway(script, title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        feishu.resources["img_1"] = (picture(), "", "image/png")
        download = feishu.fail("GET", "/resources/img_1", gate=asyncio.Event())
        assert download.gate is not None
        shown = feishu.send(feishu.message_event(CHAT, "post", post("img_1", "img_gone")))
        await download.met.wait()
        second = feishu.say(CHAT, "还在吗")
        await asyncio.gather(shown.done.wait(), second.done.wait())
        assert not gateway.requests
        download.gate.set()
        await card_with(feishu, "看")
        third = feishu.say("oc_other", "/status")
        await third.done.wait()
        assert all(in_time(push) for push in (shown, second, third))
        rest.set()
        first, _ = await ended(feishu, 2)
        assert "看到图了。" in first.text
        lines = [bubble.text for bubble in visible(feishu) if bubble.card is None]
        assert any("下载失败" in line for line in lines)
        assert any("已排队（第 1 位）" in line for line in lines)
        asked = str(gateway.requests[0].messages)
        assert "image/png;base64," in asked
        assert "这是什么" in asked
        [session] = [one for one in await sessions(server) if one["status"] == "COMPLETED"]
        _, body = await server.get(f"/api/sessions/{session['id']}/messages", ADMIN)
        assert "picture-1.png" in str(body["messages"][0])


def post(*image_keys: str) -> dict[str, Any]:
    """Rich text with pictures."""
    pictures = [{"tag": "img", "image_key": key} for key in image_keys]
    return {"title": "", "content": [[{"tag": "text", "text": "这是什么"}], pictures]}


async def test_message_that_cannot_be_committed_is_not_acknowledged_and_comes_again(
    tmp_path: Path,
) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway([reply("收到。")], title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, feishu)
        feishu.app().lines.ladder = (0.5,) * 99
        async with open_server(place) as server:
            await connected(feishu)
            holder = sqlite3.connect(place.data_dir / "headway.db", isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            push = feishu.say(CHAT, "在吗")
            await feishu.until(lambda: push.acks)
            assert push.acks[0] == 500
            assert push.ack_seconds is not None
            assert push.ack_seconds < 3
            holder.execute("ROLLBACK")
            holder.close()
            await push.done.wait()
            assert push.acks[-1] == 200
            await card_with(feishu, DONE)
            assert len(gateway.requests) == len(await sessions(server)) == 1


async def test_kill_between_a_failure_and_its_card_loses_nothing_and_tells_it_once(
    tmp_path: Path,
) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway(forever(refuse(401)), title=is_title) as gateway,
    ):
        place = installed(tmp_path, gateway.url, feishu)
        async with open_server(place) as server:
            await connected(feishu)
            last = feishu.fail("PUT", "/cardkit/v1/cards/", gate=asyncio.Event(), times=99)
            feishu.say(CHAT, "hi")
            await feishu.until(lambda: cards(feishu))
            await until_failed(place)
            await server.sigkill()
            assert cards(feishu)[0].is_typing
        last.times = 0
        assert last.gate is not None
        last.gate.set()
        async with open_server(place) as server:
            card = await only_card(feishu)
            assert "HEADWAY_MODEL_API_KEY" in card.text
            assert card.buttons == []
            await connected(feishu, 2)
            await feishu.say(CHAT, "/help").done.wait()
            await feishu.until(lambda: len(visible(feishu)) == 2)
            [session] = await sessions(server)
            assert session["status"] == "FAILED"
        assert sum("HEADWAY_MODEL_API_KEY" in one.text for one in visible(feishu)) == 1


async def until_failed(place: Installation) -> None:
    """Wait until the run has failed, and its end is being told."""

    async def is_being_told() -> bool:
        query = "SELECT count(*) FROM outbox WHERE status = 'PENDING' AND attempts = 1"
        with closing(sqlite3.connect(place.data_dir / "headway.db")) as database:
            return bool(database.execute(query).fetchone()[0])

    await until(is_being_told)
