"""Sessions, history, runs and rounds over REST."""

from datetime import timedelta
from urllib.parse import quote

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from server.message import Message, ToolCall, Usage
from server.store.decisions import Decision, Verdict, insert_decision
from server.store.engine import Store
from server.store.messages import append_messages
from server.store.runs import Run, insert_run
from server.store.usage import LlmCall, insert_llm_call
from tests.server.http.site import ADMIN, ALICE, BOB, EPOCH, Site, add_session


async def add_run(db: AsyncConnection, run_id: str, session_id: str) -> None:
    await insert_run(
        db,
        Run(
            id=run_id,
            session_id=session_id,
            trigger="message",
            status="FAILED",
            created_at=EPOCH,
            started_at=EPOCH,
            ended_at=EPOCH + timedelta(seconds=9),
            outcome_code="no_progress_loop",
            outcome_text="stopped",
            rounds=15,
            attempt=1,
        ),
    )


async def titles(site: Site, headers: dict[str, str], query: str = "") -> list[str]:
    async with site.http.get(f"/api/sessions{query}", headers=headers) as response:
        assert response.status == 200
        return [session["id"] for session in (await response.json())["sessions"]]


async def test_a_user_lists_his_own_and_the_admin_all(site: Site, store: Store) -> None:
    async with store.write() as db:
        await add_session(db, "s1", "alice", minute=1)
        await add_session(db, "s2", "bob", minute=2)
        await add_session(db, "s3", "alice", minute=3)
    assert await titles(site, ALICE) == ["s3", "s1"]
    assert await titles(site, BOB) == ["s2"]
    assert await titles(site, ADMIN) == ["s3", "s2", "s1"]


async def test_a_long_list_comes_in_pages_that_miss_nothing(site: Site, store: Store) -> None:
    async with store.write() as db:
        for number in range(5):
            await add_session(db, f"s{number}", "alice", minute=number // 3)
    seen, query = [], "?limit=2"
    while True:
        async with site.http.get(f"/api/sessions{query}", headers=ALICE) as response:
            page = await response.json()
        seen += [session["id"] for session in page["sessions"]]
        if not page["hasMore"]:
            break
        query = f"?limit=2&before={quote(page['next'])}"
    assert seen == ["s4", "s3", "s2", "s1", "s0"]
    assert "next" not in page


async def test_a_list_is_searched_by_title(site: Site, store: Store) -> None:
    async with store.write() as db:
        await add_session(db, "s1", "alice", title="Weekly report")
        await add_session(db, "s2", "alice", title="群名")
    assert await titles(site, ALICE, f"?search={quote('群名')}") == ["s2"]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("limit=-1", "limit"),
        ("before=x", "before"),
        ("before=2026-01-01T00:00:00", "before"),
    ],
)
async def test_a_wrong_query_is_named(site: Site, query: str, path: str) -> None:
    async with site.http.get(f"/api/sessions?{query}", headers=ALICE) as response:
        assert response.status == 400
        error = (await response.json())["error"]
        assert (error["code"], error["details"]) == ("bad_request", {"path": path})


async def test_a_foreign_session_is_like_none(site: Site, store: Store) -> None:
    async with store.write() as db:
        await add_session(db, "s1", "alice")
        await add_run(db, "r1", "s1")
    paths = ("sessions/s1", "sessions/s1/messages", "sessions/s1/usage", "runs/r1")
    for path in (*paths, "runs/r1/rounds"):
        answers = []
        for address in (path, path.replace("1", "9", 1)):
            async with site.http.get(f"/api/{address}", headers=BOB) as response:
                answers.append((response.status, await response.json()))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
    async with site.http.delete("/api/sessions/s1", headers=BOB) as response:
        assert response.status == 404
    async with site.http.get("/api/sessions/s1", headers=ALICE) as response:
        assert response.status == 200


