"""Questions of a waiting run on the socket and over AG-UI, as several clients see them."""

from pathlib import Path
from typing import Any

import pytest

from tests.agui_client import AguiClient, installed_client
from tests.fakes.llm import call, reply, serve_gateway
from tests.house import is_title
from tests.server.ws.place import ANN, BOB, Place, open_place
from tests.server.ws.test_sse import open_stream
from tests.wire import WireClient, WireError, open_client

WRITE = reply(calls=[call("write_file", {"path": "a.txt", "content": "kept"})])
ASK = reply(calls=[call("ask_user", {"question": "which?", "options": ["a", "b"]})])


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration under which a person is asked before anything is written."""
    path = tmp_path / "headway.toml"
    path.write_text('[approvals]\nweb = "writes"\n')
    return str(path)


async def start(client: WireClient, session_id: str) -> dict[str, Any]:
    """Say something, and wait for the question of its run."""
    await client.subscribe(session_id)
    await client.request("run.start", session=session_id, clientMsgId="m1", content="go")
    end = await client.event(session_id, "RUN_FINISHED")
    interrupt: dict[str, Any] = end["outcome"]["interrupts"][0]
    return interrupt


def approvals_in(frame: dict[str, Any]) -> list[dict[str, Any]]:
    """The questions in a `session.update`."""
    found: list[dict[str, Any]] = frame["patch"].get("approvals", [])
    return found


async def test_answer_of_one_client_is_seen_by_the_other_with_its_name(
    tmp_path: Path, sqlite_url: str, config: str
) -> None:
    async with (
        serve_gateway([WRITE, reply("done")], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config) as place,
        open_client(place.url, token=ANN) as ann,
        open_client(place.url, token="admin-token") as admin,
    ):
        session_id = await place.session()
        interrupt = await start(ann, session_id)
        assert interrupt["responseSchema"]["required"] == ["approved"]
        seen = await admin.subscribe(session_id)
        assert seen["status"] == "WAITING"
        [approval] = seen["approvals"]
        assert approval["id"] == interrupt["id"]
        assert approval["toolName"] == "write_file"
        assert "a.txt" in approval["arguments"]
        given = await admin.request(
            "approval.respond", session=session_id, interruptId=approval["id"], decision="approve"
        )
        assert given["status"] == "APPROVED"
        frame = await ann.frame(
            "session.update",
            lambda f: bool(approvals_in(f)) and approvals_in(f)[0]["status"] == "APPROVED",
        )
        assert approvals_in(frame)[0]["answeredBy"] == "admin"
        started = await ann.event(session_id, "RUN_STARTED", 2)
        assert started["runId"] == given["runId"]
        await ann.event(session_id, "RUN_FINISHED", 2)
        await ann.frame(
            "session.update",
            lambda f: f["patch"].get("status") == "COMPLETED" and f["patch"]["approvals"] == [],
        )
        with pytest.raises(WireError) as late:
            await ann.request(
                "approval.respond",
                session=session_id,
                interruptId=approval["id"],
                decision="deny",
            )
        assert late.value.code == "approval_already_resolved"
        assert late.value.details["by"] == "admin"
        assert late.value.details["at"]


async def test_answers_are_checked_before_they_count(
    tmp_path: Path, sqlite_url: str, config: str
) -> None:
    async with (
        serve_gateway([ASK, reply("done")], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config) as place,
        open_client(place.url, token=ANN) as ann,
        open_client(place.url, token=BOB) as bob,
    ):
        session_id = await place.session()
        interrupt = await start(ann, session_id)
        about: dict[str, Any] = {"session": session_id, "interruptId": interrupt["id"]}
        for client, params, code in (
            (bob, {**about, "decision": "approve", "payload": "a"}, "not_found"),
            (ann, {**about, "decision": "perhaps"}, "bad_request"),
            (ann, {**about, "decision": "approve"}, "bad_request"),
            (ann, {**about, "decision": "approve", "payload": 7}, "bad_request"),
            (ann, {**about, "interruptId": "none", "decision": "approve"}, "not_found"),
        ):
            with pytest.raises(WireError) as refused:
                await client.request("approval.respond", **params)
            assert refused.value.code == code
        await ann.request(
            "approval.respond",
            **about,
            decision="approve",
            payload={"answer": "b"},
            note="not the answer",
        )
        await ann.event(session_id, "RUN_FINISHED", 2)
        assert '"answer": "b"' in str(gateway.requests[1].messages)


async def test_message_while_a_question_is_open_is_queued_or_refused(
    tmp_path: Path, sqlite_url: str, config: str
) -> None:
    async with (
        serve_gateway([WRITE], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config) as place,
        open_client(place.url, token=ANN) as ann,
    ):
        session_id = await place.session()
        await start(ann, session_id)
        said = {"session": session_id, "content": "more"}
        queued = await ann.request("run.start", clientMsgId="m2", **said)
        assert queued["queued"]["position"] == 1
        with pytest.raises(WireError) as refused:
            await ann.request("run.start", clientMsgId="m3", whenBusy="reject", **said)
        assert refused.value.code == "interrupts_pending"
        stopped = await ann.request("run.cancel", session=session_id)
        assert stopped["state"] == "cancelling"
        end = await ann.event(session_id, "RUN_FINISHED", 2)
        assert end["outcome"]["type"] == "cancelled"


def asked(session_id: str, run_id: str, *entries: dict[str, Any]) -> dict[str, Any]:
    """A `RunAgentInput` that answers."""
    return {
        "threadId": session_id,
        "runId": run_id,
        "messages": [],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
        "resume": list(entries),
    }


async def resume(place: Place, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that an answer over HTTP is answered with."""
    async with open_stream(place, "/agui", json=body) as stream:
        found = []
        while (sent := await stream.next()) is not None:
            found.append(sent.event)
        return found


