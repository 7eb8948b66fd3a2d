"""Chats: a platform's messages become runs, and the platform is told of them, once each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest
import sqlalchemy as sa

from channels.errors import DeliveryError, FetchError, InboxRefused
from channels.events import RunEvent, RunStarted
from channels.port import ChatAddress, Delivery, Fetched, Health, Inbound, RemoteFile, Turn
from server.app import open_state
from server.errors import Locale
from server.outbox import TRIES
from server.sentences import not_told
from server.settings import Settings
from server.store.inbound import insert_inbound
from tests.fakes.llm import NEVER, Quirks, call, forever, reply, serve_gateway
from tests.house import ENVIRONMENT, House, is_title, settings_for
from tests.waiting import until

CHAT = ChatAddress("test", "app1", "c1")
SEARCH = reply(calls=[call("grep_search", {"pattern": "x"})])


@dataclass
class Platform:
    """A surface in memory: shows what it was told."""

    seen: list[tuple[Turn, RunEvent]] = field(default_factory=list)
    delivered: list[Delivery] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    files: dict[str, Fetched] = field(default_factory=dict)
    refusals: list[DeliveryError] = field(default_factory=list)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    def watch(self, turn: Turn) -> "Drawing":
        return Drawing(self, turn)

    async def deliver(self, delivery: Delivery) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.delivered.append(delivery)
        self.told.set()

    def forget(self, turn: Turn) -> None:
        self.forgotten.append(turn.run_id)

    async def say(self, turn: Turn, text: str) -> None:
        self.lines.append(text)

    async def fetch(self, file: RemoteFile) -> Fetched:
        if file.locator not in self.files:
            raise FetchError("gone", "文件已失效")
        return self.files[file.locator]

    def health(self) -> Health:
        return Health("test", "app1", "up")

    async def until_told(self, count: int) -> list[Delivery]:
        async with asyncio.timeout(20):
            while len(self.delivered) < count:
                self.told.clear()
                await self.told.wait()
        return self.delivered


@dataclass
class Drawing:
    platform: Platform
    turn: Turn

    def emit(self, event: RunEvent) -> None:
        self.platform.seen.append((self.turn, event))


@asynccontextmanager
async def open_chats(settings: Settings, platform: Platform) -> AsyncIterator[House]:
    async with open_state(settings, ENVIRONMENT, asyncio.Event()) as state:
        state["bots"].surfaces["test:app1"] = platform
        yield House(state)


def message(text: str, key: str = "", **given: object) -> Inbound:
    inbound = Inbound("test", text, [f"test:{key or text}"], chat=CHAT, reply_to="m1")
    return replace(inbound, **given)  # type: ignore[arg-type] # whatever the test gives


async def test_message_is_answered_in_its_chat_once(tmp_path: Path, database_url: str) -> None:
    platform = Platform()
    async with (
        serve_gateway([reply("hello")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, database_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        answers = await asyncio.gather(*(chats.submit(message("hi")) for _ in range(4)))
        assert len({answer.run_id for answer in answers}) == 1
        assert sum(answer.duplicate for answer in answers) == 3
        [delivery] = await platform.until_told(1)
        assert delivery.status == "finished"
        assert delivery.answer == "hello"
        assert delivery.turn.chat == CHAT
        assert delivery.turn.reply_to == "m1"
        turns = {turn.run_id for turn, _ in platform.seen}
        assert turns == {answers[0].run_id}
        assert isinstance(platform.seen[0][1], RunStarted)
        session = (await house.state["inbox"].state_of(answers[0].session_id)).session
        assert session.kind == "chat"
        assert session.owner == "test:app1"


async def test_first_messages_of_a_chat_at_once_speak_to_one_session(
    tmp_path: Path, database_url: str
) -> None:
    platform = Platform()
    async with (
        serve_gateway(forever(reply("hello")), title=is_title) as gateway,
        open_chats(settings_for(tmp_path, database_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        answers = await asyncio.gather(*(chats.submit(message(text)) for text in "abc"))
        assert len({answer.session_id for answer in answers}) == 1
        await platform.until_told(3)


async def test_guards_stop_is_told_in_the_chat(tmp_path: Path, sqlite_url: str) -> None:
    platform = Platform()
    async with (
        serve_gateway(forever(SEARCH), title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        await house.state["chats"].submit(message("go"))
        [delivery] = await platform.until_told(1)
        assert (delivery.status, delivery.code) == ("failed", "no_progress_loop")
        assert delivery.text.startswith("检测到 Agent 连续 15 轮重复执行")


async def test_outcome_that_could_not_be_told_is_told_after_a_restart(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform(refusals=[DeliveryError("away", retryable=True)])
    async with serve_gateway([reply("hello")], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_chats(settings, platform) as house:
            submitted = await house.state["chats"].submit(message("hi"))
            session = (await house.state["inbox"].state_of(submitted.session_id)).session
            await house.settled(session)
        async with open_chats(settings, platform):
            [delivery] = await platform.until_told(1)
        assert delivery.answer == "hello"
        async with open_chats(settings, platform) as house:
            await house.settled(session)
        assert len(platform.delivered) == 1


async def test_run_that_was_tried_to_be_told_for_the_last_time_is_forgotten(
    tmp_path: Path, sqlite_url: str
) -> None:
    away = DeliveryError("away", retryable=True)
    platform = Platform(refusals=[away, away])
    async with (
        serve_gateway([reply("hello")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        store = house.state["store"]
        submitted = await house.state["chats"].submit(message("hi"))
        session = (await house.state["inbox"].state_of(submitted.session_id)).session

        async def was_put_off() -> bool:
            async with store.read() as db:
                error: str | None = await db.scalar(sa.text("SELECT error FROM outbox"))
                return error == "away"

        await until(was_put_off)
        assert platform.forgotten == []
        async with store.write() as db:
            await db.execute(sa.text(f"UPDATE outbox SET attempts = {TRIES - 1}"))

        async def is_noted() -> bool:
            return (await house.session(session)).undelivered is not None

        await until(is_noted)
        assert platform.forgotten == [submitted.run_id]
        noted = (await house.session(session)).undelivered
        assert noted is not None
        assert noted.reason == not_told(session.locale, "unreachable")


async def test_card_is_found_again_after_a_restart(tmp_path: Path, sqlite_url: str) -> None:
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    first, second = Platform(), Platform()
    async with serve_gateway([hang, reply("done")], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_chats(settings, first) as house:
            submitted = await house.state["chats"].submit(message("hi"))
            await gateway.wait_for_requests(1)
            await house.state["chats"].keep(submitted.run_id, '{"card":"7"}')
        async with open_chats(settings, second):
            [delivery] = await second.until_told(1)
    assert delivery.turn.handle == '{"card":"7"}'
    assert delivery.answer == "done"


async def test_files_are_fetched_before_the_model_is_asked(tmp_path: Path, sqlite_url: str) -> None:
    platform = Platform(files={"f1": Fetched(b"a,b\n1,2\n", "a.csv", "text/csv")})
    files = [RemoteFile("f1", "a.csv", "text/csv"), RemoteFile("gone", "b.pdf", "application/pdf")]
    async with (
        serve_gateway([reply("two columns")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        await house.state["chats"].submit(message("look", remote_files=files))
        await platform.until_told(1)
        asked = gateway.requests[0].messages[-1]["content"]
        path = asked.split("附件:")[1].split("(")[0]
        assert (house.workspace / path).read_bytes() == b"a,b\n1,2\n"
        assert "[附件 b.pdf 无法读取]" in asked
        assert platform.lines == ["文件已失效"]


async def test_chats_queue_goes_on_after_a_failure_and_stop_empties_it(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform()
    gate = asyncio.Event()
    held = reply("", quirks=Quirks(before_headers=gate))
    script = [*[SEARCH] * 14, reply(calls=SEARCH.calls, quirks=held.quirks), reply("second")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        await chats.submit(message("one"))
        await gateway.wait_for_requests(15)
        two = await chats.submit(message("two"))
        assert (two.state, two.position) == ("queued", 1)
        gate.set()
        deliveries = await platform.until_told(2)
        assert [d.status for d in deliveries] == ["failed", "finished"]


async def test_commands(tmp_path: Path, database_url: str) -> None:
    platform = Platform()
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    async with (
        serve_gateway([hang, reply("new")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, database_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        first = await chats.submit(message("one"))
        await gateway.wait_for_requests(1)
        waiting = await chats.submit(message("two"))
        assert "/stop" in await chats.command(CHAT, "help", ["k0"], "ann")
        assert "执行中" in await chats.command(CHAT, "status", ["k1"], "ann")
        stopped = await chats.command(CHAT, "stop", ["k2"], "ann")
        assert "已清空 1 条" in stopped
        assert platform.forgotten == [waiting.run_id]
        assert await chats.command(CHAT, "stop", ["k2"], "ann") == ""
        [delivery] = await platform.until_told(1)
        assert delivery.status == "cancelled"
        assert await chats.command(CHAT, "new", ["k3"], "ann") == "已开始新会话。"
        second = await chats.submit(message("three"))
        assert second.session_id != first.session_id
        await platform.until_told(2)
        assert await chats.cancel_run("nothing") is False


async def test_full_queue_is_refused_with_words_for_the_person(
    tmp_path: Path, sqlite_url: str
) -> None:
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    async with (
        serve_gateway([hang], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), Platform()) as house,
    ):
        chats = house.state["chats"]
        for n in range(21):
            await chats.submit(message(f"m{n}"))
        with pytest.raises(InboxRefused) as refused:
            await chats.submit(message("too many"))
        assert "已达上限" in refused.value.user_text


async def test_short_text_is_read_into_the_message(tmp_path: Path, sqlite_url: str) -> None:
    platform = Platform(
        files={
            "q": Fetched("原来的话".encode(), "quoted-message.txt", "text/plain"),
            "empty": Fetched(b"", "quoted-message.txt", "text/plain"),
        }
    )
    quotes = [RemoteFile(key, "quoted-message.txt", "text/plain") for key in ("q", "empty", "no")]
    async with (
        serve_gateway([reply("a"), reply("b")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        await house.state["chats"].submit(message("这句什么意思", remote_files=quotes))
        await platform.until_told(1)
        asked = gateway.requests[0].messages[-1]["content"]
        assert "[quoted-message.txt]\n原来的话" in asked
        assert asked.count("[quoted-message.txt]") == 1
        await house.state["chats"].submit(message("还有", remote_files=quotes[2:]))
        await platform.until_told(2)
        assert platform.lines == ["文件已失效"], "a chat is told the same reason once an hour"


async def test_command_for_which_the_queue_has_no_room_is_refused_with_words(
    tmp_path: Path, sqlite_url: str
) -> None:
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    async with (
        serve_gateway([hang], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), Platform()) as house,
    ):
        chats = house.state["chats"]
        for n in range(20):
            await chats.submit(message(f"m{n}"))
        assert "第 20 位" in await chats.command(CHAT, "compact", ["k0"], "ann")
        with pytest.raises(InboxRefused) as refused:
            await chats.command(CHAT, "compact", ["k1"], "ann")
        assert "已达上限" in refused.value.user_text


async def test_end_of_a_compaction_is_told_in_words(tmp_path: Path, sqlite_url: str) -> None:
    platform = Platform()
    async with (
        serve_gateway([reply("hello")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        await house.state["chats"].submit(message("hi"))
        await platform.until_told(1)
        await house.state["chats"].command(CHAT, "compact", ["k0"], "ann")
        deliveries = await platform.until_told(2)
        assert deliveries[1].answer == "上下文整理完毕。"


async def test_new_session_that_comes_again_leaves_the_chat_where_it_is(
    tmp_path: Path, database_url: str
) -> None:
    platform = Platform()
    async with (
        serve_gateway([reply("one"), reply("two")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, database_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        texts = await asyncio.gather(*(chats.command(CHAT, "new", ["k"], "ann") for _ in range(3)))
        assert sorted(texts) == ["", "", "已开始新会话。"]
        async with house.state["store"].read() as db:
            assert await db.scalar(sa.text("SELECT count(*) FROM session")) == 1
        first = await chats.submit(message("one"))
        assert await chats.command(CHAT, "new", ["k"], "ann") == ""
        second = await chats.submit(message("two"))
        assert first.session_id == second.session_id
        await platform.until_told(2)


async def test_stop_that_a_crash_cut_off_stops_its_run_when_it_comes_again(
    tmp_path: Path, database_url: str
) -> None:
    platform = Platform()
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    async with (
        serve_gateway([hang], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, database_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        submitted = await chats.submit(message("one"))
        await gateway.wait_for_requests(1)
        async with house.state["store"].write() as db:  # all that a stop had written before it died
            now = datetime.now(UTC)
            session_id, run_id = submitted.session_id, submitted.run_id
            await insert_inbound(db, ["k"], session_id, run_id, "started", None, now)
        assert await chats.command(CHAT, "stop", ["k"], "ann") == ""
        [delivery] = await platform.until_told(1)
        assert delivery.status == "cancelled"


async def test_message_that_comes_while_the_server_ends_is_answered_after_its_restart(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform()
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    chat_ids: list[str] = []
    async with serve_gateway(forever(hang), title=is_title) as gateway:
        opened = AsyncExitStack()
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        house = await opened.enter_async_context(open_chats(settings, platform))
        chats = house.state["chats"]

        async def is_kept_for_later() -> bool:
            chat = ChatAddress("test", "app1", f"c{len(chat_ids)}")
            chat_ids.append(chat.chat_id)
            submitted = await chats.submit(message(chat.chat_id, chat=chat))
            return (submitted.state, submitted.position) == ("queued", 1)

        assert not await is_kept_for_later()  # what runs is given a moment to end
        await gateway.wait_for_requests(1)
        leaving = asyncio.create_task(opened.aclose())
        await until(is_kept_for_later)
        await leaving
    async with serve_gateway(forever(reply("hello")), title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_chats(settings, platform):
            deliveries = await platform.until_told(len(chat_ids))
    assert sorted(d.turn.chat.chat_id for d in deliveries) == sorted(chat_ids)
    assert {d.answer for d in deliveries} == {"hello"}


async def test_end_of_a_compaction_finds_its_way_back(tmp_path: Path, sqlite_url: str) -> None:
    platform = Platform()
    async with (
        serve_gateway([reply("hello")], title=is_title) as gateway,
        open_chats(settings_for(tmp_path, sqlite_url, gateway.url), platform) as house,
    ):
        chats = house.state["chats"]
        await chats.submit(message("hi"))
        await platform.until_told(1)
        await chats.command(CHAT, "compact", ["k1"], "ann", "m2")
        [_, delivery] = await platform.until_told(2)
        assert delivery.turn.reply_to == "m2"


async def test_message_is_known_after_a_restart(tmp_path: Path, sqlite_url: str) -> None:
    async with serve_gateway([reply("hello")], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        platform = Platform()
        async with open_chats(settings, platform) as house:
            submitted = await house.state["chats"].submit(message("hi"))
            await platform.until_told(1)
        async with open_chats(settings, Platform()) as house:
            again = await house.state["chats"].submit(message("hi"))
            assert again == replace(submitted, duplicate=True)


@pytest.mark.parametrize("locale", get_args(Locale))
async def test_what_cannot_be_delivered_is_seen_by_other_clients_until_the_next_run(
    tmp_path: Path, sqlite_url: str, locale: Locale
) -> None:
    left = DeliveryError("refused: chat gone (code 230002)", retryable=False, trouble="gone")
    platform = Platform(refusals=[left])
    async with (
        serve_gateway([reply("one"), reply("two")], title=is_title) as gateway,
        open_chats(
            settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_LOCALE=locale), platform
        ) as house,
    ):
        submitted = await house.state["chats"].submit(message("hi"))
        session = (await house.state["inbox"].state_of(submitted.session_id)).session

        async def is_noted() -> bool:
            return (await house.session(session)).undelivered is not None

        await until(is_noted)
        noted = (await house.session(session)).undelivered
        assert noted is not None
        assert (noted.surface, noted.reason) == ("test:app1", not_told(locale, "gone"))
        await house.state["chats"].submit(message("again"))
        await platform.until_told(1)
        assert (await house.session(session)).undelivered is None
