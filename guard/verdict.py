"""What an object says of how a call went, and in which words."""

import re
from collections.abc import Iterator, Mapping

from guard.canonical import decode
from guard.complaint import opens_as_failure
from guard.noise import has_any

HEAD_CHARACTERS = 300
TAIL_CHARACTERS = 300
"""Where a result says how it went: at once, or last."""

MAX_FAILURE_CHARACTERS = 100_000
"""A longer result is not decoded only to learn why it failed."""

_KEYS = (
    r"err(?:or)?s?|error_?[cC]ode|err_?code|errno|success|succeeded|ok|failed|is_?[eE]rror"
    r"|exit_?(?:[cC]ode|[sS]tatus)|ret(?:urn)?_?[cC]ode|code|state|status(?:_?[cC]ode)?"
)

_VERDICT = re.compile(rf'"(?P<key>{_KEYS})"\s*:\s*(?P<value>"[^"]{{0,40}}|[^\s,}}]{{1,40}})')
"""A field in which an object says how the call went."""

_KEY = re.compile(_KEYS)

_KEY_WORDS = (
    *('"err', '"success"', '"succeeded"', '"ok"', '"failed"', '"is', '"exit', '"ret', '"code"'),
    *('"state"', '"status'),
)

_WRAPPED = re.compile(
    r'\[?\{\s*(?:"type"\s*:\s*"text"\s*,\s*)?'
    r'"(?:content|detail|message|observation|output|response|result|stdout|text)"\s*:\s*"'
)
"""How an object begins that wraps a text."""

_INVALID = re.compile(r'\{\s*"detail"\s*:\s*\[\s*\{\s*"(?:type|loc|msg)"')
"""How a server says which arguments it does not take."""

_ENVELOPE = frozenset({"code", "msg", "message", "errmsg", "data", "detail", "path", "hint"})
"""Names around an answer that is none, beside ids and times; `stderr` is of a command."""

_INNER = ("data", "result", "response", "body")
"""Where the answer of a server stands in the object of a tool that asked it."""

_TELLS = ("error", "errors", "message", "detail")
"""Fields whose words tell why a call failed, all of them together."""

_ALSO_TELLS = (
    *("msg", "errmsg", "err_msg", "error_msg", "error_message", "errorMsg", "errorMessage"),
    *("error_description", "reason", "description", "title", "err", "cause"),
    *("error_code", "errorCode", "content", "text", "data", "result", "response", "body"),
)
"""The same; the first of them that has words is enough."""

_IN_AN_ERROR = ("type", "code", "message", "error", "msg", "reason", "text", "detail")

_OUTPUTS = ("stderr", "output", "stdout")

_FAILED_STATES = frozenset({"error", "errored", "failed", "failure", "fail"})

_FINE = frozenset({"", "0", "ok", "success", "none", "null"})
"""What a code or its message is where nothing failed."""


def failure_of(text: str) -> str | None:
    """Why the call failed whose result is the JSON *text*; None when it did not, or is silent."""
    if not _may_have_failed(text):
        return None
    if len(text) > MAX_FAILURE_CHARACTERS:
        return "error"
    try:
        value = decode(text)
    except ValueError:
        return "error" if text.startswith("{") else None
    fields = value[0] if isinstance(value, list) and value else value
    if not isinstance(fields, dict):
        return None
    inner = [part for name in _INNER if isinstance(part := fields.get(name), dict)]
    has_failed = any(_has_failed(part) for part in (fields, *inner))
    if not has_failed and (_says_fine(fields) or not _wraps_failure(text)):
        return None
    words = _told(fields) or next(filter(None, map(_told, inner)), "")
    return words or (None if _exits(fields) else "error")


def _may_have_failed(text: str) -> bool:
    if text.startswith("{") and (
        _names_failure(text[:HEAD_CHARACTERS])
        or (len(text) > HEAD_CHARACTERS and _names_failure(text[-TAIL_CHARACTERS:]))
    ):
        return True
    return _wraps_failure(text)


def _names_failure(part: str) -> bool:
    if not has_any(part, _KEY_WORDS):
        return False
    return any(_is_failure(found["key"], found["value"]) for found in _VERDICT.finditer(part))


def _wraps_failure(text: str) -> bool:
    wrapped = _WRAPPED.match(text)
    if wrapped is None:
        return _INVALID.match(text) is not None
    return opens_as_failure(text, wrapped.end())


def _has_failed(fields: Mapping[str, object]) -> bool:
    """Whether a field of the object itself says so; one of a record that it lists tells nothing.

    A bare number needs words beside it: products have a code too.
    """
    failing = [
        name
        for name, value in fields.items()
        if _KEY.fullmatch(name) and _is_failure(name, _raw(value))
    ]
    if failing == ["code"]:
        return not _is_fine(_message(fields)) and ("stderr" in fields or _is_empty(fields))
    if failing == ["status"] and isinstance(fields["status"], int):
        return not _is_fine(_told(fields))
    return bool(failing)


