"""Following a session: replay, snapshot, resume, and what does not get lost on the way."""

import asyncio
from datetime import UTC, datetime

import pytest

from channels.events import (
    CallArguments,
    CallFinished,
    CallStarted,
    Outcome,
    RoundStarted,
    RunStarted,
    TextAdded,
    TextFinished,
    TextStarted,
)
from server.message import Message
from server.store.messages import append_messages
from tests.server.ws.place import ADMIN, ANN, BOB, Place
from tests.wire import WireClient, WireError, open_client

TALK = (TextStarted("a"), TextAdded("a", "Hel"), TextAdded("a", "lo"), TextFinished("a"))


async def store_messages(place: Place, session_id: str, *texts: str) -> None:
    messages = [
        Message(id=f"{session_id}-{text}", role="user", content=text, created_at=datetime.now(UTC))
        for text in texts
    ]
    async with place.state["store"].write() as db:
        await append_messages(db, session_id, messages)


async def test_a_live_run_arrives_event_by_event(place: Place) -> None:
    session_id = await place.session()
    async with open_client(place.url, token=ANN) as client:
        answer = await client.subscribe(session_id)
        assert answer["mode"] == "snapshot"
        assert answer["status"] == "IDLE"
        assert answer["messages"] == []
        assert answer["replayFrom"] == 1
        place.emit_run(session_id, "r1", *TALK)
        await client.event(session_id, "RUN_FINISHED")
        followed = client.followed[session_id]
        assert followed.kinds[0] == "RUN_STARTED"
        assert followed.text("a") == "Hello"


async def test_a_known_position_is_replayed_without_gap_or_double(place: Place) -> None:
    session_id = await place.session()
    place.emit_run(session_id, "r1", *TALK)
    head = place.ring(session_id).head
    async with open_client(place.url, token=ANN) as client:
        for after in range(head + 1):
            answer = await client.subscribe(
                session_id, after=after, instance=client.hello["server"]["instance"]
            )
            assert answer["mode"] == "replay"
            assert answer["replayFrom"] == after + 1
            assert answer["head"] == head
            assert "messages" not in answer
            await client.until(lambda: client.followed[session_id].seq == head)


async def test_a_joined_replay_frame_says_from_where_it_is(place: Place) -> None:
    session_id = await place.session()
    pieces = [TextAdded("a", "x" * 5000) for _ in range(4)]
    place.emit(session_id, RunStarted("r", "m", "hi"), TextStarted("a"), *pieces)
    async with open_client(place.url, token=ANN) as client:
        await client.subscribe(session_id, after=3)
        await client.until(lambda: client.followed[session_id].seq == 6)
        (frame,) = client.followed[session_id].frames
        assert (frame["first"], frame["seq"]) == (4, 6)
        assert len(frame["event"]["delta"]) == 15_000


@pytest.mark.parametrize("after", [999, 0])
async def test_a_position_of_another_instance_or_out_of_range_gets_a_snapshot(
    place: Place, after: int
) -> None:
    session_id = await place.session()
    await store_messages(place, session_id, "one", "two")
    place.emit_run(session_id, "r1", *TALK)
    async with open_client(place.url, token=ANN) as client:
        answer = await client.subscribe(session_id, after=after, instance="another")
        assert answer["mode"] == "snapshot"
        assert [message["content"] for message in answer["messages"]] == ["one", "two"]
        assert answer["replayFrom"] == place.ring(session_id).head + 1


async def test_a_first_visit_in_mid_run_gets_the_history_and_the_whole_run(place: Place) -> None:
    session_id = await place.session()
    await store_messages(place, session_id, "before", "of the run")
    place.emit_run(session_id, "r0", *TALK)
    place.emit(
        session_id,
        RunStarted("r1", f"{session_id}-of the run", "of the run", history_seq=1),
        RoundStarted(1),
        CallStarted("c", "shell", "b"),
        CallArguments("c", "{}"),
    )
    async with open_client(place.url, token=ANN) as client:
        answer = await client.subscribe(session_id)
        assert [message["content"] for message in answer["messages"]] == ["before"]
        await client.event(session_id, "TOOL_CALL_ARGS")
        followed = client.followed[session_id]
        assert followed.kinds[0] == "RUN_STARTED"
        assert followed.events[0]["runId"] == "r1"
        place.emit(session_id, CallFinished("c"))
        await client.event(session_id, "TOOL_CALL_END")


async def test_head_gives_only_what_comes(place: Place) -> None:
    session_id = await place.session()
    place.emit_run(session_id, "r1", *TALK)
    async with open_client(place.url, token=ANN) as client:
        answer = await client.subscribe(session_id, after="head")
        assert answer["mode"] == "replay"
        assert answer["replayFrom"] == answer["head"] + 1
        place.emit_run(session_id, "r2")
        started = await client.event(session_id, "RUN_STARTED")
        assert started["runId"] == "r2"


