"""A progress contract that another version stored and this one cannot read."""

from datetime import UTC, datetime
from pathlib import Path

from server.store.sessions import set_contract
from tests.fakes.llm import reply, serve_gateway
from tests.house import is_title, open_house
from tests.server.agent.test_policies import governed

LATER = '{"id": "later", "items": [], "milestones": [{"id": "m1"}]}'


async def test_a_run_says_so_and_does_not_work_without_it(tmp_path: Path, sqlite_url: str) -> None:
    async with serve_gateway([reply("better")], title=is_title) as gateway:
        settings = governed(tmp_path, sqlite_url, gateway.url, "")
        async with open_house(settings) as house:
            session = await house.create()
            async with house.state["store"].write() as db:
                await set_contract(db, session.id, LATER, datetime.now(UTC))
            events = await house.ask(session, "go")
            [run] = await house.runs(session)
            assert (run.status, run.outcome_code) == ("FAILED", "contract_unreadable")
            assert "重新设置" in events[-1]["message"]
            assert [r for r in gateway.requests if not is_title(r)] == []
            async with house.state["store"].write() as db:
                await set_contract(db, session.id, None, datetime.now(UTC))
            await house.say(session, "again")
            await house.ended(session, 2)
            assert (await house.settled(session)).status == "COMPLETED"
