"""Side questions on the socket, and the list of children that a session's followers get."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from server.ws.policy import Policy
from tests.fakes.llm import NEVER, Quirks, Recorded, reply, serve_gateway
from tests.fakes.llm_wire import Play
from tests.house import is_title
from tests.server.ws.place import ADMIN, ANN, BOB, Place, open_place
from tests.waiting import until
from tests.wire import Frame, WireClient, WireError, open_client


@asynccontextmanager
async def open_busy(
    folder: Path, database_url: str, policy: Policy | None = None
) -> AsyncIterator[tuple[Place, str, asyncio.Event]]:
    """A place with a session of Ann's that has a turn behind it and a run under way."""
    gate = asyncio.Event()

    def play(request: Recorded) -> Play:
        said = str(request.messages[-1]["content"])
        if said.endswith("long"):
            return reply("long answer", quirks=Quirks(before_headers=gate))
        if said.endswith("for ever"):
            return reply("…", quirks=Quirks(before_headers=NEVER))
        return reply("answered")

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_place(folder, database_url, gateway.url, policy=policy) as place,
        open_client(place.url, token=ANN) as client,
    ):
        session_id = await place.session()
        await client.subscribe(session_id)
        await start(client, session_id, "p1", "hello")
        await client.event(session_id, "RUN_FINISHED")
        await start(client, session_id, "p2", "long")
        await client.event(session_id, "RUN_STARTED", 2)
        yield place, session_id, gate


async def start(client: WireClient, session_id: str, message_id: str, text: str) -> Frame:
    return await client.request(
        "run.start", session=session_id, clientMsgId=message_id, content=text
    )


async def aside(
    client: WireClient, session_id: str, message_id: str, text: str, **more: Any
) -> Frame:
    return await client.request(
        "sideline.start", session=session_id, clientMsgId=message_id, content=text, **more
    )


async def rests(place: Place, session_id: str) -> bool:
    return (await place.state["inbox"].state_of(session_id)).run is None


def shows(children: dict[str, str], session_id: str) -> Any:
    """Whether an update of the session lists these children with these statuses."""

    def matching(frame: Frame) -> bool:
        shown = frame["patch"].get("children", [])
        is_all = {child["id"]: child["status"] for child in shown} == children
        return frame["session"] == session_id and is_all

    return matching


async def test_a_side_question_is_answered_while_its_parent_runs(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        open_busy(tmp_path, sqlite_url) as (place, session_id, gate),
        open_client(place.url, token=ANN) as client,
        open_client(place.url, token=ANN) as other,
    ):
        await client.subscribe(session_id)
        await other.subscribe(session_id)
        result = await aside(client, session_id, "s1", "how far?")
        child_id = result["session"]
        assert child_id != session_id
        for watcher in (client, other):
            await watcher.frame("session.update", shows({child_id: "COMPLETED"}, session_id))
        assert await aside(client, session_id, "s1", "how far?") == result
        answer = await client.subscribe(child_id)
        assert [m["content"] for m in answer["messages"]] == ["how far?", "answered"]
        assert answer["messages"][0]["id"] == "s1"
        parent = await other.subscribe(session_id)
        assert parent["status"] == "RUNNING"
        [child] = parent["children"]
        assert (child["id"], child["kind"], child["status"]) == (child_id, "sideline", "COMPLETED")
        more = await start(client, child_id, "s2", "and now?")
        ended = await client.event(child_id, "RUN_FINISHED")
        assert ended["runId"] == more["runId"]
        assert client.followed[session_id].events[-1]["type"] != "RUN_FINISHED"
        gate.set()
        await client.event(session_id, "RUN_FINISHED")


async def test_the_same_message_id_may_name_a_message_and_a_side_question(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        open_busy(tmp_path, sqlite_url) as (place, session_id, _),
        open_client(place.url, token=ANN) as client,
    ):
        result = await aside(client, session_id, "p1", "how far?")
        assert result["session"] != session_id
        assert await aside(client, session_id, "p1", "how far?") == result


async def test_wrong_side_questions_are_refused(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        open_busy(tmp_path, sqlite_url) as (place, session_id, _),
        open_client(place.url, token=ANN) as ann,
        open_client(place.url, token=BOB) as bob,
    ):
        bobs = await place.session("bob")
        for client, session, content, more, code in (
            (bob, session_id, "hi", {}, "not_found"),
            (ann, bobs, "hi", {}, "not_found"),
            (ann, "none", "hi", {}, "not_found"),
            (ann, session_id, "hi", {"fromMessage": "none"}, "not_found"),
            (ann, session_id, [{"type": "file", "fileId": "none"}], {}, "not_found"),
            (ann, session_id, "", {}, "bad_request"),
            (ann, session_id, " \n", {}, "bad_request"),
            (ann, session_id, [], {}, "bad_request"),
        ):
            with pytest.raises(WireError) as error:
                await aside(client, session, "x", content, **more)  # type: ignore[arg-type]
            assert error.value.code == code
        assert (await ann.subscribe(session_id))["children"] == []


