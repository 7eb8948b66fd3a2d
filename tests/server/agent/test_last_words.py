"""What others are told of a run that its policy ended: parents, tasks, and the next run."""

import json
from pathlib import Path

import sqlalchemy as sa

from guard import Rules
from guard.policies import POLICIES
from server.approvals import Word
from server.contract import parse_contract
from server.replay import replay
from server.replay_read import read_session
from server.store.approvals import open_approvals
from server.store.messages import load_from
from server.tools.mcp import contracts_of
from tests.fakes.clock import Clock
from tests.fakes.docs_server import docs_command
from tests.fakes.llm import Quirks, call, refuse, reply, serve_gateway
from tests.house import is_title, open_house
from tests.server.agent.test_exploration import known_of
from tests.server.agent.test_last_turn import LIST, ONE_FACT, READ, SHORT, TWO_FACTS, note
from tests.server.agent.test_policies import governed
from tests.server.agent.test_subagents import FAILED, Parts, children, executions, spawn
from tests.server.schedule_house import open_tasks, set_clock
from tests.server.test_chats import Platform, message, open_chats

CHILD = SHORT.replace("main", "subagent")


async def test_parent_gets_what_a_child_verified_that_found_no_words_for_it(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = Parts(
        go=[reply(calls=[spawn("alpha")]), reply("done")],
        alpha=[reply(calls=[READ]), refuse(401)],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract=ONE_FACT)
            [child] = await executions(house, session)
        assert child.status == "COMPLETED"
        assert child.result_text is not None
        assert "甲" in child.result_text


async def test_parent_gets_the_last_answer_of_a_child_beside_how_far_it_came(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = Parts(
        go=[reply(calls=[spawn("alpha")]), reply("done")],
        alpha=[LIST, reply(calls=[READ]), LIST, reply("我只看到一个文件。")],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, CHILD)
        async with open_house(settings) as house:
            note(house, "x")
            session = await house.create()
            await house.ask(session, "go")
            [child] = await executions(house, session)
            [one] = (await children(house, session)).values()
            texts = [m.text for m in await house.messages(one)][-3:]
        assert child.result_text is not None
        failure, answer, *rest = child.result_text.split("\n\n")
        assert failure.startswith(FAILED)
        assert answer == "我只看到一个文件。"
        assert "\n\n".join(rest) == texts[1]
        assert (texts[0], texts[2]) == (answer, failure)


async def test_what_a_child_verified_counts_though_the_child_failed(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = Parts(
        go=[reply(calls=[spawn("alpha")]), LIST, reply("done")],
        alpha=[reply(calls=[READ]), LIST, LIST],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract=TWO_FACTS)
            [run] = await house.runs(session)
            decisions = await house.decisions(run.id)
        assert decisions[0].state_diff == {"f1": [False, True]}
        assert decisions[0].streaks["progress_contract"] == 0


async def test_what_a_retry_took_back_is_not_brought_again_by_its_children(
    tmp_path: Path, sqlite_url: str
) -> None:
    plays = iter(
        [
            reply(calls=[spawn("alpha")]),
            reply("first"),
            reply(calls=[spawn("omega")]),
            reply("second"),
        ]
    )
    script = Parts(
        go=plays,
        alpha=[reply(calls=[READ]), reply("read")],
        omega=[LIST, reply("nothing")],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract=TWO_FACTS)
            [asked, *_] = await house.messages(session)
            await house.ask(session, "", key="again", retry_of=asked.id)
            run, first = await house.runs(session)
            [again] = await house.decisions(run.id)
            [before] = await house.decisions(first.id)
        assert before.state_diff == {"f1": [False, True]}
        assert again.state_diff == {}


async def test_failures_are_no_findings_that_another_agent_knows(
    tmp_path: Path, sqlite_url: str
) -> None:
    missing = reply(calls=[call("read_file", {"path": "missing.txt"})])
    script = Parts(
        go=[reply(calls=[spawn("alpha")]), reply(calls=[spawn("omega")]), reply("done")],
        alpha=[missing, reply("not there")],
        omega=[missing, reply("not there")],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            for child in (await children(house, session)).values():
                async with house.state["store"].read() as db:
                    found = await load_from(db, child.id, 0)
                assert [m.evidence.known for m in found if m.evidence is not None] == [False]
            async with house.state["store"].read() as db:
                kept = await db.scalar(sa.text("SELECT count(*) FROM exploration"))
            assert kept == 0


async def test_replay_of_a_session_judges_as_its_run_did(tmp_path: Path, sqlite_url: str) -> None:
    search = [
        reply(calls=[call("docs__search_docs", {"query": query})])
        for query in ("Agent memory", "agent  memory", "AGENT memory", "agent MEMORY") * 4
    ]
    config = (
        f"[mcp.docs]\ncommand = {json.dumps(docs_command()['command'])}\n"
        f"args = {json.dumps(docs_command()['args'])}\n"
        "[mcp.docs.contracts.search_docs]\nfold_case = true\nsqueeze_blanks = true\n"
        'result_ignores = ["request_id", "fetched_at"]\n'
    )
    async with serve_gateway([*search[:15]], title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, config)
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            [run] = await house.runs(session)
            decisions = await house.decisions(run.id)
            rules = Rules(contracts=contracts_of(settings.mcp))
            trace = await read_session(house.state["store"], session.id, rules)
        assert [d.round for d in decisions if d.verdict == "abort"] == [15]
        replayed = replay(POLICIES["default@1"], trace)
        assert [number for number, _ in replayed.stops] == [15]


async def test_result_that_looks_like_a_failure_verifies_nothing(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with serve_gateway([reply(calls=[READ]), LIST], title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, '{"error": "E F1: 甲"}\n')
            session = await house.create()
            await house.ask(session, "go", contract=TWO_FACTS)
            last = (await house.messages(session))[-1].text
        assert "事实一" not in last.partition("**还缺**")[0]


async def test_task_that_failed_tells_the_models_last_answer_too(
    tmp_path: Path, sqlite_url: str
) -> None:
    clock = Clock()
    set_clock(clock, "2026-11-30T10:00:00+00:00")
    script = [LIST, reply(calls=[READ]), LIST, reply("我只看到一个文件。")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, SHORT.replace("main", "scheduled"))
        async with open_tasks(settings, clock) as tasks:
            told_in = await tasks.house.create()
            await tasks.add(told_in=told_in)
            await tasks.let_pass(60)
            [told] = await tasks.told(told_in, 1)
        assert "我只看到一个文件。" in told
        assert "停止原因" in told


async def test_quiet_task_whose_goal_is_reached_may_stay_quiet(
    tmp_path: Path, sqlite_url: str
) -> None:
    clock = Clock()
    set_clock(clock, "2026-11-30T10:00:00+00:00")
    async with serve_gateway([reply(calls=[READ]), reply("")], title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_tasks(settings, clock) as tasks:
            note(tasks.house, "F1: 甲\n")
            told_in = await tasks.house.create()
            task = await tasks.add(told_in=told_in, quiet=True, contract=parse_contract(ONE_FACT))
            await tasks.let_pass(60)
            [found] = await tasks.ended(task)
            assert (found.status, found.delivery_status) == ("COMPLETED", None)


async def test_text_that_no_encoding_has_is_a_value_like_others(
    tmp_path: Path, sqlite_url: str
) -> None:
    contract = {
        "id": "state",
        "fields": [
            {
                "name": "state",
                "tool": "read_file",
                "extract": {"jmespath": "state"},
                "counts": "changes",
                "initial": "none",
            }
        ],
    }
    async with serve_gateway([reply(calls=[READ]), reply("done")], title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, r'{"state": "half a sign: \ud83d"}')
            session = await house.create()
            await house.ask(session, "go", contract=contract)
            [run] = await house.runs(session)
            [decision] = await house.decisions(run.id)
        assert run.status == "COMPLETED"
        assert list(decision.state_diff) == ["state"]
        assert "half" not in str(decision)


async def test_calls_side_by_side_spend_the_time_of_the_longest(
    tmp_path: Path, sqlite_url: str
) -> None:
    slow = Quirks(before_headers=0.4)
    script = Parts(
        go=[reply(calls=[spawn("alpha"), spawn("omega"), READ]), reply("done")],
        alpha=[reply("a", quirks=slow)],
        omega=[reply("o", quirks=slow)],
    )
    budget = 'main = "timed@1"\n[policy.define."timed@1".budget]\nelapsed_ms = 100_000'
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, budget)
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            [run, *_] = await house.runs(session)
            [decision] = await house.decisions(run.id)
            messages = await house.messages(session)
        asked = next(m for m in messages if m.tool_calls)
        times = [m.evidence.elapsed_ms for m in messages if m.evidence is not None]
        assert min(times[:2]) >= 400
        assert 100_000 - decision.budgets_left["elapsed_ms"] == max(times) + asked.model_ms


async def test_subagents_before_and_after_an_answer_work_for_one_run(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = Parts(
        go=[
            reply(calls=[spawn("alpha")]),
            reply(calls=[call("ask_user", {"question": "Which?"})]),
            reply(calls=[spawn("omega")]),
            reply("done"),
        ],
        alpha=[LIST, reply("listed")],
        omega=[LIST, reply("listed")],
    )
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            session = await house.create()
            await house.ask(session, "go")
            async with house.state["store"].read() as db:
                [asked] = await open_approvals(db, session.id)
            word = Word("approve", "ann", text="both")
            await house.state["approvals"].answer(asked.interrupt.id, word)
            await house.ended(session, 2)
            by_title = await children(house, session)
            known = {title: await known_of(house, child) for title, child in by_title.items()}
        assert known == {"alpha": [False], "omega": [True]}


async def test_what_a_round_verified_that_a_stop_cut_stays_verified(
    tmp_path: Path, sqlite_url: str
) -> None:
    hang = call("shell", {"action": "run", "command": "sleep 300"})
    script = [reply(calls=[READ, hang]), LIST, LIST, reply("done")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.say(session, "go", contract=ONE_FACT)
            await house.until(
                session, lambda events: any(e["type"] == "TOOL_CALL_RESULT" for e in events)
            )
            await house.state["inbox"].cancel(session.id, None, "ann")
            await house.ended(session)
            await house.ask(session, "go on", contract=ONE_FACT)
            run, _ = await house.runs(session)
        assert run.outcome_code == "completed"


async def test_chat_gets_the_last_answer_and_how_far_the_run_came(
    tmp_path: Path, sqlite_url: str
) -> None:
    platform = Platform()
    script = [LIST, reply(calls=[READ]), LIST, reply("I saw one file.")]
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(
            tmp_path, sqlite_url, gateway.url, SHORT.replace("main", "chat"), HEADWAY_LOCALE="en"
        )
        async with open_chats(settings, platform) as house:
            note(house, "x")
            await house.state["chats"].submit(message("go"))
            [delivery] = await platform.until_told(1)
        answer, _, rest = delivery.answer.partition("\n\n")
        assert (delivery.status, delivery.code) == ("failed", "budget_rounds")
        assert answer == "I saw one file."
        assert "**Why it stopped**" in rest
        assert delivery.text in rest
