"""One digest per action and per result, with a rule per tool, and one key per round."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from types import MappingProxyType

from guard.canonical import as_text, canonical_args, decode_result, encode, text_of, without_keys
from guard.exempt import exemption
from guard.model import Attachment, Evidence, NoProgressCall
from guard.policy import RULES, Normaliser, Rules

DIGEST_DIGITS = 16
"""Hexadecimal digits of a digest; enough for comparing neighbours, and short enough for a log."""

SHELL_RESULT_FIELDS = ("exit_code", "output", "truncated", "completed", "current_workdir")
"""What a shell result says about progress. Its `message` only repeats the id of the session while
the command runs, and `session_id` and `output_file` are new with every call."""

SHELL_TRANSPORT_KEYS = ("session_id", "output_file")
"""What is dropped from a shell result that has none of the fields above, an error for one."""


def evidence(call: NoProgressCall, rules: Rules = RULES) -> Evidence:
    """What the rules need to know of *call*; computes only what it does not carry. Never raises."""
    call = as_text(call)
    exempt, exempt_faults = exemption(call, rules)
    result, result_faults = _result(call, rules)
    return Evidence(action_digest(call), result, exempt, exempt_faults + result_faults)


def action_digest(call: NoProgressCall) -> str:
    """16 hexadecimal digits over the tool and its canonical arguments."""
    return _hash(text_of(call.tool_name), canonical_args(call.arguments_json))[:DIGEST_DIGITS]


def result_digest(call: NoProgressCall, rules: Rules = RULES) -> str:
    """16 hexadecimal digits over what the result means. Stored evidence is believed."""
    return _result(as_text(call), rules)[0]


def round_signature(calls: Iterable[NoProgressCall], rules: Rules = RULES) -> str:
    """The key of a round of these calls, in this order; exempt ones are for the caller to drop."""
    return round_key(evidence(call, rules) for call in calls)


def round_key(calls: Iterable[Evidence]) -> str:
    """64 hexadecimal digits over the actions and results of a round, in the model's order."""
    return _hash(*(part for call in calls for part in (call.action_digest, call.result_digest)))


def keep_fields(*names: str) -> Normaliser:
    """A rule that compares only these fields of an object, or all when it has none of them."""

    def kept(value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {name: value[name] for name in names if name in value} or value

    return kept


def drop_fields(*names: str) -> Normaliser:
    """A rule that leaves these fields out on every level, but never the last of an object."""
    keys = frozenset(names)

    def dropped(value: object) -> object:
        if isinstance(value, dict):
            return {key: dropped(field) for key, field in without_keys(value, keys).items()}
        return [dropped(item) for item in value] if isinstance(value, list) else value

    return dropped


_shell_fields = keep_fields(*SHELL_RESULT_FIELDS)
_shell_without_transport = drop_fields(*SHELL_TRANSPORT_KEYS)


def _shell(value: object) -> object:
    kept = _shell_fields(value)
    return _shell_without_transport(value) if kept is value else kept


_BUILT_IN: Mapping[str, Normaliser] = MappingProxyType({"shell": _shell})


def _result(call: NoProgressCall, rules: Rules) -> tuple[str, tuple[str, ...]]:
    if call.result_digest is not None:
        return call.result_digest, ()
    value = _read(call.result_content)
    picture = _picture(call.attachment, value)
    normalise = rules.normalisers.get(call.tool_name) or _BUILT_IN.get(call.tool_name)
    if normalise is None:
        return _digest(value, picture), ()
    try:
        return _digest(normalise(value), picture), ()
    except Exception as error:  # noqa: BLE001 - a tool's own rule must not end the run
        fault = f"result rule for {call.tool_name!r:.66}: {type(error).__name__}"
        return _digest(call.result_content, picture), (fault,)


def _read(text: str) -> object:
    """The decoded object or array, else the text: a bare scalar is what the model reads as text."""
    if not text.lstrip(" \t\r\n").startswith(("{", "[")):
        return text
    try:
        return decode_result(text)
    except ValueError:
        return text


def _picture(attachment: object, value: object) -> str:
    """The picture the result stands for, or "". The text alone would hide that it changed."""
    if not isinstance(attachment, Attachment):
        return ""
    says_so = isinstance(value, dict) and value.get("media_type") == "image"
    is_image = says_so or text_of(attachment.media_type).startswith("image")
    return text_of(attachment.data_uri) if is_image else ""


def _digest(value: object, picture: str) -> str:
    text = value.rstrip() if isinstance(value, str) else encode(value)
    if picture:
        return _hash(text, sha256(_bytes(picture)).hexdigest())[:DIGEST_DIGITS]
    return sha256(_bytes(text)).hexdigest()[:DIGEST_DIGITS]


def _hash(*parts: str) -> str:
    """Hash *parts* with their lengths, so that no two lists of parts run into the same bytes."""
    joined = sha256()
    for part in map(_bytes, parts):
        joined.update(b"%d:" % len(part))
        joined.update(part)
    return joined.hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
