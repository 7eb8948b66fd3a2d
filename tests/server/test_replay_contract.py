"""A replay of a stored session judges each round as the run itself did, its contract included."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from guard.policies import POLICIES, Policy
from server.agent.record import Standing
from server.approvals import Word
from server.message import Usage
from server.replay import Costs, Replay, Trace, replay
from server.replay_read import read_session
from server.replay_text import cost_lines, trace_lines
from server.settings import Settings
from server.store.approvals import open_approvals
from server.store.decisions import Decision, StateValue
from server.store.sessions import Session
from tests.fakes.llm import Play, Quirks, Recorded, call, reply, serve_gateway
from tests.house import House, is_title, open_house
from tests.server.agent.test_exploration import CONTRACT as SHARED
from tests.server.agent.test_last_turn import HAND_OFF, LIST, ONE_FACT, READ, TWO_FACTS, note
from tests.server.agent.test_policies import governed
from tests.server.agent.test_rebuilding import CONTRACT, MISSING, ROUNDS, SEARCH, is_compaction
from tests.server.agent.test_subagents import Parts, children, spawn, wait
from tests.server.test_sideline import ask_aside

SHORT = 'main = "short@1"\n[policy.define."short@1".budget]\nrounds = 3'
BUDGETS = (
    'main = "ours@1"\n[policy.define."ours@1"]\nbase = "unattended@1"\n'
    '[policy.define."ours@1".budget]\nrounds = 7\n[approvals]\nweb = "writes"'
)
FOUND = reply(calls=[READ])
REMINDED = {**TWO_FACTS, "nudge_after": 1}
HANDED = {**TWO_FACTS, "on_no_progress": "handoff"}
PATIENT = {**TWO_FACTS, "stop_after": 90}

Judged = tuple[str, str, dict[str, int], int, dict[str, list[StateValue]], str]


def told(made: Decision | Standing) -> Judged:
    """What a record says of a round, as JSON would have it."""
    diff = {name: list(values) for name, values in made.state_diff.items()}
    streaks = dict(made.streaks)
    return made.verdict, made.rule, streaks, made.state_version, diff, made.stop_reason


def active(settings: Settings, kind: str = "main") -> Policy:
    """The policy by which runs of this kind are judged, as a replay is asked for it."""
    policies = settings.policy.policies
    return policies[getattr(settings.policy, kind)]


async def traced(house: House, session: Session) -> Trace:
    return await read_session(house.state["store"], session.id)


async def recorded(house: House, session: Session) -> list[Decision]:
    """The decisions of all runs of the session, the oldest first."""
    runs = reversed(await house.runs(session))
    return [decision for run in runs for decision in await house.decisions(run.id)]


async def assert_relived(house: House, session: Session, policy: Policy) -> Replay:
    """The replay says of each round what its record does; back comes what it made."""
    made = replay(policy, await traced(house, session))
    decisions = await recorded(house, session)
    assert [told(one) for one in made.standings if one is not None] == [
        told(decision) for decision in decisions
    ]
    assert made.saved_rounds == 0
    stops = [(stop.rule, stop.code) for _, stop in made.stops]
    assert stops == [(d.rule, d.stop_reason) for d in decisions if d.verdict == "abort"]
    return made


@pytest.mark.parametrize(
    ("policy", "compacts"),
    [("default@1", False), *[(name, True) for name in sorted(POLICIES)]],
)
async def test_each_round_is_judged_again_as_it_was(
    tmp_path: Path, database_url: str, policy: str, compacts: bool
) -> None:
    played = 0

    def play(request: Recorded) -> Play:
        nonlocal played
        if is_compaction(request):
            return reply("SUMMARY")
        played += 1
        is_full = compacts and played % 5 == 0
        made = ROUNDS[(played - 1) % len(ROUNDS)]
        return replace(made, usage=Usage(120_000 if is_full else 1_000, 100, 10))

    config = f'main = "{policy}"\n' + ("[compaction]\nkeep_rounds = 2\n" if compacts else "")
    async with serve_gateway(play, title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, config)
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract=CONTRACT)
            await house.settled(session)
            assert compacts == any(is_compaction(request) for request in gateway.requests)
            made = await assert_relived(house, session, active(settings))
    versions = [one.state_version for one in made.standings if one is not None]
    assert len(versions) >= 9
    assert versions[-1] == 1


@pytest.mark.parametrize(
    ("config", "contract", "script", "reason"),
    [
        ("", ONE_FACT, [LIST, FOUND, reply("甲。")], "progress_contract completed"),
        ("", REMINDED, [FOUND, LIST, SEARCH], "progress_contract no_progress"),
        ("", HANDED, [FOUND, LIST, SEARCH], "progress_contract handoff"),
        ("", TWO_FACTS, [FOUND, HAND_OFF], "hand_off handoff"),
        ("", None, [LIST, HAND_OFF], "hand_off handoff"),
        (SHORT, PATIENT, [FOUND, LIST, SEARCH], "budget budget_rounds"),
        ("", PATIENT, [LIST] * 15, "no_progress no_progress_loop"),
    ],
)
async def test_a_run_ends_in_the_replay_for_the_reason_for_which_it_ended(
    tmp_path: Path,
    database_url: str,
    config: str,
    contract: dict[str, Any] | None,
    script: Sequence[Play],
    reason: str,
) -> None:
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, config)
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract=contract)
            [run] = await house.runs(session)
            made = await assert_relived(house, session, active(settings))
            trace = await traced(house, session)
    [(number, stop)] = made.stops
    assert f"{stop.rule} {stop.code}" == reason
    assert (number, run.outcome_code) == (len(trace.rounds), stop.code)
    costs = Costs([active(settings)], {})
    costs.add(trace, [made])
    assert list(costs.reasons()) == [(made.policy, stop.code, 1, 1)]
    assert made.was_stopped == (stop.code != "completed")


async def test_a_run_goes_on_in_the_replay_after_an_answer_and_after_words_that_joined(
    tmp_path: Path, database_url: str
) -> None:
    write = reply(calls=[call("write_file", {"path": "a.txt", "content": "a"})])
    come = asyncio.Event()
    last = replace(LIST, quirks=Quirks(before_headers=come))
    script = [LIST, FOUND, write, LIST, MISSING, last, SEARCH, LIST, reply("over")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, BUDGETS)
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract={**CONTRACT, "nudge_after": 2})
            assert (await traced(house, session)).unfinished == 1
            async with house.state["store"].read() as db:
                [asked] = await open_approvals(db, session.id)
            await house.state["approvals"].answer(asked.interrupt.id, Word("approve", "ann"))
            await gateway.wait_for_requests(6)
            await house.say(session, "look elsewhere", when_busy="steer")
            come.set()
            await house.ended(session, 2)
            await house.settled(session)
            made = await assert_relived(house, session, active(settings))
            trace = await traced(house, session)
    assert [bool(one and one.streaks["progress_contract"]) for one in made.standings] == [
        True, False, True, True, True, True, True, True,
    ]  # fmt: skip
    assert trace.unfinished == 0
    first, *_, last_run = trace.runs
    assert (first.outcome, last_run.outcome) == ("risk_gate", "completed")
    assert first.contract == last_run.contract
    assert [run is first for run in trace.runs] == [True] * 2 + [False] * 6


async def test_each_run_of_a_session_has_its_own_contract(
    tmp_path: Path, database_url: str
) -> None:
    again = {**TWO_FACTS, "version": 2}
    asked: Sequence[tuple[dict[str, Any] | None, Sequence[Play]]] = [
        (TWO_FACTS, [FOUND, LIST, SEARCH]),
        (None, [FOUND, LIST, LIST, reply("one")]),
        (TWO_FACTS, [LIST, FOUND]),
        (again, [LIST, FOUND, LIST, reply("two")]),
        (ONE_FACT, [FOUND, reply("甲。")]),
        (ONE_FACT, [LIST, reply("three")]),
        (again, [SEARCH, FOUND]),
    ]
    script = [play for _, plays in asked for play in plays]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            for number, (contract, _) in enumerate(asked):
                await house.ask(session, f"go {number}", contract=contract)
            made = await assert_relived(house, session, active(settings))
            trace = await traced(house, session)
    assert [(number, stop.code) for number, stop in made.stops] == [
        (3, "no_progress"), (8, "no_progress"), (12, "completed"), (15, "no_progress"),
    ]  # fmt: skip
    versions = [one.state_version if one is not None else None for one in made.standings]
    assert versions == [1, 1, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1]
    keys = list(dict.fromkeys(run.contract_key for run in trace.runs))
    assert keys == ["facts@1", "", "facts@2", "fact@1"]


async def test_what_a_retry_took_back_is_not_known_to_the_replay(
    tmp_path: Path, database_url: str
) -> None:
    script = [FOUND, LIST, SEARCH, LIST, FOUND, SEARCH, LIST]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract=TWO_FACTS)
            [asked] = [m for m in await house.messages(session) if m.role == "user"]
            await house.ask(session, "", key="again", retry_of=asked.id)
            [run, _] = await house.runs(session)
            made = replay(active(settings), await traced(house, session))
            decisions = await house.decisions(run.id)
    assert [told(one) for one in made.standings if one is not None] == list(map(told, decisions))
    assert [one.state_version for one in made.standings if one is not None] == [0, 1, 1, 1]


async def test_what_another_subagent_found_is_no_progress_in_the_replay(
    tmp_path: Path, database_url: str
) -> None:
    script = Parts(
        go=[
            reply(calls=[spawn("alpha")]),
            reply(calls=[spawn("omega")]),
            wait(),
            reply("one fact is there"),
        ],
        alpha=[FOUND, LIST, reply("F1 is there")],
        omega=[FOUND, LIST],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 记忆每轮更新\n")
            session = await house.create()
            await house.ask(session, "go", contract=SHARED)
            await assert_relived(house, session, active(settings))
            by_title = await children(house, session)
            alpha, omega = [
                await assert_relived(house, by_title[title], active(settings, "subagent"))
                for title in ("alpha", "omega")
            ]
    assert not alpha.stops
    assert [(number, stop.code) for number, stop in omega.stops] == [(2, "no_progress")]


async def test_rounds_that_a_side_question_inherited_are_its_parents(
    tmp_path: Path, database_url: str
) -> None:
    script = [*[LIST] * 4, reply("done"), *[LIST] * 5, reply("aside")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, "")
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go", contract=PATIENT)
            child = await ask_aside(house, session, "why?")
            await house.ended(child)
            made = await assert_relived(house, child, active(settings, "sideline"))
            trace = await traced(house, child)
    assert [number for number, _ in made.nudges] == [5]
    assert {run.contract for run in trace.runs} == {None}


async def test_a_round_that_a_stop_cut_counts_for_nothing_in_the_replay(
    tmp_path: Path, database_url: str
) -> None:
    sleep = call("shell", {"action": "run", "command": "echo here > here; sleep 300"})
    script = [LIST, reply(calls=[READ, sleep]), SEARCH, LIST]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, database_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.say(session, "go", contract=TWO_FACTS)
            await house.until(session, _two_calls_are_made)
            await house.state["inbox"].cancel(session.id, None, "ann")
            await house.ended(session)
            await house.ask(session, "go on", contract=TWO_FACTS)
            made = await assert_relived(house, session, active(settings))
    assert [one.state_version if one else None for one in made.standings][:2] == [0, None]
    assert [number for number, _ in made.stops] == [4]


def _two_calls_are_made(events: list[dict[str, Any]]) -> bool:
    """Whether the reading of the second round has ended; what sleeps goes on."""
    return len([event for event in events if event["type"] == "TOOL_CALL_RESULT"]) >= 2


async def test_rounds_show_where_the_contract_stood_and_no_words(
    tmp_path: Path, sqlite_url: str
) -> None:
    contract = {
        "id": "facts",
        "version": 7,
        "goal": "找到事实",
        "items": TWO_FACTS["items"],
        "fields": [
            {
                "name": "which",
                "tool": "read_file",
                "extract": {"regex": "F1: (.+)"},
                "counts": "changes",
            }
        ],
    }
    script = [FOUND, LIST, SEARCH, LIST, reply("no more")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 秘密\n")
            session = await house.create()
            await house.ask(session, "go", contract=contract)
            await house.ask(session, "and?")
            trace = await traced(house, session)
    policies = list(POLICIES.values())
    made = [replay(policy, trace) for policy in policies]
    lines = list(trace_lines(trace, made, None, by_round=True))
    first, last = trace.runs[0].id, trace.runs[-1].id
    digest = sha256("秘密".encode()).hexdigest()[:8]
    assert lines[0] == f"{session.id}: 4 rounds, default"
    assert lines[1] == (
        "  default@1     stops after 3 (progress_contract 2, no_progress): "
        "0 rounds, 0 tokens not spent"
    )
    shown = [line for line in lines[5:] if not line[2:6].strip().isdigit()]
    assert shown == [
        f"  run {first}: contract facts@7, no_progress",
        f"        contract      state 1, f1 false → true, which – → #{digest}",
        "        contract      state 1, 1 without progress",
        "        contract      state 1, 2 without progress",
        *[
            f"        {policy.name:<12}  stop progress_contract 2, no_progress"
            for policy in policies
        ],
        f"  run {last}: no contract, completed",
        "",
    ]
    costs = Costs(policies, {})
    costs.add(trace, made)
    assert [line.split() for line in cost_lines(costs, has_labels=False)][-5:] == [
        ["policy", "stop", "reason", "traces", "stops"],
        *[[policy.name, "no_progress", "1", "1"] for policy in policies],
    ]
    printed = "\n".join(lines)
    for words in ("秘密", "找到", "notes", "no more", "群名"):
        assert words not in printed
