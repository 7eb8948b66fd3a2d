"""The class of a result is computed late, and says what it would have said at once."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from guard import NoProgressCall
from guard.alike import MAX_KEPT_CHARACTERS, ResultClass, result_class
from guard.rounds import Round, RoundCall, is_alike, round_call, round_of, was_seen
from tests.guard.test_properties import ANY_TEXT

LONG = "one more line\n" * 60
NOISE = st.builds(
    lambda frame, number: frame.replace("#", str(number)),
    st.sampled_from(
        [
            "took #.5 seconds",
            "page #",
            "10:11:0#",
            "at 0x7f#",
            "a\nb#\nc",
            "c\nb#\na",
            '{"request_id":"r-#","state":"took 3 ms"}',
            '{"state":"took 3 ms","updated_at":"#"}',
            LONG + "in # ms",
            LONG + "# in 3 ms" + LONG,
            json.dumps({"output": "attempt #", "exit_code": 0, "session_id": "s#"}),
        ]
    ),
    st.integers(0, 3),
)
CALLS = st.builds(
    lambda tool, arguments, result: round_call(NoProgressCall(tool, arguments, result)),
    st.sampled_from(["shell", "read"]),
    st.sampled_from(["1", "2"]),
    NOISE | ANY_TEXT,
)
ROUNDS = st.lists(CALLS, min_size=1, max_size=3).map(round_of)


def at_once(call: RoundCall, text: str) -> str:
    return result_class(text, call.result_digest)


@settings(deadline=None)
@given(NOISE | ANY_TEXT)
def test_it_is_what_it_would_have_been_at_once(text: str) -> None:
    made = round_call(NoProgressCall("read", "{}", text))
    assert made.result_class.value == at_once(made, text)


@settings(deadline=None, max_examples=300)
@given(NOISE | ANY_TEXT, NOISE | ANY_TEXT, st.sampled_from(["d", "e"]), st.booleans())
def test_two_are_equal_when_their_values_are(
    left: str, right: str, digest: str, is_known: bool
) -> None:
    one, other = ResultClass(left, "d"), ResultClass(right, digest)
    if is_known:
        assert one.value
    assert (one == other) == (result_class(left, "d") == result_class(right, digest))


@settings(deadline=None, max_examples=300)
@given(ROUNDS, ROUNDS)
def test_rounds_are_alike_when_their_calls_are_in_any_order(one: Round, other: Round) -> None:
    assert is_alike(one, other) == (fresh(one).alike == fresh(other).alike)
    assert is_alike(one, round_of(one.calls[::-1]))


@settings(deadline=None, max_examples=200)
@given(CALLS, st.lists(ROUNDS, max_size=5))
def test_a_call_was_seen_when_its_digest_or_its_class_was(
    call: RoundCall, rounds: list[Round]
) -> None:
    before = [one for each in rounds for one in each.counted]
    expected = any(
        one.action_digest == call.action_digest
        and (
            one.result_digest == call.result_digest
            or one.result_class.value == call.result_class.value
        )
        for one in map(renewed, before)
    )
    assert was_seen(call, [each.counted for each in rounds]) == expected


def test_a_result_that_is_too_long_to_be_kept_has_the_same_class() -> None:
    bodies = [(1, "x"), (2, "x"), (3, "y")]
    texts = [f"{number} ms\n" + body * MAX_KEPT_CHARACTERS for number, body in bodies]
    one, same, other = (ResultClass(text, str(at)) for at, text in enumerate(texts))
    assert one == same != other
    assert [each.value for each in (one, same, other)] == [
        result_class(text, str(at)) for at, text in enumerate(texts)
    ]
    assert same != ResultClass("2 ms", "1")


def test_no_content_is_in_its_representation() -> None:
    made = round_call(NoProgressCall("read", '{"path":"secret"}', "secret"))
    assert "secret" not in repr(made) + repr(made.result_class) + repr(round_of((made,)))


def fresh(one: Round) -> Round:
    return round_of([renewed(call) for call in one.calls])


def renewed(call: RoundCall) -> RoundCall:
    """The call with its class computed, not compared by its text."""
    assert call.result_class.value
    return call
