"""Canonical arguments: one spelling for what is equal, different ones for what is not."""

import json

import pytest

from guard import canonical_args
from guard.canonical import MAX_CHARACTERS, MAX_DEPTH, text_of


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"city":"Oslo","unit":"C"}', '{"unit":"C","city":"Oslo"}'),
        ('{"a":{"x":1,"y":[{"p":1,"q":2}]}}', ' {"a": {"y":[{"q":2,"p":1}],\n"x":1}} '),
        ('{"q":"na\\u00efve"}', '{"q":"naïve"}'),
        ('{"s":"\\ud83d\\ude00"}', '{"s":"😀"}'),
        ('{"p":1}', '{"p":1.0}'),
        ('{"p":1}', '{"p":1e0}'),
        ('{"p":100}', '{"p":1E2}'),
        ('{"p":0}', '{"p":-0}'),
        ('{"p":0.0}', '{"p":-0.0}'),
        ('{"p":0.1}', '{"p":1e-1}'),
        ('{"p":1e22}', '{"p":10000000000000000000000}'),
        ('{"p":9007199254740993.0}', '{"p":9007199254740993}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ("not  json\n", " not json"),
        ('{"a": NaN}', '{"a":   NaN}'),
    ],
)
def test_equal_arguments_have_one_spelling(left: str, right: str) -> None:
    assert canonical_args(left) == canonical_args(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"q":"TODO"}', '{"q":"todo"}'),
        ('{"p":"x","limit":null}', '{"p":"x"}'),
        ('{"p":1}', '{"p":"1"}'),
        ('{"p":1}', '{"p":true}'),
        ('{"p":0}', '{"p":false}'),
        ('{"p":9007199254740992}', '{"p":9007199254740993}'),
        ('{"p":9007199254740993.0}', '{"p":9007199254740992.0}'),
        ('{"p":18446744073709551616}', '{"p":18446744073709551617}'),
        ('{"p":1e400}', '{"p":1e500}'),
        ('{"p":%s0}' % ("9" * 5000), '{"p":%s1}' % ("9" * 5000)),
        ('{"p":NaN}', '{"p":Infinity}'),
        ('{"p":NaN}', '{"p":null}'),
        ('{"s":"\\ud800"}', '{"s":"\\ud801"}'),
        ('{"s":"a  b"}', '{"s":"a b"}'),
        ('{"s":"\u00e9"}', '{"s":"e\u0301"}'),
        ('{"l":[1,2]}', '{"l":[2,1]}'),
        ("", "{}"),
        ("{}", "[]"),
    ],
)
def test_different_arguments_have_different_spellings(left: str, right: str) -> None:
    assert canonical_args(left) != canonical_args(right)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_is_read_as_json_up_to_the_limit_only(opening: str) -> None:
    closing = "]" if opening == "[" else "}"

    def nested(depth: int, space: str = "") -> str:
        return opening * depth + space + "1.0" + closing * depth

    assert canonical_args(nested(MAX_DEPTH)) == nested(MAX_DEPTH).replace("1.0", "1")
    assert canonical_args(nested(MAX_DEPTH + 1)) == nested(MAX_DEPTH + 1)


def test_nesting_is_measured_by_depth_and_not_by_the_number_of_brackets() -> None:
    def nested(depth: int) -> str:
        return "[" * depth + "1.0],[1.0]" + "]" * (depth - 1)

    assert canonical_args(nested(MAX_DEPTH)) == nested(MAX_DEPTH).replace("1.0", "1")
    assert canonical_args(nested(MAX_DEPTH + 1)) == nested(MAX_DEPTH + 1)


def test_brackets_inside_strings_are_not_nesting() -> None:
    text = json.dumps({"b": '[{\\"' * 300, "a": 1})
    assert canonical_args(text).startswith('{"a":1,')


def test_many_shallow_brackets_are_not_nesting() -> None:
    assert canonical_args('[{"b":1.0,"a":2}' + ',{"b":1.0,"a":2}' * 300 + "]").startswith(
        '[{"a":2,"b":1},'
    )


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, '"\\' * 200_000 + "[" * 300, '"' * 99_999 + "[" * 300],
    ids=["arrays", "objects", "escapes", "quotes"],
)
def test_hostile_text_is_compared_as_text(text: str) -> None:
    assert canonical_args(text) == text


def test_text_beyond_the_length_limit_is_compared_as_text() -> None:
    text = json.dumps({"b": "x" * MAX_CHARACTERS, "a": 1})
    assert canonical_args(text) == text


def test_canonical_text_is_ascii_so_that_lone_surrogates_stay_digestible() -> None:
    assert canonical_args('{"s":"\\ud800","t":"ï"}') == '{"s":"\\ud800","t":"\\u00ef"}'


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("0 matches", "0 matches"),
        (None, ""),
        ([{"type": "text", "text": "0 "}, {"type": "text", "text": "matches"}], "0 matches"),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        ([], "[]"),
        (float("nan"), "<float>"),
        ({1: "a", "b": 2}, "<dict>"),
        (object(), "<object>"),
    ],
)
def test_content_of_any_shape_has_a_text(content: object, text: str) -> None:
    assert text_of(content) == text


def test_a_picture_among_the_parts_belongs_to_the_text() -> None:
    def parts(url: str) -> object:
        return [{"type": "text", "text": "ok"}, {"type": "image_url", "image_url": {"url": url}}]

    assert text_of(parts("data:a")) != text_of(parts("data:b"))
