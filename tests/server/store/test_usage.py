"""Requests to the model in the store, and their sums."""

from server.message import Usage
from server.store.engine import Store
from server.store.ids import new_id
from server.store.usage import LlmCall, insert_llm_call, run_usage, session_usage, usage_of
from tests.server.store.rows import NOON, make_session


def _a_call(session_id: str, run_id: str | None, usage: Usage) -> LlmCall:
    return LlmCall(
        id=new_id(),
        session_id=session_id,
        run_id=run_id,
        purpose="round",
        model="step-3",
        usage=usage,
        first_token_ms=120,
        total_ms=900,
        error=None,
        created_at=NOON,
    )


async def test_usage_is_summed_by_run_and_by_session(store: Store) -> None:
    await make_session(store)
    await make_session(store, "s2")
    async with store.write() as db:
        await insert_llm_call(db, _a_call("s1", "r1", Usage(2_000_000_000, 1_900_000_000, 3)))
        await insert_llm_call(db, _a_call("s1", "r1", Usage(2_000_000_000, 0, 4)))
        await insert_llm_call(db, _a_call("s1", None, Usage(1, 1, 1)))
    async with store.read() as db:
        assert await run_usage(db, "r1") == Usage(4_000_000_000, 1_900_000_000, 7)
        assert await session_usage(db, "s1") == Usage(4_000_000_001, 1_900_000_001, 8)
        assert await usage_of(db, ["s1", "s2"]) == {
            "s1": Usage(4_000_000_001, 1_900_000_001, 8),
            "s2": Usage(),
        }


async def test_nothing_spent_is_zero(store: Store) -> None:
    async with store.read() as db:
        assert await run_usage(db, "nothing") == Usage()
        assert await session_usage(db, "nobody") == Usage()
        assert await usage_of(db, []) == {}
