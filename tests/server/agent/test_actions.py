"""Calls that write are stored before they begin, and none is repeated that was done."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from server.agent.calls import CANCELLED_RESULT
from server.approvals import Word
from server.message import Message
from server.store.sessions import Session
from server.tools.base import INTERRUPTED_RESULT
from tests.fakes.llm import NEVER, Play, Quirks, call, reply, serve_gateway
from tests.fakes.llm_wire import ScriptedCall
from tests.house import House, is_title, open_house, settings_for
from tests.server.agent.reopened import actions_of, change, reopen_last_round, states
from tests.waiting import until

A = call("write_file", {"path": "a.txt", "content": "a\n"})
B = call("write_file", {"path": "b.txt", "content": "b\n"})
DONE = reply("done")
HANG = reply("…", quirks=Quirks(before_headers=NEVER))


async def results(house: House, session: Session) -> list[Message]:
    return [message for message in await house.messages(session) if message.role == "tool"]


async def play(
    folder: Path, url: str, calls: Sequence[ScriptedCall], **variables: str
) -> tuple[Session, list[Message]]:
    """A session whose only round made these calls and was closed; its results."""
    async with serve_gateway([reply(calls=calls), DONE], title=is_title) as gateway:
        settings = settings_for(folder, url, gateway.url, **variables)
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            return session, await results(house, session)


async def restarted(
    folder: Path, url: str, session: Session, **variables: str
) -> tuple[list[Message], list[str]]:
    """Results and states of the actions after a restart that goes on with the open round."""
    async with serve_gateway([DONE], title=is_title, strict=False) as gateway:
        settings = settings_for(folder, url, gateway.url, **variables)
        async with open_house(settings) as house:
            await house.ended(session)
            return await results(house, session), await states(house, session.id)


def is_of_the_harness(message: Message) -> bool:
    return message.evidence is not None and message.evidence.harness


async def test_call_that_writes_is_stored_before_it_begins_and_closed_with_its_round(
    tmp_path: Path, database_url: str
) -> None:
    hold = call("shell", {"action": "run", "command": "touch begun; until [ -e go ]; do :; done"})
    script = [reply(calls=[A, call("list_dir", {"path": "."}), hold]), DONE]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session, store = await house.create(), house.state["store"]
        await house.say(session, "go")

        async def has_begun() -> bool:
            return (house.workspace / "begun").exists()

        await until(has_begun)
        [asked] = [m for m in await house.messages(session) if m.role == "assistant"]
        call_ids = [one.id for one in asked.tool_calls]
        wrote, listed, ran = await actions_of(store, session.id, call_ids)
        assert wrote is not None
        assert wrote.mark.startswith("absent ")
        assert ran is not None
        assert (wrote.state, listed, ran.state) == ("STARTED", None, "STARTED")
        assert (ran.tool_name, ran.run_id) == ("shell", asked.run_id)
        (house.workspace / "go").touch()
        await house.ended(session)
        wrote, listed, ran = await actions_of(store, session.id, call_ids)
        assert wrote is not None
        assert ran is not None
        assert (wrote.state, listed, ran.state) == ("DONE", None, "DONE")
        assert wrote.ended_at is not None


async def test_call_that_cannot_begin_leaves_nothing(tmp_path: Path, sqlite_url: str) -> None:
    out = call("write_file", {"path": "../x", "content": ""})
    session, [result] = await play(tmp_path, sqlite_url, [out])
    assert json.loads(result.text)["error"] == "outside_workspace"
    assert not is_of_the_harness(result)
    async with open_house(settings_for(tmp_path, sqlite_url, None)) as house:
        assert await states(house, session.id) == []


async def test_stop_leaves_what_was_under_way_unknown(tmp_path: Path, sqlite_url: str) -> None:
    hold = call("shell", {"action": "run", "command": "touch begun; sleep 60"})
    async with (
        serve_gateway([reply(calls=[A, hold, B])], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        submitted = await house.say(session, "go")

        async def has_begun() -> bool:
            return (house.workspace / "begun").exists()

        await until(has_begun)
        await house.state["inbox"].cancel(session.id, submitted.run_id, "ann")
        await house.ended(session)
        written, ran, never = await results(house, session)
        assert not is_of_the_harness(written)
        assert ran.text == never.text == CANCELLED_RESULT
        assert await states(house, session.id) == ["DONE", "UNKNOWN"]
        assert not (house.workspace / "b.txt").exists()


async def test_call_that_was_done_is_not_done_again_and_counts(
    tmp_path: Path, database_url: str
) -> None:
    script: list[Play] = [*[reply(calls=[A])] * 6, HANG]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(7)
            before = (house.workspace / "a.txt").stat()
    await reopen_last_round(database_url)
    async with serve_gateway([DONE], title=is_title) as again:
        settings = settings_for(tmp_path, database_url, again.url)
        async with open_house(settings) as house:
            await house.ended(session)
            [run] = await house.runs(session)
            assert [one.streak for one in await house.decisions(run.id)] == [1, 2, 3, 4, 5, 6]
            told = {message.text for message in await results(house, session)}
            assert told == {'{"success": true, "path": "a.txt", "bytes": 2}'}
            assert set(await states(house, session.id)) == {"DONE"}
            assert (house.workspace / "a.txt").stat().st_ino == before.st_ino
    # The tools and their digest stand in every request; with the same results all is the same.
    assert again.requests[0].body == gateway.requests[6].body


async def test_call_that_never_began_is_run(tmp_path: Path, sqlite_url: str) -> None:
    session, [told] = await play(tmp_path, sqlite_url, [A])
    await reopen_last_round(sqlite_url)
    await change(sqlite_url, "DELETE FROM action")
    place = tmp_path / "workspace" / "a.txt"
    place.unlink()
    [result], known = await restarted(tmp_path, sqlite_url, session)
    assert result.text == told.text
    assert place.read_text() == "a\n"
    assert known == ["DONE"]


async def test_call_that_began_and_did_nothing_is_run(tmp_path: Path, database_url: str) -> None:
    session, [told] = await play(tmp_path, database_url, [A])
    await reopen_last_round(database_url)
    place = tmp_path / "workspace" / "a.txt"
    place.unlink()
    [result], known = await restarted(tmp_path, database_url, session)
    assert result.text == told.text
    assert not is_of_the_harness(result)
    assert place.read_text() == "a\n"
    assert known == ["DONE"]


async def test_call_of_which_nobody_knows_is_told_and_not_repeated(
    tmp_path: Path, database_url: str
) -> None:
    session, _ = await play(tmp_path, database_url, [A])
    await reopen_last_round(database_url)
    place = tmp_path / "workspace" / "a.txt"
    place.write_text("of a third hand")
    [result], known = await restarted(tmp_path, database_url, session)
    assert result.text == INTERRUPTED_RESULT
    assert is_of_the_harness(result)
    assert place.read_text() == "of a third hand"
    assert known == ["UNKNOWN"]


async def test_call_that_seems_undone_but_was_followed_is_not_repeated(
    tmp_path: Path, sqlite_url: str
) -> None:
    """What followed it may have undone it, and it must not come after that."""
    undo = call("shell", {"action": "run", "command": "rm a.txt"})
    session, _ = await play(tmp_path, sqlite_url, [A, undo])
    await reopen_last_round(sqlite_url)
    [wrote, undid], known = await restarted(tmp_path, sqlite_url, session)
    assert wrote.text == INTERRUPTED_RESULT
    assert json.loads(undid.text)["exit_code"] == 0
    assert not (tmp_path / "workspace" / "a.txt").exists()
    assert known == ["UNKNOWN", "DONE"]


async def test_what_followed_the_cut_is_run_after_it_in_its_order(
    tmp_path: Path, sqlite_url: str
) -> None:
    calls = [A, call("shell", {"action": "run", "command": "cat a.txt >> log"}), B]
    session, _ = await play(tmp_path, sqlite_url, calls)
    await reopen_last_round(sqlite_url)
    await change(
        sqlite_url,
        "DELETE FROM action WHERE created_at > (SELECT min(created_at) FROM action)",
    )
    workspace = tmp_path / "workspace"
    for name in ("a.txt", "b.txt", "log"):
        (workspace / name).unlink()
    for trace in (workspace / ".headway" / "shell").glob("sh-*"):
        trace.unlink()
    _, known = await restarted(tmp_path, sqlite_url, session)
    assert (workspace / "log").read_text() == "a\n"
    assert (workspace / "b.txt").read_text() == "b\n"
    assert known == ["DONE", "DONE", "DONE"]


async def test_what_was_unknown_before_stays_unknown(tmp_path: Path, sqlite_url: str) -> None:
    session, _ = await play(tmp_path, sqlite_url, [A])
    await reopen_last_round(sqlite_url)
    await change(sqlite_url, "UPDATE action SET state='UNKNOWN'")
    [result], known = await restarted(tmp_path, sqlite_url, session)
    assert result.text == INTERRUPTED_RESULT
    assert known == ["UNKNOWN"]


async def test_command_that_had_ended_is_told_with_its_output(
    tmp_path: Path, sqlite_url: str
) -> None:
    run = call("shell", {"action": "run", "command": "echo once >> log; echo said"})
    session, [told] = await play(tmp_path, sqlite_url, [run])
    await reopen_last_round(sqlite_url)
    [result], known = await restarted(tmp_path, sqlite_url, session)
    assert json.loads(result.text)["output"] == "said\n"
    assert result.evidence is not None
    assert told.evidence is not None
    assert result.evidence.result_digest == told.evidence.result_digest
    assert (tmp_path / "workspace" / "log").read_text() == "once\n"
    assert known == ["DONE"]


async def test_command_that_was_announced_and_never_started_is_run(
    tmp_path: Path, sqlite_url: str
) -> None:
    run = call("shell", {"action": "run", "command": "echo once >> log"})
    session, _ = await play(tmp_path, sqlite_url, [run])
    await reopen_last_round(sqlite_url)
    workspace = tmp_path / "workspace"
    (workspace / "log").unlink()
    [output] = (workspace / ".headway" / "shell").glob("sh-*.out")
    output.rename(output.with_suffix(".ready"))
    output.with_suffix(".exit").unlink()
    [result], known = await restarted(tmp_path, sqlite_url, session)
    assert json.loads(result.text)["exit_code"] == 0
    assert (workspace / "log").read_text() == "once\n"
    assert known == ["DONE"]


@pytest.mark.parametrize("has_begun", [True, False])
async def test_calls_of_a_run_that_is_given_up_are_told_as_unknown(
    has_begun: bool, tmp_path: Path, sqlite_url: str
) -> None:
    session, _ = await play(tmp_path, sqlite_url, [A])
    await reopen_last_round(sqlite_url)
    if not has_begun:
        await change(sqlite_url, "DELETE FROM action")
    [result], known = await restarted(tmp_path, sqlite_url, session, HEADWAY_ON_RESTART="fail")
    assert result.text == INTERRUPTED_RESULT
    assert known == (["UNKNOWN"] if has_begun else [])


async def test_call_that_a_person_changed_is_looked_up_as_it_was_run(
    tmp_path: Path, sqlite_url: str
) -> None:
    config = tmp_path / "headway.toml"
    config.write_text('[approvals]\nweb = "writes"\n')
    edited = '{"path": "b.txt", "content": "b\\n"}'
    async with serve_gateway([reply(calls=[A]), DONE], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_CONFIG=str(config))
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            [asked] = (await house.state["inbox"].state_of(session.id)).approvals
            word = Word("approve", "ann", edited_arguments=edited)
            await house.state["approvals"].answer(asked.interrupt.id, word)
            await house.ended(session, 2)
            [told] = await results(house, session)
    await reopen_last_round(sqlite_url)
    place = tmp_path / "workspace" / "b.txt"
    before = place.stat().st_ino
    [result], known = await restarted(tmp_path, sqlite_url, session, HEADWAY_CONFIG=str(config))
    assert result.text == told.text
    assert "b.txt" in result.text
    assert place.stat().st_ino == before
    assert not (tmp_path / "workspace" / "a.txt").exists()
    assert known == ["DONE"]
