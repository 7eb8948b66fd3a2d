"""The event log: numbers without a gap, joined pieces, and what is kept how long."""

import asyncio
import json
import random
from typing import Any, get_args

import pytest

from channels.events import (
    CallArguments,
    CallFinished,
    CallStarted,
    Outcome,
    ReasoningAdded,
    ReasoningStarted,
    RoundStarted,
    RunStarted,
    TextAdded,
    TextFinished,
    TextStarted,
)
from server import agui
from server.errors import Locale, user_text
from server.eventlog import COALESCE_SECONDS, FLUSH_CHARS, PIECE_CHARS, EventLogs
from server.eventring import ENTRY_BYTES, RETAINED_EVENTS, RETAINED_SECONDS, EventRing, Logged
from tests.agui_rules import check_sequence
from tests.fakes.clock import Clock

EVERYTHING = 2**40


class Reader:
    """Reads a log as it grows."""

    def __init__(self, ring: EventRing, cursor: int = 0) -> None:
        self.ring = ring
        self.cursor = cursor
        self.events: list[Logged] = []
        self.wakes = 0
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.wakes += 1
        self.woken.set()

    def read(self) -> list[Logged]:
        """Take what is new; the numbers must go on from the last one."""
        new = list(self.ring.read(self.cursor, EVERYTHING))
        for event in new:
            assert event.first == self.cursor + 1
            self.cursor = event.seq
        self.events += new
        return new

    async def until(self, seq: int) -> None:
        """Read until *seq* is there."""
        self.ring.listen(self)
        async with asyncio.timeout(5):
            while self.read() is not None and self.cursor < seq:
                await self.woken.wait()
                self.woken.clear()
        self.ring.unlisten(self)


def bodies(events: list[Logged]) -> list[dict[str, Any]]:
    return [json.loads(event.body) for event in events]


def text_of(events: list[Logged], key: str) -> str:
    return "".join(
        body["delta"]
        for body in bodies(events)
        if "delta" in body and key in (body.get("messageId"), body.get("toolCallId"))
    )


async def test_the_first_piece_after_a_pause_is_there_at_once_and_the_next_are_joined() -> None:
    logs = EventLogs()
    ring, sink = logs.of("s"), logs.sink("s", "zh-CN")
    reader = Reader(ring)
    sink.emit(TextAdded("a", "one"))
    assert ring.head == 1
    began = asyncio.get_running_loop().time()
    for word in (" two", " three", " four"):
        sink.emit(TextAdded("a", word))
    assert ring.head == 1
    await reader.until(2)
    assert asyncio.get_running_loop().time() - began < COALESCE_SECONDS + 0.5
    assert [body["delta"] for body in bodies(reader.events)] == ["one", " two three four"]


async def test_whatever_is_no_piece_goes_out_at_once_after_the_pieces_before_it() -> None:
    logs = EventLogs()
    ring, sink = logs.of("s"), logs.sink("s", "zh-CN")
    reader = Reader(ring)
    ring.listen(reader)
    sink.emit(RunStarted("r", "m", "hi"))
    sink.emit(TextStarted("a"))
    sink.emit(TextAdded("a", "x"))
    wakes = reader.wakes
    sink.emit(TextAdded("a", "y"))
    sink.emit(TextAdded("a", "z"))
    sink.emit(TextFinished("a"))
    assert reader.wakes == wakes + 1
    assert text_of(reader.read(), "a") == "xyz"
    assert json.loads(reader.events[-1].body)["type"] == "TEXT_MESSAGE_END"
    check_sequence(bodies(reader.events))


async def test_pieces_of_two_calls_are_joined_each_for_itself() -> None:
    logs = EventLogs()
    ring, sink = logs.of("s"), logs.sink("s", "zh-CN")
    sink.emit(TextAdded("a", "!"))
    for piece in "abc":
        sink.emit(CallArguments("c1", piece))
        sink.emit(CallArguments("c2", piece.upper()))
    sink.emit(CallFinished("c1"))
    reader = Reader(ring)
    reader.read()
    assert text_of(reader.events, "c1") == "abc"
    assert text_of(reader.events, "c2") == "ABC"
    assert ring.head == 4


async def test_pieces_are_not_held_past_a_size_and_a_long_one_is_cut() -> None:
    logs = EventLogs()
    ring, sink = logs.of("s"), logs.sink("s", "zh-CN")
    sink.emit(TextAdded("a", "!"))
    sink.emit(TextAdded("a", "x" * FLUSH_CHARS))
    assert ring.head == 2
    sink.emit(TextAdded("a", "语" * (2 * PIECE_CHARS + 1)))
    assert ring.head == 5
    events = Reader(ring).read()
    assert all(len(event.body) < ENTRY_BYTES + 4 * PIECE_CHARS for event in events)
    assert text_of(events, "a") == "!" + "x" * FLUSH_CHARS + "语" * (2 * PIECE_CHARS + 1)


async def test_an_empty_piece_is_no_event() -> None:
    logs = EventLogs()
    logs.sink("s", "zh-CN").emit(TextAdded("a", ""))
    assert logs.of("s").head == 0


async def test_whoever_asks_for_the_sink_of_a_session_writes_behind_the_others() -> None:
    logs = EventLogs()
    first = logs.sink("s", "zh-CN")
    first.emit(RunStarted("r", "m", "hi"))
    first.emit(TextStarted("a"))
    first.emit(TextAdded("a", "x"))
    first.emit(TextAdded("a", "y"))
    logs.sink("s", "zh-CN").emit(TextFinished("a"))
    logs.sink("s", "zh-CN").emit(Outcome("r", "finished", "completed"))
    events = Reader(logs.of("s")).read()
    assert text_of(events, "a") == "xy"
    check_sequence(bodies(events))


