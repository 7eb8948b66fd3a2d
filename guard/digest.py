"""One digest per action and per result, with a rule per tool, and one key per round."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from types import MappingProxyType

from guard.canonical import (
    as_text,
    canonical_args,
    decode,
    decode_result,
    encode,
    text_of,
    without_keys,
)
from guard.exempt import exemption
from guard.model import Attachment, Evidence, NoProgressCall
from guard.policy import RULES, Normaliser, Rules, ToolContract
from guard.tool_contract import pick

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
    contract = rules.contracts.get(call.tool_name)
    exempt, exempt_faults = exemption(call, rules)
    action, action_faults = _action(call, contract)
    result, result_faults = _result(call, contract)
    return Evidence(
        action,
        result,
        exempt,
        exempt_faults + action_faults + result_faults,
        contract.thresholds if contract is not None else None,
    )


def action_digest(call: NoProgressCall, rules: Rules = RULES) -> str:
    """16 hexadecimal digits over the tool and its canonical arguments."""
    call = as_text(call)
    return _action(call, rules.contracts.get(call.tool_name))[0]


def result_digest(call: NoProgressCall, rules: Rules = RULES) -> str:
    """16 hexadecimal digits over what the result means. Stored evidence is believed."""
    call = as_text(call)
    return _result(call, rules.contracts.get(call.tool_name))[0]


def round_signature(calls: Iterable[NoProgressCall], rules: Rules = RULES) -> str:
    """The key of a round of these calls, in this order; exempt ones are for the caller to drop."""
    return round_key(evidence(call, rules) for call in calls)


def round_key(calls: Iterable[Evidence]) -> str:
    """64 hexadecimal digits over the actions and results of a round, in the model's order."""
    parts: list[str] = []
    for call in calls:
        parts += (call.action_digest, call.result_digest)
    return _hash(*parts)


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


def _action(call: NoProgressCall, contract: ToolContract | None) -> tuple[str, tuple[str, ...]]:
    spelled, faults = _spelled(call, contract)
    return _hash(call.tool_name, spelled)[:DIGEST_DIGITS], faults


def _spelled(call: NoProgressCall, contract: ToolContract | None) -> tuple[str, tuple[str, ...]]:
    """The arguments as they are compared; what is not JSON is compared as text in any tool."""
    text = call.arguments_json
    if contract is None or not (contract.arguments or contract.identity is not None):
        return canonical_args(text), ()
    try:
        value = decode(text)
    except ValueError:
        return canonical_args(text), ()
    try:
        for step in contract.arguments:
            value = step(value)
        if contract.identity is not None:
            value = pick(value, contract.identity)
        return encode(value), ()
    except Exception as error:  # noqa: BLE001 - a tool's own rule must not end the run
        fault = f"argument rule for {call.tool_name!r:.66}: {type(error).__name__}"
        return canonical_args(text), (fault,)


def _result(call: NoProgressCall, contract: ToolContract | None) -> tuple[str, tuple[str, ...]]:
    if call.result_digest is not None:
        return call.result_digest, ()
    value = _read(call.result_content)
    picture = _picture(call.attachment, value)
    own = contract.result if contract is not None else None
    normalise = own or _BUILT_IN.get(call.tool_name)
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
    joined = [b"%d:%b" % (len(part), part) for part in map(_bytes, parts)]
    return sha256(b"".join(joined)).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
