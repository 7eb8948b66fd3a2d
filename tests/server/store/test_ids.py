"""Ids of rows."""

import re
from concurrent.futures import ThreadPoolExecutor

from server.store.ids import IdSource, new_id


def test_ids_are_short_and_safe_in_a_url() -> None:
    assert all(re.fullmatch("[0-9a-z]{26}", new_id()) for _ in range(1000))


def test_ids_sort_in_the_order_of_their_making() -> None:
    ids = [new_id() for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_from_many_threads_are_all_different() -> None:
    source = IdSource()
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda _: source.next(), range(20_000)))
    assert len(set(ids)) == len(ids)