async def test_a_client_that_comes_back_goes_on_where_it_was(place: Place) -> None:
    session_id = await place.session()
    place.emit(session_id, RunStarted("r", "m", "hi"), TextStarted("a"), TextAdded("a", "Hel"))
    async with open_client(place.url, token=ANN) as first:
        await first.subscribe(session_id)
        await first.event(session_id, "TEXT_MESSAGE_CONTENT")
        seq = first.followed[session_id].seq
        instance = first.hello["server"]["instance"]
    place.emit(session_id, TextAdded("a", "lo"), TextFinished("a"))
    async with open_client(place.url, token=ANN) as second:
        await second.subscribe(session_id, after=seq, instance=instance)
        await second.event(session_id, "TEXT_MESSAGE_END")
        assert second.followed[session_id].text("a") == "lo"


async def test_subscribing_in_the_storm_loses_and_doubles_nothing(place: Place) -> None:
    session_id = await place.session()
    words = [f"{number} " for number in range(600)]

    async def talk() -> None:
        place.emit(session_id, RunStarted("r", "m", "hi"), TextStarted("a"))
        for word in words:
            place.emit(session_id, TextAdded("a", word))
            await asyncio.sleep(0)
        place.emit(session_id, TextFinished("a"), Outcome("r", "finished", "completed"))

    async def watch(client: WireClient) -> None:
        await client.subscribe(session_id, after=0)
        await client.event(session_id, "RUN_FINISHED")
        assert client.followed[session_id].text("a") == "".join(words)

    async with (
        open_client(place.url, token=ANN) as one,
        open_client(place.url, token=ADMIN) as two,
        open_client(place.url, token=ANN) as three,
        asyncio.TaskGroup() as group,
    ):
        for task in (watch(one), talk(), watch(two), watch(three)):
            group.create_task(task)


async def test_unsubscribing_ends_the_events(place: Place) -> None:
    session_id = await place.session()
    async with open_client(place.url, token=ANN) as client:
        await client.subscribe(session_id)
        await client.request("session.unsubscribe", session=session_id)
        place.emit_run(session_id, "r1")
        other = await place.session()
        await client.subscribe(other)
        place.emit_run(other, "r2")
        await client.event(other, "RUN_FINISHED")
        assert client.followed[session_id].events == []


async def test_a_foreign_session_is_as_good_as_none(place: Place) -> None:
    session_id = await place.session("ann")
    requests = [
        ("session.subscribe", {}),
        ("run.start", {"clientMsgId": "x", "content": "hi"}),
        ("run.steer", {"clientMsgId": "x", "content": "hi", "runId": "r"}),
        ("run.cancel", {}),
        ("queue.remove", {"itemId": "q"}),
        ("queue.update", {"itemId": "q", "content": "hi"}),
        ("queue.resume", {}),
    ]
    async with open_client(place.url, token=BOB) as client:
        for method, params in requests:
            for session in (session_id, "none"):
                with pytest.raises(WireError) as error:
                    await client.request(method, session=session, **params)
                assert error.value.code == "not_found"
        assert place.ring(session_id).head == 0


async def test_changes_of_a_session_reach_its_followers_joined_and_the_last_one_wins(
    place: Place,
) -> None:
    session_id = await place.session()
    board = place.state["board"]
    async with open_client(place.url, token=ANN) as client:
        await client.subscribe(session_id)
        board.patch(session_id, "ann", {"status": "RUNNING", "title": "one"})
        board.patch(session_id, "ann", {"title": "two", "executionError": None})
        update = await client.frame("session.update", lambda f: f["patch"].get("title") == "two")
        assert update["rev"] == 2
        assert update["patch"]["executionError"] is None
        assert update["patch"]["status"] == "RUNNING"


async def test_a_change_comes_after_the_events_it_goes_with(place: Place) -> None:
    session_id = await place.session()
    async with open_client(place.url, token=ANN) as client:
        await client.subscribe(session_id)
        place.emit(session_id, RunStarted("r", "m", "hi"), TextStarted("a"))
        for _ in range(20):
            place.emit(session_id, TextAdded("a", "x" * 60_000))
        place.emit(session_id, TextFinished("a"), Outcome("r", "failed", "internal", "why"))
        place.state["board"].patch(session_id, "ann", {"status": "FAILED"})
        await client.frame("session.update", lambda f: f["patch"]["status"] == "FAILED")
        assert client.order.index("RUN_ERROR") < client.order.index("session.update")


async def test_the_list_is_told_to_the_owner_and_the_admin_only(place: Place) -> None:
    async with (
        open_client(place.url, token=ANN) as ann,
        open_client(place.url, token=ADMIN) as admin,
        open_client(place.url, token=BOB) as bob,
    ):
        session_id = await place.session("ann")
        for client in (ann, admin):
            changed = await client.frame("sessions.changed")
            assert session_id in changed["ids"]
        bobs = await place.session("bob")
        assert (await bob.frame("sessions.changed"))["ids"] == [bobs]
