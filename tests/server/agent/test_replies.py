"""Replies of every kind: empty, broken off, nonsense, several calls, thoughts, pictures."""

import json
import time
from pathlib import Path

import pytest
from PIL import Image

from server.store.usage import session_usage
from tests.fakes.llm import (
    Play,
    Quirks,
    Recorded,
    answer,
    call,
    forever,
    refuse,
    reply,
    serve_gateway,
)
from tests.house import assert_prefixes, is_title, notices_in, open_house, settings_for
from tests.waiting import until


async def test_empty_reply_is_asked_for_again_and_never_shown(
    tmp_path: Path, sqlite_url: str
) -> None:
    search = reply(calls=[call("grep_search", {"pattern": "x"})])
    script = [*[search] * 5, reply(), search, reply("done")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")
        assert events[-1]["type"] == "RUN_FINISHED"
        [run] = await house.runs(session)
        assert [d.streak for d in await house.decisions(run.id)] == [1, 2, 3, 4, 5, 6]
        assert [len(notices_in(r)) for r in gateway.requests] == [0, 0, 0, 0, 0, 1, 1, 1]


async def test_eleven_empty_replies_fail_the_run(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway(forever(reply()), title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")
        assert events[-1]["code"] == "empty_response"
        assert len(gateway.requests) == 11
        async with house.state["store"].read() as db:
            usage = await session_usage(db, session.id)
        assert usage.prompt_tokens > 0, "requests that led to nothing are paid for too"


async def test_reply_that_breaks_off_is_withdrawn_and_asked_again(
    tmp_path: Path, sqlite_url: str
) -> None:
    broken = reply("这句话说到一半", quirks=Quirks(piece_chars=2, cut_at=4))
    async with (
        serve_gateway([broken, reply("整句话")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")
        [discarded] = [e for e in events if e["type"] == "CUSTOM"]
        started = [e["messageId"] for e in events if e["type"] == "TEXT_MESSAGE_START"]
        assert discarded["name"] == "headway.discarded"
        assert discarded["value"]["messageIds"] == started[:1]
        assert len(started) == 2
        assert started[0] != started[1]
        said = [m.text for m in await house.messages(session) if m.role == "assistant"]
        assert said == ["整句话"]


@pytest.mark.parametrize(
    ("play", "code"),
    [
        (answer(200, "<html>hello</html>", content_type="text/html"), "model_bad_response"),
        (refuse(401), "model_auth"),
        (refuse(500), "model_overloaded"),
    ],
)
async def test_gateway_that_cannot_answer_fails_the_run_with_its_code(
    tmp_path: Path, sqlite_url: str, play: Play, code: str
) -> None:
    async with (
        serve_gateway(forever(play), title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        events = await house.ask(session, "go")
        assert events[-1]["type"] == "RUN_ERROR"
        assert events[-1]["code"] == code
        assert "html" not in events[-1]["message"]


async def test_calls_of_one_reply_run_side_by_side_and_keep_their_order(
    tmp_path: Path, sqlite_url: str
) -> None:
    calls = [call("read_file", {"path": f"{name}.txt"}) for name in "cab"]
    async with (
        serve_gateway([reply(calls=calls), reply("done")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        for name in "abc":
            house.workspace.joinpath(f"{name}.txt").write_text(f"this is {name}")
        session = await house.create()
        await house.ask(session, "go")
        tools = [m for m in gateway.requests[1].messages if m["role"] == "tool"]
        asked = gateway.requests[1].messages[-4]["tool_calls"]
        assert [m["tool_call_id"] for m in tools] == [c["id"] for c in asked]
        assert [m["content"][8] for m in tools] == ["c", "a", "b"]


async def test_notice_stands_behind_the_last_of_several_results(
    tmp_path: Path, sqlite_url: str
) -> None:
    calls = [call("list_dir", {"path": "."}), *[call("grep_search", {"pattern": "x"})] * 2]
    script = [*[reply(calls=calls)] * 5, reply("done")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        await house.ask(await house.create(), "go")
        roles = [m["role"] for m in gateway.requests[5].messages]
        assert roles[-5:] == ["assistant", "tool", "tool", "tool", "user"]
        assert len(notices_in(gateway.requests[5])) == 1
        assert_prefixes(gateway.requests)


async def test_provider_that_repeats_its_ids_gets_unique_ones_back(
    tmp_path: Path, sqlite_url: str
) -> None:
    search = reply(calls=[call("grep_search", {"pattern": "x"}, id="call_0")])
    script = [*[search] * 7, reply("done")]
    async with (
        serve_gateway(script, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        await house.ask(await house.create(), "go")
        last = gateway.requests[-1].messages
        ids = [m["tool_call_id"] for m in last if m["role"] == "tool"]
        assert len(set(ids)) == 7
        assert len(notices_in(gateway.requests[-1])) == 1
        notice = next(n for n, m in enumerate(last) if str(m["content"]).startswith("<system-no"))
        assert last[notice - 1]["tool_call_id"] == ids[4]
        assert_prefixes(gateway.requests)


async def test_picture_follows_its_group_and_the_notice(tmp_path: Path, sqlite_url: str) -> None:
    view = reply(calls=[call("view_image", {"path": "screen.png"})])
    script = [*[view] * 15]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            Image.new("RGB", (8, 8), "red").save(house.workspace / "screen.png")
            session = await house.create()
            events = await house.ask(session, "go")
        assert events[-1]["code"] == "no_progress_loop"
        sixth = gateway.requests[5].messages
        assert [m["role"] for m in sixth[-4:]] == ["assistant", "tool", "user", "user"]
        assert sixth[-2]["content"].startswith("<system-notice>")
        assert sixth[-1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
        assert_prefixes(gateway.requests)
        result = next(e for e in events if e["type"] == "TOOL_CALL_RESULT")
        assert "data:" not in json.dumps(result)


async def test_changed_picture_at_the_same_path_is_progress(
    tmp_path: Path, sqlite_url: str
) -> None:
    steps = 0

    async with (
        serve_gateway(
            lambda _: (
                reply(calls=[call("view_image", {"path": "screen.png"})])
                if steps < 20
                else reply("done")
            ),
            title=is_title,
        ) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):

        def paint() -> None:
            Image.new("RGB", (8, 8), (steps, 0, 0)).save(house.workspace / "screen.png")

        paint()
        session = await house.create()
        ring = house.state["logs"].of(session.id)

        class Painter:
            def wake(self) -> None:
                nonlocal steps
                done = sum(b"TOOL_CALL_RESULT" in e.body for e in ring.read(0, 10_000_000))
                if done > steps:
                    steps = done
                    paint()

        ring.listen(Painter())
        events = await house.ask(session, "go")
        assert events[-1]["type"] == "RUN_FINISHED"
        assert not any(
            "检测到重复调用" in text for request in gateway.requests for text in notices_in(request)
        )


async def test_thoughts_go_back_with_a_tool_turn(tmp_path: Path, sqlite_url: str) -> None:
    thinking = reply(calls=[call("list_dir", {"path": "."})], reasoning="let me look")
    async with (
        serve_gateway([thinking, reply("done")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        events = await house.ask(await house.create(), "go")
        assert "REASONING_MESSAGE_CONTENT" in [e["type"] for e in events]
        assert gateway.requests[1].messages[2]["reasoning_content"] == "let me look"


async def test_first_answer_names_the_session_beside_the_run(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([reply("hello")], title=is_title, title_play=reply("《问候》")) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "hi")

        async def is_named() -> bool:
            return (await house.session(session)).title == "问候"

        await until(is_named)
        assert len(gateway.titles) == 1
        counted = house.state["metrics"].render().decode().splitlines()
        assert 'headway_llm_calls_total{error="",purpose="title"} 1.0' in counted


async def test_date_stands_before_the_first_message_of_a_day_only(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        serve_gateway([reply("1"), reply("2")], title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "one")
        await house.ask(session, "two")
        said = [m["content"] for m in gateway.requests[1].messages if m["role"] == "user"]
        assert said[0].startswith("<date-change>20")
        assert said[0].endswith("one")
        assert said[1] == "two"


async def test_long_wait_is_no_loop(tmp_path: Path, sqlite_url: str) -> None:
    build = {"action": "run", "command": "sleep 300", "run_async": True}

    def play(request: Recorded) -> Play:
        results = [m for m in request.messages if m["role"] == "tool"]
        if not results:
            return reply(calls=[call("shell", build)])
        shell_id = json.loads(results[0]["content"])["session_id"]
        if len(results) > 20:
            return reply("still building")
        wait = {"action": "await_async", "session_id": shell_id, "timeout_seconds": 0.01}
        return reply(calls=[call("shell", wait)])

    async with (
        serve_gateway(play, title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        started = time.monotonic()
        session = await house.create()
        events = await house.ask(session, "build")
        assert events[-1]["type"] == "RUN_FINISHED"
        assert not any(notices_in(request) for request in gateway.requests)
        assert time.monotonic() - started < 60
