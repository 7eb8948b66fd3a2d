"""Splitting an event stream into data lines."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import LLMBadResponse
from server.llm import sse
from server.llm.sse import DataLines


def lines_of(*pieces: bytes) -> list[bytes]:
    lines = DataLines()
    found = [line for piece in pieces for line in lines.feed(piece)]
    return found + lines.finish()


def test_payloads_come_without_their_field_name_and_spaces() -> None:
    assert lines_of(b'data: {"a":1}\n\ndata:{"b":2}\n\n') == [b'{"a":1}', b'{"b":2}']


def test_crlf_and_a_missing_blank_line_change_nothing() -> None:
    assert lines_of(b"data: {}\r\n\r\ndata: {}\ndata: [DONE]\r\n") == [b"{}", b"{}", b"[DONE]"]


def test_comments_other_fields_and_empty_payloads_are_passed_over() -> None:
    assert lines_of(b": ping\n\nevent: x\nid: 7\nretry: 3\ndata:\ndata: {}\n\n") == [b"{}"]


def test_separators_of_unicode_do_not_end_a_line() -> None:
    payload = '{"t":"a\u2028b\u2029c\u0085d\x0be"}'.encode()
    assert lines_of(b"data: " + payload + b"\n") == [payload]


def test_a_byte_order_mark_and_json_without_a_field_name_are_understood() -> None:
    assert lines_of(b'\xef\xbb\xbfdata: {}\n{"error":1}\n') == [b"{}", b'{"error":1}']


def test_a_last_line_without_its_end_counts() -> None:
    assert lines_of(b"data: {}\n\ndata: [DONE]") == [b"{}", b"[DONE]"]


@given(st.lists(st.integers(1, 9), min_size=1), st.booleans())
def test_the_pieces_it_arrives_in_do_not_matter(sizes: list[int], crlf: bool) -> None:
    end = b"\r\n" if crlf else b"\n"
    whole = end.join(
        [b": x", 'data: {"t":"你好 \u2028"}'.encode(), b"", b"data:{}", b"", b"data: e"]
    )
    pieces: list[bytes] = []
    start = 0
    while start < len(whole):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(whole[start : start + size])
        start += size
    assert lines_of(*pieces) == lines_of(whole)


def test_a_megabyte_in_one_line_costs_its_length_once() -> None:
    line = b"data: " + b"x" * 1_000_000 + b"\n"
    started = time.process_time()
    assert len(lines_of(*(line[i : i + 7] for i in range(0, len(line), 7)))[0]) == 1_000_000
    assert time.process_time() - started < 5, "joining piece by piece would take minutes"


def test_a_line_without_end_is_refused_before_it_eats_the_memory() -> None:
    lines = DataLines()
    piece = b"x" * (sse.MAX_LINE_BYTES // 4)
    for _ in range(4):
        lines.feed(piece)
    with pytest.raises(LLMBadResponse):
        lines.feed(b"x")
