"""Fitting Markdown into what a platform takes."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from channels.markdown import LEAST_LIMIT_BYTES, limit_tables, plain, size, split, truncate

GUARD = "\u200b"

words = st.text(
    st.sampled_from("ab 。你好é\U0001f600\u0301") | st.characters(codec="utf-8"), max_size=30
)
marks = st.sampled_from(["```", "```py", "~~~", "~~~~ text", "    ```", "````", "`" * 12, "```a`b"])
lines = st.one_of(
    words,
    words.map(lambda word: word * 9),
    marks,
    st.just(""),
    st.sampled_from(["| a | b |", "|---|---|", "# title", "- item"]),
    st.tuples(words, marks).map("".join),
)
texts = st.lists(lines, max_size=25).map("\n".join)
limits = st.integers(LEAST_LIMIT_BYTES, 300)


def fence_lines(text: str) -> list[str]:
    """The lines that open or close a block, by the rules of CommonMark at any indentation."""
    found: list[str] = []
    opened = ""
    for line in text.split("\n"):
        match = re.fullmatch(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})(.*)", line)
        if opened:
            mark = line.strip()
            if mark and set(mark) == {opened[0]} and len(mark) >= len(opened):
                found.append(line)
                opened = ""
        elif match:
            found.append(line)
            opened = match[1]
    return found


def content(text: str) -> str:
    """The characters of *text* that are not white space and not in a line that marks a block."""
    marking = fence_lines(text)
    kept: list[str] = []
    for line in text.split("\n"):
        if marking and line == marking[0]:
            marking.pop(0)
        else:
            kept.append(line)
    return "".join("".join(kept).replace(GUARD, "").split())


def unified(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


@given(texts, limits)
@example("```\n" + "x" * 300, 64)
@example("```" + "p" * 100 + "\n" + "x" * 300, 64)
@example("x" * 61 + "```" + "y" * 300, 64)
@example("a\n" * 20 + "```py\nprint()\n```\n", 64)
def test_every_part_fits_and_closes_its_blocks(text: str, limit: int) -> None:
    for part in split(text, limit):
        assert len(part.encode("utf-8", "strict")) <= limit
        assert part.strip()
        assert len(fence_lines(part)) % 2 == 0


@given(texts, limits)
def test_nothing_but_the_marks_of_blocks_is_lost(text: str, limit: int) -> None:
    assert "".join(map(content, split(text, limit))) == content(unified(text))


@given(st.lists(words, min_size=1, max_size=40).map("\n".join), limits)
def test_without_blocks_the_parts_joined_are_the_text(text: str, limit: int) -> None:
    text = re.sub(r"[`~\r\u200b]", "", text)
    joined = "".join(split(text, limit))
    if all(part.strip() for part in text.split("\n")):
        assert joined == text
    assert "".join(joined.split()) == "".join(text.split())


@given(texts)
def test_what_fits_and_is_balanced_is_left_alone(text: str) -> None:
    text = unified(text)
    if text.strip() and len(fence_lines(text)) % 2 == 0:
        assert split(text, 100_000) == [text]


@given(st.text(max_size=200), limits)
def test_half_characters_never_get_out(text: str, limit: int) -> None:
    for part in split(text + "\ud83d", limit):
        part.encode("utf-8", "strict")


@pytest.mark.parametrize("offset", range(8))
def test_four_byte_characters_at_every_boundary_stay_whole(offset: int) -> None:
    text = "x" * offset + "😀" * 400
    parts = split(text, 100)
    assert "".join(parts) == text
    assert all(len(part.encode()) <= 100 for part in parts)


@pytest.mark.parametrize("character", ["👨‍👩‍👧‍👦", "👍🏽", "é", "🇩🇪", "❤️"])
@pytest.mark.parametrize("offset", range(12))
def test_what_is_seen_as_one_character_is_not_cut(character: str, offset: int) -> None:
    text = "x" * (88 + offset) + character + "y" * 50
    assert any(character in part for part in split(text, 100))


def has_empty_box(part: str) -> bool:
    """A block with a language and nothing in it; one that is never closed counts too."""
    return re.search(r"```py(thon)?\n+(```|\Z|…)", part) is not None


@pytest.mark.parametrize("before", range(1, 101))
@pytest.mark.parametrize("line", ["print(1)", "x" * 70, "x" * 300])
def test_a_block_opened_just_before_the_limit_leaves_no_empty_box(before: int, line: str) -> None:
    text = "x" * before + f"\n```python\n{line}\n```\n"
    parts = split(text, 100)
    assert "".join(map(content, parts)) == content(text)
    assert not any(has_empty_box(part) for part in parts)
    assert not has_empty_box(truncate(text, 100, "\n…"))


@pytest.mark.parametrize("length", range(60, 100))
def test_a_block_that_ends_just_behind_a_cut_leaves_no_empty_box(length: int) -> None:
    parts = split("```py\n" + "x" * length + "\n" + "`" * 9 + "   \nafter\n", 100)
    assert not any(has_empty_box(part) for part in parts)
    assert parts[-1].endswith("after\n")
    assert len(fence_lines(parts[-1])) % 2 == 0


def test_a_block_that_is_cut_is_opened_again_with_its_language() -> None:
    text = "before\n\n```python\n" + "value = 1\n" * 40 + "```\nafter\n"
    parts = split(text, 120)
    assert len(parts) > 3
    assert all(part.startswith("```python\n") for part in parts[1:-1])
    assert all(part.endswith("\n```\n") for part in parts[1:-1])
    assert sum(part.count("value = 1\n") for part in parts) == 40
    assert parts[-1].endswith("after\n")


def test_a_block_with_a_language_too_long_to_repeat_stays_a_block_without_it() -> None:
    assert split("```" + "p" * 100 + "\nx = 1\n```\n", 64) == ["```\nx = 1\n```\n"]


def test_a_very_long_line_in_a_block_is_cut_and_stays_in_blocks() -> None:
    line = "abcdefghi " * 900
    parts = split(f"```text\n{line}\nnext\n```\n", 4000)
    assert all(len(part.encode()) <= 4000 for part in parts)
    assert all(part.startswith("```text\n") and part.endswith("```\n") for part in parts)
    assert "".join("".join(part.split("\n")[1:-2]) for part in parts) == line + "next"


def test_cuts_fall_between_paragraphs_where_they_can() -> None:
    text = "a" * 60 + "\n\n" + "b" * 60 + "\n"
    assert split(text, 100) == ["a" * 60 + "\n\n", "b" * 60 + "\n"]


def test_a_block_that_fits_into_the_next_part_is_not_cut() -> None:
    block = "```py\n" + "x = 1\n" * 10 + "```\n"
    assert split("word " * 12 + "\n" + block, 100) == ["word " * 12 + "\n", block]


def test_a_block_left_open_is_closed_and_one_just_opened_is_left_out() -> None:
    assert split("```py\nx = 1", 1000) == ["```py\nx = 1\n```\n"]
    assert split("text\n```py", 1000) == ["text\n"]
    assert split("```py", 1000) == []


def test_a_line_in_a_block_that_opens_one_itself_is_content() -> None:
    text = "```md\n```py\nx\n```\n"
    assert split(text, 1000) == [text]
    assert split("```py\n```py", 1000) == ["```py\n```py\n```\n"]


@pytest.mark.parametrize("text", ["", " \n\n", "\n" * 500])
def test_a_blank_text_has_no_parts(text: str) -> None:
    assert split(text, 100) == []


def test_a_limit_too_small_for_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="63 bytes"):
        split("x", 63)


@given(texts, st.integers(100, 300))
def test_a_cut_text_fits_with_its_note(text: str, limit: int) -> None:
    note = "\n\n…(内容过长,已截断)"
    cut = truncate(text, limit, note)
    assert size(cut) <= limit
    if size(unified(text)) > limit:
        assert cut.endswith(note)
        assert len(fence_lines(cut)) % 2 == 0
    else:
        assert cut == unified(text)


def test_a_cut_text_uses_the_room_it_has() -> None:
    cut = truncate("line\n\n" * 200, 500, "\n…")
    assert 480 <= size(cut) <= 500


TABLE = "| a | b |\n|---|:-:|\n| 1 | 2 |\n"


def test_tables_above_the_limit_become_blocks() -> None:
    text = f"one\n\n{TABLE}\ntwo\n\n{TABLE}\nthree\n\n{TABLE}"
    shown = limit_tables(text, 2)
    assert shown == f"one\n\n{TABLE}\ntwo\n\n{TABLE}\nthree\n\n```\n{TABLE}```\n"
    assert limit_tables(text, 3) == text
    assert limit_tables(text, 0).count("```\n| a") == 3


def test_a_table_at_the_very_end_is_closed_on_a_line_of_its_own() -> None:
    assert limit_tables(TABLE.rstrip("\n"), 0) == f"```\n{TABLE}```\n"


def test_a_table_in_a_block_is_no_table() -> None:
    text = f"```\n{TABLE}```\n{TABLE}"
    assert limit_tables(text, 1) == text


def test_pipes_alone_make_no_table() -> None:
    text = "a | b\nc | d\n\ntitle\n---\n"
    assert limit_tables(text, 0) == text


@given(texts, st.integers(0, 3))
def test_limiting_tables_twice_changes_nothing_more(text: str, most: int) -> None:
    once = limit_tables(text, most)
    assert limit_tables(once, most) == once


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Title\n", "Title\n"),
        ("> a quote\n", "a quote\n"),
        ("**bold** and *soft* and ~~gone~~", "bold and soft and gone"),
        ("`a *b* c`", "a *b* c"),
        ("[name](https://example.com)", "name (https://example.com)"),
        ("[https://example.com](https://example.com)", "https://example.com"),
        ("![picture](img_1)", "picture (img_1)"),
        ("2*3*4 and __init__ and a_b_c", "2*3*4 and __init__ and a_b_c"),
        ("* item", "* item"),
        ("```py\n# no **title**\n```\nend", "# no **title**\nend"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", "| a | b |\n| 1 | 2 |\n"),
    ],
)
def test_plain_text_has_the_words_without_the_marks(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text(st.sampled_from("ab *`~[](!)>#|-\n"), max_size=200))
def test_plain_text_keeps_every_letter(text: str) -> None:
    assert [c for c in plain(text) if c in "ab"] == [c for c in text if c in "ab"] or any(
        line.lstrip().startswith(("```", "~~~")) for line in text.split("\n")
    )
