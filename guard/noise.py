"""What of a text is new with every call and tells nothing: clocks, durations, addresses, ids.

Plain numbers are none of it: a line, a page or a count that changes is progress.
"""

import re

_ADDRESS = re.compile(r'(?<!\A)(?<!")0x[0-9a-fA-F]{1,16}(?![0-9a-fA-F])')
"""Of an object. What a result begins with is where a debugger stands; a longer one is a name."""
_CLOCK = re.compile(
    r"[0-9][0-9]?:[0-9][0-9]:[0-9][0-9]?(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_DAY = re.compile(r"[0-9][0-9]{3}-[0-9][0-9]-[0-9][0-9][T ](?=·)")
_DURATION = re.compile(r"[0-9][0-9.]*+(?= ?(?:[mµun]?s|secs?|seconds?|mins?|minutes?|hours?)\b)")
_HAS_DURATION = re.compile(r"[0-9] ?(?:[mµun]?s|secs?|seconds?|mins?|minutes?|hours?)\b")
"""Finds in one pass whether the one above is worth its time."""
_TRIES = re.compile(
    r"[0-9][0-9]*(?= (?:times|attempts|retries|tries|more)\b)"
    r"|(?:(?<=ttempt )|(?<=ttempt #)|(?<=etry )|(?<=etry #)|(?<=tries: ))[0-9][0-9]*"
)
_MILLISECONDS = re.compile(r"""_ms["']?\s*[:=]\s*[0-9][0-9.]*""")
_TIMING = re.compile(
    r'"\w*(?:[tT]ime(?:[_A-Z]\w*|stamp\w*)?|[dD]uration\w*|[eE]lapsed\w*|[lL]atency\w*|Ms'
    r'|[tT]ook\w*)"\s*:\s*"?[0-9][0-9.:]*'
)
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_SCRATCH = re.compile(r"/tmp/[^\s\"'/:,]+")
_REQUEST = re.compile(
    r"""\b(?:request|trace|correlation|req)[ _-]?(?:id)?["'=:#\s]{1,4}(?=[\w-]*[0-9])[\w-]{8,}""",
    re.IGNORECASE,
)
_SHELL_LINE = re.compile(r"(?<=sh: line )[0-9]+|(?<=-c: line )[0-9]+")
"""A shell that stays open counts the lines of all its commands."""
_METER = re.compile(
    r"(?<![\s0-9.kMGT])(?:(?:\\[rn]|[\s0-9.kMGT]){16,}+"
    r"(?:[-0-9]*:[-0-9]{2}:[-0-9]{2}\s+){3}[0-9.]+[kMGT]?)+"
)
"""How far and how fast a download is, rewritten in its line again and again."""
_RATE = re.compile(r"[0-9][0-9.]*+ ?(?:it|[kKMGT]?i?[Bb]|bytes|[kMG]bits?|items|rows|req)/s\b")
_CHANNEL = re.compile(r'"(?:session_id|output_file)"\s*:\s*"[^"]*"')
"""What is new with every call of a shell."""

_MARKED: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (("0x",), _ADDRESS),
    (("_ms",), _MILLISECONDS),
    (("ime", "uration", "lapsed", "atency", 'Ms"', "ook"), _TIMING),
    (("-",), _UUID),
    (("/tmp/",), _SCRATCH),
    (("sh: line ", "-c: line "), _SHELL_LINE),
    (("--:--",), _METER),
    (("/s",), _RATE),
    (("equest", "EQUEST", "race", "rrelation", "req"), _REQUEST),
    (("ttempt", "etry", "tries", " times", " more"), _TRIES),
)
"""Volatile parts with the words without which they are not there."""


def masked(text: str) -> str:
    """The text with its volatile parts replaced by a dot."""
    for words, pattern in _MARKED:
        if has_any(text, words):
            text = pattern.sub("·", text)
    if '"exit_code"' in text:
        text = _CHANNEL.sub("·", text)
    if ":" in text:
        clocked = _CLOCK.sub("·", text)
        text = text if clocked is text else _DAY.sub("", clocked)
    return _DURATION.sub("·", text) if _HAS_DURATION.search(text) else text


def has_any(text: str, words: tuple[str, ...]) -> bool:
    """Whether one of *words* stands in *text*."""
    for word in words:  # faster than any() over a generator, and asked for every result
        if word in text:
            return True
    return False
