"""Messages in the store: exact copies, order, and what the prompt is made from."""

from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.errors import Duplicate, NotFound
from server.message import (
    Evidence,
    FilePart,
    Message,
    Picture,
    Summary,
    TextPart,
    ToolCall,
    Usage,
    clean_text,
)
from server.store.engine import Store
from server.store.messages import (
    append_messages,
    load_before,
    load_message,
    load_page,
    load_prompt_messages,
    supersede_from,
)
from server.store.runs import insert_run
from server.store.sessions import insert_session
from tests.server.store.rows import NOON, a_message, a_run, a_session, later, make_session

_ARGUMENTS = (
    '{"b": 1.0,  "a":9007199254740993, "a": "dup", "时": "\\ud83d\\ude00"}',
    "not json at all {",
    "",
    '{"nul":"\x00","lone":"\ud800","line":"\u2028"}',
)
"""Texts that a JSON column would reorder, round, shorten or refuse."""

_MESSAGES = [
    Message("m1", "user", "你好 😀\n", NOON),
    Message(
        "m2",
        "user",
        (TextPart("look at"), FilePart("f1", "image/png", "图.png", 7), TextPart("this")),
        NOON,
    ),
    Message("m3", "user", (FilePart("f2", "text/plain", "a.txt", 0),), NOON),
    Message("m4", "user", (), NOON),
    Message("m5", "user", "picture of a result", NOON, synthetic=True),
    Message(
        "m6",
        "assistant",
        "",
        later(0.000001),
        run_id="r1",
        tool_calls=tuple(ToolCall(f"c{n}", "shell", a) for n, a in enumerate(_ARGUMENTS)),
        reasoning="嗯…",
        reasoning_field="reasoning_content",
        usage=Usage(29_000_000, 28_000_000, 12),
        model_ms=1234,
    ),
    Message(
        "m7",
        "tool",
        '{"error":"cancelled"}',
        NOON,
        run_id="r1",
        tool_call_id="c0",
        evidence=Evidence("a" * 16, "b" * 16, True, "timeout", 1500, True),
        picture=Picture("f3", "image/png"),
        is_error=True,
    ),
    Message(
        "m8",
        "tool",
        "ok",
        NOON,
        tool_call_id="c1",
        evidence=Evidence("a" * 16, "b" * 16, False),
    ),
    Message("m9", "assistant", "done", NOON, usage=Usage()),
]


