"""Why a call failed, and what says of itself that it waits.

Both are read from a bounded part of the text, so that they cost the same for any result. They are
guesses, made to miss rather than to accuse: only rules beside the default one look at them.
"""

import re
from collections.abc import Iterator

from guard.canonical import decode
from guard.noise import has_any, masked

HEAD_CHARACTERS = 300
TAIL_CHARACTERS = 300
"""Where a result says how it went: at once, or last."""

MAX_QUOTED_CHARACTERS = 600
"""Of a reason before it is made plain."""

MAX_QUOTE_CHARACTERS = 200
"""What stands in quotes is longer than paths are, or no quote."""

MAX_MIXED_CHARACTERS = 1000
"""Up to here a program's complaint is looked for among its other output."""

MAX_FAILURE_CHARACTERS = 20_000
"""A longer result is not decoded only to learn why it failed."""

MAX_REASON_CHARACTERS = 160

MAX_ARGUMENTS_CHARACTERS = 2_000
"""Of the arguments in which the words of a reason are looked for."""

_OPENS_AS_ERROR = re.compile(
    r"[\s*!✗✘❌⚠️]{0,6}(?:<(?:tool_use_)?error>|\[?(?:error|exception|failure|fatal|traceback"
    r"|unauthori[sz]ed|forbidden|permission denied|access denied"
    r"|denied by|declined by|refused by|rejected by"
    r"|invalid|malformed|command timed out|bad request|nothing happens|no such |no file open"
    r"|incorrect|wrong\b|not (?:quite|correct|valid|allowed|permitted|accepted)\b|syntax error"
    r"|unknown (?:tool|command|action|option|syntax)|missing\b|no replacement was"
    r"|(?:params|parameters?|arguments?|input) must\b"
    r"|failed to|could(?: not|n't) |can(?:not|'t) |unable to"
    r"|\d{3} (?:un|bad|not|for|too|internal|serv|gate))"
    r"|\S{1,40} is (?:required|not allowed|not defined|not a valid)|[\w.]{0,60}Error\b"
    r"|[\w .]{1,40}\bnot found\b"
    r"|\[?(?:your|the) (?:\w+ ){0,2}(?:edit|change|patch|command|input|call)s? "
    r"(?:(?:has|have|was|were|could|did) (?:not\b|failed|introduced)|failed|is not\b)"
    r"|(?:file|path|directory|module|element|tool)\b[^\n]{1,200}?\b"
    r"(?:not found\b|does not exist|already exists))",
    re.IGNORECASE,
)
"""How a text begins whose first words are the failure. "No results" is an answer, not a failure."""

_VERDICT = re.compile(
    r'"(?P<key>errors?|success|ok|is_?[eE]rror|exit_?[cC]ode|return_?[cC]ode|status(?:_?[cC]ode)?)"'
    r'\s*:\s*(?P<value>"[^"]{0,40}|[^\s,}]{1,40})'
)
"""A field in which an object says how the call went."""

_VERDICT_KEYS = ('"error', '"success"', '"ok"', '"is', '"exit', '"return', '"status')

_EXIT = re.compile(r"\s*(?:<returncode>|exit code:? |exited with code )(-?\d+)", re.IGNORECASE)
"""How a command's result begins that is text and not an object."""

_ERRNO = re.compile(
    r"(?:No such file or directory|Permission denied|command not found|Is a directory"
    r"|Not a directory|File exists|Read-only file system|Operation not permitted"
    r"|[Ss]yntax error.*|unexpected EOF.*|invalid option.*|missing operand.*"
    r"|must be a directory|[Uu]nknown (?:option|primary|predicate).*"
    r"|missing argument.*|illegal option.*|Invalid argument|No space left on device)$"
)
"""How a line ends in which a program, named first, tells what went wrong."""

