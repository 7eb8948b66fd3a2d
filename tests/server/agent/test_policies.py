"""Runs under other policies than the default one: reminders, stops, records, a last answer."""

import json
from pathlib import Path

import pytest

from guard.policies import STRICT
from server.errors import SettingsError
from server.replay import replay
from server.replay_read import read_session
from server.settings import Settings
from tests.fakes.llm import NEVER, Play, Quirks, call, forever, refuse, reply, serve_gateway
from tests.house import assert_prefixes, is_title, notices_in, open_house, settings_for

LOOK = reply(calls=[call("list_dir", {"path": "."})])
SEARCH = reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})])


def governed(
    folder: Path, database_url: str, gateway_url: str, policy: str, **variables: str
) -> Settings:
    """Settings with a section `[policy]`."""
    config = folder / "headway.toml"
    config.write_text(f"[policy]\n{policy}\n", "utf-8")
    return settings_for(folder, database_url, gateway_url, HEADWAY_CONFIG=str(config), **variables)


async def test_a_cycle_of_two_is_reminded_of_and_stopped(tmp_path: Path, sqlite_url: str) -> None:
    async with serve_gateway(forever(LOOK, SEARCH), title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, 'main = "strict@1"')
        async with open_house(settings) as house:
            session = await house.create()
            events = await house.ask(session, "go")
            [run] = await house.runs(session)
            decisions = await house.decisions(run.id)
            failed = (await house.session(session)).execution_error
            replayed = replay(STRICT, await read_session(house.state["store"], session.id))
        assert events[-1]["code"] == "no_progress_loop"
        assert events[-1]["message"] == run.outcome_text
        assert failed is not None
        assert failed.message == run.outcome_text
        assert run.rounds == len(gateway.requests) == 10
        assert [(d.round, d.verdict, d.rule) for d in decisions if d.verdict != "none"] == [
            (6, "nudge", "period"),
            (7, "nudge", "interleaved_repeat"),
            (8, "nudge", "interleaved_repeat"),
            (10, "abort", "period"),
        ]
        told = [(number, nudge.rule) for number, nudge in replayed.nudges]
        assert told == [
            (d.round, found.rule)
            for d in decisions
            for found in d.findings
            if found.given == "nudge"
        ]
        assert [(number, stop.rule) for number, stop in replayed.stops] == [(10, "period")]
        assert {d.policy for d in decisions} == {"strict@1"}
        assert decisions[-1].stop_reason == "no_progress_loop"
        assert [len(notices_in(r)) for r in gateway.requests] == [0] * 6 + [1, 3, 4, 4]
        assert_prefixes(gateway.requests)


async def test_other_rules_go_on_after_a_restart_with_the_same_requests(
    tmp_path: Path, database_url: str
) -> None:
    hang = reply("…", quirks=Quirks(before_headers=NEVER))
    script = [*[LOOK, SEARCH] * 3, LOOK, hang, SEARCH, LOOK, SEARCH]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, 'main = "strict@1"')
        async with open_house(settings) as house:
            session = await house.create()
            await house.say(session, "go")
            await gateway.wait_for_requests(8)
        async with open_house(settings) as house:
            events = await house.ended(session)
            assert events[-1]["code"] == "no_progress_loop"
            [run] = await house.runs(session)
            assert (run.attempt, run.rounds) == (2, 10)
        assert gateway.requests[7].body == gateway.requests[8].body
        assert_prefixes(gateway.requests)


async def test_a_policy_in_the_shadow_only_records(tmp_path: Path, sqlite_url: str) -> None:
    async with serve_gateway(forever(SEARCH), title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, 'shadow = ["strict@1"]')
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            [run] = await house.runs(session)
            decisions = await house.decisions(run.id)
            shadows = await house.shadows(run.id)
        assert len(gateway.requests) == 15
        assert [len(notices_in(r)) for r in gateway.requests] == [0] * 5 + [1] * 5 + [2] * 5
        assert {d.policy for d in decisions} == {"default@1"}
        first_stop = next(s for s in shadows if s.verdict == "abort")
        assert (first_stop.round, first_stop.policy) == (6, "strict@1")
        assert first_stop.rule == "interleaved_repeat"
        assert first_stop.stop_reason == "no_progress_loop"


async def test_the_model_answers_once_more_before_the_end(tmp_path: Path, sqlite_url: str) -> None:
    last = reply("I found nothing, and cannot go on.", calls=[call("list_dir", {"path": "."})])
    script = [*[SEARCH] * 15, last, reply("as I said")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "last_turn = true")
        async with open_house(settings) as house:
            session = await house.create()
            events = await house.ask(session, "go")
            assert events[-1]["code"] == "no_progress_loop"
            answer = (await house.messages(session))[-1]
            assert (answer.text, answer.tool_calls) == ("I found nothing, and cannot go on.", ())
            await house.ask(session, "and now?")
        asked = gateway.requests[15]
        assert asked.json["tool_choice"] == "none"
        assert asked.json["tools"] == gateway.requests[14].json["tools"]
        assert len(notices_in(asked)) == 3
        assert_prefixes(gateway.requests[:16])
        assert gateway.requests[16].messages[: len(asked.messages)] == asked.messages


