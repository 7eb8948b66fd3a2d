"""Which progress contract the run of a subagent has."""

from dataclasses import replace

from server.contract import contract_json, parse_contract
from server.store.engine import Store
from server.store.runs import insert_run, load_run, start_run
from server.store.sessions import insert_session
from tests.server.contracts import TWO_SOURCES
from tests.server.store.rows import NOON, a_run, a_session, later
from tests.server.subagent_place import Place


async def test_a_subagent_works_by_the_contract_of_the_run_that_asked_for_it(store: Store) -> None:
    given = contract_json(parse_contract(TWO_SOURCES))
    asking = a_run("r1")
    assert asking.input is not None
    asking = replace(asking, input=replace(asking.input, contract=given))
    async with store.write() as db:
        await insert_session(db, replace(a_session(), contract_json='{"id": "other"}'))
        await insert_run(db, asking)
        await start_run(db, "r1", "p1", later(30), NOON)
    place = Place(store)
    execution = await place.spawn()
    async with store.read() as db:
        run = await load_run(db, execution.id)
    assert run.input is not None
    assert run.input.contract is not None
    assert parse_contract(run.input.contract) == parse_contract(TWO_SOURCES)
    assert (await place.child(execution)).contract_json is None