_ERRNO_WORDS = (
    " directory",
    "Permission denied",
    "command not found",
    "File exists",
    "Read-only file system",
    "Operation not permitted",
    "yntax error",
    "unexpected EOF",
    "invalid option",
    "illegal option",
    "nknown ",
    "missing operand",
    " argument",
    "No space left on device",
)
"""One of them is in every such line; the longer they are, the faster it is known that none is."""

_FRAMES = re.compile(r"</?\w+>|^\s*try '.*$|^usage:.*$", re.IGNORECASE)
"""What stands around a reason or behind it."""

_RAISED = re.compile(
    r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b.*", re.MULTILINE
)
"""The line of a traceback that tells the reason; programs may print after it."""

_QUOTED = re.compile(
    rf"(?<!\w)'[^'\n]{{0,{MAX_QUOTE_CHARACTERS}}}'(?!\w)"
    rf"|\"[^\"\n]{{0,{MAX_QUOTE_CHARACTERS}}}\"|`[^`'\n]{{0,{MAX_QUOTE_CHARACTERS}}}[`']"
)
"""What a reason quotes is the argument, which a model words anew each time."""

_WORDS = re.compile(r"""[^\s"'`,;:=()\[\]{}<>|\\]{3,}""")
"""Names, paths and numbers, as they stand in arguments and in reasons alike."""

_COMMON = frozenset(
    """again all and any are argument been before can cannot command could denied directory does
    error exist exists expected failed file first for found from has have invalid its line
    message missing more near new not one only option permission please read such syntax than
    that the then there this try type unexpected unknown use value was were will with you your
    """.split()
)
"""Words of complaints, also where the arguments have them: they would be left out of one reason
and not of the next."""

_HEX = re.compile(r"\b(?:0x[0-9a-fA-F]+\b|(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b)")
"""What a reason has of ids; in a result they may be what changed."""

_TRANSPORT = re.compile(
    r"time[d\s-]*out|rate.?limit|too many requests|temporar|connection (?:reset|refused|aborted)"
    r"|\b(?:429|502|503|504)\b|service unavailable|bad gateway|overloaded|try again later",
    re.IGNORECASE,
)

_WAITING = re.compile(
    r'"(?:status|state)"\s*:\s*"(?:running|queued|in_progress|in progress|not_ready)"'
    r"|<(?:status|state|retrieval_status)>\s*(?:running|queued|in_progress|not_ready|timeout)"
    r"|\b(?:status|state): (?:running|queued|in progress)\b"
    r"|\b(?:process|command|job|task|build) (?:is )?still running\b",
)
"""How a result says that what was asked about goes on. `pending` is not among them: orders are."""

_SLEEP = re.compile(r"\bsleep\s+(?:[5-9]|[0-9]{2,})(?![0-9]*\.)")
"""A command that lets at least five seconds pass before it looks."""

_WAITING_WORDS = ("running", "queued", "progress", "not_ready", "timeout")


def error_class(text: str, arguments: str = "") -> str | None:
    """The normalised reason of a failure, at most 160 characters; None when it is none.

    Args:
        text: The result.
        arguments: Of the call. A reason names what was asked for, which is no part of it: a model
            asks for something else each time, and fails for the same reason.
    """
    reason = _reason(text)
    return None if reason is None else _normalised(reason, arguments)


def _reason(text: str) -> str | None:
    """The words that tell why the call failed; None when it did not."""
    if text.startswith("{"):
        return _object_reason(text)
    exit_code = _EXIT.match(text)
    if exit_code is not None:
        if exit_code[1] == "0":
            return None
        last = _last_line(text[exit_code.end() :][-TAIL_CHARACTERS:])
        return f"exit {exit_code[1]}: {last}" if last else None
    if _OPENS_AS_ERROR.match(text):
        return _raised(text) or text[:HEAD_CHARACTERS]
    return _errno(text)


def is_transport(reason: str) -> bool:
    """Whether another try may help: the tool was not reached or was busy."""
    return _TRANSPORT.search(reason) is not None


