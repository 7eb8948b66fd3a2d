"""What people do while a run is under way, and to what was said before."""

import asyncio
import gc
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from PIL import Image

from channels.port import InboundFile
from server.errors import BadRequest, Conflict, NotFound
from server.store.files import StoredFile, insert_file
from server.store.ids import new_id
from server.store.rows import lock_session
from server.store.sessions import Session
from tests.fakes.llm import Quirks, call, forever, reply, serve_gateway
from tests.house import House, assert_prefixes, is_title, open_house, settings_for
from tests.waiting import until


def _held(gate: asyncio.Event, text: str = "first") -> Any:
    return reply(text, quirks=Quirks(before_headers=gate))


async def test_message_for_a_busy_session_waits_its_turn(tmp_path: Path, database_url: str) -> None:
    gate = asyncio.Event()
    script = [_held(gate), reply("second"), reply("third")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        assert (await house.say(session, "one")).state == "started"
        await gateway.wait_for_requests(1)
        two, three = await house.say(session, "two"), await house.say(session, "three")
        assert [(s.state, s.position) for s in (two, three)] == [("queued", 1), ("queued", 2)]
        state = await house.state["inbox"].state_of(session.id)
        assert [item.text for item in state.queue] == ["two", "three"]
        gate.set()
        await house.ended(session, 3)
        said = [(m.role, m.text) for m in await house.messages(session)]
        assert said == [
            ("user", "one"),
            ("assistant", "first"),
            ("user", "two"),
            ("assistant", "second"),
            ("user", "three"),
            ("assistant", "third"),
        ]


async def test_same_message_again_is_the_same_run(tmp_path: Path, database_url: str) -> None:
    async with (
        serve_gateway([reply("hello")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        answers = await asyncio.gather(*(house.say(session, "one", key="k") for _ in range(5)))
        assert len({answer.run_id for answer in answers}) == 1
        await house.ended(session)
        again = await house.say(session, "one", key="k")
        assert again.run_id == answers[0].run_id
        assert again.duplicate
        assert len(await house.runs(session)) == 1


async def test_busy_session_can_refuse(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate)], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "one")
        with pytest.raises(Conflict) as refused:
            await house.say(session, "two", when_busy="reject")
        assert refused.value.code == "busy"
        gate.set()
        await house.ended(session)
        assert len(await house.runs(session)) == 1


async def test_queue_that_is_full_says_so(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate)], title=is_title, strict=False) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "one")
        for n in range(20):
            await house.say(session, f"more {n}")
        with pytest.raises(Conflict) as refused:
            await house.say(session, "too many")
        assert refused.value.code == "queue_full"


async def test_steered_message_joins_at_the_next_round_and_ends_the_streak(
    tmp_path: Path, sqlite_url: str
) -> None:
    gate = asyncio.Event()
    search = reply(calls=[call("grep_search", {"pattern": "x"})])
    held = reply(calls=[call("grep_search", {"pattern": "x"})], quirks=Quirks(before_headers=gate))
    script = [*[search] * 3, held, *[search] * 4, reply("done")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        await gateway.wait_for_requests(4)
        steered = await house.say(session, "look elsewhere", when_busy="steer", message_id="m2")
        assert steered.state == "steered"
        gate.set()
        events = await house.ended(session)
        assert gateway.requests[4].messages[-1]["content"] == "look elsewhere"
        joined = [e for e in events if e["type"] == "TEXT_MESSAGE_START" and e["role"] == "user"]
        assert [e["messageId"] for e in joined] == ["m2"]
        run = (await house.runs(session))[-1]
        streaks = [d.streak for d in await house.decisions(run.id)]
        assert streaks == [1, 2, 3, 4, 1, 2, 3, 4]
        assert (await house.run(steered.run_id)).status == "JOINED"


async def test_steered_message_that_comes_too_late_is_next(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate), reply("second"), reply("third")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "one")
        await gateway.wait_for_requests(1)
        await house.say(session, "queued")
        await house.say(session, "late", when_busy="steer")
        gate.set()
        await house.ended(session, 3)
        said = [m.text for m in await house.messages(session) if m.role == "user"]
        assert said == ["one", "late", "queued"]


async def test_stop_holds_the_queue_until_it_is_resumed(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate), reply("second")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        inbox = house.state["inbox"]
        session = await house.create()
        await house.say(session, "one")
        await gateway.wait_for_requests(1)
        await house.say(session, "two")
        await inbox.cancel(session.id, None, "ann")
        await house.ended(session)
        await house.settled(session)
        [held] = (await inbox.state_of(session.id)).queue
        assert held.paused
        await inbox.resume_queue(session.id)
        await house.ended(session, 2)


