"""The end of a run that its policy ends: what comes first, what the model says, what is kept."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.approvals import Word
from server.store.approvals import open_approvals
from server.store.sessions import Session
from tests.fakes.llm import (
    NEVER,
    Play,
    Quirks,
    Recorded,
    answer,
    call,
    refuse,
    reply,
    serve_gateway,
)
from tests.house import Event, House, is_title, notices_in, open_house
from tests.server.agent.test_policies import governed

READ = call("read_file", {"path": "notes.txt"})
LIST = reply(calls=[call("list_dir", {"path": "."})])
HAND_OFF = reply(calls=[call("hand_off", {"reason": "需要财务权限"})])
ONE_FACT: dict[str, Any] = {
    "id": "fact",
    "items": [
        {"id": "f1", "text": "事实一", "tool": "read_file", "extract": {"regex": "F1: (.+)"}},
    ],
}
TWO_FACTS: dict[str, Any] = {
    "id": "facts",
    "items": [
        *ONE_FACT["items"],
        {"id": "f2", "text": "事实二", "tool": "read_file", "extract": {"regex": "F2: (.+)"}},
    ],
}
TOO_LONG = answer(400, {"error": {"message": "maximum context length is 8192 tokens", "code": "x"}})
SHORT = 'main = "short@1"\nlast_turn = true\n[policy.define."short@1".budget]\nrounds = 3'


def note(house: House, text: str) -> None:
    house.workspace.mkdir(parents=True, exist_ok=True)
    (house.workspace / "notes.txt").write_text(text, "utf-8")


def is_compaction(request: Recorded) -> bool:
    return "tools" not in request.json


def said(events: list[Event]) -> str:
    return "".join(e["delta"] for e in events if e["type"] == "TEXT_MESSAGE_CONTENT")


async def outcome(house: House, session: Session) -> tuple[str, str | None]:
    [run, *_] = await house.runs(session)
    return run.status, run.outcome_code


async def test_message_that_wants_to_join_a_run_whose_goal_is_reached_is_answered_next(
    tmp_path: Path, sqlite_url: str
) -> None:
    go_on = asyncio.Event()
    slow = reply("事实一是甲。", quirks=Quirks(before_headers=go_on))
    script = [reply(calls=[READ]), slow, reply("再答。")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.say(session, "go", contract=ONE_FACT)
            await gateway.wait_for_requests(2)
            await house.say(session, "and then?", when_busy="steer")
            go_on.set()
            await house.ended(session, 2)
            texts = [m.text for m in await house.messages(session) if m.role != "tool"]
        assert texts == ["go", "", "事实一是甲。", "and then?", "再答。"]


async def test_last_turn_whose_prompt_is_too_long_is_told_what_it_is_all_the_same(
    tmp_path: Path, sqlite_url: str
) -> None:
    asked: list[Recorded] = []

    def play(request: Recorded) -> Play:
        if is_compaction(request):
            return reply("SUMMARY")
        asked.append(request)
        if len(asked) <= 3:
            return LIST if len(asked) == 2 else reply(calls=[READ])
        return TOO_LONG if len(asked) == 4 else reply("没有更多了。")

    async with serve_gateway(play, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, SHORT)
        async with open_house(settings) as house:
            note(house, "x")
            session = await house.create()
            events = await house.ask(session, "go")
            assert events[-1]["code"] == "budget_rounds"
        assert notices_in(asked[4])[-1] == notices_in(asked[3])[-1]
        assert "SUMMARY" in asked[4].messages[1]["content"]
        assert "没有更多了。" in said(events)


async def test_reason_of_a_handing_over_is_told_after_a_last_answer_too(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = [LIST, HAND_OFF, reply("我已转交。")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "last_turn = true")
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "refund it")
            last = (await house.messages(session))[-1]
        assert "需要财务权限" in last.text


async def test_handing_over_in_the_round_that_would_be_one_too_many_is_a_handing_over(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with serve_gateway([LIST, HAND_OFF], title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            session = await house.create()
            events = await house.ask(session, "go", contract=TWO_FACTS)
            assert await outcome(house, session) == ("FAILED", "handoff")
        assert "需要财务权限" in said(events)


async def test_handing_over_whose_words_speak_of_sleep_is_one_under_every_policy(
    tmp_path: Path, sqlite_url: str
) -> None:
    wait = reply(calls=[call("hand_off", {"reason": "run `sleep 60` and look at the queue again"})])
    async with serve_gateway([wait], title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, 'main = "strict@1"')
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            assert await outcome(house, session) == ("FAILED", "handoff")


@pytest.mark.parametrize("beside", ["budget", "hand_off"])
async def test_goal_that_is_reached_comes_before_other_ends(
    tmp_path: Path, sqlite_url: str, beside: str
) -> None:
    policy = 'main = "short@1"\n[policy.define."short@1".budget]\nrounds = 1'
    calls = [READ] if beside == "budget" else [READ, call("hand_off", {"reason": "x"})]
    async with serve_gateway(
        [reply(calls=calls), reply("甲"), reply("乙")], title=is_title
    ) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, policy if beside == "budget" else "")
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract=ONE_FACT)
            assert await outcome(house, session) == ("COMPLETED", "completed")
            await house.ask(session, "and now?")  # it is not judged by what is reached
            assert await outcome(house, session) == ("COMPLETED", "completed")


async def test_stop_in_the_last_turn_keeps_what_was_said_and_is_no_failure(
    tmp_path: Path, sqlite_url: str
) -> None:
    hang = reply("一二三四五六七八九十", quirks=Quirks(piece_chars=2, hold_at=3, hold=NEVER))
    async with serve_gateway([LIST, reply(calls=[READ]), LIST, hang], title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, SHORT)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await house.until(session, lambda events: "一二" in said(events))
            await house.state["inbox"].cancel(session.id, None, "ann")
            await house.ended(session)
            assert await outcome(house, session) == ("CANCELLED", "cancelled")
            last = (await house.messages(session))[-1]
            assert last.text.startswith("一二")


async def test_stop_while_the_last_answer_is_stored_is_no_failure(
    tmp_path: Path, sqlite_url: str
) -> None:
    over = asyncio.Event()
    slow = reply("没有更多了。", quirks=Quirks(before_end=over))
    async with serve_gateway([LIST, reply(calls=[READ]), LIST, slow], title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, SHORT)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await house.until(session, lambda events: "没有" in said(events))
            async with house.state["store"].write():
                over.set()
                await house.until(
                    session, lambda events: any(e["type"] == "TEXT_MESSAGE_END" for e in events)
                )
                cancelling = house.state["inbox"].cancel(session.id, None, "ann")
                stopping = asyncio.create_task(cancelling)
                await asyncio.sleep(0)  # its first step stops the run, the next waits for the store
            await stopping
            await house.ended(session)
            assert await outcome(house, session) == ("CANCELLED", "cancelled")
            assert (await house.messages(session))[-1].text == "没有更多了。"


async def test_model_that_cannot_answer_after_an_approval_is_asked_once(
    tmp_path: Path, sqlite_url: str
) -> None:
    script: list[Play] = [
        reply(calls=[call("write_file", {"path": "a.txt", "content": "a"}), READ]),
        refuse(401),
    ]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, '[approvals]\nweb = "writes"')
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract=ONE_FACT)
            async with house.state["store"].read() as db:
                [asked] = await open_approvals(db, session.id)
            await house.state["approvals"].answer(asked.interrupt.id, Word("approve", "ann"))
            await house.ended(session, 2)
            assert await outcome(house, session) == ("COMPLETED", "completed")
            assert "甲" in (await house.messages(session))[-1].text
        assert len(gateway.requests) == 2


async def test_model_that_goes_on_calling_in_the_last_turn_is_not_asked_for_long(
    tmp_path: Path, sqlite_url: str
) -> None:
    def play(_: Recorded) -> Play:
        return LIST

    async with serve_gateway(play, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, SHORT)
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            assert await outcome(house, session) == ("FAILED", "budget_rounds")
        assert len(gateway.requests) <= 6
