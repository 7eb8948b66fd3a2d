"""The progress contract of one run, over the socket and AG-UI, and what run has which."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server.store.runs import Run, list_runs
from server.ws import wire
from tests.fakes.llm import Quirks, call, reply, serve_gateway
from tests.house import is_title
from tests.server.contracts import TWO_SOURCES
from tests.server.ws.place import ANN, Place, open_place
from tests.server.ws.test_sse import open_stream
from tests.wire import WireClient, WireError, open_client

OWN = {**TWO_SOURCES, "id": "own"}
WRONG = {**TWO_SOURCES, "stop_after": 0}


async def runs_of(place: Place, session_id: str) -> list[Run]:
    """The session's runs, newest first."""
    async with place.state["store"].read() as db:
        return await list_runs(db, session_id, 100)


async def ids_of(place: Place, session_id: str) -> list[str | None]:
    """The contracts of the session's runs, in the order in which they were asked for."""
    runs = (await runs_of(place, session_id))[::-1]
    given = [run.input.contract if run.input is not None else None for run in runs]
    return [None if one is None else str(one["id"]) for one in given]


async def say(client: WireClient, session_id: str, message_id: str, **more: Any) -> Any:
    """Send a message and wait until its run is over."""
    ended = sum(kind == "RUN_FINISHED" for kind in client.followed[session_id].kinds)
    words = {} if "retryOf" in more else {"content": "hello"}
    result = await client.request(
        "run.start", session=session_id, clientMsgId=message_id, **words, **more
    )
    await client.event(session_id, "RUN_FINISHED", ended + 1)
    return result


async def test_the_message_s_contract_comes_before_the_session_s(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        session = await client.request("session.create", contract=TWO_SOURCES)
        assert session["contract"] == TWO_SOURCES
        await client.subscribe(session["id"])
        await say(client, session["id"], "m1")
        await say(client, session["id"], "m2", contract=OWN)
        await say(client, session["id"], "m3")
        await say(client, session["id"], "m4", retryOf="m2")
        await say(client, session["id"], "m5", editOf="m1")
        contracts = await ids_of(place, session["id"])
    assert contracts == ["two-sources", "own", "two-sources", "own", "two-sources"]


async def test_a_run_keeps_the_contract_that_it_was_queued_with(
    tmp_path: Path, sqlite_url: str
) -> None:
    gate = asyncio.Event()
    script = [reply("first", quirks=Quirks(before_body=gate)), reply("second"), reply("third")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
        open_client(place.url, token=ANN) as client,
    ):
        session = await client.request("session.create", contract=TWO_SOURCES)
        session_id = session["id"]
        await client.subscribe(session_id)
        for number, contract in enumerate((OWN, None, OWN), start=1):
            given = None if contract is None else json.dumps(contract)
            await client.request(
                "run.start", session=session_id, clientMsgId=f"m{number}", content="hello"
            )
            await place.state["inbox"].set_contract(session_id, given)
        gate.set()
        await client.event(session_id, "RUN_FINISHED", 3)
        assert await ids_of(place, session_id) == ["two-sources", "own", None]


async def test_a_run_goes_on_with_its_contract_after_an_answer(
    tmp_path: Path, sqlite_url: str
) -> None:
    ask = reply(calls=[call("ask_user", {"question": "which?"})])
    async with (
        serve_gateway([ask, reply("done")], title=is_title) as gateway,
        open_place(tmp_path, sqlite_url, gateway.url) as place,
        open_client(place.url, token=ANN) as client,
    ):
        session_id = await place.session()
        await client.subscribe(session_id)
        await say(client, session_id, "m1", contract=OWN)
        waiting = await client.event(session_id, "RUN_FINISHED")
        await client.request(
            "approval.respond",
            session=session_id,
            interruptId=waiting["outcome"]["interrupts"][0]["id"],
            decision="approve",
            payload="the first",
        )
        await client.event(session_id, "RUN_FINISHED", 2)
        assert await ids_of(place, session_id) == ["own", "own"]


async def test_a_wrong_contract_is_refused_and_nothing_is_kept(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        with pytest.raises(WireError) as refused:
            await client.request("session.create", session="s1", contract=WRONG)
        assert (refused.value.code, refused.value.details["path"]) == (
            "bad_request",
            "contract.stop_after",
        )
        await client.request("session.create", session="s1")
        for contract, path in (
            (WRONG, "contract.stop_after"),
            ({**TWO_SOURCES, "items": [{"id": "a"}]}, "contract.items[0]"),
            ("two-sources", "contract"),
        ):
            with pytest.raises(WireError) as refused:
                await client.request(
                    "run.start", session="s1", clientMsgId="m1", content="x", contract=contract
                )
            assert refused.value.code == "bad_request"
            assert refused.value.details["path"] == path
        assert await runs_of(place, "s1") == []


async def test_a_message_that_joins_a_run_has_no_contract(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        await client.request("session.create", session="s1")
        with pytest.raises(WireError) as refused:
            await client.request(
                "run.start",
                session="s1",
                clientMsgId="m1",
                content="x",
                whenBusy="steer",
                contract=TWO_SOURCES,
            )
        assert refused.value.details["path"] == "contract"
        assert await runs_of(place, "s1") == []


async def test_a_side_question_is_not_held_to_the_session_s_contract(place: Place) -> None:
    async with open_client(place.url, token=ANN) as client:
        session = await client.request("session.create", contract=TWO_SOURCES)
        await client.subscribe(session["id"])
        await say(client, session["id"], "m1")
        side = await client.request(
            "sideline.start", session=session["id"], clientMsgId="q1", content="how far?"
        )
        assert await ids_of(place, side["session"]) == [None]


async def test_the_published_schema_has_the_contract(place: Place) -> None:
    async with open_client(place.url, token=ANN):
        schema = wire.schema()
    definitions = schema["$defs"]
    assert definitions["ProgressContract"]["required"] == ["id"]
    assert definitions["ProgressContract"]["additionalProperties"] is False
    reference = {"$ref": "#/$defs/ProgressContract"}
    for name in ("StartRun", "CreateSession", "SessionObject"):
        assert reference in definitions[name]["properties"]["contract"]["anyOf"], name


def asked(run_id: str, contract: object) -> dict[str, Any]:
    """The input of an AG-UI client."""
    return {
        "threadId": "t1",
        "runId": run_id,
        "state": {},
        "messages": [{"id": run_id, "role": "user", "content": "hello"}],
        "tools": [],
        "context": [],
        "forwardedProps": {"contract": contract},
    }


async def test_agui_gives_a_contract_in_its_forwarded_props(place: Place) -> None:
    async with open_stream(place, "/agui", json=asked("r1", OWN)) as stream:
        sent = await stream.until("RUN_FINISHED")
    session_id = sent[0].event["threadId"]
    assert await ids_of(place, session_id) == ["own"]


async def test_agui_refuses_a_wrong_contract_before_there_is_a_thread(place: Place) -> None:
    headers = {"Authorization": f"Bearer {ANN}"}
    async with (
        aiohttp.ClientSession(place.url, headers=headers) as http,
        http.post("/agui", json=asked("r1", WRONG)) as response,
    ):
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (400, "bad_request")
        assert error["details"]["path"] == "forwardedProps.contract.stop_after"
        async with http.get("/api/sessions") as listed:
            assert (await listed.json())["sessions"] == []
