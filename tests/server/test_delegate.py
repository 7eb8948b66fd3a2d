"""Subagents on a real store: births, limits, waiting, ends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from channels.events import (
    Outcome,
    SubagentFailed,
    SubagentFinished,
    SubagentStarted,
)
from server.delegate import children_to_stop, end_child
from server.errors import ToolError
from server.settings import SubagentSettings
from server.signals import RunSignals
from server.store.engine import Store
from server.store.runs import (
    delete_queued,
    finish_run,
    insert_run,
    list_runs,
    load_run,
    queued,
    start_run,
)
from server.store.sessions import delete_session, insert_session, load_session
from server.store.subagents import SubagentExecution, executions_of_run
from tests.server.store.rows import NOON, a_run, a_session, later, make_running
from tests.server.subagent_place import Place, make_place
from tests.waiting import until


@pytest.fixture
async def place(store: Store) -> Place:
    return await make_place(store)


async def _refused(work: Awaitable[object]) -> str:
    with pytest.raises(ToolError) as caught:
        await work
    return caught.value.code


async def test_child_is_a_session_of_its_own_with_the_task_in_its_queue(place: Place) -> None:
    task = "Count the lines of every file below server/ and name the three longest."
    execution = await place.spawn(task=task)
    child = await place.child(execution)
    async with place.store.read() as db:
        parent = await load_session(db, "s1")
        [run] = await queued(db, child.id)
    same = replace(child, id="s1", kind="main", title="parent", parent_session_id=None)
    assert replace(same, created_at=NOON, updated_at=NOON) == parent
    assert child.kind == "subagent"
    assert child.parent_session_id == "s1"
    assert child.title == "Count the lines of every file below serv…"
    assert (run.id, run.trigger) == (execution.id, "subagent")
    assert run.input is not None
    assert (run.input.text, run.input.origin) == (task, "subagent")
    assert run.message_id == run.input.message_id
    ask = await place.signals.next()
    assert (ask.what, ask.session_id) == ("advance", child.id)


async def test_same_call_again_gives_the_same_child(place: Place) -> None:
    first = await place.spawn()
    again = await place.spawn(task="something else")
    assert again == first
    async with place.store.read() as db:
        assert await executions_of_run(db, "r1") == [first]


async def test_children_use_the_model_that_the_message_asked_for(place: Place) -> None:
    asking = a_run("r2")
    assert asking.input is not None
    asking = replace(asking, input=replace(asking.input, model="fast-1"))
    async with place.store.write() as db:
        await finish_run(db, "r1", 1, "COMPLETED", "completed", None, 1, NOON)
        await insert_run(db, asking)
        await start_run(db, "r2", "p1", later(30), NOON)
    execution = await place.delegate.spawn(place.context(run_id="r2"), "count", background=True)
    async with place.store.read() as db:
        run = await load_run(db, execution.id)
    assert run.input is not None
    assert run.input.model == "fast-1"


async def test_calls_side_by_side_do_not_pass_the_limit_together(place: Place) -> None:
    spawned = await asyncio.gather(
        *(place.spawn(f"c{number}") for number in range(6)), return_exceptions=True
    )
    refused = [one for one in spawned if isinstance(one, ToolError)]
    assert [error.code for error in refused] == ["too_many_at_once"] * 3
    assert "wait_subagents" in str(refused[0])
    async with place.store.read() as db:
        assert len(await executions_of_run(db, "r1")) == 3


async def test_place_of_one_that_ended_is_free(place: Place) -> None:
    place.limits = SubagentSettings(at_once=1)
    first = await place.spawn("c1")
    assert await _refused(place.spawn("c2")) == "too_many_at_once"
    await place.end(first)
    await place.spawn("c3")


async def test_a_run_has_only_so_many(place: Place) -> None:
    place.limits = SubagentSettings(per_run=2)
    for call_id in ("c1", "c2"):
        await place.end(await place.spawn(call_id))
    assert await _refused(place.spawn("c3")) == "too_many"


async def test_generations_are_counted_through_other_kinds_of_session(place: Place) -> None:
    execution = await place.spawn()
    await place.begin(execution)
    below = place.context("c9", session_id=execution.child_session_id, run_id=execution.id)
    assert await _refused(place.delegate.spawn(below, "more", background=True)) == "too_deep"
    aside = replace(a_session("aside", parent=execution.child_session_id), kind="sideline")
    async with place.store.write() as db:
        await insert_session(db, aside)
    await make_running(place.store, "r-aside", session_id="aside")
    beside = place.context("c9", session_id="aside", run_id="r-aside")
    assert await _refused(place.delegate.spawn(beside, "more", background=True)) == "too_deep"
    place.limits = SubagentSettings(depth=2)
    await place.delegate.spawn(below, "more", background=True)
    await place.delegate.spawn(beside, "more", background=True)


async def test_no_child_is_born_for_a_run_that_is_over(place: Place) -> None:
    async with place.store.write() as db:
        await finish_run(db, "r1", 1, "CANCELLED", "cancelled", None, 1, NOON)
    assert await _refused(place.spawn()) == "not_running"


async def test_wait_ends_when_the_last_one_has_ended(place: Place) -> None:
    executions = [await place.spawn(call_id) for call_id in ("c1", "c2", "c3")]
    ids = [execution.id for execution in executions]
    waiting = asyncio.create_task(place.delegate.wait(place.context("w"), ids[::-1], 600))
    await place.end(executions[1])
    await place.end(executions[0], "failed", code="no_progress_loop", text="原因")
    assert not waiting.done()
    await place.end(executions[2], "cancelled", code="cancelled")
    async with asyncio.timeout(10):
        ended = await waiting
    assert [(one.id, one.status) for one in ended] == [
        (ids[2], "CANCELLED"),
        (ids[1], "COMPLETED"),
        (ids[0], "FAILED"),
    ]


async def test_end_that_another_process_wrote_is_seen_in_the_store(place: Place) -> None:
    execution = await place.spawn()
    waiting = asyncio.create_task(place.delegate.wait(place.context("w"), [execution.id], 600))
    elsewhere = replace(place, signals=RunSignals())
    await elsewhere.end(execution, said="42")
    async with asyncio.timeout(10):
        [ended] = await waiting
    assert (ended.status, ended.result_text) == ("COMPLETED", "42")


async def test_wait_that_is_over_shows_who_still_works(place: Place) -> None:
    first, second = await place.spawn("c1"), await place.spawn("c2")
    await place.end(first)
    seen = await place.delegate.wait(place.context("w"), [first.id, second.id, first.id], 0)
    assert [(one.id, one.status) for one in seen] == [
        (first.id, "COMPLETED"),
        (second.id, "RUNNING"),
    ]


async def test_wait_without_ids_takes_all_that_are_open(place: Place) -> None:
    first, second = await place.spawn("c1"), await place.spawn("c2")
    await place.end(first)
    seen = await place.delegate.wait(place.context("w"), [], 0)
    assert [one.id for one in seen] == [first.id, second.id]


async def test_waiting_for_what_the_session_has_not_is_refused(place: Place) -> None:
    execution = await place.spawn()
    async with place.store.write() as db:
        await insert_session(db, a_session("s2"))
    await make_running(place.store, "r2", session_id="s2")
    stranger = place.context("w", session_id="s2", run_id="r2")
    assert await _refused(place.delegate.wait(stranger, [execution.id], 0)) == "unknown_task"
    ours = place.context("w")
    assert await _refused(place.delegate.wait(ours, [execution.id, "x"], 0)) == "unknown_task"


async def test_a_later_run_of_the_session_finds_what_outlived_its_run(place: Place) -> None:
    execution = await place.spawn()
    async with place.store.write() as db:
        await finish_run(db, "r1", 1, "COMPLETED", "completed", None, 2, NOON)
    await make_running(place.store, "r2", session_id="s1")
    await place.end(execution, said="late")
    for ids in ([execution.id], []):
        [seen] = await place.delegate.wait(place.context("w", run_id="r2"), ids, 0)
        assert seen.result_text == "late"


async def _drop_from_queue(place: Place, execution: SubagentExecution) -> None:
    async with place.store.write() as db:
        assert await delete_queued(db, execution.id)


async def _delete_child(place: Place, execution: SubagentExecution) -> None:
    async with place.store.write() as db:
        await delete_session(db, execution.child_session_id, NOON)


@pytest.mark.parametrize("remove", [_drop_from_queue, _delete_child])
async def test_task_that_a_person_removed_is_waited_for_no_longer(
    place: Place, remove: Callable[[Place, SubagentExecution], Awaitable[None]]
) -> None:
    execution = await place.spawn(background=False)
    await remove(place, execution)
    async with asyncio.timeout(10):
        ended = await place.attend(execution)
    assert ended.status == "CANCELLED"


async def test_child_that_is_waited_for_is_shown_in_the_run(place: Place) -> None:
    execution = await place.spawn(background=False)
    attending = asyncio.create_task(place.attend(execution))
    await place.begin(execution)

    async def is_shown() -> bool:
        return bool(place.progress)

    await until(is_shown)
    await place.end(execution, said="42")
    async with asyncio.timeout(10):
        ended = await attending
    assert ended.result_text == "42"
    assert place.progress == ["子代理第 1 轮"]
    assert place.events == [
        SubagentStarted(execution.id, execution.child_session_id, "c1", "count"),
        SubagentFinished(execution.id),
    ]


async def test_failure_of_a_child_that_is_waited_for_is_shown_with_its_reason(place: Place) -> None:
    execution = await place.spawn(background=False)
    await place.end(execution, "failed", code="model_timeout", text="模型没有响应。")
    ended = await place.attend(execution)
    assert ended.status == "FAILED"
    text = "后台子代理执行失败: 模型没有响应。"
    assert place.events[1:] == [SubagentFailed(execution.id, "model_timeout", text)]


async def test_child_that_takes_too_long_goes_on_without_being_waited_for(place: Place) -> None:
    execution = await place.spawn(background=False)
    seen = await place.attend(execution, seconds=0)
    assert seen.status == "RUNNING"
    text = "子代理尚未完成，转入后台继续。"
    assert place.events[1:] == [SubagentFailed(execution.id, "timeout", text)]
    [seen] = await place.delegate.wait(place.context("w"), [], 0)
    assert seen.id == execution.id


async def test_waiting_that_is_cancelled_ends_in_the_log_and_leaves_the_child_alone(
    place: Place,
) -> None:
    execution = await place.spawn(background=False)
    await place.begin(execution)
    attending = asyncio.create_task(place.attend(execution))

    async def is_shown() -> bool:
        return bool(place.progress)

    await until(is_shown)
    attending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attending
    assert place.events[1:] == [SubagentFailed(execution.id, "cancelled", "子代理已停止。")]
    async with place.store.read() as db:
        assert not (await load_run(db, execution.id)).cancel_requested


async def test_end_keeps_the_last_words_within_bounds(place: Place) -> None:
    short, long = await place.spawn("c1"), await place.spawn("c2")
    assert await place.end(short, said="42") is None
    assert await place.end(long, said="结果" * 20_000) is None
    assert (await place.now(short)).result_text == "42"
    text = (await place.now(long)).result_text or ""
    assert len(text.encode()) < 16_200
    assert "[cut: " in text
    assert text.endswith("结果")


@pytest.mark.parametrize(
    ("locale", "text"),
    [("zh-CN", "后台子代理执行失败: 超时"), ("en", "Background subagent failed: 超时")],
)
async def test_failure_leaves_its_reason_for_the_history(
    store: Store, locale: str, text: str
) -> None:
    async with store.write() as db:
        await insert_session(db, replace(a_session(), locale="en" if locale == "en" else "zh-CN"))
    await make_running(store, "r1", session_id="s1")
    place = Place(store)
    execution = await place.spawn()
    left = await place.end(execution, "failed", code="model_timeout", text="超时")
    assert left is not None
    assert (left.role, left.text, left.run_id) == ("assistant", text, execution.id)
    ended = await place.now(execution)
    assert (ended.status, ended.result_text) == ("FAILED", text)


async def test_child_that_was_stopped_leaves_no_message(place: Place) -> None:
    execution = await place.spawn()
    assert await place.end(execution, "cancelled", code="cancelled", said="half") is None
    ended = await place.now(execution)
    assert (ended.status, ended.result_text) == ("CANCELLED", "half")


async def test_what_a_person_runs_in_the_child_later_is_none_of_the_parents_business(
    place: Place,
) -> None:
    execution = await place.spawn()
    await place.end(execution, said="42")
    child = await place.child(execution)
    run = await make_running(place.store, "r9", session_id=child.id)
    outcome = Outcome("r9", "failed", "internal", "why")
    async with place.store.write() as db:
        assert await end_child(db, run, child, outcome, later(90)) is None
    assert (await place.now(execution)).result_text == "42"


async def test_children_of_a_run_are_asked_to_stop_whether_begun_or_not(place: Place) -> None:
    begun, waits, over = [await place.spawn(call_id) for call_id in ("c1", "c2", "c3")]
    await place.begin(begun)
    await place.end(over)
    async with place.store.write() as db:
        await insert_run(db, a_run("more", session_id=begun.child_session_id))
    async with place.store.write() as db:
        asked = await children_to_stop(db, "r1", later(70))
    assert asked == [begun.child_session_id, waits.child_session_id]
    async with place.store.read() as db:
        [run] = await list_runs(db, begun.child_session_id, 10)
        assert run.cancel_requested
        assert await list_runs(db, waits.child_session_id, 10) == []
    assert (await place.now(begun)).status == "RUNNING"  # its own run writes its end
    assert (await place.now(waits)).status == "CANCELLED"
    assert (await place.child(waits)).status == "CANCELLED"
    assert (await place.now(over)).status == "COMPLETED"


async def test_children_of_the_run_that_waited_for_a_person_stop_with_the_one_that_goes_on(
    place: Place,
) -> None:
    execution = await place.spawn()
    asking = a_run("r2")
    assert asking.input is not None
    asking = replace(asking, trigger="resume", input=replace(asking.input, resumes="r1"))
    async with place.store.write() as db:
        await finish_run(db, "r1", 1, "WAITING", "risk_gate", None, 1, NOON)
        await insert_run(db, asking)
        assert await children_to_stop(db, "r2", later(70)) == [execution.child_session_id]


async def test_run_that_has_no_children_asks_nobody(place: Place) -> None:
    async with place.store.write() as db:
        assert await children_to_stop(db, "r1", later(70)) == []
