"""What a restart finds and goes on with: the same requests, the same streak, no call twice."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import TupleRow

from channels.port import ChatAddress
from server.ending import write_ending
from server.errors import Fenced, StoreUnavailable
from server.message import Message
from server.outcome import ending_of
from server.store.engine import open_store
from server.store.messages import append_messages
from server.store.runs import running
from tests.fakes.llm import NEVER, Quirks, Recorded, call, forever, reply, serve_gateway
from tests.house import House, assert_prefixes, is_title, notices_in, open_house, settings_for
from tests.waiting import until

SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
HANG = reply("…", quirks=Quirks(before_headers=NEVER))


async def test_streak_goes_on_after_a_restart(tmp_path: Path, database_url: str) -> None:
    script = [*[SEARCH] * 12, HANG, *[SEARCH] * 3]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(13)
        async with open_house(settings) as house:
            events = await house.ended(session)
            assert events[-1]["code"] == "no_progress_loop"
            [run] = await house.runs(session)
            assert run.attempt == 2
            assert run.rounds == 15
        requests = gateway.requests
        assert requests[12].body == requests[13].body
        assert_prefixes(requests)
        assert [len(notices_in(r)) for r in requests] == [0] * 5 + [1] * 5 + [2] * 6


async def test_next_turn_after_a_restart_extends_the_last_request(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = [*[SEARCH] * 6, reply("nothing found"), reply("again nothing")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
        async with open_house(settings) as house:
            await house.ask(session, "and now?")
        assert_prefixes(gateway.requests)
        assert len(notices_in(gateway.requests[-1])) == 1


async def test_reply_that_was_stored_whole_ends_the_run_without_another_call(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with serve_gateway([HANG], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(1)
            answer = await _stored_answer(house, session.id)
        async with open_house(settings) as house:
            events = await house.ended(session)
            assert events[-1]["type"] == "RUN_FINISHED"
            assert (await house.messages(session))[-1].text == answer


async def _stored_answer(house: House, session_id: str) -> str:
    """Store an answer as a process does that dies before it writes the outcome."""
    async with house.state["store"].write() as db:
        run = await running(db, session_id)
        assert run is not None
        answer = Message("answer-1", "assistant", "all done", datetime.now(UTC), run_id=run.id)
        await append_messages(db, session_id, [answer])
    return answer.text


async def test_tail_at_fifteen_ends_the_run_without_another_call(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with serve_gateway(forever(SEARCH), title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
        await _forget_the_outcome(sqlite_url)
        async with open_house(settings) as house:
            events = await house.ended(session)
            assert events[-1]["code"] == "no_progress_loop"
            assert "(grep_search)" in events[-1]["message"]
        assert len(gateway.requests) == 15


async def _forget_the_outcome(url: str) -> None:
    """Leave the run as it stood when its last round had just been closed."""
    async with open_store(url) as store, store.write() as db:
        await db.execute(
            sa.text(
                "UPDATE run SET status='RUNNING', outcome_code=NULL, lease_owner='gone', "
                "lease_until='1970-01-01 00:00:00'"
            )
        )
        await db.execute(sa.text("UPDATE session SET status='RUNNING'"))


async def test_open_round_runs_reads_again_and_no_write(tmp_path: Path, sqlite_url: str) -> None:
    calls = [
        call("list_dir", {"path": "."}),
        call("shell", {"action": "run", "command": "echo once >> log; sleep 60"}),
    ]
    async with serve_gateway([reply(calls=calls), reply("done")], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await _until_written(house.workspace / "log")
        async with open_house(settings) as house:
            events = await house.ended(session)
            assert events[-1]["type"] == "RUN_FINISHED"
            assert (house.workspace / "log").read_text() == "once\n"
            [listing, shell] = [m for m in await house.messages(session) if m.role == "tool"]
        assert "log" in listing.text
        told = json.loads(shell.text)
        assert "its shell has ended" in told.pop("detail")
        assert told == {
            "error": "interrupted",
            "message": "outcome unknown, verify before repeating",
        }
        assert shell.evidence is not None
        assert shell.evidence.harness
        assert _results(gateway.requests[-1]) == [listing.text, shell.text]


def _results(request: Recorded) -> list[str]:
    return [message["content"] for message in request.messages if message["role"] == "tool"]


async def _until_written(path: Path) -> None:
    async def is_there() -> bool:
        return await asyncio.to_thread(path.exists)

    await until(is_there)


async def test_failing_on_restart_tells_so_once(tmp_path: Path, database_url: str) -> None:
    async with serve_gateway([SEARCH, HANG], title=is_title) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url, HEADWAY_ON_RESTART="fail")
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(2)
        async with open_house(settings) as house:
            events = await house.ended(session)
            assert events[-1]["code"] == "server_restart"
            stored = await house.settled(session)
            assert stored.status == "FAILED"
            assert stored.execution_error is not None
            assert stored.execution_error.code == "server_restart"
        async with open_house(settings) as house:
            assert house.events(session) == []
            assert (await house.session(session)).status == "FAILED"


async def test_retry_after_an_abort_begins_without_a_streak(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = [*[SEARCH] * 15, *[SEARCH] * 4, reply("done")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "go", message_id="m1")
        events = await house.ask(session, "", key="retry", retry_of="m1")
        assert events[-1]["type"] == "RUN_FINISHED"
        assert not any(notices_in(request) for request in gateway.requests[15:])
        assert gateway.requests[15].body == gateway.requests[0].body
        history = await house.messages(session)
        assert [m.role for m in history].count("assistant") == 5
        assert (await house.session(session)).execution_error is None


async def test_rewritten_results_change_no_verdict(tmp_path: Path, sqlite_url: str) -> None:
    script = [*[SEARCH] * 12, HANG, *[SEARCH] * 3]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(13)
        await _rewrite_results(sqlite_url)
        async with open_house(settings) as house:
            events = await house.ended(session)
            assert events[-1]["code"] == "no_progress_loop"
        assert len(gateway.requests) == 16


async def test_steered_message_joins_the_run_that_a_restart_resumed(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = [HANG, SEARCH, reply("done")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(1)
            await house.say(session, "look elsewhere", when_busy="steer")
        async with open_house(settings) as house:
            await house.ended(session)
            assert gateway.requests[2].messages[-1]["content"] == "look elsewhere"
            assert (await house.state["inbox"].state_of(session.id)).queue == ()


async def test_queue_that_stood_when_a_server_stopped_goes_on_beside_other_processes(
    tmp_path: Path, postgres_url: str
) -> None:
    ends_in_grace = reply("first", quirks=Quirks(before_headers=0.5))
    async with serve_gateway([ends_in_grace, reply("second")], title=is_title) as gateway:
        settings = settings_for(tmp_path, postgres_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "one")
            await gateway.wait_for_requests(1)
            await house.say(session, "two")
        async with open_house(settings) as house:
            await house.ended(session)
            said = [m.text for m in await house.messages(session)]
            assert said == ["one", "first", "two", "second"]


async def test_outcome_whose_commit_was_not_acknowledged_is_written_once(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        serve_gateway([reply("done")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        store, session = house.state["store"], await house.create()
        await house.ask(session, "go", chat=ChatAddress("test", "app1", "c1"))
        [run] = await house.runs(session)
        again = ending_of(StoreUnavailable("gone"), "en").outcome(run, None, "scripted")
        written = await write_ending(store, run, again)
        assert written.session.status == "COMPLETED"
        assert (await house.run(run.id)).outcome_code == "completed"
        async with store.read() as db:
            assert await db.scalar(sa.text("SELECT count(*) FROM outbox")) == 1
        with pytest.raises(Fenced):
            await write_ending(store, replace(run, attempt=2), again)


async def test_last_words_whose_commit_was_not_acknowledged_are_said_all_the_same(
    tmp_path: Path, database_url: str
) -> None:
    hand_off = reply(calls=[call("hand_off", {"reason": "needs a right"})])
    async with (
        serve_gateway([hand_off], title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        store, session = house.state["store"], await house.create()
        await house.ask(session, "go")
        [run] = await house.runs(session)
        last = (await house.messages(session))[-1]
        outcome = ending_of(StoreUnavailable("gone"), "en").outcome(run, None, "scripted")
        written = await write_ending(store, run, outcome, last)
        assert written.last_messages == (last,)
        assert (await house.messages(session))[-1] == last


async def _rewrite_results(url: str) -> None:
    async with open_store(url) as store, store.write() as db:
        await db.execute(
            sa.text("UPDATE message SET content='[old result] ' || seq WHERE role='tool'")
        )


async def test_run_that_was_cut_too_often_is_given_up(tmp_path: Path, sqlite_url: str) -> None:
    async with serve_gateway([HANG], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(1)
        async with open_store(sqlite_url) as store, store.write() as db:
            await db.execute(sa.text("UPDATE run SET attempt = 10 + rounds"))
        async with open_house(settings) as house:
            events = await house.ended(session)
            assert events[-1]["code"] == "server_restart"


_WAIT_AT_COMMIT = b"""
CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT ON message
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.role = 'assistant')
EXECUTE FUNCTION wait_at_commit();
"""


async def test_run_that_is_cut_while_its_round_is_committed_goes_on_from_that_round(
    tmp_path: Path, postgres_url: str
) -> None:
    async with serve_gateway([reply("all done")], title=is_title) as gateway:
        settings = settings_for(tmp_path, postgres_url, gateway.url)
        async with (
            open_house(settings) as house,
            await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other,
        ):
            await other.execute(_WAIT_AT_COMMIT)
            await other.execute("SELECT pg_advisory_lock(1)")
            session = await house.create()
            run_id = (await house.say(session, "go")).run_id
            await until(lambda: _is_committing(other))
            [task] = [task for task in asyncio.all_tasks() if task.get_name() == f"run-{run_id}"]
            task.cancel()
            await asyncio.sleep(0)  # the task hears of it while it waits for the commit
            await other.execute("SELECT pg_advisory_unlock(1)")
            await asyncio.wait({task})
            assert task.cancelled()
            assert (await house.run(run_id)).status == "RUNNING"
            names = [event.get("name") for event in house.events(session)]
            assert "headway.discarded" not in names
        async with open_house(settings) as house:
            await house.ended(session)
            assert (await house.run(run_id)).status == "COMPLETED"
            said = [message.text for message in await house.messages(session)]
            assert said == ["go", "all done"]


async def _is_committing(db: "psycopg.AsyncConnection[TupleRow]") -> bool:
    """Whether a transaction has come to its end, where the trigger holds it."""
    waiting = await db.execute("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    return await waiting.fetchone() is not None
