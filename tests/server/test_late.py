"""Messages that came too late to be run: kept, and their chat told once, whatever dies."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from channels.errors import DeliveryError
from channels.port import ChatAddress, Delivery
from server.late import GATHERED_FOR, late_delivery
from server.store.chats import bound_session
from server.store.outbox import due_items
from server.store.sessions import load_session
from tests.fakes.llm import reply, serve_gateway
from tests.house import House, is_title, settings_for
from tests.server.test_chats import CHAT, Platform, message, open_chats
from tests.waiting import until

TOPIC = replace(CHAT, thread_id="omt_1")
OTHER = ChatAddress("test", "app1", "c2")
NOTICE = "我离线期间有 {} 条消息送达过晚，未执行。仍需处理的请重新发送。"


async def note(house: House, chat: ChatAddress, *keys: str) -> list[bool]:
    """Messages with these keys come at once, too late."""
    noting = (house.state["chats"].note_late(chat, [f"test:{key}"], key) for key in keys)
    return list(await asyncio.gather(*noting))


def notices(delivered: list[Delivery]) -> dict[str, str]:
    """What was told, by chat."""
    assert all(one.code == "late" for one in delivered)
    return {one.turn.chat.chat_id: one.answer for one in delivered}


async def test_chat_is_told_once_of_all_that_came_together(
    tmp_path: Path, database_url: str
) -> None:
    platform = Platform()
    async with (
        serve_gateway([reply("hello")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, database_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        noted = await asyncio.gather(
            note(house, CHAT, "k1", "k2", "k3", "k2"), note(house, OTHER, "k4")
        )
        await note(house, TOPIC, "k5")
        assert [known.count(True) for known in noted] == [3, 1]
        assert await note(house, CHAT, "k1", "k5") == [False, False]
        told = await platform.until_told(2)
        assert set(notices(told)) == {"c1", "c2"}
        assert "4 条消息" in notices(told)["c1"]
        assert "1 条消息" in notices(told)["c2"]
        [first] = [one.turn for one in told if one.turn.chat.chat_id == "c1"]
        assert (first.chat, first.reply_to, first.reach) == (TOPIC, None, "k5")
        assert platform.seen == []
        again = await chats.submit(message("hi", "k1"))
        assert again.duplicate
        assert len(gateway.requests) == 0
        await chats.submit(message("hi"))
        await platform.until_told(3)
        assert len(platform.delivered) == 3


async def test_what_comes_while_a_notice_is_told_gets_another(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform(refusals=[DeliveryError("busy", retryable=True)])
    async with (
        serve_gateway([], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        await note(house, CHAT, "k1", "k2")

        async def is_refused() -> bool:
            return not platform.refusals

        await until(is_refused, seconds=20)
        await note(house, CHAT, "k3")
        told = await platform.until_told(2)
        assert sorted(one.answer for one in told) == [NOTICE.format(1), NOTICE.format(2)]


async def test_notice_counts_what_came_after_it_was_looked_at(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), Platform()) as house,
    ):
        store = house.state["store"]
        await note(house, CHAT, "k1")
        async with store.read() as db:
            [looked_at] = await due_items(db, datetime.now(UTC) + GATHERED_FOR, 10)
        await note(house, CHAT, "k2")
        async with store.read() as db:
            delivery = await late_delivery(db, looked_at)
        assert delivery.answer == NOTICE.format(2)


async def test_notice_is_told_by_the_next_process_if_the_first_one_dies(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with serve_gateway([], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        first, second = Platform(), Platform()
        async with open_chats(settings, first) as house:
            await note(house, CHAT, "k1", "k2")
        async with open_chats(settings, second) as house:
            [delivery] = await second.until_told(1)
            assert delivery.answer == NOTICE.format(2)
            assert await note(house, CHAT, "k1") == [False]
        assert first.delivered == []


async def test_notice_that_cannot_be_told_is_seen_by_other_clients(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform(refusals=[DeliveryError("the bot left the chat", retryable=False)])
    async with (
        serve_gateway([], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        await note(house, CHAT, "k1")
        async with house.state["store"].read() as db:
            session_id = await bound_session(db, CHAT)
        assert session_id is not None

        async def is_noted() -> bool:
            async with house.state["store"].read() as db:
                return (await load_session(db, session_id)).undelivered is not None

        await until(is_noted, seconds=20)
        assert platform.delivered == []
