"""Side questions: what they inherit, and that neither session knows of the other's troubles."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from PIL import Image

from channels.port import Submitted
from server.errors import NotFound
from server.message import FilePart, Message, TextPart, Usage
from server.store.messages import append_messages, load_from, load_page
from server.store.sessions import Session, list_sessions, load_session
from tests.fakes.llm import NEVER, Quirks, Recorded, call, reply, serve_gateway
from tests.fakes.llm_wire import Play
from tests.house import House, is_title, notices_in, open_house, settings_for
from tests.waiting import until

SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])
SLEEP = reply(calls=[call("shell", {"action": "run", "command": "sleep 60"})])
HANG = reply("…", quirks=Quirks(before_headers=NEVER))


async def ask_aside(house: House, parent: Session, text: str, **given: Any) -> Session:
    """Ask a side question; the session in which it is answered."""
    submitted = await house.say(parent, text, is_sideline=True, **given)
    assert submitted.state == "started"
    return await child_of(house, submitted)


async def child_of(house: House, submitted: Submitted) -> Session:
    async with house.state["store"].read() as db:
        return await load_session(db, submitted.session_id)


def is_compaction(request: Recorded) -> bool:
    return "tools" not in request.json and "max_tokens" not in request.json


def messages_in(request: Recorded) -> bytes:
    """The messages as they were sent, without the closing bracket."""
    _, _, messages = request.body.partition(b'"messages":[')
    return messages.removesuffix(b"]}")


def assert_extends(later: Recorded, earlier: Recorded) -> None:
    assert messages_in(later).startswith(messages_in(earlier) + b",")
    assert later.json["tools"] == earlier.json["tools"]


async def test_a_side_question_extends_the_parents_last_request_with_its_notices(
    tmp_path: Path, database_url: str
) -> None:
    script = [*[SEARCH] * 6, reply("nothing found"), reply("because"), reply("and so on")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        parent = await house.create(title="named", model="own-model")
        await house.ask(parent, "go")
        before = await house.session(parent)
        child = await ask_aside(house, parent, "why?")
        await house.ended(child)
        parents_last, aside = gateway.requests[6:8]
        assert_extends(aside, parents_last)
        assert len(notices_in(aside)) == 1
        assert aside.messages[-1]["content"].endswith("</side-question>\nwhy?")
        assert "</side-question>" not in parents_last.body.decode()
        assert aside.json["model"] == "own-model"
        assert (child.kind, child.parent_session_id) == ("sideline", parent.id)
        assert (child.owner, child.locale, child.timezone, child.origin, child.model) == (
            *(parent.owner, parent.locale, parent.timezone, parent.origin, parent.model),
        )
        assert child.title == "why?"
        assert child.inherited_seq == 1 + 2 * 6 + 1
        assert await house.session(parent) == before
        await house.settled(child)
        await house.ask(child, "go on")
        assert_extends(gateway.requests[8], aside)
        assert gateway.requests[8].messages[-1]["content"] == "go on"


async def test_pictures_and_files_are_inherited(tmp_path: Path, sqlite_url: str) -> None:
    look = reply(calls=[call("view_image", {"path": "dot.png"})])
    async with (
        serve_gateway([look, reply("a dot"), reply("black")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        Image.new("RGB", (8, 8), "red").save(house.workspace / "dot.png")
        parent = await house.create()
        await house.ask(parent, "look")
        (house.workspace / "dot.png").unlink()
        await house.ended(await ask_aside(house, parent, "which colour?"))
        assert_extends(gateway.requests[2], gateway.requests[1])
        assert b"data:image/png;base64," in gateway.requests[2].body


async def test_an_open_round_is_left_out_and_the_answer_comes_while_a_tool_runs(
    tmp_path: Path, database_url: str
) -> None:
    script = [SEARCH, SLEEP, reply("it sleeps")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        parent = await house.create()
        await house.say(parent, "go")
        await until(lambda: _has_messages(house, parent, 4))
        messages = await house.messages(parent)
        state = await house.state["inbox"].state_of(parent.id)
        child = await ask_aside(house, parent, "what is it doing?")
        assert (await house.ended(child))[-1]["outcome"] == {"type": "success"}
        assert_extends(gateway.requests[2], gateway.requests[1])
        assert [m["role"] for m in gateway.requests[2].messages] == [
            *("system", "user", "assistant", "tool", "user")
        ]
        after = await house.state["inbox"].state_of(parent.id)
        assert (after.session, after.run, after.queue) == (state.session, state.run, ())
        assert await house.messages(parent) == messages
        assert await house.state["inbox"].cancel(parent.id, None, "ann")
        assert (await house.settled(parent)).status == "CANCELLED"
        assert (await house.session(child)).status == "COMPLETED"


async def test_a_side_question_that_the_guard_stops_leaves_the_parent_running(
    tmp_path: Path, database_url: str
) -> None:
    gate = asyncio.Event()
    first = reply("parent", quirks=Quirks(before_headers=gate))
    script = [first, *[SEARCH] * 15]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        parent = await house.create()
        await house.say(parent, "go")
        await gateway.wait_for_requests(1)
        child = await ask_aside(house, parent, "and this?")
        events = await house.ended(child)
        assert events[-1]["code"] == "no_progress_loop"
        assert (await house.settled(child)).status == "FAILED"
        running = await house.session(parent)
        assert (running.status, running.execution_error) == ("RUNNING", None)
        gate.set()
        await house.ended(parent)
        assert [m.text for m in await house.messages(parent)] == ["go", "parent"]
        assert (await house.settled(parent)).status == "COMPLETED"


async def test_a_parents_streak_does_not_go_on_in_a_side_question(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = [*[SEARCH] * 14, reply("gave up"), *[SEARCH] * 2, reply("found nothing")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        parent = await house.create()
        await house.ask(parent, "go")
        child = await ask_aside(house, parent, "look again")
        await house.ended(child)
        [run] = await house.runs(child)
        assert [d.streak for d in await house.decisions(run.id)] == [1, 2]
        assert (await house.settled(child)).status == "COMPLETED"


async def test_the_same_keys_are_one_side_question(tmp_path: Path, database_url: str) -> None:
    async with (
        serve_gateway([reply("parent"), reply("aside")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        parent = await house.create()
        await house.ask(parent, "go")
        answers = await asyncio.gather(
            *(house.say(parent, "why?", is_sideline=True, message_id="m") for _ in range(5))
        )
        [child_id] = {answer.session_id for answer in answers}
        assert len({answer.run_id for answer in answers}) == 1
        assert sum(answer.duplicate for answer in answers) == 4
        child = await child_of(house, answers[0])
        await house.ended(child)
        again = await house.say(parent, "why?", is_sideline=True, message_id="m")
        assert (again.session_id, again.duplicate) == (child_id, True)
        assert [m.id for m in await house.messages(child)][0] == "m"
        async with house.state["store"].read() as db:
            assert await db.scalar(sa.text("SELECT count(*) FROM session")) == 2


async def test_two_processes_make_one_side_question_of_the_same_keys(
    tmp_path: Path, postgres_url: str
) -> None:
    async with serve_gateway([reply("parent"), *[reply("aside")] * 8], title=is_title) as gateway:
        one_settings = settings_for(tmp_path / "one", postgres_url, gateway.url)
        two_settings = settings_for(tmp_path / "two", postgres_url, gateway.url)
        async with open_house(one_settings) as one, open_house(two_settings) as two:
            parent = await one.create()
            await one.ask(parent, "go")
            for number in range(8):
                answers = await asyncio.gather(
                    *(
                        house.say(parent, "why?", f"k{number}", is_sideline=True, message_id="m")
                        for house in (one, two, one, two)
                    )
                )
                assert len({(a.session_id, a.run_id) for a in answers}) == 1
                assert sum(answer.duplicate for answer in answers) == 3
                child = await child_of(one, answers[0])

                async def has_ended(child: Session = child) -> bool:
                    return (await one.session(child)).status == "COMPLETED"

                await until(has_ended)
            async with one.state["store"].read() as db:
                assert await db.scalar(sa.text("SELECT count(*) FROM session")) == 9


async def test_a_side_question_sees_the_history_up_to_the_message_it_names(
    tmp_path: Path, sqlite_url: str
) -> None:
    two_calls = reply(
        calls=[call("list_dir", {"path": "."}), call("grep_search", {"pattern": "x", "path": "."})]
    )
    script = [reply("one"), two_calls, reply("two"), *[reply("aside")] * 5]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        parent, other = await house.create(), await house.create()
        await house.ask(parent, "first")
        await house.ask(parent, "second")
        history = await house.messages(parent)
        assert [m.role for m in history] == [
            *("user", "assistant", "user", "assistant", "tool", "tool", "assistant")
        ]
        seen = {1: 2, 3: 3, 4: 3, 5: 6, 6: 7}
        for position, count in seen.items():
            child = await ask_aside(
                house, parent, f"from {position}", from_message=history[position].id
            )
            await house.ended(child)
            assert child.inherited_seq == count, f"up to message {position}"
            asked = gateway.requests[-1].messages
            assert len(asked) == 1 + count + 1
        aside = (await house.messages(child))[0]
        for session, message_id in ((parent, "none"), (parent, aside.id), (other, history[0].id)):
            with pytest.raises(NotFound):
                await house.say(session, "x", message_id, is_sideline=True, from_message=message_id)


async def test_what_is_inherited_is_no_part_of_the_chat(tmp_path: Path, sqlite_url: str) -> None:
    script = [reply("the secret word is plugh"), reply("sideways"), reply("again"), reply("edited")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        parent = await house.create(title="named")
        await house.ask(parent, "say it")
        child = await ask_aside(house, parent, "why?")
        await house.ended(child)
        await house.settled(child)
        assert [m.text for m in await house.messages(child)] == ["why?", "sideways"]
        async with house.state["store"].read() as db:
            for words, ids in (("plugh", {parent.id}), ("sideways", {child.id})):
                found = await list_sessions(db, "ann", before=None, limit=9, search=words)
                assert {session.id for session in found} == ids
            everything = await load_page(
                db, child.id, before_seq=None, limit=9, include_superseded=True
            )
            assert len(everything) == 2
        await until(lambda: _is_named(house, child))
        assert not any("plugh" in str(title.messages) for title in gateway.titles)
        inherited = (await house.prompt_messages(child))[0]
        for name in ("retry_of", "edit_of"):
            with pytest.raises(NotFound):
                await house.say(child, "x", name, **{name: inherited.id})
        [question, _] = await house.messages(child)
        await house.say(child, "", "again", retry_of=question.id)
        await house.ended(child, 2)
        await house.settled(child)
        await house.say(child, "how?", edit_of=question.id)
        await house.ended(child, 3)
        assert [m.text for m in await house.messages(child)] == ["how?", "edited"]
        prompt = [m.text for m in await house.prompt_messages(child)]
        assert prompt == ["say it", "the secret word is plugh", "how?", "edited"]


def _compacting(every: int) -> Any:
    rounds = 0

    def play(request: Recorded) -> Play:
        nonlocal rounds
        if is_compaction(request):
            return reply("SUMMARY")
        if str(request.messages[-1]["content"]).endswith("aside"):
            return reply("answered")
        rounds += 1
        if rounds > every:
            return HANG
        full = rounds == every
        return reply(calls=SEARCH.calls, usage=Usage(120_000 if full else 1_000, 0, 10))

    return play


async def test_a_summary_is_inherited_with_its_tail_and_what_it_kept(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        serve_gateway(_compacting(12), title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        parent = await house.create()
        await house.say(parent, "go")
        parents_last = await gateway.wait_for_requests(14)  # 12 rounds, a compaction, and a hang
        history = await house.messages(parent)
        child = await ask_aside(house, parent, "aside")
        await house.ended(child)
        assert len(notices_in(parents_last)) == 1, "that of round 10; 5 was left out with its round"
        assert_extends(gateway.requests[14], parents_last)
        assert not any(is_compaction(r) for r in gateway.requests[14:]), "nothing was full any more"
        async with house.state["store"].read() as db:
            kept = (await load_from(db, child.id, 0))[: child.inherited_seq]
        assert [m.seq for m in kept] == list(range(1, child.inherited_seq + 1))
        assert len(kept) > len(parents_last.messages), "with what reminders follow from"
        early = await ask_aside(house, parent, "early aside", from_message=history[3].id)
        await house.ended(early)
        assert early.inherited_seq == 3, "history before the summary is seen as it was"
        assert "SUMMARY" not in str(gateway.requests[15].messages)
        assert await house.state["inbox"].cancel(parent.id, None, "ann")
        await house.settled(parent)


async def test_a_side_question_is_compacted_like_any_session(
    tmp_path: Path, sqlite_url: str
) -> None:
    def play(request: Recorded) -> Play:
        return reply("SUMMARY" if is_compaction(request) else "long answer " * 50)

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        parent = await house.create()
        for number in range(3):
            await house.ask(parent, f"question {number}")
        child = await ask_aside(house, parent, "/compact")
        await house.ended(child)
        assert gateway.requests[-1].messages[-1]["content"].endswith("/compact"), "a question"
        await house.settled(child)
        await house.ask(child, "/compact")
        await house.settled(child)
        await house.ask(child, "and then?")
        asked = gateway.requests[-1].messages
        assert [m["role"] for m in asked] == ["system", "user", "user", "assistant", "user"]
        assert "SUMMARY" in asked[1]["content"]
        assert len(await house.prompt_messages(parent)) == 6
        grandchild = await ask_aside(house, child, "further aside")
        await house.ended(grandchild)
        assert_extends(gateway.requests[-1], gateway.requests[-2])


async def test_a_side_question_goes_on_after_each_restart(tmp_path: Path, sqlite_url: str) -> None:
    script = [reply("parent"), SEARCH, HANG, SEARCH, HANG, reply("aside")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            parent = await house.create()
            await house.ask(parent, "go")
            child = await ask_aside(house, parent, "why?")
            await gateway.wait_for_requests(3)
        async with open_house(settings) as house:
            await gateway.wait_for_requests(5)
        async with open_house(settings) as house:
            await house.ended(child)
            [run] = await house.runs(child)
            assert (run.attempt, run.rounds) == (3, 3)
            assert (await house.settled(child)).status == "COMPLETED"
            assert (await house.session(parent)).status == "COMPLETED"
        assert gateway.requests[2].body == gateway.requests[3].body
        assert gateway.requests[4].body == gateway.requests[5].body
        assert_extends(gateway.requests[5], gateway.requests[2])


async def test_deleting_a_session_stops_and_deletes_what_is_asked_aside(
    tmp_path: Path, database_url: str
) -> None:
    script = [reply("parent"), SLEEP, SLEEP]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        parent = await house.create()
        await house.ask(parent, "go")
        child = await ask_aside(house, parent, "why?")
        await until(lambda: _has_messages(house, child, 2))
        grandchild = await ask_aside(house, child, "and why?")
        await until(lambda: _has_messages(house, grandchild, 2))
        logs = [house.state["logs"].of(session.id) for session in (child, grandchild)]
        await house.state["inbox"].delete_session(parent.id)
        assert all(log.active is None for log in logs), "their runs have ended"
        async with house.state["store"].read() as db:
            for table in ("session", "message", "run", "inbound_event"):
                assert await db.scalar(sa.text(f"SELECT count(*) FROM {table}")) == 0


async def test_deleting_a_side_question_leaves_its_parent(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway([reply("parent"), HANG, reply("more")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        parent = await house.create()
        await house.ask(parent, "go")
        child = await ask_aside(house, parent, "why?")
        await gateway.wait_for_requests(2)
        await house.state["inbox"].delete_session(child.id)
        assert (await house.state["inbox"].state_of(parent.id)).children == ()
        await house.ask(parent, "more")
        assert len(await house.messages(parent)) == 4


async def test_a_message_whose_files_are_still_being_fetched_is_not_seen(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([reply("one"), reply("aside")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        parent = await house.create()
        await house.ask(parent, "go")
        last = (await house.messages(parent))[-1]
        waits = FilePart("f1", "text/csv", "a.csv", 0, "where the platform keeps it")
        coming = Message("m9", "user", (TextPart("and this"), waits), last.created_at)
        async with house.state["store"].write() as db:
            await append_messages(db, parent.id, [coming])
        child = await ask_aside(house, parent, "why?")
        await house.ended(child)
        assert child.inherited_seq == 2


async def _has_messages(house: House, session: Session, count: int) -> bool:
    return len(await house.messages(session)) == count


async def _is_named(house: House, session: Session) -> bool:
    return (await house.session(session)).title == "会话标题"
