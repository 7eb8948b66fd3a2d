"""What holds for every history, not only for the examples."""

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from guard import (
    Attachment,
    Message,
    NoProgressCall,
    NoProgressGuard,
    NoProgressNotice,
    NoProgressTail,
    Nudge,
    advance,
    apply_no_progress_notices,
    canonical_args,
    evidence,
    missing_anchors,
    result_digest,
    scan_no_progress_notices,
)
from tests.guard.history import GREP, WAIT, History, finish_round

untimed = settings(deadline=None, max_examples=60)
"""An example may take as long as the machine needs."""

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
SHELL_NOISE = st.integers(0, 3).map(
    lambda n: json.dumps({"output": "x", "completed": True, "session_id": n, "exit_code": n % 2})
)
CALLS = st.builds(
    NoProgressCall,
    st.sampled_from(["shell", "grep_search", "wait_subagents", "view_image"]),
    st.sampled_from(['{"a":1,"b":2}', '{"b":2,"a":1}', '{"action":"await_async"}', "", "a  b"]),
    st.sampled_from(["x", "x\n", '{"completed":false}', '{"timedOut":true}', '{"timestamp":1}'])
    | SHELL_NOISE,
    st.none() | st.sampled_from("ab").map(lambda name: Attachment(f"data:{name}", "image/png")),
)
ROUNDS = st.lists(st.lists(CALLS, min_size=1, max_size=3), min_size=1, max_size=3)
HISTORIES = st.lists(
    st.tuples(ROUNDS, st.integers(1, 16)).map(lambda drawn: drawn[0] * drawn[1]), max_size=3
).map(lambda parts: [calls for part in parts for calls in part])


def shuffled(value: Json) -> Json:
    """The same value with the keys of every object in reverse order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@untimed
@given(JSON)
def test_key_order_and_white_space_never_change_a_digest(value: Json) -> None:
    left, right = json.dumps(value), json.dumps(shuffled(value))
    spaced = json.dumps(shuffled(value), indent=2, ensure_ascii=True)
    assert canonical_args(left) == canonical_args(right) == canonical_args(spaced)
    if isinstance(value, dict | list):
        digests = {result_digest(replace(GREP, result_content=t)) for t in (left, right, spaced)}
        assert len(digests) == 1


@untimed
@given(JSON, JSON)
def test_different_arguments_never_have_one_spelling(left: Json, right: Json) -> None:
    assert (canonical_args(json.dumps(left)) == canonical_args(json.dumps(right))) == (
        is_same(left, right)
    )


def is_same(left: Json, right: Json) -> bool:
    """Equality of JSON values: a boolean is no number, an integral float is an integer."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    return left == right


@untimed
@given(HISTORIES, st.booleans())
def test_replay_agrees_with_the_live_guard_at_every_prefix(
    rounds: list[list[NoProgressCall]], stores_evidence: bool
) -> None:
    history, guard = History(stores_evidence), NoProgressGuard()
    pushed: list[NoProgressNotice] = []
    folded: NoProgressTail | None = None
    for calls in rounds:
        anchor = history.add_round(*calls)
        finish_round(guard, anchor, *calls)
        action = guard.take_action()
        if isinstance(action, Nudge):
            pushed.append(NoProgressNotice(action.after_tool_call_id, action.text))
        folded, _ = advance(folded, [evidence(call) for call in calls])
        replayed = scan_no_progress_notices(history.messages, history.attachments)
        assert replayed.tail == guard.tail == folded
        assert replayed.notices == tuple(pushed)
        assert replayed.tool_names == guard.tool_names


@untimed
@given(HISTORIES, ANY_TEXT)
def test_replay_agrees_however_the_results_were_rewritten_since(
    rounds: list[list[NoProgressCall]], stub: str
) -> None:
    history, guard = History(stores_evidence=True), NoProgressGuard()
    for number, calls in enumerate(rounds):
        finish_round(guard, history.add_round(*calls), *calls)
        messages = [cleared(message, f"{stub}{number}") for message in history.messages]
        assert scan_no_progress_notices(messages).tail == guard.tail


def cleared(message: Message, stub: str) -> Message:
    return {**message, "content": stub} if message["role"] == "tool" else message