def _says_fine(fields: Mapping[str, object]) -> bool:
    """Whether a field says that the call went well, whatever its words are."""
    return any(
        not _is_failure(name, _raw(value))
        for name, value in fields.items()
        if _KEY.fullmatch(name) and not name.startswith("err")
    )


def _message(fields: Mapping[str, object]) -> object:
    return next(filter(None, map(fields.get, ("stderr", "msg", "message", "errmsg"))), "")


def _is_empty(fields: Mapping[str, object]) -> bool:
    """Whether the object is an envelope with nothing in it."""
    return not fields.get("data") and all(
        name in _ENVELOPE or name.lower().endswith(("id", "time", "timestamp", "success", "ok"))
        for name in fields
    )


def _is_fine(words: object) -> bool:
    return str(words).strip().rstrip("!.！。").lower() in _FINE or str(words).endswith("成功")


def _is_failure(key: str, value: str) -> bool:
    """Whether a field with this *value*, as it begins in JSON, says that the call failed."""
    plain = value.strip('"').lower()
    match key.lower().replace("_", ""):
        case "success" | "succeeded" | "ok":
            return plain in ("false", "0")
        case "failed":
            return plain == "true"
        case "state":
            return plain in _FAILED_STATES
        case "status" | "statuscode":
            return plain in _FAILED_STATES or (len(plain) == 3 and plain[0] in "45")
        case "exitcode" | "exitstatus" | "returncode" | "retcode":
            return value.lstrip("-").isdigit() and value != "0"
        case "code":  # of an exit, or of HTTP and what looks like it; an order may have one too
            return value.lstrip("-").isdigit() and value[0] != "2" and value != "0"
        case "errorcode" | "errcode" | "errno":
            return plain not in _FINE
    return value not in ("null", "false", "0", '"', "{", "[", "{}", "[]")


def _raw(value: object) -> str:
    """*value* as `_VERDICT` finds it in JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value[:40]}'
        case dict():
            return "{" if not value else '{"'
        case list():
            return "[" if not value else "[{"
    return str(value)


def _told(fields: Mapping[str, object]) -> str:
    """The words that tell why, from the fields that have them."""
    words = [word for name in _TELLS for word in _words(fields.get(name))]
    for name in _ALSO_TELLS:
        if words:
            break
        words = list(_words(fields.get(name)))
    if words:
        return ": ".join(words)
    outputs = (fields.get(name) for name in _OUTPUTS)
    lasts = (last_line(output) for output in outputs if isinstance(output, str))
    return next(filter(None, lasts), "")


def _exits(fields: Mapping[str, object]) -> bool:
    """A command that failed without a word; `grep` does so when it finds nothing."""
    return any(_KEY.fullmatch(name) and name.startswith(("exit", "ret")) for name in fields)


def _words(value: object) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value
    elif isinstance(value, dict):
        for name in _IN_AN_ERROR:
            yield from _words(value.get(name))
    elif isinstance(value, list) and value:
        yield from _words(value[0])


_FRAMES = re.compile(r"</?\w+>|^\s*try '.*$", re.IGNORECASE)
"""What stands around a reason or behind it."""

_USAGE = re.compile(r"\s*usage:", re.IGNORECASE)

_SUMMARY = re.compile(
    r"[\W_]*(?:tests?:|test (?:suites|result|session)|ran \d|ran all|snapshots:|time:|duration"
    r"|fail(?:ed|ures?)?\b(?:[^a-z]*$|\s*\(\w+=|\t)|\d+ (?:tests?|failed|passing|failing|passed)\b"
    r"|error: test failed|make(?:\[\d+\])?: \*\*\* |npm err|exit (?:status|code) \d|$)",
    re.IGNORECASE,
)
"""How tests and builds end whatever went wrong in them."""

SUMMED_UP_LINES = 3
"""Before a summary, where it stands what went wrong."""


def last_line(text: str) -> str:
    """The last line with words in it; a synopsis only if there is no other.

    Before a summary it is the lines that are summed up: a test that fails for another reason each
    time is work.
    """
    lines = [_FRAMES.sub("", line).strip() for line in text[-TAIL_CHARACTERS:].split("\n")]
    found = [line for line in lines if line and not _USAGE.match(line)]
    if not found:
        return next(filter(None, reversed(lines)), "")
    if not _SUMMARY.match(found[-1]):
        return found[-1]
    end = len(found)
    while end and _SUMMARY.match(found[end - 1]):
        end -= 1
    return " ".join(found[max(0, end - SUMMED_UP_LINES) : end]) or found[-1]
