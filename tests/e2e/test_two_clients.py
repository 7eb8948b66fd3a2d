"""Several clients of one session: they see the same, stop the same run, and lose nothing."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.process import ADMIN, ANN, BOB, Installation, ServerProcess, open_server
from tests.fakes.llm import NEVER, Quirks, Script, call, forever, reply, serve_gateway
from tests.house import is_title
from tests.wire import Followed, Frame, WireClient, WireError, open_client

SESSION = "s"
SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
TEXT = "一二三四五六七八" * 60
STOP_SECONDS = 2.0
"""A run ends a second after its stop; the rest is for a busy machine."""
SLOW = reply(TEXT, quirks=Quirks(pace_seconds=0.02))


@asynccontextmanager
async def open_talk(folder: Path, script: Script) -> AsyncIterator[ServerProcess]:
    """A server whose model plays *script*, with ann's session in it."""
    async with serve_gateway(script, title=is_title, strict=False) as gateway:
        async with open_server(Installation(folder, gateway.url)) as server:
            async with open_client(server.url, token=ANN) as client:
                await client.request("session.create", session=SESSION)
            yield server


@asynccontextmanager
async def open_tab(server: ServerProcess, token: str = ANN) -> AsyncIterator[WireClient]:
    """A client that follows the session."""
    async with open_client(server.url, token=token) as client:
        await client.subscribe(SESSION)
        yield client


async def ask(client: WireClient, text: str, message_id: str = "m1") -> str:
    """Send a message; the id of its run."""
    answer = await client.request(
        "run.start", session=SESSION, clientMsgId=message_id, content=text
    )
    return str(answer["runId"])


def pieces_joined(events: list[Frame]) -> list[Frame]:
    """The events with neighbouring pieces of one text as one: tabs may get them cut otherwise."""
    joined: list[Frame] = []
    for event in events:
        last = joined[-1] if joined else {}
        if "delta" in event and all(
            event.get(key) == last.get(key) for key in ("type", "messageId", "toolCallId")
        ):
            joined[-1] = last | {"delta": last["delta"] + event["delta"]}
        else:
            joined.append({key: value for key, value in event.items() if key != "timestamp"})
    return joined


@pytest.mark.parametrize(
    "script",
    [[SLOW], [reply("…", quirks=Quirks(before_headers=NEVER))]],
    ids=["while it speaks", "before its first word"],
)
async def test_another_client_stops_the_run_at_once(tmp_path: Path, script: Script) -> None:
    async with (
        open_talk(tmp_path, script) as server,
        open_tab(server) as asking,
        open_tab(server, ADMIN) as stopping,
    ):
        run_id = await ask(asking, "go")
        await stopping.event(SESSION, "STEP_STARTED")
        began = time.monotonic()
        answer = await stopping.request("run.cancel", session=SESSION, runId=run_id)
        assert answer == {"state": "cancelling"}
        for client in (asking, stopping):
            end = await client.event(SESSION, "RUN_FINISHED")
            assert end["outcome"] == {"type": "cancelled"}
        assert time.monotonic() - began < STOP_SECONDS
        assert (await server.session(SESSION))["status"] == "CANCELLED"
        again = await asking.request("run.cancel", session=SESSION, runId=run_id)
        assert again == {"state": "not_running"}


async def test_another_client_stops_a_command_and_its_processes(tmp_path: Path) -> None:
    command = {"action": "run", "command": "echo begun; sleep 300"}
    async with (
        open_talk(tmp_path, [reply(calls=[call("shell", command)])]) as server,
        open_tab(server) as asking,
        open_tab(server, ADMIN) as stopping,
    ):
        await ask(asking, "go")
        await stopping.event(SESSION, "TOOL_CALL_END")
        began = time.monotonic()
        await stopping.request("run.cancel", session=SESSION)
        end = await asking.event(SESSION, "RUN_FINISHED")
        assert end["outcome"] == {"type": "cancelled"}
        assert time.monotonic() - began < STOP_SECONDS
        [result] = [m for m in await server.messages(SESSION) if m["role"] == "tool"]
        assert result["content"] == '{"error":"cancelled"}'


async def test_a_stranger_sees_and_stops_nothing(tmp_path: Path) -> None:
    async with open_talk(tmp_path, [SLOW]) as server, open_tab(server) as asking:
        await ask(asking, "go")
        async with open_client(server.url, token=BOB) as stranger:
            for method in ("session.subscribe", "run.cancel"):
                with pytest.raises(WireError, match="not_found"):
                    await stranger.request(method, session=SESSION)
        status, _ = await server.get(f"/api/sessions/{SESSION}", BOB)
        assert status == 404
        end = await asking.event(SESSION, "RUN_FINISHED")
        assert end["outcome"] == {"type": "success"}


async def test_tabs_see_the_same_events_whenever_they_come(tmp_path: Path) -> None:
    script = [SEARCH, SLOW]
    async with open_talk(tmp_path, script) as server, open_tab(server) as first:
        await ask(first, "go")
        await first.event(SESSION, "TOOL_CALL_START")
        async with open_tab(server) as second:
            await second.event(SESSION, "TEXT_MESSAGE_CONTENT")
            async with open_tab(server) as third:
                tabs = (first, second, third)
                for tab in tabs:
                    await tab.event(SESSION, "RUN_FINISHED")
                    await tab.frame("session.update", is_completed)
        seen = [pieces_joined(tab.followed[SESSION].events) for tab in tabs]
        assert seen[0] == seen[1] == seen[2]
        assert [tab.followed[SESSION].seq for tab in tabs] == [first.followed[SESSION].seq] * 3
        told = {event["type"]: event for event in seen[0]}
        assert told["TEXT_MESSAGE_CONTENT"]["delta"] == TEXT


