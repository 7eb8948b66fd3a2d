"""A stop in mid-run: clients are told, nothing is left behind, the next start goes on."""

import asyncio
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.process import ADMIN, ANN, BOB, GATEWAY_KEY, Installation, open_server
from tests.fakes.llm import NEVER, Play, Quirks, call, refuse, reply, serve_gateway
from tests.house import is_title
from tests.waiting import until
from tests.wire import WireClient, open_client

SESSION = "s"
MARKS = ("mark-argument", "mark-result", "mark-message", "mark-reply", "mark-upstream")
SLEEPER = "echo $$ > pid; sleep 300 & echo $! >> pid; wait"


async def ask(client: WireClient, text: str) -> str:
    """Send a message in the session, followed from here on; the id of its run."""
    await client.request("session.create", session=SESSION)
    await client.subscribe(SESSION)
    answer = await client.request("run.start", session=SESSION, clientMsgId="m1", content=text)
    return str(answer["runId"])


async def assert_told_to_come_back(client: WireClient) -> None:
    """The client got the notice before its socket was closed for a restart."""
    assert await client.over() == 1012
    notice: dict[str, Any] = await client.frame("notice")
    assert notice["code"] == "server_restart"
    assert notice["retryAfterMs"] > 0


async def test_a_stop_while_the_model_speaks_is_told_and_the_run_goes_on_at_the_next_start(
    tmp_path: Path,
) -> None:
    cut = reply("never to be whole", quirks=Quirks(hold_at=2, hold=NEVER))
    async with serve_gateway([cut, reply("whole")], title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url)
        async with open_server(place) as server:
            async with (
                open_client(server.url, token=ANN) as client,
                open_client(server.url, token=BOB) as idle,
            ):
                run_id = await ask(client, "go")
                await client.event(SESSION, "TEXT_MESSAGE_CONTENT")
                assert await server.sigterm() < 5
                await assert_told_to_come_back(client)
                await assert_told_to_come_back(idle)
                assert "RUN_ERROR" not in client.order
        async with open_server(place) as server:
            async with open_client(server.url, token=ANN) as client:
                shown = await client.subscribe(SESSION)
                assert [m["role"] for m in shown["messages"]][:1] == ["user"]
                await until_completed(server.session)
                _, run = await server.get(f"/api/runs/{run_id}")
                assert (run["attempt"], run["status"]) == (2, "COMPLETED")
                said = [(m["role"], m["content"]) for m in await server.messages(SESSION)]
                assert said == [("user", "go"), ("assistant", "whole")]


async def until_completed(session: Any) -> None:
    async def is_completed() -> bool:
        return bool((await session(SESSION))["status"] == "COMPLETED")

    await until(is_completed)


async def test_a_stop_while_a_command_runs_leaves_no_process_and_its_call_has_one_answer(
    tmp_path: Path,
) -> None:
    sleeper = reply(calls=[call("shell", {"action": "run", "command": SLEEPER})])
    async with serve_gateway([sleeper, reply("done")], title=is_title) as gateway:
        place = Installation(tmp_path, gateway.url)
        async with open_server(place) as server:
            async with open_client(server.url, token=ANN) as client:
                run_id = await ask(client, "go")
                pids = await two_pids(place.workspace / "pid")
                assert await server.sigterm() < 5
                await assert_told_to_come_back(client)
        assert not any(map(is_alive, pids))
        async with open_server(place) as server:
            await until_completed(server.session)
            _, run = await server.get(f"/api/runs/{run_id}")
            assert run["attempt"] == 2
            [result] = [m for m in await server.messages(SESSION) if m["role"] == "tool"]
            assert '"error":"interrupted"' in result["content"]
            assert result["isError"]


async def two_pids(path: Path) -> list[int]:
    def read() -> list[int]:
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    async def are_there() -> bool:
        return len(await asyncio.to_thread(read)) == 2

    await until(are_there)
    return await asyncio.to_thread(read)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_stop_waits_for_no_client_that_takes_nothing(tmp_path: Path) -> None:
    flood = reply("水" * 2_000_000, quirks=Quirks(piece_chars=100_000))
    async with serve_gateway([flood], title=is_title, strict=False) as gateway:
        async with open_server(Installation(tmp_path, gateway.url)) as server:
            async with open_client(server.url, token=ANN) as client:
                await client.request("session.create", session=SESSION)
                await client.subscribe(SESSION)
                client.socket.transport.pause_reading()
                async with open_client(server.url, token=ANN) as other:
                    await ask(other, "go")
                    await other.event(SESSION, "RUN_FINISHED")
                assert (await server.sigterm()) < 5
                client.socket.transport.abort()


async def test_the_whole_log_at_debug_has_no_words_results_or_secrets_in_it(
    tmp_path: Path,
) -> None:
    command = "echo mark-argument >&2; cat secret.txt"
    script: list[Play] = [
        reply("mark-reply", calls=[call("shell", {"action": "run", "command": command})]),
        reply(calls=[call("read_file", {"path": "mark-argument.txt"}), call("mark-argument", "{")]),
        refuse(500, "mark-upstream", retry_after="0"),
        refuse(400, "mark-upstream"),
    ]
    async with serve_gateway(script, title=is_title, title_play=reply("mark-reply")) as gateway:
        place = Installation(tmp_path, gateway.url)
        await asyncio.to_thread(place.workspace.mkdir, parents=True)
        (place.workspace / "secret.txt").write_text("mark-result\n")
        async with open_server(place) as server:
            async with open_client(server.url, token=ANN) as client:
                await ask(client, "mark-message")
                end = await client.event(SESSION, "RUN_ERROR")
                told = str(client.followed[SESSION].events)
                await client.request("session.create", title="mark-message")
            await server.get("/api/sessions?token=mark-message", token="mark-argument")
            await server.get("/readyz")
            assert await server.sigterm() < 5
    assert "mark-upstream" not in str(end)
    assert "mark-result" in told
    log = place.log
    assert "level=DEBUG" in log
    for words in (*MARKS, GATEWAY_KEY, ADMIN, ANN, BOB):
        assert words not in log, words
