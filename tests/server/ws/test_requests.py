"""Requests: runs, the queue, bad frames, limits, and how a socket ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from websockets.exceptions import InvalidStatus

from channels.events import RunStarted, TextAdded, TextStarted
from server.message import Message
from server.store.messages import append_messages
from server.ws.policy import Policy
from tests.fakes.llm import Quirks, reply, serve_gateway
from tests.house import is_title
from tests.server.ws.place import ANN, BOB, Place, open_place
from tests.wire import SECONDS, Lost, WireClient, WireError, open_client, open_socket


@asynccontextmanager
async def open_busy(
    folder: Path, database_url: str, *later: str
) -> AsyncIterator[tuple[WireClient, str, asyncio.Event]]:
    """A client in a session whose first run waits for an event; what later runs are answered."""
    gate = asyncio.Event()
    held = reply("first", quirks=Quirks(before_body=gate))
    script = [held, *(reply(text) for text in later)]
    async with (
        serve_gateway(script, title=is_title, strict=False) as gateway,
        open_place(folder, database_url, gateway.url) as place,
        open_client(place.url, token=ANN) as client,
    ):
        session = await client.request("session.create")
        await client.subscribe(session["id"])
        started = await start(client, session["id"], "m1", "hello")
        assert set(started) == {"runId"}
        await client.event(session["id"], "STEP_STARTED")
        yield client, session["id"], gate
        gate.set()


async def start(
    client: WireClient, session_id: str, message_id: str, text: str, **more: Any
) -> Any:
    return await client.request(
        "run.start", session=session_id, clientMsgId=message_id, content=text, **more
    )


async def test_a_message_runs_and_every_tab_sees_it(place: Place) -> None:
    async with (
        open_client(place.url, token=ANN) as one,
        open_client(place.url, token=ANN) as two,
    ):
        session = await one.request("session.create", title="words")
        assert session["title"] == "words"
        assert session["executionError"] is None
        for client in (one, two):
            await client.subscribe(session["id"])
        result = await start(one, session["id"], "m1", "hello")
        for client in (one, two):
            started = await client.event(session["id"], "RUN_STARTED")
            assert started["runId"] == result["runId"]
            assert started["input"]["messages"] == [
                {"id": "m1", "role": "user", "content": "hello"}
            ]
            ended = await client.event(session["id"], "RUN_FINISHED")
            assert ended["outcome"] == {"type": "success"}
            await client.frame("session.update", lambda f: f["patch"].get("status") == "COMPLETED")
        again = await start(one, session["id"], "m1", "hello")
        assert again == result


async def test_a_page_that_comes_after_the_end_sees_the_same(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        session = await client.request("session.create")
        await client.subscribe(session["id"])
        await start(client, session["id"], "m1", "hello")
        await client.frame("session.update", lambda f: f["patch"].get("status") == "COMPLETED")
        answer = await client.subscribe(session["id"])
        assert answer["mode"] == "snapshot"
        assert answer["status"] == "COMPLETED"
        assert answer["title"]
        assert "run" not in answer
        roles = [message["role"] for message in answer["messages"]]
        assert roles[0] == "user"
        assert roles[-1] == "assistant"


async def test_create_is_idempotent_by_the_clients_id(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        first = await client.request("session.create", session="my-own_1")
        assert (await client.request("session.create", session="my-own_1")) == first
        with pytest.raises(WireError) as error:
            await client.request("session.create", session="not/allowed")
        assert error.value.details == {"path": "session"}


async def test_a_busy_session_queues_steers_or_rejects(tmp_path: Path, sqlite_url: str) -> None:
    async with open_busy(tmp_path, sqlite_url, "second", "third") as (client, session_id, gate):
        queued = await start(client, session_id, "m2", "then this")
        assert queued["queued"]["position"] == 1
        with pytest.raises(WireError) as error:
            await start(client, session_id, "m3", "now", whenBusy="reject")
        assert error.value.code == "busy"
        assert error.value.retryable
        update = await client.frame("session.update", lambda f: bool(f["patch"].get("queue")))
        (item,) = update["patch"]["queue"]
        assert item["itemId"] == queued["queued"]["itemId"]
        assert item["text"] == "then this"
        gate.set()
        await client.event(session_id, "RUN_FINISHED", 2)


@pytest.mark.parametrize(
    ("locale", "text"), [("zh-CN", "会话正在执行。"), ("en", "The session is busy.")]
)
async def test_what_the_state_does_not_allow_is_said_in_the_clients_language(
    tmp_path: Path, sqlite_url: str, locale: str, text: str
) -> None:
    gate = asyncio.Event()
    held = reply("first", quirks=Quirks(before_body=gate))
    hello = {"client": {"id": "t", "locale": locale}}
    async with (
        serve_gateway([held], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
        open_client(place.url, token=ANN, hello=hello) as client,
    ):
        session_id = await place.session()
        await client.subscribe(session_id)
        await start(client, session_id, "m1", "hello")
        with pytest.raises(WireError) as error:
            await start(client, session_id, "m2", "now", whenBusy="reject")
        assert (error.value.code, error.value.message) == ("busy", text)
        gate.set()
        await client.event(session_id, "RUN_FINISHED")


async def test_a_steered_message_joins_the_run(tmp_path: Path, sqlite_url: str) -> None:
    async with open_busy(tmp_path, sqlite_url, "second") as (client, session_id, gate):
        run_id = client.followed[session_id].events[0]["runId"]
        steered = await client.request(
            "run.steer", session=session_id, runId=run_id, clientMsgId="m2", content="faster"
        )
        assert steered["itemId"]
        with pytest.raises(WireError) as error:
            await client.request(
                "run.steer", session=session_id, runId="other", clientMsgId="m3", content="x"
            )
        assert error.value.code == "steer_unavailable"
        gate.set()
        await client.event(session_id, "RUN_FINISHED")


async def test_queued_messages_can_be_changed_and_taken_back(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with open_busy(tmp_path, sqlite_url) as (client, session_id, gate):
        item_id = (await start(client, session_id, "m2", "old"))["queued"]["itemId"]
        await client.request("queue.update", session=session_id, itemId=item_id, content="new")
        assert (await client.subscribe(session_id))["queue"][0]["text"] == "new"
        await client.request("queue.remove", session=session_id, itemId=item_id)
        with pytest.raises(WireError) as error:
            await client.request("queue.remove", session=session_id, itemId=item_id)
        assert error.value.code == "not_found"
        gate.set()
        await client.event(session_id, "RUN_FINISHED")


async def test_a_run_is_stopped_and_its_queue_waits(tmp_path: Path, sqlite_url: str) -> None:
    async with open_busy(tmp_path, sqlite_url, "second") as (client, session_id, _):
        await start(client, session_id, "m2", "later")
        stopped = await client.request("run.cancel", session=session_id)
        assert stopped == {"state": "cancelling"}
        is_stopping = await client.frame("session.update", lambda f: f["patch"].get("run"))
        assert is_stopping["patch"]["run"].keys() == {"id", "cancelling", "rounds"}
        ended = await client.event(session_id, "RUN_FINISHED")
        assert ended["outcome"] == {"type": "cancelled"}
        await client.frame("session.update", lambda f: f["patch"].get("status") == "CANCELLED")
        again = await client.request("run.cancel", session=session_id)
        assert again == {"state": "not_running"}
        assert (await client.subscribe(session_id))["queue"][0]["paused"] is True
        await client.request("queue.resume", session=session_id)
        await client.event(session_id, "RUN_FINISHED", 1)


async def test_start_and_cancel_sent_at_once_are_done_in_this_order(
    tmp_path: Path, sqlite_url: str
) -> None:
    never = reply("never", quirks=Quirks(before_body=asyncio.Event()))
    async with (
        serve_gateway([never], title=is_title, strict=False) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
        open_client(place.url, token=ANN) as client,
    ):
        session = await client.request("session.create")
        await client.subscribe(session["id"])
        await client.send("run.start", session=session["id"], clientMsgId="m1", content="hi")
        stopped = await client.request("run.cancel", session=session["id"])
        assert stopped == {"state": "cancelling"}
        ended = await client.event(session["id"], "RUN_FINISHED")
        assert ended["outcome"] == {"type": "cancelled"}


async def test_bad_frames_are_answered_and_the_socket_lives(place: Place) -> None:
    frames: list[tuple[str, str, str]] = [
        ("[]", "", "bad_request"),
        ('{"type":"req","method":"run.start"}', "", "bad_request"),
        ('{"type":"req","id":7,"method":"run.start"}', "", "bad_request"),
        ('{"type":"req","id":"b1","method":3}', "b1", "bad_request"),
        ('{"type":"req","id":"b2","method":"fly"}', "b2", "unsupported_method"),
        ('{"type":"req","id":"b3","method":"sideline.start"}', "b3", "bad_request"),
        ('{"type":"req","id":"b4","method":"approval.respond"}', "b4", "bad_request"),
        ('{"type":"req","id":"b5","method":"run.start","params":[]}', "b5", "bad_request"),
        (
            '{"type":"req","id":"b6","method":"run.start","params":{"session":1}}',
            "b6",
            "bad_request",
        ),
    ]
    async with open_client(place.url, token=ANN) as client:
        for text, _, _ in frames:
            await client.socket.send(text)
        for text in ('{"type":"later","x":1}', "{}", '{"type":null}', '{"type":"pong","t":1}'):
            await client.socket.send(text)
        await client.until(lambda: len(client.strays) == len(frames))
        assert client.strays == [(request_id, code) for _, request_id, code in frames]
        assert (await client.request("session.create"))["status"] == "IDLE"


async def test_what_is_no_json_ends_the_socket(place: Place) -> None:
    for text in ("nonsense", "", '{"type":"ping","t":NaN}', b"{}"):
        async with open_client(place.url, token=ANN) as client:
            await client.socket.send(text)
            async with asyncio.timeout(SECONDS):
                await client.socket.wait_closed()
            assert client.socket.close_code == 4400, text


async def test_a_frame_that_is_too_big_ends_the_socket(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        await client.socket.send("x" * (1024 * 1024 + 1))
        async with asyncio.timeout(SECONDS):
            await client.socket.wait_closed()
        assert client.socket.close_code == 1009


async def test_half_an_emoji_is_no_error(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        session = await client.request("session.create")
        await client.subscribe(session["id"])
        await start(client, session["id"], "m1", "cut \ud83d")
        started = await client.event(session["id"], "RUN_STARTED")
        assert started["input"]["messages"][0]["content"].startswith("cut ")


async def test_content_may_come_in_parts(place: Place) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    async with open_client(place.url, token=ANN) as client:
        session = await client.request("session.create")
        await client.subscribe(session["id"])
        await client.request("run.start", session=session["id"], clientMsgId="m", content=parts)
        started = await client.event(session["id"], "RUN_STARTED")
        assert started["input"]["messages"][0]["content"] == "one\ntwo"
        file = [{"type": "file", "fileId": "none"}]
        with pytest.raises(WireError) as error:
            await client.request("run.start", session=session["id"], clientMsgId="n", content=file)
        assert error.value.code == "not_found"
        with pytest.raises(WireError) as error:
            await start(client, session["id"], "o", "")
        assert error.value.details == {"path": "content"}


async def test_both_sides_may_ping(tmp_path: Path, sqlite_url: str) -> None:
    policy = Policy(ping_seconds=0.05)
    async with (
        open_place(tmp_path, sqlite_url, policy=policy) as place,
        open_client(place.url, token=ANN) as client,
    ):
        ping = await client.frame("ping")
        assert isinstance(ping["t"], int)
        await client.socket.send('{"type":"ping","t":1767000000000.5}')
        assert (await client.frame("pong"))["t"] == 1767000000000.5


async def test_too_many_requests_are_refused_and_the_socket_lives(
    tmp_path: Path, sqlite_url: str
) -> None:
    policy = Policy(requests_burst=3, requests_per_second=1.0)
    async with (
        open_place(tmp_path, sqlite_url, policy=policy) as place,
        open_client(place.url, token=ANN) as client,
    ):
        answers = await asyncio.gather(
            *[await client.send("session.unsubscribe", session="s") for _ in range(10)]
        )
        codes = [answer["error"]["code"] for answer in answers if not answer["ok"]]
        assert codes == ["rate_limited"] * 7
        assert answers[-1]["error"]["retryAfterMs"] == 1000


async def test_a_restart_is_announced_and_the_socket_closed(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        place.state["board"].close()
        notice = await client.frame("notice")
        assert notice["code"] == "server_restart"
        assert notice["retryAfterMs"] == 2000
        async with asyncio.timeout(SECONDS):
            await client.socket.wait_closed()
        assert client.socket.close_code == 1012


async def test_a_server_that_ends_takes_no_more(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        place.state["closing"].set()
        with pytest.raises((WireError, Lost)):  # answered or closed, whichever is first
            await client.request("session.create")
    with pytest.raises(InvalidStatus) as refused:
        async with open_socket(place.url, token=ANN):
            pass
    assert refused.value.response.status_code == 503


async def test_a_peer_that_takes_nothing_is_let_go_and_resumes(
    tmp_path: Path, sqlite_url: str
) -> None:
    policy = Policy(send_seconds=0.3)
    async with open_place(tmp_path, sqlite_url, policy=policy) as place:
        session_id = await place.session()
        ring = place.ring(session_id)
        async with open_client(place.url, token=ANN) as client:
            await client.subscribe(session_id)
            place.emit(session_id, RunStarted("r", "m", "hi"), TextStarted("a"))
            await client.event(session_id, "TEXT_MESSAGE_START")
            client.socket.transport.pause_reading()
            async with asyncio.timeout(SECONDS):
                while ring.is_followed:
                    place.emit(session_id, TextAdded("a", "x" * 32_000))
                    await asyncio.sleep(0.002)
            seq = client.followed[session_id].seq
            client.socket.transport.abort()
        async with open_client(place.url, token=ANN) as again:
            await again.subscribe(
                session_id, after=seq, instance=client.hello["server"]["instance"]
            )
            await again.until(lambda: again.followed[session_id].seq == ring.head)


async def test_the_published_schema_is_served(place: Place) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(place.url.rpartition(":")[2]))
    writer.write(b"GET /schema/ws.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b" 200 " in head.splitlines()[0]
    published = json.loads(body)
    assert published["protocol"] == 1
    assert "agui.RunStartedEvent" in published["$defs"]
    assert {"hello", "run.start", "session.subscribe"} <= set(published["methods"])


async def test_a_session_that_gets_the_id_of_a_deleted_one_is_its_new_owners_alone(
    place: Place,
) -> None:
    async with open_client(place.url, token=ANN) as ann, open_client(place.url, token=BOB) as bob:
        await ann.request("session.create", session="main-session")
        await ann.subscribe("main-session")
        await place.state["inbox"].delete_session("main-session")
        await bob.request("session.create", session="main-session", title="mine")
        ann_before = len(ann.frames)
        with pytest.raises(WireError, match="not_found"):
            await ann.subscribe("main-session")
        with pytest.raises(WireError, match="not_found"):
            await start(ann, "main-session", "m1", "hello")
        await start(bob, "main-session", "m2", "a secret")
        await bob.subscribe("main-session")
        await bob.frame("session.update", lambda f: f["patch"].get("status") == "COMPLETED")
        assert "main-session" not in json.dumps(ann.frames[ann_before:])


async def test_a_request_that_breaks_is_logged_without_what_people_wrote(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    broken = await place.session()
    async with place.state["store"].write() as db:
        await append_messages(db, broken, [Message("m1", "user", "hi", datetime.now(UTC))])
        text = '{"what somebody wrote'
        await db.execute(sa.text("UPDATE message SET metadata_json = :text"), {"text": text})
    async with open_client(place.url, token=ANN) as client:
        with pytest.raises(WireError, match="internal"):
            await client.request("session.subscribe", session=broken)
        assert (await client.request("session.create"))["status"] == "IDLE"
    assert "[ws] session.subscribe failed" in caplog.text
    assert "somebody" not in caplog.text