def is_completed(frame: Frame) -> bool:
    """The change that comes with a run's success."""
    return bool(frame["patch"].get("status") == "COMPLETED")


async def test_a_cut_connection_resumes_by_its_cursor_without_gap_or_double(
    tmp_path: Path,
) -> None:
    async with open_talk(tmp_path, [SEARCH, SLOW]) as server, open_tab(server) as watching:
        await ask(watching, "go")
        frames: list[Frame] = []
        cursor, instance = 0, None
        while not (frames and frames[-1]["event"]["type"] == "RUN_FINISHED"):
            async with open_client(server.url, token=ANN) as client:
                answer = await client.subscribe(SESSION, after=cursor, instance=instance)
                assert (answer["mode"], answer["replayFrom"]) == ("replay", cursor + 1)
                instance = answer["instance"]
                followed = client.followed[SESSION]
                await client.until(partial(has_enough, followed))
                client.socket.transport.abort()
                await client.over()
                frames += followed.frames
                cursor = followed.seq
        covered = [n for frame in frames for n in numbers_of(frame)]
        assert covered == list(range(1, cursor + 1))
        await watching.event(SESSION, "RUN_FINISHED")
        events = [frame["event"] for frame in frames]
        assert pieces_joined(events) == pieces_joined(watching.followed[SESSION].events)


def has_enough(followed: Followed) -> bool:
    """A few frames came, or the last one."""
    return len(followed.frames) >= 3 or "RUN_FINISHED" in followed.kinds


def numbers_of(frame: Frame) -> range:
    """The numbers of the events that the frame holds."""
    last: int = frame["seq"]
    first: int = frame.get("first", last)
    return range(first, last + 1)


async def test_a_position_of_a_dead_server_gets_a_snapshot_and_the_run_from_its_start(
    tmp_path: Path,
) -> None:
    script = [SEARCH, reply("…", quirks=Quirks(before_headers=NEVER)), reply("done")]
    async with serve_gateway(script, title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url)
        async with open_server(place) as server:
            async with open_client(server.url, token=ANN) as client:
                await client.request("session.create", session=SESSION)
                await client.subscribe(SESSION)
                run_id = await ask(client, "go")
                await gateway.wait_for_requests(2)
                cursor = client.followed[SESSION].seq
                instance = client.hello["server"]["instance"]
                await server.sigkill()
        async with (
            open_server(place) as server,
            open_client(server.url, token=ANN) as client,
        ):
            answer = await client.subscribe(SESSION, after=cursor, instance=instance)
            assert answer["mode"] == "snapshot"
            roles = [message["role"] for message in answer["messages"]]
            assert roles[:3] == ["user", "assistant", "tool"]
            if answer["status"] == "RUNNING":
                end = await client.event(SESSION, "RUN_FINISHED")
                assert end["runId"] == run_id


async def test_rest_agrees_with_the_stream_from_the_moment_of_the_failure(tmp_path: Path) -> None:
    async with open_talk(tmp_path, forever(SEARCH)) as server, open_tab(server) as client:
        for number in range(1, 4):
            run_id = await ask(client, "go", f"m{number}")
            assert (await server.session(SESSION))["executionError"] is None
            end = await client.event(SESSION, "RUN_ERROR", number)
            session, (_, run) = await asyncio.gather(
                server.session(SESSION), server.get(f"/api/runs/{run_id}")
            )
            assert session["status"] == run["status"] == "FAILED"
            assert session["run"] is None
            assert session["executionError"]["message"] == end["message"]
            assert session["executionError"]["code"] == run["outcome"]["code"] == end["code"]
            messages = await server.messages(SESSION)
            assert [m["role"] for m in messages] == ["user", *["assistant", "tool"] * 15] * number
        patches: list[Any] = [f["patch"] for f in client.frames if f["type"] == "session.update"]
        statuses = [patch["status"] for patch in patches if "status" in patch]
        assert statuses[:2] == ["RUNNING", "FAILED"]
        order = [kind for kind in client.order if kind in ("RUN_ERROR", "session.update")]
        assert order.index("RUN_ERROR") < len(order) - 1, "the state follows its event"


async def test_rest_and_the_stream_agree_on_a_success_and_on_a_stop(tmp_path: Path) -> None:
    async with open_talk(tmp_path, [reply("one"), SLOW]) as server, open_tab(server) as client:
        await ask(client, "go")
        await client.event(SESSION, "RUN_FINISHED")
        assert (await server.session(SESSION))["status"] == "COMPLETED"
        said = [message["content"] for message in await server.messages(SESSION)]
        assert said == ["go", "one"]
        await ask(client, "more", "m2")
        await client.event(SESSION, "TEXT_MESSAGE_CONTENT", 2)
        await client.request("run.cancel", session=SESSION)
        end = await client.event(SESSION, "RUN_FINISHED", 2)
        assert end["outcome"] == {"type": "cancelled"}
        assert (await server.session(SESSION))["status"] == "CANCELLED"
        [*_, last] = await server.messages(SESSION)
        spoken = client.followed[SESSION].text(last["id"])
        assert last["content"] == spoken
        assert TEXT.startswith(spoken)