async def test_a_gateway_without_tool_choice_gets_its_last_request_all_the_same(
    tmp_path: Path, sqlite_url: str
) -> None:
    refused = refuse(400, "Unknown parameter: 'tool_choice'")
    script: list[Play] = [*[SEARCH] * 15, refused, reply("nothing there")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "last_turn = true")
        async with open_house(settings) as house:
            session = await house.create()
            events = await house.ask(session, "go")
            assert events[-1]["code"] == "no_progress_loop"
            assert (await house.messages(session))[-1].text == "nothing there"
        assert "tool_choice" not in gateway.requests[16].json


async def test_a_model_that_has_no_last_answer_does_not_change_the_end(
    tmp_path: Path, sqlite_url: str
) -> None:
    broken = refuse(401)
    script: list[Play] = [*[SEARCH] * 15, broken]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "last_turn = true")
        async with open_house(settings) as house:
            session = await house.create()
            events = await house.ask(session, "go")
            assert events[-1]["code"] == "no_progress_loop"


async def test_a_spent_budget_ends_the_run_with_how_far_it_came(
    tmp_path: Path, sqlite_url: str
) -> None:
    rounds = [
        reply(calls=[call("grep_search", {"pattern": f"p{n}", "path": "."})]) for n in range(5)
    ]
    policy = 'main = "short@1"\n[policy.define."short@1".budget]\nrounds = 5'
    async with serve_gateway(rounds, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, policy)
        async with open_house(settings) as house:
            session = await house.create()
            events = await house.ask(session, "go")
            [run] = await house.runs(session)
            decisions = await house.decisions(run.id)
            last = (await house.messages(session))[-1]
        assert events[-1]["code"] == run.outcome_code == "budget_rounds"
        assert len(gateway.requests) == 5
        assert [d.budgets_left for d in decisions] == [{"rounds": n} for n in (4, 3, 2, 1, 0)]
        assert decisions[3].verdict == "nudge"
        assert last.role == "assistant"
        assert run.outcome_text
        assert run.outcome_text in last.text
        said = [e["delta"] for e in events if e["type"] == "TEXT_MESSAGE_CONTENT"]
        assert last.text in said


async def test_a_task_that_is_handed_off_ends_with_the_reason(
    tmp_path: Path, sqlite_url: str
) -> None:
    hand_off = reply(calls=[call("hand_off", {"reason": "需要财务权限"})])
    async with serve_gateway([LOOK, hand_off], title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            events = await house.ask(session, "refund it")
            [run] = await house.runs(session)
            [*_, decision] = await house.decisions(run.id)
            last = (await house.messages(session))[-1]
        assert (run.status, run.outcome_code) == ("FAILED", "handoff")
        assert events[-1]["code"] == "handoff"
        assert "需要财务权限" in last.text
        assert (decision.rule, decision.stop_reason) == ("hand_off", "handoff")


async def test_every_round_is_recorded_with_its_figures(tmp_path: Path, sqlite_url: str) -> None:
    missing = call("read_file", {"path": "missing.txt"})
    script = [
        reply(calls=[missing]),
        reply(calls=[missing, call("list_dir", {"path": "."})]),
        reply("done"),
    ]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "read it")
            [run] = await house.runs(session)
            first, second = await house.decisions(run.id)
        assert (first.tool_status, second.tool_status) == ("error", "mixed")
        assert first.streaks["no_progress"] == 1
        assert first.threshold_source == first.policy == "default@1"
        assert len(first.trace_id) == 32
        assert first.trace_id == second.trace_id
        assert "missing.txt" not in json.dumps([str(first), str(second)])


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ('main = "strict@9"', "main: must be one of default@1"),
        ('shadow = ["nobody@1"]', "shadow 1: must be one of"),
        ('[policy.define."strict@1"]', "another version"),
        ('[policy.define."a@1"]\nbase = "b@1"', "base: must be one of"),
        (
            '[policy.define."a@1".repeat_cycle]\nlimit = 0',
            "define a@1 repeat_cycle.limit: must be a whole number from 1",
        ),
        ('[policy.define."a@1".no_such_rule]', "no_such_rule"),
        ('[policy.define."a@1".period]\nmode = "perhaps"', "mode"),
        ("prices = { prompt = -1 }", "prices"),
        ("prices = { completion = inf }", "prices completion"),
        ('shadow = ["strict@1", "strict@1"]', "shadow: must name each policy once"),
        ('[policy.define."a@1"]\nbase = ["strict@1"]', "define a@1 base: must be one of"),
        ('[policy.define.ours]\nbase = "strict@1"', "define 'ours': must be a name with a version"),
        (
            '[policy.define."a@1".period]\nstop_laps = 2',
            "define a@1 period.stop_laps: must be at least nudge_laps, which is 3",
        ),
        (
            'main = "a@1"\n[policy.define."a@1".budget]\ncost_micros = 5',
            "prices: must be given, since a@1 limits the cost",
        ),
    ],
)
def test_a_wrong_policy_stops_the_start_and_says_what_is_right(
    tmp_path: Path, sqlite_url: str, policy: str, named: str
) -> None:
    with pytest.raises(SettingsError, match="HEADWAY_CONFIG") as raised:
        governed(tmp_path, sqlite_url, "http://127.0.0.1:9/v1", policy)
    assert named in str(raised.value)
