"""Fields that look as if they were new with every call, for a tool that declares nothing."""

import re

from guard.canonical import VOLATILE_RESULT_KEYS

_LOOKS_VOLATILE = re.compile(
    r"(?:id|uuid|guid|etag|nonce|cursor|timestamp|ts|time|date|datetime|now|elapsed|duration|took"
    r"|latency|uptime)"
    r"|(?:\w*[_-])(?:id|uuid|guid|at|time|date|timestamp|ts|elapsed|duration|ms)"
    r"|\w*[a-z0-9](?:Id|ID|Uuid|UUID|At|Time|Date|Timestamp|Ms|Elapsed|Duration)"
    r"|(?:elapsed|duration)\w*"
)
"""Names of ids and times. An id may well tell one thing from another: this is only a hint."""


def volatile_keys_of(value: object) -> tuple[str, ...]:
    """Names of id- or time-like fields, in order, of a decoded result or of a result's JSON schema.

    Those that are never compared in any tool are left out.
    """
    found: set[str] = set()
    left: list[object] = [value]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            found.update(filter(_looks_volatile, part))
            left.extend(part.values())
        elif isinstance(part, list):
            left.extend(part)
    return tuple(sorted(found))


def _looks_volatile(name: object) -> bool:
    return (
        isinstance(name, str)
        and name not in VOLATILE_RESULT_KEYS
        and _LOOKS_VOLATILE.fullmatch(name) is not None
    )