async def test_queue_survives_a_restart_and_waits_for_a_person(
    tmp_path: Path, sqlite_url: str
) -> None:
    gate = asyncio.Event()
    async with serve_gateway([_held(gate)], title=is_title, strict=False) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "one")
            await gateway.wait_for_requests(1)
            await house.say(session, "two")
        async with open_house(settings) as house:
            [item] = (await house.state["inbox"].state_of(session.id)).queue
            assert (item.text, item.paused) == ("two", True)


async def test_queued_message_can_be_changed_and_removed(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate), reply("ok")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        inbox = house.state["inbox"]
        session = await house.create()
        await house.say(session, "one")
        two, three = await house.say(session, "two"), await house.say(session, "three")
        await inbox.update_queued(session.id, two.run_id, "deux")
        await inbox.remove_queued(session.id, three.run_id)
        with pytest.raises(NotFound):
            await inbox.remove_queued(session.id, three.run_id)
        gate.set()
        await house.ended(session, 2)
        assert [m.text for m in await house.messages(session) if m.role == "user"] == [
            "one",
            "deux",
        ]


async def _two_turns(house: House) -> Any:
    session = await house.create()
    await house.ask(session, "one", message_id="m1")
    await house.ask(session, "two", message_id="m2")
    return session


async def test_edit_begins_anew_from_the_message(tmp_path: Path, sqlite_url: str) -> None:
    script = [reply("a"), reply("b"), reply("c")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await _two_turns(house)
        events = await house.ask(session, "uno", edit_of="m1", message_id="m3")
        [withdrawn] = [e for e in events if e["type"] == "CUSTOM"]
        assert {"m1", "m2"} <= set(withdrawn["value"]["messageIds"])
        assert [m["content"][-3:] for m in gateway.requests[2].messages[1:]] == ["uno"]
        assert [m.id for m in await house.messages(session) if m.role == "user"] == ["m3"]


async def test_retry_of_an_unknown_message_changes_nothing(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([reply("a"), reply("b")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await _two_turns(house)
        with pytest.raises(NotFound):
            await house.say(session, "", key="r", retry_of="nothing")
        answer = (await house.messages(session))[-1]
        with pytest.raises(BadRequest):
            await house.say(session, "", key="r2", retry_of=answer.id)
        with pytest.raises(BadRequest):
            await house.say(session, "  ", key="empty")
        assert len(await house.messages(session)) == 4


async def test_hundred_sessions_of_fourteen_rounds_share_no_streak(
    tmp_path: Path, sqlite_url: str
) -> None:
    def play(request: Any) -> Any:
        done = sum(m["role"] == "tool" for m in request.messages)
        if done >= 14:
            return reply("done")
        return reply(calls=[call("list_dir", {"path": "."})])

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        sessions = [await house.create() for _ in range(100)]
        await asyncio.gather(*(house.say(session, "go") for session in sessions))
        for session in sessions:
            events = await house.ended(session)
            assert events[-1]["type"] == "RUN_FINISHED"


async def test_steered_picture_is_seen_and_lies_in_the_workspace(
    tmp_path: Path, sqlite_url: str
) -> None:
    gate = asyncio.Event()
    look = reply(calls=[call("list_dir", {"path": "."})], quirks=Quirks(before_headers=gate))
    async with (
        serve_gateway([look, reply("red"), reply("bye")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "go")
        await gateway.wait_for_requests(1)
        file = await _upload_picture(house, session)
        await house.say(session, "see", when_busy="steer", files=[InboundFile(file.id)])
        gate.set()
        await house.ended(session)
        [part] = [m for m in gateway.requests[1].messages if isinstance(m["content"], list)]
        assert part["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
        assert (house.workspace / "uploads" / f"{file.id}-red.png").exists()
        await house.ask(session, "next")
        assert_prefixes(gateway.requests)


async def _upload_picture(house: House, session: Session) -> StoredFile:
    data = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(data, "PNG")
    file = StoredFile(
        id=new_id(),
        session_id=session.id,
        owner=session.owner,
        name="red.png",
        media_type="image/png",
        size_bytes=len(data.getvalue()),
        sha256=await house.state["blobs"].write(data.getvalue()),
        created_at=datetime.now(UTC),
    )
    async with house.state["store"].write() as db:
        await insert_file(db, file)
    return file


async def test_hold_ends_with_the_messages_it_held(tmp_path: Path, sqlite_url: str) -> None:
    stop, finish = asyncio.Event(), asyncio.Event()
    script = [_held(stop), _held(finish, "third"), reply("fourth")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        inbox = house.state["inbox"]
        session = await house.create()
        await house.say(session, "one")
        await gateway.wait_for_requests(1)
        two = await house.say(session, "two")
        await inbox.cancel(session.id, None, "ann")
        await house.ended(session)
        await house.settled(session)
        await inbox.remove_queued(session.id, two.run_id)
        await house.say(session, "three")
        await gateway.wait_for_requests(2)
        await house.say(session, "four")
        [item] = (await inbox.state_of(session.id)).queue
        assert not item.paused
        finish.set()
        await house.ended(session, 3)


async def test_message_that_left_the_history_cannot_be_run_again(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([reply("a"), reply("b")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "one", message_id="m1")
        await house.ask(session, "uno", edit_of="m1", message_id="m2")
        for number, given in enumerate(({"retry_of": "m1"}, {"edit_of": "m1"})):
            with pytest.raises(NotFound):
                await house.say(session, "eins", key=f"again {number}", **given)
        assert [m.text for m in await house.messages(session)] == ["uno", "b"]


async def test_queue_goes_on_past_what_an_edit_before_it_withdrew(
    tmp_path: Path, sqlite_url: str
) -> None:
    gate = asyncio.Event()
    script = [_held(gate), reply("b"), reply("c"), reply("d")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "one", message_id="m1")
        await gateway.wait_for_requests(1)
        await house.say(session, "uno", edit_of="m1")
        await house.say(session, "", key="retry", retry_of="m1")
        await house.say(session, "eins", edit_of="m1")
        await house.say(session, "last")
        gate.set()
        await house.ended(session, 4)
        said = [m.text for m in await house.messages(session) if m.role == "user"]
        assert said == ["uno", "eins", "last"]
        assert (await house.state["inbox"].state_of(session.id)).queue == ()


async def test_ids_that_clients_choose_never_clash(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    script = [_held(gate), reply("other"), reply("second"), reply("third")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session, other = await house.create(), await house.create()
        await house.say(session, "one", message_id="1")
        await gateway.wait_for_requests(1)
        await house.say(session, "two", message_id="2")
        await house.say(session, "three", message_id="2")
        await house.ask(other, "elsewhere", message_id="2")
        gate.set()
        await house.ended(session, 3)
        ids = [m.id for m in await house.messages(session) if m.role == "user"]
        assert ids == ["1", "2", f"{session.id}-2"]


async def test_queued_message_cannot_be_emptied(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate), reply("ok")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "one")
        two = await house.say(session, "two")
        with pytest.raises(BadRequest):
            await house.state["inbox"].update_queued(session.id, two.run_id, "  ")
        gate.set()
        await house.ended(session, 2)


async def test_sender_who_leaves_at_any_moment_leaves_no_run_that_nobody_executes(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway(forever(reply("ok")), title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        sessions = [await house.create() for _ in range(100)]
        whole = await _turns_of(asyncio.create_task(house.say(sessions[0], "hello")), None)
        for number, session in enumerate(sessions[1:], start=1):
            saying = asyncio.create_task(house.say(session, "hello"))
            await _turns_of(saying, whole * number // len(sessions))
            saying.cancel()
            await asyncio.wait({saying})
        for session in sessions:
            await house.settled(session)


async def _turns_of(task: asyncio.Task[Any], most: int | None) -> int:
    """Turns of the event loop until *task* is done, or *most* of them."""
    turns = 0
    while not task.done() and turns != most:
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_deleted_session_runs_nothing_of_its_queue(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([_held(asyncio.Event())], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create(kind="chat")
        await house.say(session, "one")
        await gateway.wait_for_requests(1)
        await house.say(session, "two")
        await house.state["inbox"].delete_session(session.id)
        assert len(gateway.requests) == 1


async def test_message_leaves_the_queue_only_when_no_run_is_about_to_take_it(
    tmp_path: Path, postgres_url: str
) -> None:
    gate = asyncio.Event()
    async with (
        serve_gateway([_held(gate)], title=is_title) as gateway,
        open_house(settings_for(tmp_path, postgres_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.say(session, "one")
        two = await house.say(session, "two", when_busy="steer")
        async with house.state["store"].write() as db:
            await lock_session(db, session.id)  # as a run does that ends, or lets others join
            leaving = asyncio.create_task(
                house.state["inbox"].remove_queued(session.id, two.run_id)
            )
            done, _ = await asyncio.wait({leaving}, timeout=0.3)
            assert not done
        await leaving
        gate.set()
        await house.ended(session)


async def test_end_that_cannot_be_written_is_logged_and_the_run_is_taken_up_again(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = (
        "CREATE TRIGGER refusal BEFORE UPDATE ON run WHEN NEW.status = 'COMPLETED' "
        "BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    async with serve_gateway([reply("one")], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            async with house.state["store"].write() as db:
                await db.execute(sa.text(refusal))
            await house.say(session, "go")

            async def is_noted() -> bool:
                return "[run] its end was not written error=" in caplog.text

            await until(is_noted)
            async with house.state["store"].write() as db:
                await db.execute(sa.text("DROP TRIGGER refusal"))
        async with open_house(settings) as house:
            assert (await house.settled(session)).status == "COMPLETED"
    gc.collect()
    assert "never retrieved" not in caplog.text