def says_it_waits(text: str) -> bool:
    """Whether the result says of what was asked about that it goes on."""
    head = text[:HEAD_CHARACTERS].lower()
    return has_any(head, _WAITING_WORDS) and _WAITING.search(head) is not None


def sleeps(arguments: str) -> bool:
    """Whether the call lets time pass before it looks, as a shell does between two looks."""
    return "sleep" in arguments and _SLEEP.search(arguments) is not None


def _object_reason(text: str) -> str | None:
    """Why the call failed whose result is the object *text*."""
    if not _says_failed(text[:HEAD_CHARACTERS]) and not (
        len(text) > HEAD_CHARACTERS and _says_failed(text[-TAIL_CHARACTERS:])
    ):
        return None
    if len(text) > MAX_FAILURE_CHARACTERS:
        return "error"
    try:
        fields = decode(text)
    except ValueError:
        return "error"
    assert isinstance(fields, dict), "it begins with a brace"
    names = ("error", "errors", "message", "detail")
    words = [word for name in names for word in _words(fields.get(name))]
    if words:
        return ": ".join(words)
    for name in ("stderr", "output", "stdout"):
        output = fields.get(name)
        last = _last_line(output) if isinstance(output, str) else ""
        if last:
            return last
    return None if _exits(fields) else "error"


def _says_failed(part: str) -> bool:
    if not has_any(part, _VERDICT_KEYS):
        return False
    return any(_is_failure(found["key"], found["value"]) for found in _VERDICT.finditer(part))


def _is_failure(key: str, value: str) -> bool:
    """Whether a field with this *value*, as it begins in JSON, says that the call failed."""
    if key in ("success", "ok"):
        return value == "false"
    if key.startswith("status"):
        return value.strip('"').lower() in ("error", "failed", "failure") or (
            key != "status" and value[:1] in ("4", "5") and len(value) == 3
        )
    if key.startswith(("exit", "return")):
        return value.lstrip("-").isdigit() and value != "0"
    return value not in ("null", "false", "0", '"', "{", "[", "{}", "[]")


def _exits(fields: dict[str, object]) -> bool:
    """A command that failed without a word; `grep` does so when it finds nothing."""
    return any(name in fields for name in ("exit_code", "exitCode", "returncode", "return_code"))


def _words(value: object) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value
    elif isinstance(value, dict):
        for name in ("type", "code", "message", "error"):
            yield from _words(value.get(name))
    elif isinstance(value, list) and value:
        yield from _words(value[0])


def _errno(text: str) -> str | None:
    """The first in order of the lines in which programs say what went wrong.

    Outputs of several processes run into each other in another order each time.
    """
    part = text[:MAX_MIXED_CHARACTERS]
    if not has_any(part, _ERRNO_WORDS):
        return None
    found = [line for line in part.split("\n") if ": " in line and _ERRNO.search(line)]
    return min(found) if found else None


def _last_line(text: str) -> str:
    for line in reversed(text.split("\n")):
        stripped = _FRAMES.sub("", line).strip()
        if stripped:
            return stripped
    return ""


def _raised(text: str) -> str:
    """What a traceback ends with; the frames before it are the same for many reasons."""
    if not text.startswith("Traceback"):
        return ""
    found = _RAISED.findall(text[-TAIL_CHARACTERS:])
    return found[-1] if found else _last_line(text[-TAIL_CHARACTERS:])


def _normalised(reason: str, arguments: str) -> str:
    named = _QUOTED.sub("·", reason[:MAX_QUOTED_CHARACTERS])
    if arguments:
        asked = set(_WORDS.findall(arguments[:MAX_ARGUMENTS_CHARACTERS])) - _COMMON
        named = _WORDS.sub(lambda word: "·" if word[0] in asked else word[0], named)
    plain = _HEX.sub("·", masked(named))
    return " ".join(plain.lower().split())[:MAX_REASON_CHARACTERS]
