"""Cuts: bounded, told, and different whenever the whole is different."""

import hashlib
import json

from hypothesis import given
from hypothesis import strategies as st

from server.tools.cut import Excerpt, cut_result, cut_text, size_bytes


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), min_size=1), st.integers(8, 80))
def test_excerpt_does_not_depend_on_the_chunks(content: bytes, sizes: list[int], cap: int) -> None:
    whole, parts = Excerpt(cap), Excerpt(cap)
    whole.add(content)
    position = 0
    while position < len(content):
        size = sizes[position % len(sizes)]
        parts.add(content[position : position + size])
        position += size
    assert parts.text() == whole.text()
    assert parts.truncated == whole.truncated == (len(content) > cap)


def test_short_text_is_left_alone() -> None:
    assert cut_text("wörd\n", 6) == "wörd\n"


def test_cut_keeps_head_and_tail_and_names_the_hash_of_the_whole() -> None:
    text = "a" * 100_000 + "b" * 100_000
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert cut_text(text, 20) == f"{'a' * 10}\n…[cut: 195 KB, sha256 {digest}]…\n{'b' * 10}"


def test_a_changed_middle_changes_the_cut_and_an_equal_whole_does_not() -> None:
    one = cut_text("a" * 500 + "1" + "b" * 500, 100)
    assert one == cut_text("a" * 500 + "1" + "b" * 500, 100)
    assert one != cut_text("a" * 500 + "2" + "b" * 500, 100)


def test_cut_goes_through_no_character() -> None:
    text = cut_text("€" * 1_000, 100)
    assert "\ufffd" not in text
    assert text.startswith("€" * 16 + "\n…[cut")
    assert text.endswith("]…\n" + "€" * 16)


@given(st.text(max_size=2_000), st.integers(200, 500))
def test_a_cut_result_fits(text: str, cap: int) -> None:
    assert size_bytes(cut_result(text, cap)) <= cap


@given(st.dictionaries(st.sampled_from("abc"), st.text(max_size=3_000)), st.integers(300, 500))
def test_a_cut_object_fits_and_stays_an_object(value: dict[str, str], cap: int) -> None:
    content = cut_result(json.dumps(value), cap)
    assert size_bytes(content) <= cap
    assert isinstance(json.loads(content), dict)


def test_an_object_without_a_long_string_is_wrapped() -> None:
    content = cut_result(json.dumps({"numbers": list(range(1_000))}), 500)
    value = json.loads(content)
    assert value["truncated"] is True
    assert value["text"].startswith('{"numbers": [0, 1, 2')
    assert "sha256" in value["text"]


def test_nesting_too_deep_for_json_is_cut_as_text() -> None:
    assert "…[cut: " in cut_result('{"a":' * 100_000, 500)


def test_last_line_is_the_end_of_what_came() -> None:
    excerpt = Excerpt(20)
    excerpt.add(b"first\n" * 10 + b"second\n\n")
    assert excerpt.last_line() == "second"