async def test_agui_resume_has_to_cover_what_waits_and_goes_on_once(
    tmp_path: Path, sqlite_url: str, config: str
) -> None:
    async with (
        serve_gateway([WRITE, reply("done")], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config) as place,
        open_client(place.url, token=ANN) as ann,
    ):
        session_id = await place.session()
        interrupt = await start(ann, session_id)
        wrong = {"interruptId": "other", "status": "resolved", "payload": {"approved": True}}
        [error] = await resume(place, asked(session_id, "r1", wrong))
        assert (error["type"], error["code"]) == ("RUN_ERROR", "interrupt_mismatch")
        right = {**wrong, "interruptId": interrupt["id"]}
        for payload in ("no, do not do that", {"answer": "no"}, {"approved": "yes"}, None):
            odd = {**right, "payload": payload}
            async with open_stream(place, "/agui", json=asked(session_id, "r0", odd)) as stream:
                assert stream.response.status == 400
        events = await resume(place, asked(session_id, "r2", right))
        assert events[0]["type"] == "RUN_STARTED"
        assert events[-1]["outcome"] == {"type": "success"}
        again = await resume(place, asked(session_id, "r2", right))
        assert [event["type"] for event in again] == [event["type"] for event in events]
        [error] = await resume(place, asked(session_id, "r3", right))
        assert error["code"] == "interrupt_mismatch"
        assert len(gateway.requests) == 2


async def test_agui_client_that_cancels_the_question_ends_the_run(
    tmp_path: Path, sqlite_url: str, config: str
) -> None:
    async with (
        serve_gateway([WRITE], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config) as place,
        open_client(place.url, token=ANN) as ann,
    ):
        session_id = await place.session()
        interrupt = await start(ann, session_id)
        entry = {"interruptId": interrupt["id"], "status": "cancelled"}
        events = await resume(place, asked(session_id, "r1", entry))
        assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_agui_answers_count_only_if_each_has_the_form_that_was_asked_for(
    tmp_path: Path, sqlite_url: str, config: str
) -> None:
    both = reply(calls=[*WRITE.calls, *ASK.calls])
    async with (
        serve_gateway([both, reply("done")], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config) as place,
        open_client(place.url, token=ANN) as ann,
    ):
        session_id = await place.session()
        await start(ann, session_id)
        state = await place.state["inbox"].state_of(session_id)
        gate, question = [approval.interrupt.id for approval in state.approvals]
        refused = {"approved": False, "note": None}
        entries: list[dict[str, Any]] = [
            {"interruptId": gate, "status": "resolved", "payload": refused},
            {"interruptId": question, "status": "resolved", "payload": " "},
        ]
        async with open_stream(place, "/agui", json=asked(session_id, "r1", *entries)) as stream:
            assert stream.response.status == 400
        entries[1]["payload"] = "a"
        events = await resume(place, asked(session_id, "r2", *entries))
        assert events[-1]["outcome"] == {"type": "success"}
        [denied] = [m for m in gateway.requests[1].messages if "denied" in str(m["content"])]
        assert "None" not in denied["content"]


async def test_real_client_takes_an_interrupt_and_answers_it(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_url: str, config: str
) -> None:
    agui: AguiClient = await installed_client(Path(request.config.cache.mkdir("agui_client")))
    async with (
        serve_gateway([WRITE, reply("done")], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=config) as place,
    ):
        turns: list[dict[str, object]] = [
            {"id": "m1", "text": "go"},
            {"resume": {"approved": True}},
        ]
        result = await agui.converse(place.url, ANN, "thread", turns)
        first, second = result["turns"]
        assert first["failure"] is None
        assert first["types"][-1] == "RUN_FINISHED"
        assert second["failure"] is None, second
        assert second["types"][-1] == "RUN_FINISHED"
        assert second["messages"][-1]["content"] == "done"
        assert (place.state["settings"].workspace / "a.txt").exists()