@untimed
@given(HISTORIES, st.integers(0, 60))
def test_a_cut_with_the_tail_before_it_agrees_with_the_whole(
    rounds: list[list[NoProgressCall]], at: int
) -> None:
    whole, head, kept = History(True), History(True), History(True)
    for number, calls in enumerate(rounds):
        whole.add_round(*calls)
        (head if number < at else kept).add_round(*calls)
    before = scan_no_progress_notices(head.messages).tail
    cut = scan_no_progress_notices(kept.messages, tail=before)
    assert cut.tail == scan_no_progress_notices(whole.messages).tail


@untimed
@given(HISTORIES, st.sampled_from([GREP, WAIT]))
def test_a_differing_or_an_exempt_round_restarts(
    rounds: list[list[NoProgressCall]], last: NoProgressCall
) -> None:
    unseen = replace(last, arguments_json=last.arguments_json + " unseen") if last is GREP else last
    guard = NoProgressGuard()
    for calls in rounds:
        finish_round(guard, "a", *calls)
    finish_round(guard, "b", unseen)
    assert guard.streak == (1 if last is GREP else 0)
    assert guard.take_action() is None


@untimed
@given(HISTORIES, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3))), st.booleans())
def test_placing_notices_leaves_its_input_alone_and_only_adds(
    rounds: list[list[NoProgressCall]], anchors: list[tuple[int, int]], recurring_ids: bool
) -> None:
    history = History(recurring_ids=recurring_ids)
    for calls in rounds:
        history.add_round(*calls)
    notices = [NoProgressNotice(f"call_{reply}_{at}", f"{reply}", at) for reply, at in anchors]
    before = copy.deepcopy(history.messages)
    shown = apply_no_progress_notices(history.messages, notices)
    assert history.messages == before
    assert [message for message in shown if message["role"] != "user"] == before
    missing = missing_anchors(history.messages, notices)
    assert len(shown) == len(before) + len(set(notices)) - len(missing)
    assert not_within_a_round(shown)


def not_within_a_round(messages: Sequence[Message]) -> bool:
    """Whether each tool message follows its reply or another tool message."""
    pairs = zip(messages, messages[1:], strict=False)
    return all(a["role"] != "user" for a, b in pairs if b["role"] == "tool")


JUNK: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary(max_size=4)
    | st.sampled_from(["role", "user", "tool", "assistant", "a", "b"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(ANY_TEXT | st.integers() | st.none(), inner, max_size=3)
    | st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "tool", "assistant"]) | inner,
            "content": inner,
            "tool_call_id": st.sampled_from("ab") | inner,
            "tool_calls": st.lists(inner, max_size=3) | inner,
            "id": st.sampled_from("ab") | inner,
            "function": inner,
            "name": st.sampled_from(["shell", "wait_subagents"]) | inner,
            "arguments": inner,
            "result_digest": inner,
            "exempt": inner,
            "synthetic": inner,
            "harness": inner,
        },
    ),
    max_leaves=20,
)  # fmt: skip


@untimed
@given(st.lists(JUNK, max_size=8), st.dictionaries(st.sampled_from("ab"), JUNK))
def test_no_history_makes_the_scan_raise(messages: list[object], attachments: object) -> None:
    given_messages = cast(list[Message], messages)  # a store can hold anything
    result = scan_no_progress_notices(
        given_messages, cast(dict[str, Attachment], attachments)  # as above
    )  # fmt: skip
    notices = [NoProgressNotice("a", "text"), *result.notices]
    apply_no_progress_notices(given_messages, notices)


@untimed
@given(JUNK, JUNK, JUNK, JUNK)
def test_no_call_makes_the_guard_raise(
    name: object, arguments: object, content: object, attachment: object
) -> None:
    call = NoProgressCall(
        cast(str, name),  # a provider can send anything
        cast(str, arguments),
        cast(str, content),
        cast(Attachment, attachment),
    )
    guard = NoProgressGuard()
    for _ in range(5):
        finish_round(guard, "a", call)
    assert isinstance(guard.take_action(), Nudge) or evidence(call).exempt


@untimed
@given(ANY_TEXT | JSON.map(json.dumps), ANY_TEXT | JSON.map(json.dumps))
def test_any_text_is_a_call(arguments: str, content: str) -> None:
    for tool in ("shell", "wait_subagents", "any"):
        found = evidence(NoProgressCall(tool, arguments, content))
        assert len(found.action_digest) == len(found.result_digest) == 16
        assert found.faults == ()
