"""The contract of the four steps: two independent sources are to be found."""

from collections.abc import Mapping
from typing import Any, Final

TWO_SOURCES: Final[Mapping[str, Any]] = {
    "id": "two-sources",
    "version": 1,
    "goal": "找到两项独立证据",
    "items": [
        {
            "id": "source-1",
            "text": "第一个独立来源",
            "tool": "open_doc",
            "extract": {"jmespath": "facts[?source=='A1'].text | [0]"},
        },
        {
            "id": "source-2",
            "text": "第二个独立来源",
            "tool": "open_doc",
            "extract": {"jmespath": "facts[?source=='A2'].text | [0]"},
        },
    ],
    "fields": [
        {
            "name": "evidence",
            "tool": "evidence_status",
            "extract": {"regex": "verified=(\\d+)"},
            "counts": "grows",
            "initial": 0,
        },
        {
            "name": "gaps",
            "tool": "search_docs",
            "extract": {"jmespath": "length(open)"},
            "counts": "shrinks",
            "initial": 2,
        },
    ],
    "stop_after": 2,
    "nudge_after": 1,
    "on_no_progress": "no_progress",
}