async def test_a_late_reader_gets_the_same_text_in_one_piece_from_any_position() -> None:
    ring = EventRing()
    pieces = [str(number) * 3 for number in range(50)]
    for piece in pieces:
        ring.append_piece(
            b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"', piece.encode()
        )
    for cursor in range(50):
        (event,) = Reader(ring, cursor).read()
        assert (event.first, event.seq) == (cursor + 1, 50)
        assert json.loads(event.body)["delta"] == "".join(pieces[cursor:])


async def test_readers_of_every_pace_see_the_same() -> None:
    logs = EventLogs()
    ring, sink = logs.of("s"), logs.sink("s", "zh-CN")
    random_pace = random.Random(7)
    readers = [Reader(ring) for _ in range(4)]
    said = dict.fromkeys(("a", "t", "c"), "")
    sink.emit(RunStarted("r", "m", "hi"))
    sink.emit(TextStarted("a"))
    sink.emit(ReasoningStarted("t"))
    sink.emit(CallStarted("c", "shell", "a"))
    kinds: dict[str, type[agui.Delta]] = {"a": TextAdded, "t": ReasoningAdded, "c": CallArguments}
    for number in range(400):
        key = random_pace.choice("aatc")
        piece = f"{number}é"
        said[key] += piece
        sink.emit(kinds[key](key, piece))
        if number % 20 == 0:
            sink.emit(RoundStarted(number))
        for reader in readers[: random_pace.randrange(4)]:
            reader.read()
    sink.emit(TextFinished("a"))
    for reader in readers:
        reader.read()
        assert reader.cursor == ring.head
        assert {key: text_of(reader.events, key) for key in said} == said


def test_the_events_of_the_active_run_stay_whole_and_old_ones_go() -> None:
    clock = Clock()
    ring = EventRing(clock.monotonic)
    ring.begin_run("r1", 0, b"{}")
    for _ in range(3 * RETAINED_EVENTS):
        ring.append(b"{}")
    clock.advance(2 * RETAINED_SECONDS)
    ring.append(b"{}")
    assert ring.oldest == 1
    assert ring.run("r1") is not None
    ring.end_run(b"{}")
    for _ in range(RETAINED_EVENTS):
        ring.append(b"{}")
    last_to_go = ring.head - RETAINED_EVENTS
    assert last_to_go - 256 <= ring.oldest <= last_to_go + 1
    assert ring.run("r1") is None
    assert not ring.covers(1)
    assert ring.covers(ring.oldest - 1)
    assert not ring.covers(ring.head + 1)


def test_recent_events_stay_however_many_they_are() -> None:
    clock = Clock()
    ring = EventRing(clock.monotonic)
    for _ in range(2 * RETAINED_EVENTS):
        ring.append(b"{}")
    assert ring.oldest == 1


def test_a_log_that_rests_forgets_its_events_but_never_gives_a_number_twice() -> None:
    ring = EventRing()
    ring.append(b"{}")
    ring.forget()
    assert ring.covers(1)
    assert not ring.covers(0)
    ring.append(b"{}")
    assert [event.seq for event in Reader(ring, 1).read()] == [2]


async def test_a_run_that_was_let_go_is_ended_before_the_next_begins() -> None:
    logs = EventLogs()
    sink = logs.sink("s", "zh-CN")
    sink.emit(RunStarted("r1", "m1", "hi"))
    sink.emit(TextStarted("a"))
    sink.emit(RunStarted("r2", "m2", "again"))
    kinds = [body["type"] for body in bodies(Reader(logs.of("s")).read())]
    assert kinds == ["RUN_STARTED", "TEXT_MESSAGE_START", "RUN_ERROR", "RUN_STARTED"]


@pytest.mark.parametrize("locale", get_args(Locale))
async def test_a_run_that_was_let_go_is_told_of_in_its_sessions_language(locale: Locale) -> None:
    logs = EventLogs()
    logs.sink("s", locale).emit(RunStarted("r1", "m1", "hi"))
    logs.let_go("s", locale)
    *_, end = bodies(Reader(logs.of("s")).read())
    assert end["message"] == user_text("run_moved", locale)


async def test_a_halved_pair_of_surrogates_breaks_nothing() -> None:
    logs = EventLogs()
    sink = logs.sink("s", "zh-CN")
    sink.emit(TextAdded("a", "x\ud83d"))
    sink.emit(TextAdded("a", "\ud83d"))
    sink.emit(TextAdded("a", "\ude00"))
    sink.emit(TextFinished("a"))
    assert text_of(Reader(logs.of("s")).read(), "a") == "x\ufffd😀"


@pytest.mark.parametrize("sessions", [100])
async def test_one_timer_flushes_many_sessions_in_time(sessions: int) -> None:
    logs = EventLogs()
    loop = asyncio.get_running_loop()
    readers = [Reader(logs.of(f"s{number}")) for number in range(sessions)]
    sinks = [logs.sink(f"s{number}", "zh-CN") for number in range(sessions)]
    for sink in sinks:
        sink.emit(TextAdded("a", "1"))
        sink.emit(TextAdded("a", "2"))
    began = loop.time()
    await asyncio.gather(*(reader.until(2) for reader in readers))
    assert loop.time() - began < 1.0
