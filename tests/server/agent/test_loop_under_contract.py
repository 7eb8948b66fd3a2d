"""A run with a progress contract that its loop ends."""

from pathlib import Path

from tests.fakes.llm import reply, serve_gateway
from tests.house import is_title, open_house
from tests.server.agent.test_last_turn import LIST, READ, TWO_FACTS, note
from tests.server.agent.test_policies import governed


async def test_a_loop_under_a_contract_tells_how_far_it_came(
    tmp_path: Path, sqlite_url: str
) -> None:
    script = [reply(calls=[READ])] + [LIST] * 15
    async with serve_gateway(script, title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            note(house, "F1: 甲\n")
            session = await house.create()
            await house.ask(session, "go", contract={**TWO_FACTS, "stop_after": 100})
            [run] = await house.runs(session)
            last = (await house.messages(session))[-1]
    assert run.outcome_code == "no_progress_loop"
    assert last.role == "assistant"
    assert "甲" in last.text
    assert "事实二" in last.text
