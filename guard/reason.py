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

MAX_MIXED_CHARACTERS = 1000
"""Up to here a program's complaint is looked for among its other output."""

MAX_FAILURE_CHARACTERS = 20_000
"""A longer result is not decoded only to learn why it failed."""

MAX_REASON_CHARACTERS = 160

MAX_ARGUMENTS_CHARACTERS = 2_000
"""Of the arguments in which the words of a reason are looked for."""

_OPENS_AS_ERROR = re.compile(
    r"\s*(?:<(?:tool_use_)?error>|\[?(?:error|exception|failure|fatal|traceback|unauthori[sz]ed"
    r"|permission denied|access denied|denied by|declined by|refused by|rejected by"
    r"|invalid|malformed|command timed out|bad request|nothing happens|no such |incorrect|wrong "
    r"|unknown (?:tool|command|action|option)"
    r"|failed to|could not|cannot|unable to|\d{3} (?:un|bad|not|for|too|internal|serv|gate))"
    r"|\S{1,40} is (?:required|not allowed|not defined|not a valid)|[\w.]{0,60}Error\b"
    r"|[\w .]{1,40}\bnot found\b)",
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

_QUOTED = re.compile(r"(?<!\w)'[^'\n]{0,80}'(?!\w)|\"[^\"\n]{0,80}\"|`[^`\n]{0,80}`")
"""What a reason quotes is the argument, which a model words anew each time."""

_WORDS = re.compile(r"""[^\s"'`,;:=()\[\]{}<>|\\]{3,}""")
"""Names, paths and numbers, as they stand in arguments and in reasons alike."""

_HEX = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b")
"""What a reason has of ids; in a result they may be what changed."""

_TRANSPORT = re.compile(
    r"time[d\s-]*out|rate.?limit|too many requests|temporar|connection (?:reset|refused|aborted)"
    r"|\b(?:429|502|503|504)\b|service unavailable|bad gateway|overloaded|try again later",
    re.IGNORECASE,
)

_WAITING = re.compile(
    r'"(?:status|state)"\s*:\s*"(?:running|queued|in_progress|in progress|not_ready)"'
    r"|<(?:status|state|retrieval_status)>\s*(?:running|queued|in_progress|not_ready|timeout)"
    r"|\b(?:status|state): (?:running|queued|in progress)\b",
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
        return text[:HEAD_CHARACTERS]
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


def _normalised(reason: str, arguments: str) -> str:
    named = _QUOTED.sub("·", reason[:MAX_QUOTED_CHARACTERS])
    if arguments:
        asked = set(_WORDS.findall(arguments[:MAX_ARGUMENTS_CHARACTERS]))
        named = _WORDS.sub(lambda word: "·" if word[0] in asked else word[0], named)
    plain = _HEX.sub("·", masked(named))
    return " ".join(plain.lower().split())[:MAX_REASON_CHARACTERS]
