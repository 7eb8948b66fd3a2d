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
_UNITS = r" ?(?:[mµun]?s|m?secs?|(?:milli|micro|nano)?seconds?|mins?|minutes?|hours?)\b"
_DURATION = re.compile(rf"[0-9][0-9.,]{{0,30}}+(?:e-?[0-9]{{1,3}})?(?={_UNITS})")
_LARGER_UNITS = re.compile(r"(?:[0-9]{1,4}[dhm] ?){1,4}(?=·s)")
"""Before seconds, as in `2m 13s`."""
_HAS_DURATION = re.compile(rf"[0-9]{_UNITS}")
"""Finds in one pass whether the one above is worth its time."""
_TRIES = re.compile(
    r"[0-9][0-9]*(?= (?:times|attempts|retries|tries|more)\b)"
    r"|(?:(?<=ttempt )|(?<=ttempt: )|(?<=ttempt #)|(?<=try )|(?<=try #)|(?<=tries: )"
    r"|(?<=arning #))[0-9][0-9]*"
)
_MILLISECONDS = re.compile(r"""_ms["']?\s*[:=]\s*[0-9][0-9.]*""")
_TIMING = re.compile(
    r'"(?:ts|\w*(?:[tT]ime(?:[_A-Z]\w*|stamp\w*)?|[dD]uration\w*|[eE]lapsed\w*|[lL]atency\w*|Ms'
    r'|[tT]ook\w*))"\s*:\s*"?[0-9][0-9.:]*'
)
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_SCRATCH = re.compile(r"(?:/tmp/|[\\/]Temp[\\/]{1,2})[^\s\"'\\/:,]+")
_REQUEST = re.compile(
    r"""\b(?:request|trace|correlation|req)[ _-]?(?:id)?["'=:#\s]{1,4}(?=[\w-]*[0-9])[\w-]{8,}"""
    r"|\breq_[0-9A-Z]{12,}",
    re.IGNORECASE,
)
_SHELL_LINE = re.compile(r"(?<=sh: line )[0-9]+|(?<=-c: line )[0-9]+")
"""A shell that stays open counts the lines of all its commands."""
_METER = re.compile(
    r"(?<![\s0-9.kMGT])(?:(?:\\[rn]|[\s0-9.kMGT]){16,}+"
    r"(?:[-0-9]*:[-0-9]{2}:[-0-9]{2}\s+){3}[0-9.]+[kMGT]?)+"
)
"""How far and how fast a download is, rewritten in its line again and again."""
_RATE = re.compile(r"[0-9][0-9.]{0,30}+ ?(?:it|[kKMGT]?i?[Bb]|bytes|[kMG]bits?|items|rows|req)/s\b")
_PROCESS = re.compile(
    r"(?:\b(?:pid|PID)|rocess(?: id)?)[ =:#]*\[?(?<=[ =:#\[])[0-9]+(?!\w| of| more| item)"
    r"|(?<= \()[0-9]+(?=\) panicked)"
)
"""Of the system, which counts them."""
_JOB = re.compile(r"\[[0-9]+\] [0-9]{3,7}$", re.MULTILINE)
"""How a shell begins that started something behind."""
_BAR = re.compile(r"\[[0-9:]{5,8}<[0-9:?]{1,8}")
"""The times behind a progress bar."""
_AGO = re.compile(
    r"(?:(?:about|over|almost|less than) )?(?:an?|one|a few|[0-9]+)"
    r" (?:sec(?:ond)?|min(?:ute)?|hour|day|week|month)s? ago\b"
)
_COLOUR = re.compile(r"(?:\x1b|\\x1b|\\u001b)\[[0-9;?]*[A-Za-z]")
_PEER = re.compile(
    r"((?:(?<!\w)port|\.[0-9]{1,3}',|localhost:|\.[0-9]{1,3}:) ?)"
    r"(?:3[3-9]|[45][0-9]|6[0-5])[0-9]{3}\b"
)
"""A port that the system chose, behind what it belongs to."""
_OBJECT = re.compile(r"(\b[A-Z]\w{0,60})@[0-9a-f]{5,8}\b(?!\.)")
"""Of a class, as Java writes it."""
_CHINESE = re.compile(r"[0-9][0-9.]{0,30}+(?= ?(?:毫秒|微秒|秒|分钟|小时|天前|次))")
"""Durations and tries."""
_CHANNEL = re.compile(r'"(?:session_id|output_file)"\s*:\s*"[^"]*"')
"""What is new with every call of a shell."""

_MARKED: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (("0x",), _ADDRESS),
    (("_ms",), _MILLISECONDS),
    (("ime", "uration", "lapsed", "atency", 'Ms"', "ook", '"ts"'), _TIMING),
    (("-",), _UUID),
    (("/tmp/", "Temp"), _SCRATCH),
    (("sh: line ", "-c: line "), _SHELL_LINE),
    (("--:--",), _METER),
    (("/s",), _RATE),
    (("equest", "EQUEST", "race", "rrelation", "req"), _REQUEST),
    (("ttempt", "try ", "tries", " times", " more", "#"), _TRIES),
    (("pid", "PID", "rocess", ") pan"), _PROCESS),
    (("<",), _BAR),
    ((" ago",), _AGO),
)
"""Volatile parts with the words without which they are not there."""


_NAMED = (
    (("port ", "localhost:", ".1', ", ".1:"), _PEER),
    (("@",), _OBJECT),
)
"""The same, but with something before it that stays."""


def without_colours(text: str) -> str:
    """The text without what a terminal obeys and does not show."""
    return _COLOUR.sub("", text)


def masked(text: str) -> str:
    """The text with its volatile parts replaced by a dot."""
    if "\x1b" in text or ("\\" in text and has_any(text, ("x1b[", "u001b["))):
        text = _COLOUR.sub("", text)
    if text.startswith("["):
        text = _JOB.sub("·", text, count=1)
    for words, pattern in _MARKED:
        if has_any(text, words):
            text = pattern.sub("·", text)
    for words, pattern in _NAMED:
        if has_any(text, words):
            text = pattern.sub(r"\1·", text)
    if not text.isascii() and has_any(text, ("秒", "分钟", "小时", "天前", "次")):
        text = _CHINESE.sub("·", text)
    if '"exit_code"' in text:
        text = _CHANNEL.sub("·", text)
    if ":" in text:
        clocked = _CLOCK.sub("·", text)
        text = text if clocked is text else _DAY.sub("", clocked)
    if not _HAS_DURATION.search(text):
        return text
    text = _DURATION.sub("·", text)
    return _LARGER_UNITS.sub("", text) if has_any(text, ("m·s", "m ·s")) else text


def has_any(text: str, words: tuple[str, ...]) -> bool:
    """Whether one of *words* stands in *text*."""
    for word in words:  # faster than any() over a generator, and asked for every result
        if word in text:
            return True
    return False
