"""Exemptions: declared waits do not count, and nothing else is taken for one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import (
    NO_PROGRESS_EXEMPT_CALLS,
    NO_PROGRESS_EXEMPT_TOOLS,
    NoProgressCall,
    Rules,
    evidence,
    is_no_progress_exempt,
)
from tests.guard.history import GREP


@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("shell", '{"action":"await_async"}', '{"completed":false}'),
        ("shell", '{"action":"await_async"}', '{"completed":true,"output":"done"}'),
        ("shell", '{"input":"","action":"write_stdin"}', "not json"),
        ("shell", '{"\\u0061ction":"await_async"}', ""),
        ("shell", '{"command":"make"}', '{"output":"","completed" : false}'),
        ("shell", '{"command":"make"}', '{"output":"","c\\u006fmpleted":false}'),
        ("wait_subagents", "{}", '{"timedOut":true,"results":[]}'),
    ],
)
def test_declared_waits_are_exempt(tool: str, arguments: str, result: str) -> None:
    assert is_no_progress_exempt(NoProgressCall(tool, arguments, result))


@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("shell", '{"command":"ls"}', '{"completed":true}'),
        ("shell", '{"command":"ls"}', '{"completed":"false"}'),
        ("shell", '{"command":"ls"}', '{"completed":"false","output":"\\u00ef"}'),
        ("shell", '{"command":"ls"}', '{"completed":0}'),
        ("shell", '{"command":"ls"}', '{"completed":null}'),
        ("shell", '{"command":"ls"}', '{"output":"\\"completed\\":false"}'),
        ("shell", '{"command":"ls"}', '{"nested":{"completed":false}}'),
        ("shell", '{"command":"ls"}', '[{"completed":false}]'),
        ("shell", '{"command":"ls"}', '"completed":false'),
        ("shell", '{"action":"run"}', ""),
        ("shell", '{"action":["await_async"]}', ""),
        ("shell", '{"command":"await_async"}', ""),
        ("shell", '["await_async"]', ""),
        ("shell", "action=await_async", ""),
        ("shell", "", ""),
        ("Shell", '{"action":"await_async"}', '{"completed":false}'),
        ("bash", '{"action":"await_async"}', '{"completed":false}'),
        ("wait_subagents", "{}", '{"timedOut":false}'),
        ("wait_subagents", "{}", '{"timedOut":"true"}'),
        ("wait_subagents", "{}", '{"timedOut":1}'),
        ("wait_subagents", "{}", '{"timed_out":true}'),
        ("other_wait", "{}", '{"timedOut":true}'),
    ],
)
def test_everything_else_counts(tool: str, arguments: str, result: str) -> None:
    call = NoProgressCall(tool, arguments, result)
    assert not is_no_progress_exempt(call)
    assert evidence(call).faults == ()


def test_no_tool_is_exempt_as_a_whole_by_default() -> None:
    assert frozenset() == NO_PROGRESS_EXEMPT_TOOLS
    assert len(NO_PROGRESS_EXEMPT_CALLS) == 3


def test_a_tool_may_be_exempt_as_a_whole() -> None:
    rules = Rules(exempt_tools=frozenset({"poll"}))
    assert is_no_progress_exempt(NoProgressCall("poll", "{}", "x"), rules)
    assert not is_no_progress_exempt(GREP, rules)


def test_a_registered_rule_adds_to_the_built_in_ones() -> None:
    def still_runs(call: NoProgressCall) -> bool:
        return call.tool_name == "view_agent" and json.loads(call.result_content)["on"] is True

    rules = Rules(exempt_calls=(still_runs,))
    assert is_no_progress_exempt(NoProgressCall("view_agent", "{}", '{"on":true}'), rules)
    assert not is_no_progress_exempt(NoProgressCall("view_agent", "{}", '{"on":false}'), rules)
    assert is_no_progress_exempt(NoProgressCall("wait_subagents", "", '{"timedOut":true}'), rules)


def test_a_rule_that_raises_exempts_nothing_and_leaves_a_fault_without_contents() -> None:
    def broken(call: NoProgressCall) -> bool:
        raise ValueError(call.result_content)

    found = evidence(GREP, Rules(exempt_calls=(broken,)))
    assert not found.exempt
    assert found.faults == ("exempt rule for 'grep_search': ValueError",)


def test_a_rule_behind_one_that_raises_is_still_asked() -> None:
    def broken(call: NoProgressCall) -> bool:
        raise LookupError

    found = evidence(GREP, Rules(exempt_calls=(broken, lambda call: True)))
    assert found.exempt


_KEYS = st.sampled_from(["completed", "timedOut", "c\\u006fmpleted", "timed\\u004fut", "output"])
_VALUES = st.sampled_from(["true", "false", "0", '"false"', '{"completed":false}', '"\\u00e9\\n"'])
_SPACES = st.sampled_from(["", " ", "\n\t"])
_MEMBERS = st.builds('{3}"{0}"{2}:{3}{1}'.format, _KEYS, _VALUES, _SPACES, _SPACES)
_TEXTS = st.builds(
    "{{{}{}".format, st.lists(_MEMBERS, max_size=4).map(",".join), st.sampled_from(["}", "}]", ""])
)


@pytest.mark.parametrize(
    ("tool", "field", "wanted"),
    [("shell", "completed", False), ("wait_subagents", "timedOut", True)],
)
@given(_TEXTS)
def test_no_spelling_hides_a_field_from_the_look_before_decoding(
    tool: str, field: str, wanted: bool, text: str
) -> None:
    try:
        is_wait = json.loads(text).get(field) is wanted
    except ValueError:
        is_wait = False
    assert is_no_progress_exempt(NoProgressCall(tool, "{}", text)) is is_wait
