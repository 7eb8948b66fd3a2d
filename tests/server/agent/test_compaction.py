"""Compaction: by itself, by hand, and the streak that survives it."""

import asyncio
import json
from pathlib import Path
from typing import Any

from server.message import Usage
from tests.fakes.llm import NEVER, Quirks, Recorded, answer, call, reply, serve_gateway
from tests.fakes.llm_wire import Play
from tests.house import is_title, notices_in, open_house, settings_for

SEARCH_CALL = call("grep_search", {"pattern": "群名", "path": "."})


def is_compaction(request: Recorded) -> bool:
    return "tools" not in request.json and "max_tokens" not in request.json


def _play(every: int) -> Any:
    """A model that repeats itself, and whose prompt looks full after so many rounds."""
    rounds = 0

    def play(request: Recorded) -> Play:
        nonlocal rounds
        if is_compaction(request):
            return reply("用户要找群名,没有找到。")
        rounds += 1
        full = rounds % every == 0
        return reply(calls=[SEARCH_CALL], usage=Usage(120_000 if full else 1_000, 0, 10))

    return play


async def test_run_that_compacts_every_twelve_rounds_is_stopped_at_fifteen(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        serve_gateway(_play(12), title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "找一下群名")
        assert events[-1]["code"] == "no_progress_loop"
        asked = [request for request in gateway.requests if not is_compaction(request)]
        assert len(asked) == 15
        after = asked[12].messages
        assert after[1]["content"].startswith("<date-change>20"), "the day was told in what is gone"
        assert "<conversation-summary>" in after[1]["content"]
        assert "找一下群名" in after[1]["content"]
        assert len(notices_in(asked[12])) == 1, "the notice of round 10 is kept, that of 5 is cut"
        activities = [e for e in events if e["type"] == "ACTIVITY_SNAPSHOT"]
        assert activities[-1]["activityType"] == "COMPACTION"


async def test_streak_over_a_compaction_survives_a_restart(tmp_path: Path, sqlite_url: str) -> None:

    play = _play(12)
    count = 0

    def with_hang(request: Recorded) -> Play:
        nonlocal count
        if not is_compaction(request):
            count += 1
            if count == 14:
                return reply("…", quirks=Quirks(before_headers=NEVER))
        played: Play = play(request)
        return played

    async with serve_gateway(with_hang, title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(15)
        async with open_house(settings) as house:
            events = await house.ended(session)
            assert events[-1]["code"] == "no_progress_loop"
            [run] = await house.runs(session)
            assert run.rounds == 15
        asked = [request for request in gateway.requests if not is_compaction(request)]
        assert asked[13].body == asked[14].body


async def test_original_messages_stay_in_the_store(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway(_play(12), title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        history = await house.messages(session)
        assert len([m for m in history if m.role == "tool"]) == 15
        [summary] = [m for m in history if m.summary_of is not None]
        assert summary.synthetic


async def test_compact_by_hand_makes_the_next_prompt_short(tmp_path: Path, sqlite_url: str) -> None:
    def play(request: Recorded) -> Play:
        return reply("SUMMARY" if is_compaction(request) else "long answer " * 50)

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        for n in range(4):
            await house.ask(session, f"question {n}")
        events = await house.ask(session, "/compact")
        assert events[-1]["type"] == "RUN_FINISHED"
        await house.ask(session, "and then?")
        messages = gateway.requests[-1].messages
        assert [m["role"] for m in messages] == ["system", "user", "user", "assistant", "user"]
        assert "SUMMARY" in messages[1]["content"]
        assert not any("/compact" in json.dumps(m) for m in messages)


async def test_prompt_that_the_gateway_finds_too_long_is_compacted_and_asked_again(
    tmp_path: Path, sqlite_url: str
) -> None:
    too_long = {"error": {"message": "maximum context length is 8192 tokens", "code": "x"}}
    count = 0

    def play(request: Recorded) -> Play:
        nonlocal count
        if is_compaction(request):
            return reply("SUMMARY")
        count += 1
        return answer(400, too_long) if count == 3 else reply(f"answer {count}")

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "one")
        await house.ask(session, "two")
        events = await house.ask(session, "three")
        assert events[-1]["type"] == "RUN_FINISHED"
        assert "SUMMARY" in gateway.requests[-1].messages[1]["content"]


async def test_prompt_that_stays_too_long_fails_with_its_own_code(
    tmp_path: Path, sqlite_url: str
) -> None:
    too_long = {"error": {"message": "prompt is too long", "code": "context_length_exceeded"}}

    def play(request: Recorded) -> Play:
        return reply("SUMMARY") if is_compaction(request) else answer(400, too_long)

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        events = await house.ask(await house.create(), "one")
        assert events[-1]["code"] == "context_overflow"


async def test_summary_that_cannot_be_had_fails_a_compaction_by_hand_and_nothing_else(
    tmp_path: Path, sqlite_url: str
) -> None:
    def play(request: Recorded) -> Play:
        return answer(401, {}) if is_compaction(request) else reply("fine")

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        for n in range(3):
            await house.ask(session, f"question {n}")
        events = await house.ask(session, "/compact")
        assert events[-1]["code"] == "model_auth"
        assert len(await house.messages(session)) == 6
        assert (await house.ask(session, "next"))[-1]["type"] == "RUN_FINISHED"


async def test_compaction_can_be_steered_into_a_run(tmp_path: Path, sqlite_url: str) -> None:
    gate = asyncio.Event()
    look = call("list_dir", {"path": "."})
    count = 0

    def play(request: Recorded) -> Play:
        nonlocal count
        if is_compaction(request):
            return reply("SUMMARY")
        count += 1
        if count == 4:
            return reply(calls=[look], quirks=Quirks(before_headers=gate))
        return reply(f"answer {count}")

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        for n in range(3):
            await house.ask(session, f"question {n}")
        await house.say(session, "look")
        await gateway.wait_for_requests(4)
        await house.say(session, "/compact", when_busy="steer")
        gate.set()
        events = await house.ended(session, 4)
        assert events[-1]["type"] == "RUN_FINISHED"
        assert "SUMMARY" in gateway.requests[-1].messages[1]["content"]
        assert "/compact" not in gateway.requests[-1].body.decode()


async def test_talk_without_tools_is_compacted_near_the_limit(
    tmp_path: Path, sqlite_url: str
) -> None:
    def play(request: Recorded) -> Play:
        if is_compaction(request):
            return reply("SUMMARY")
        return reply("fine", usage=Usage(120_000, 0, 10))

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "one")
        await house.ask(session, "two")
        assert [is_compaction(request) for request in gateway.requests] == [False, True, False]
        assert "SUMMARY" in gateway.requests[-1].messages[1]["content"]
        assert gateway.requests[-1].messages[-1]["content"].endswith("two")


async def test_results_count_before_the_provider_has_counted_them(
    tmp_path: Path, sqlite_url: str
) -> None:
    read = [call("read_file", {"path": f"{n}.txt"}) for n in range(4)]

    def play(request: Recorded) -> Play:
        if is_compaction(request):
            return reply("SUMMARY")
        if any(message["role"] == "tool" for message in request.messages):
            return reply("done")
        return reply(calls=read, usage=Usage(100, 0, 10))

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(
            settings_for(tmp_path, sqlite_url, gateway.url, HEADWAY_MODEL_CONTEXT_TOKENS="16000")
        ) as house,
    ):
        for n in range(4):
            house.workspace.joinpath(f"{n}.txt").write_text(f"line {n}\n" * 2000)
        await house.ask(await house.create(), "go")
        assert [is_compaction(request) for request in gateway.requests] == [False, True, False]


async def test_empty_summary_leaves_the_history_as_it_was(tmp_path: Path, sqlite_url: str) -> None:
    def play(request: Recorded) -> Play:
        return reply() if is_compaction(request) else reply("fine")

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        for n in range(3):
            await house.ask(session, f"question {n}")
        events = await house.ask(session, "/compact")
        assert events[-1]["code"] == "model_bad_response"
        assert len(await house.prompt_messages(session)) == 6


async def test_compact_by_hand_again_asks_for_nothing(tmp_path: Path, sqlite_url: str) -> None:
    def play(request: Recorded) -> Play:
        return reply("SUMMARY") if is_compaction(request) else reply("fine")

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        for n in range(3):
            await house.ask(session, f"question {n}")
        await house.ask(session, "/compact", key="first")
        events = await house.ask(session, "/compact", key="second")
        assert events[-1]["type"] == "RUN_FINISHED"
        assert sum(map(is_compaction, gateway.requests)) == 1
        assert [m.role for m in await house.prompt_messages(session)] == [
            "user",
            "user",
            "assistant",
        ]


async def test_earlier_summary_goes_whole_into_the_next_one(
    tmp_path: Path, sqlite_url: str
) -> None:
    first = "".join(f"fact {n}; " for n in range(2000))

    def play(request: Recorded) -> Play:
        return reply(first) if is_compaction(request) else reply("fine")

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        for turn in range(2):
            for n in range(3):
                await house.ask(session, f"question {turn} {n}")
            await house.ask(session, "/compact", key=f"compact {turn}")
        second = [request for request in gateway.requests if is_compaction(request)][1]
        assert first.strip() in second.messages[1]["content"]
