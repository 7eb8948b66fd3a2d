"""The fold behind every progress card."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from channels.events import (
    CallArguments,
    CallFinished,
    CallProgress,
    CallResult,
    CallStarted,
    Compaction,
    Discarded,
    Outcome,
    OutcomeStatus,
    ReasoningAdded,
    ReasoningFinished,
    ReasoningStarted,
    RoundFinished,
    RoundStarted,
    RunEvent,
    RunStarted,
    TextAdded,
    TextFinished,
    TextStarted,
    UserJoined,
)
from channels.progress import START, Progress, Shown, advance

ENDINGS: Sequence[OutcomeStatus] = ("finished", "waiting", "failed", "cancelled")


def shown_after(*events: RunEvent) -> Shown:
    progress = Progress()
    for event in events:
        progress.emit(event)
    return progress.shown


def text(message_id: str, *deltas: str) -> list[RunEvent]:
    added = [TextAdded(message_id, delta) for delta in deltas]
    return [TextStarted(message_id), *added, TextFinished(message_id)]


def call(call_id: str, tool_name: str) -> list[RunEvent]:
    arguments = CallArguments(call_id, '{"secret":1}')
    return [CallStarted(call_id, tool_name, "m"), arguments, CallFinished(call_id)]


def result(call_id: str, tool_name: str = "shell") -> CallResult:
    return CallResult(f"r-{call_id}", call_id, tool_name, "a result nobody shall see")


@dataclass
class Story:
    """A legal run, drawn step by step, and what a card must show after each event."""

    draw: st.DrawFn
    events: list[RunEvent] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """Texts that stand: those of whole attempts."""
    ids: int = 0

    def tell(self, event: RunEvent, open_text: str = "") -> None:
        self.events.append(event)
        self.answers.append(open_text or next((s for s in reversed(self.said) if s), ""))

    def new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def attempt(self) -> tuple[str, list[str], str]:
        """One reply of the model: the text's id, the calls' ids, the whole text."""
        if self.draw(st.booleans()):
            thought = self.new_id()
            self.tell(ReasoningStarted(thought))
            self.tell(ReasoningAdded(thought, "a thought"))
            self.tell(ReasoningFinished(thought))
        message_id, whole = self.new_id(), ""
        if self.draw(st.booleans()):
            self.tell(TextStarted(message_id))
            for delta in self.draw(st.lists(st.text("ab ", max_size=3), max_size=4)):
                whole += delta
                self.tell(TextAdded(message_id, delta), whole)
            self.tell(TextFinished(message_id), whole)
        calls = [self.new_id() for _ in range(self.draw(st.integers(0, 3)))]
        for call_id in calls:
            for event in call(call_id, f"tool-{call_id}"):
                self.tell(event, whole)
        return message_id, calls, whole

    def round(self, number: int) -> None:
        self.tell(RoundStarted(number))
        for _ in range(self.draw(st.integers(0, 2))):
            message_id, calls, _ = self.attempt()
            self.tell(Discarded([message_id], calls))
        _, calls, whole = self.attempt()
        self.said.append(whole)
        for call_id in self.draw(st.permutations(calls)):
            self.tell(CallProgress(call_id, f"tool-{call_id}", "half way"))
            self.tell(result(call_id, f"tool-{call_id}"))
        self.tell(RoundFinished(number))

    def between(self) -> None:
        if self.draw(st.booleans()):
            self.tell(UserJoined(self.new_id(), "more"))
        if self.draw(st.booleans()):
            activity = self.new_id()
            self.tell(Compaction(activity, "started"))
            self.tell(Compaction(activity, self.draw(st.sampled_from(["finished", "failed"]))))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    story = Story(draw)
    story.tell(RunStarted("r1", "m0", "do it"))
    for number in range(1, draw(st.integers(0, 4)) + 1):
        story.round(number)
        story.between()
    story.tell(Outcome("r1", draw(st.sampled_from(ENDINGS)), "code"))
    return story


@given(stories())
def test_the_answer_is_the_newest_text_that_stands_at_every_event(story: Story) -> None:
    states = list(accumulate(story.events, advance, initial=START))[1:]
    assert [state.answer for state in states] == story.answers


@given(stories())
def test_a_card_is_done_with_the_outcome_and_never_before(story: Story) -> None:
    *before, last = list(accumulate(story.events, advance, initial=START))[1:]
    assert all(state.phase != "done" and state.outcome is None for state in before)
    assert last.phase == "done"
    assert last.outcome is story.events[-1]
    assert last.tool is None


@given(stories())
def test_a_tool_is_shown_as_long_as_its_call_is_open(story: Story) -> None:
    state, open_calls = START, dict[str, str]()
    for event in story.events:
        state = advance(state, event)
        match event:
            case CallStarted(call_id, tool_name):
                open_calls[call_id] = tool_name
            case CallResult(call_id=call_id):
                del open_calls[call_id]
            case Discarded(call_ids=call_ids):
                open_calls = {k: v for k, v in open_calls.items() if k not in call_ids}
            case _:
                pass
        assert state.tool == (list(open_calls.values())[-1] if open_calls else None)
        if state.phase == "tool":
            assert state.tool is not None


@given(stories())
def test_an_attempt_that_was_withdrawn_leaves_nothing_behind(story: Story) -> None:
    withdrawn = {
        id_
        for event in story.events
        if isinstance(event, Discarded)
        for id_ in [*event.message_ids, *event.call_ids]
    }
    kept = [
        event
        for event in story.events
        if not isinstance(event, Discarded)
        and getattr(event, "message_id", "") not in withdrawn
        and getattr(event, "call_id", "") not in withdrawn
    ]
    assert shown_after(*story.events) == shown_after(*kept)


def test_the_phases_follow_what_the_model_does() -> None:
    steps: list[tuple[RunEvent, str]] = [
        (RunStarted("r1", "m0", "do it"), "thinking"),
        (RoundStarted(1), "thinking"),
        (ReasoningAdded("t1", "hm"), "thinking"),
        (TextStarted("m1"), "answering"),
        (TextAdded("m1", "let me look"), "answering"),
        (CallStarted("c1", "grep_search", "m1"), "tool"),
        (CallStarted("c2", "shell", "m1"), "tool"),
        (result("c2"), "tool"),
        (result("c1"), "thinking"),
        (RoundStarted(2), "thinking"),
        (TextAdded("m2", "found"), "answering"),
        (Outcome("r1", "finished", "completed"), "done"),
    ]
    state = START
    for event, phase in steps:
        state = advance(state, event)
        assert state.phase == phase
    assert (state.round, state.answer) == (2, "found")


def test_the_tool_that_still_runs_is_named() -> None:
    calls = [*call("c1", "grep_search"), *call("c2", "shell")]
    assert shown_after(*calls).tool == "shell"
    assert shown_after(*calls, result("c2")).tool == "grep_search"


def test_an_empty_text_does_not_hide_the_one_before() -> None:
    assert shown_after(*text("m1", "hello"), TextStarted("m2")).answer == "hello"


def test_a_withdrawn_text_gives_way_to_the_one_before() -> None:
    events = [*text("m1", "let me look"), RoundStarted(2), *text("m2", "the ans")]
    assert shown_after(*events).answer == "the ans"
    assert shown_after(*events, Discarded(["m2"], [])).answer == "let me look"


def test_arguments_results_and_thoughts_are_not_in_what_is_shown() -> None:
    state = shown_after(
        ReasoningAdded("t1", "a thought"), *call("c1", "shell"), result("c1"), *call("c2", "shell")
    )
    words = repr(state)
    assert not any(word in words for word in ("thought", "secret", "nobody"))


def test_a_run_that_goes_on_after_a_restart_begins_anew() -> None:
    state = shown_after(RoundStarted(7), *text("m1", "half"), RunStarted("r1", None, "", attempt=2))
    assert state == START


def test_nothing_that_comes_after_the_outcome_changes_the_card() -> None:
    done = shown_after(*text("m1", "all"), Outcome("r1", "cancelled", "cancelled"))
    late = [TextAdded("m1", "late"), *call("c9", "shell"), Outcome("r1", "finished", "completed")]
    for event in late:
        assert advance(done, event) == done


def test_compaction_and_joined_messages_are_shown() -> None:
    state = shown_after(UserJoined("m5", "more"), Compaction("a1", "started"))
    assert (state.joined, state.is_compacting) == (1, True)
    assert not advance(state, Compaction("a1", "finished")).is_compacting
    assert not advance(state, Outcome("r1", "failed", "x")).is_compacting


def test_folding_leaves_the_earlier_value_alone() -> None:
    before = shown_after(*text("m1", "a"))
    copy = replace(before)
    advance(before, TextAdded("m1", "b"))
    assert before == copy
