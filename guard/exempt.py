"""Which calls do not count: waiting for something is no loop, however often it is repeated."""

import re
from collections.abc import Iterator

from guard.canonical import as_text, decode
from guard.model import NoProgressCall
from guard.policy import RULES, ExemptRule, Rules

SHELL_WAIT_ACTIONS = frozenset({"await_async", "write_stdin"})
"""Actions of `shell` that wait for a command that runs already."""


_WAITS = re.compile("await_async|write_stdin")
_UNFINISHED = re.compile(r'"completed"\s*:\s*false')
_TIMED_OUT = re.compile(r'"timedOut"\s*:\s*true')


def is_shell_wait(call: NoProgressCall) -> bool:
    """Whether the call waits for a running shell command or keeps it going."""
    if call.tool_name != "shell" or not _may_say(_WAITS, call.arguments_json):
        return False
    action = _field(call.arguments_json, "action")
    return isinstance(action, str) and action in SHELL_WAIT_ACTIONS


def is_incomplete_shell(call: NoProgressCall) -> bool:
    """Whether a shell command is still running: `completed` is the JSON value false."""
    if call.tool_name != "shell" or not _may_say(_UNFINISHED, call.result_content):
        return False
    return _field(call.result_content, "completed") is False


def is_timed_out_wait(call: NoProgressCall) -> bool:
    """Whether waiting for subagents ended before they did: `timedOut` is the JSON value true."""
    if call.tool_name != "wait_subagents" or not _may_say(_TIMED_OUT, call.result_content):
        return False
    return _field(call.result_content, "timedOut") is True


NO_PROGRESS_EXEMPT_CALLS: tuple[ExemptRule, ...] = (
    is_shell_wait,
    is_incomplete_shell,
    is_timed_out_wait,
)
"""Calls that never count. Not `shell` as a whole: one of the two incidents was a shell loop."""


def is_no_progress_exempt(call: NoProgressCall, rules: Rules = RULES) -> bool:
    """Whether the call is left out of its round. Stored evidence is believed."""
    return exemption(as_text(call), rules)[0]


def exemption(call: NoProgressCall, rules: Rules) -> tuple[bool, tuple[str, ...]]:
    """Whether the call is exempt, and the faults of the rules that could not say."""
    if call.exempt is not None:
        return call.exempt, ()
    if call.tool_name in rules.exempt_tools:
        return True, ()
    faults: list[str] = []
    for rule in _rules(rules, call.tool_name):
        if _ask(rule, call, faults):
            return True, tuple(faults)
    return False, tuple(faults)


def _rules(rules: Rules, tool_name: str) -> Iterator[ExemptRule]:
    yield from NO_PROGRESS_EXEMPT_CALLS
    yield from rules.exempt_calls
    contract = rules.contracts.get(tool_name)
    if contract is not None and contract.waits is not None:
        yield contract.waits


def _ask(rule: ExemptRule, call: NoProgressCall, faults: list[str]) -> bool:
    try:
        return bool(rule(call))
    except Exception as error:  # noqa: BLE001 - a tool's own rule must not end the run
        faults.append(f"exempt rule for {call.tool_name!r:.66}: {type(error).__name__}")
        return False


def _may_say(member: re.Pattern[str], text: str) -> bool:
    """Whether decoding is worth its time: letters of a key have no other escape than \\u."""
    # Looked for from behind, which takes half the time of `in`.
    return member.search(text) is not None or text.rfind("\\u00") >= 0


def _field(text: str, name: str) -> object:
    try:
        fields = decode(text)
    except ValueError:
        return None
    return fields.get(name) if isinstance(fields, dict) else None