async def test_every_kind_of_message_comes_back_as_it_was(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_run(db, a_run("r1"))
        stored = await append_messages(db, "s1", _MESSAGES)
    assert stored == [replace(m, seq=n) for n, m in enumerate(_MESSAGES, start=1)]
    async with store.read() as db:
        assert await load_prompt_messages(db, "s1") == stored
        assert await load_page(db, "s1", before_seq=None, limit=99) == stored
        assert await load_message(db, "m6") == ("s1", stored[5])


async def test_arguments_are_stored_byte_for_byte(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await insert_run(db, a_run("r1"))
        await append_messages(db, "s1", [_MESSAGES[5]])
    async with store.read() as db:
        _, message = await load_message(db, "m6")
    assert tuple(call.arguments for call in message.tool_calls) == _ARGUMENTS


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.text(st.characters(codec=None, categories=None), max_size=40),
    st.text(st.characters(codec=None, categories=None), max_size=40),
)
async def test_any_cleaned_text_comes_back_as_it_was(
    store: Store, content: str, reasoning: str
) -> None:
    message = replace(a_message(clean_text(content)), reasoning=clean_text(reasoning))
    async with store.write() as db:
        await db.execute(sa.text("DELETE FROM session"))
        await insert_session(db, a_session())
        stored = await append_messages(db, "s1", [message])
    async with store.read() as db:
        assert await load_prompt_messages(db, "s1") == stored


def test_cleaning_drops_nul_and_replaces_lone_surrogates_only() -> None:
    assert clean_text("a\x00b\ud800c\udfff😀\u2028\ufeff") == "ab\ufffdc\ufffd😀\u2028\ufeff"


async def test_every_user_message_is_marked_in_the_column(store: Store) -> None:
    await make_session(store)
    written = [a_message(message_id="m1"), replace(a_message(message_id="m2"), synthetic=True)]
    async with store.write() as db:
        await append_messages(db, "s1", written)
    async with store.read() as db:
        columns = await db.scalars(sa.text("SELECT metadata_json FROM message ORDER BY seq"))
        assert list(columns) == ['{"synthetic":false}', '{"synthetic":true}']


async def test_seq_goes_on_where_it_stood_and_nothing_is_fine(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        assert await append_messages(db, "s1", []) == []
        first = await append_messages(db, "s1", [a_message(), a_message()])
        second = await append_messages(db, "s1", [a_message()])
    assert [m.seq for m in (*first, *second)] == [1, 2, 3]


async def test_appending_to_an_unknown_session_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        async with store.write() as db:
            await append_messages(db, "nobody", [a_message()])


async def test_message_of_a_run_that_is_gone_is_not_found(store: Store) -> None:
    await make_session(store)
    with pytest.raises(NotFound):
        async with store.write() as db:
            await append_messages(db, "s1", [replace(a_message(), run_id="gone")])


async def test_same_message_id_twice_is_a_duplicate_and_keeps_nothing(store: Store) -> None:
    await make_session(store)
    messages = [a_message(), a_message(message_id="m1"), a_message(message_id="m1")]
    with pytest.raises(Duplicate):
        async with store.write() as db:
            await append_messages(db, "s1", messages)
    async with store.read() as db:
        assert await load_prompt_messages(db, "s1") == []


async def test_prompt_begins_with_the_latest_summary_and_what_it_kept(store: Store) -> None:
    await make_session(store)
    old = replace(a_message("old summary"), synthetic=True, summary_of=Summary(2))
    new = replace(a_message("new"), synthetic=True, summary_of=Summary(5))
    # 1 2 3 old=4 5 6 new=7 8: the new one keeps 5 and 6
    messages = [*(a_message(str(n)) for n in (1, 2, 3)), old]
    messages += [a_message("5"), a_message("6"), new, a_message("8")]
    async with store.write() as db:
        stored = await append_messages(db, "s1", messages)
    async with store.read() as db:
        prompt = await load_prompt_messages(db, "s1")
        assert prompt == [stored[6], stored[4], stored[5], stored[7]]
        assert prompt[0].summary_of == Summary(5)
        assert len(await load_page(db, "s1", before_seq=None, limit=99)) == 8


async def test_prompt_up_to_a_message_is_what_it_was_then(store: Store) -> None:
    await make_session(store)
    summary = replace(a_message("summary"), synthetic=True, summary_of=Summary(2))
    # 1 2 summary=3 4: it keeps 2
    messages = [a_message("1"), a_message("2"), summary, a_message("4")]
    async with store.write() as db:
        stored = await append_messages(db, "s1", messages)
    async with store.read() as db:
        windows = [await load_prompt_messages(db, "s1", up_to_seq=seq) for seq in range(5)]
    assert windows == [
        [],
        stored[:1],
        stored[:2],
        [stored[2], stored[1]],
        [stored[2], stored[1], stored[3]],
    ]


async def test_what_is_inherited_is_in_the_prompt_alone(store: Store) -> None:
    async with store.write() as db:
        await insert_session(db, replace(a_session(), inherited_seq=2))
        stored = await append_messages(db, "s1", [a_message(str(n)) for n in range(1, 5)])
        await supersede_from(db, "s1", 4, "r1")
    async with store.read() as db:
        assert await load_prompt_messages(db, "s1") == stored[:3]
        assert await load_page(db, "s1", before_seq=None, limit=9) == stored[2:3]
        assert await load_page(db, "s1", before_seq=3, limit=9) == []
        assert (
            await load_page(db, "s1", before_seq=None, limit=9, include_superseded=True)
            == stored[2:]
        )
        assert await load_message(db, stored[2].id, include_superseded=False) == ("s1", stored[2])
        for unseen in (stored[1], stored[3]):
            with pytest.raises(NotFound):
                await load_message(db, unseen.id, include_superseded=False)


async def test_summary_that_kept_nothing_stands_alone(store: Store) -> None:
    await make_session(store)
    summary = replace(a_message("all of it"), synthetic=True, summary_of=Summary(3))
    async with store.write() as db:
        stored = await append_messages(db, "s1", [a_message(), summary])
    async with store.read() as db:
        assert await load_prompt_messages(db, "s1") == stored[1:]


async def test_superseding_a_summary_brings_back_what_it_stood_for(store: Store) -> None:
    await make_session(store)
    summary = replace(a_message("summary"), synthetic=True, summary_of=Summary(2))
    async with store.write() as db:
        stored = await append_messages(db, "s1", [a_message(), a_message(), summary, a_message()])
        assert await supersede_from(db, "s1", 2, "r2") == 3
        assert await supersede_from(db, "s1", 1, "r3") == 1, "superseded ones keep their first run"
    async with store.read() as db:
        assert await load_prompt_messages(db, "s1") == []
        everything = await load_page(db, "s1", before_seq=None, limit=9, include_superseded=True)
        assert everything == stored
        runs = await db.scalars(sa.text("SELECT superseded_by_run_id FROM message ORDER BY seq"))
        assert list(runs) == ["r3", "r2", "r2", "r2"]


async def test_prompt_after_a_retry_is_the_history_before_the_summary(store: Store) -> None:
    await make_session(store)
    summary = replace(a_message("summary"), synthetic=True, summary_of=Summary(2))
    async with store.write() as db:
        stored = await append_messages(db, "s1", [a_message(), a_message(), summary])
        await supersede_from(db, "s1", 2, "r2")
    async with store.read() as db:
        assert await load_prompt_messages(db, "s1") == stored[:1]


async def test_pages_are_ascending_from_the_newest_back(store: Store) -> None:
    await make_session(store)
    async with store.write() as db:
        await append_messages(db, "s1", [a_message(str(n)) for n in range(1, 8)])
        await supersede_from(db, "s1", 7, "r2")
    async with store.read() as db:
        newest = await load_page(db, "s1", before_seq=None, limit=3)
        assert [m.text for m in newest] == ["4", "5", "6"]
        older = await load_page(db, "s1", before_seq=newest[0].seq, limit=9)
        assert [m.text for m in older] == ["1", "2", "3"]


async def test_unknown_message_is_not_found(store: Store) -> None:
    async with store.read() as db:
        with pytest.raises(NotFound):
            await load_message(db, "nothing")


async def test_what_a_compaction_took_is_found_again_by_turn_or_whole(store: Store) -> None:
    await make_session(store)
    summary = replace(a_message("summary"), synthetic=True, summary_of=Summary(6))
    # 1 user, 2-3 round, 4 user, 5 round, 6-7 kept, 8 the summary
    messages = [
        a_message("first"),
        replace(a_message("asked"), role="assistant"),
        replace(a_message("got"), role="tool"),
        a_message("second"),
        replace(a_message("asked again"), role="assistant"),
        replace(a_message("kept"), role="assistant"),
        a_message("third"),
        summary,
    ]
    async with store.write() as db:
        stored = await append_messages(db, "s1", messages)
    async with store.read() as db:
        assert await load_before(db, "s1", 6, whole=False) == stored[3:5]
        assert await load_before(db, "s1", 6, whole=True) == stored[:5]
        assert await load_before(db, "s1", 7, whole=False) == []
        assert await load_before(db, "s1", 1, whole=True) == []