async def test_followers_hear_of_each_change_of_a_child(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        open_busy(tmp_path, sqlite_url) as (place, session_id, _),
        open_client(place.url, token=ADMIN) as client,
    ):
        await client.subscribe(session_id)
        first = (await aside(client, session_id, "s1", "for ever"))["session"]
        await client.frame("session.update", shows({first: "RUNNING"}, session_id))
        second = (await aside(client, session_id, "s2", "quick"))["session"]
        both = shows({second: "COMPLETED", first: "RUNNING"}, session_id)
        update = await client.frame("session.update", both)
        assert [c["id"] for c in update["patch"]["children"]] == [second, first], "newest first"
        await place.state["inbox"].rename_session(first, "endless")

        def is_renamed(frame: Frame) -> bool:
            children = frame["patch"].get("children", [])
            return "endless" in [child["title"] for child in children]

        await client.frame("session.update", is_renamed)
        await client.request("run.cancel", session=first)
        await client.frame(
            "session.update", shows({second: "COMPLETED", first: "CANCELLED"}, session_id)
        )
        await place.state["inbox"].delete_session(second)
        await client.frame("session.update", shows({first: "CANCELLED"}, session_id))
        await place.state["inbox"].delete_session(first)
        await client.until(lambda: client.frames[-1].get("patch") == {"children": []})


async def test_children_are_followed_with_their_parent_those_born_later_too(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        open_busy(tmp_path, sqlite_url) as (place, session_id, _),
        open_client(place.url, token=ANN) as client,
    ):
        early = (await aside(client, session_id, "s1", "for ever"))["session"]
        over = (await aside(client, session_id, "s2", "quick"))["session"]
        await until(lambda: rests(place, over))
        answer = await client.subscribe(session_id, children=True)
        assert {child["id"] for child in answer["children"]} == {early, over}
        started = await client.event(early, "RUN_STARTED")
        assert started["input"]["messages"][0]["content"] == "for ever"
        later = (await aside(client, session_id, "s3", "quick as well"))["session"]
        await client.event(later, "RUN_FINISHED")
        assert client.followed[later].seq == place.ring(later).head
        assert client.followed[later].kinds[0] == "RUN_STARTED"
        await client.request("run.cancel", session=early)
        await client.event(early, "RUN_FINISHED")
        await client.frame(
            "session.update",
            lambda f: f["session"] == early and f["patch"].get("status") == "CANCELLED",
        )
        assert over not in client.followed, "it is over, and was told before"
        await start(client, over, "s4", "once more")
        await client.event(over, "RUN_FINISHED")
        await client.subscribe(later)
        await client.request("session.unsubscribe", session=session_id)
        for child_id in (early, later):
            await start(client, child_id, "m5", "again")
        await client.event(later, "RUN_FINISHED")
        assert client.followed[early].seq < place.ring(early).head, "it went with its parent"


async def test_children_are_followed_as_far_as_there_is_room(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        open_busy(tmp_path, sqlite_url, Policy(subscriptions=2)) as (place, session_id, _),
        open_client(place.url, token=ANN) as client,
    ):
        await client.subscribe(session_id, children=True)
        children = [
            (await aside(client, session_id, f"s{n}", "quick"))["session"] for n in range(2)
        ]
        await client.frame(
            "session.update", shows(dict.fromkeys(children, "COMPLETED"), session_id)
        )
        await client.event(children[0], "RUN_FINISHED")
        assert children[1] not in client.followed
        with pytest.raises(WireError) as error:
            await client.subscribe(children[1])
        assert error.value.details == {"path": "session"}


async def test_children_born_while_their_parent_is_being_subscribed_lose_no_event(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        open_busy(tmp_path, sqlite_url) as (place, session_id, _),
        open_client(place.url, token=ANN) as client,
        open_client(place.url, token=ANN) as asking,
    ):
        children: set[str] = set()
        for number in range(10):
            _, result = await asyncio.gather(
                client.subscribe(session_id, children=True),
                aside(asking, session_id, f"s{number}", "for ever"),
            )
            child_id = result["session"]
            children.add(child_id)
            await client.event(child_id, "RUN_STARTED")
        assert set(client.followed) == {session_id, *children}


async def test_a_list_that_cannot_be_read_is_told_again_with_the_next_change(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        open_busy(tmp_path, sqlite_url) as (place, session_id, gate),
        open_client(place.url, token=ANN) as client,
    ):
        await client.subscribe(session_id)
        child_id = (await aside(client, session_id, "s1", "how far?"))["session"]
        await client.frame("session.update", shows({child_id: "COMPLETED"}, session_id))
        store, board = place.state["store"], place.state["board"]
        write = sa.text("UPDATE session SET runtime_status_json = :status WHERE id = :id")
        async with store.write() as db:
            await db.execute(write, {"status": "{", "id": child_id})
        board.changed("ann", [child_id])

        async def is_noted() -> bool:
            return "[children] not told error=JSONDecodeError" in caplog.text

        await until(is_noted)
        async with store.write() as db:
            await db.execute(write, {"status": "{}", "id": child_id})
        await place.state["inbox"].rename_session(child_id, "named")

        def is_named(frame: Frame) -> bool:
            return any(child["title"] == "named" for child in frame["patch"].get("children", []))

        await client.frame("session.update", is_named)
        gate.set()
        await client.event(session_id, "RUN_FINISHED")