async def test_a_session_is_renamed_and_deleted(site: Site, store: Store) -> None:
    async with store.write() as db:
        await add_session(db, "s1", "alice")
    change = {"title": "  A  new\nname "}
    async with site.http.patch("/api/sessions/s1", json=change, headers=ALICE) as response:
        assert response.status == 200
        assert (await response.json())["title"] == "A new name"
    refused: list[object] = [{"title": " "}, {"title": 1}, {"title": "x" * 501}, []]
    for wrong in refused:
        async with site.http.patch("/api/sessions/s1", json=wrong, headers=ALICE) as response:
            assert response.status == 400
    async with site.http.delete("/api/sessions/s1", headers=ALICE) as response:
        assert response.status == 204
    async with site.http.get("/api/sessions/s1", headers=ALICE) as response:
        assert response.status == 404


async def test_history_comes_newest_page_first(site: Site, store: Store) -> None:
    messages = [Message(f"m{n}", "user", f"text {n}", EPOCH) for n in range(1, 6)]
    messages.append(
        Message("m6", "assistant", "", EPOCH, tool_calls=(ToolCall("c1", "shell", "{}"),))
    )
    messages.append(Message("m7", "tool", "out", EPOCH, tool_call_id="c1"))
    async with store.write() as db:
        await add_session(db, "s1", "alice")
        await append_messages(db, "s1", messages)
    async with site.http.get("/api/sessions/s1/messages?limit=3", headers=ALICE) as response:
        page = await response.json()
    assert [message["id"] for message in page["messages"]] == ["m5", "m6", "m7"]
    assert page["messages"][1]["toolCalls"][0]["function"] == {"name": "shell", "arguments": "{}"}
    assert page["hasMore"]
    before = page["messages"][0]["seq"]
    query = f"/api/sessions/s1/messages?limit=10&before={before}"
    async with site.http.get(query, headers=ALICE) as response:
        page = await response.json()
    assert [message["id"] for message in page["messages"]] == ["m1", "m2", "m3", "m4"]
    assert not page["hasMore"]


async def test_a_run_tells_round_by_round_why_it_was_stopped(site: Site, store: Store) -> None:
    async with store.write() as db:
        await add_session(db, "s1", "alice")
        await add_run(db, "r1", "s1")
        for number in range(1, 16):
            verdict: Verdict = "abort" if number == 15 else "nudge" if number in (5, 10) else "none"
            decision = Decision(
                "r1", number, "a" * 16, "b" * 16, False, number, verdict, "no_progress", "v1", EPOCH
            )
            await insert_decision(db, decision)
    async with site.http.get("/api/runs/r1", headers=ALICE) as response:
        run = await response.json()
    assert (run["status"], run["rounds"]) == ("FAILED", 15)
    assert run["outcome"] == {"code": "no_progress_loop", "text": "stopped"}
    async with site.http.get("/api/runs/r1/rounds", headers=ALICE) as response:
        rounds = (await response.json())["rounds"]
    assert [r["verdict"] for r in rounds if r["verdict"] != "none"] == ["nudge", "nudge", "abort"]
    assert rounds[14] == {
        "round": 15,
        "toolStatus": "ok",
        "streaks": {},
        "findings": [],
        "thresholdSource": "",
        "traceId": "",
        "actionDigest": "a" * 16,
        "resultDigest": "b" * 16,
        "exempt": False,
        "streak": 15,
        "verdict": "abort",
        "rule": "no_progress",
        "policy": "v1",
        "createdAt": "2026-01-01T00:00:00Z",
    }


async def test_what_a_session_cost_is_told_per_model(site: Site, store: Store) -> None:
    async with store.write() as db:
        await add_session(db, "s1", "alice")
        for number, (model, usage) in enumerate(
            [("a", Usage(10, 5, 1)), ("b", Usage(20, 0, 2)), ("a", Usage(30, 25, 3))]
        ):
            call = LlmCall(f"l{number}", "s1", None, "agent", model, usage, None, 100, None, EPOCH)
            await insert_llm_call(db, call)
    async with site.http.get("/api/sessions/s1/usage", headers=ALICE) as response:
        cost = await response.json()
    assert cost == {
        "usage": {"promptTokens": 60, "cachedTokens": 30, "completionTokens": 6},
        "models": [
            {
                "model": "a",
                "usage": {"promptTokens": 40, "cachedTokens": 30, "completionTokens": 4},
            },
            {
                "model": "b",
                "usage": {"promptTokens": 20, "cachedTokens": 0, "completionTokens": 2},
            },
        ],
    }
