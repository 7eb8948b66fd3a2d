"""The `hand_off` tool: what it answers, what it tells the person, and that a success ends a run."""

import json

import pytest

from guard import NoProgressCall
from guard.rounds import NONE, round_call, round_of
from guard.rules.hand_off import HAND_OFF_TOOL
from guard.rules.hand_off import HandOff as HandOffRule
from server.tools.base import Registry, ToolContext, ToolResult
from server.tools.handoff import HandOff, reason_of
from tests.server.tools.conftest import decoded, error_of


async def call(context: ToolContext, **arguments: object) -> ToolResult:
    return await Registry([HandOff()]).dispatch(HAND_OFF_TOOL, json.dumps(arguments), context)


def is_stopped_by(arguments: str, result: ToolResult) -> bool:
    made = round_call(NoProgressCall(HAND_OFF_TOOL, arguments, result.content), kind="read")
    rule = HandOffRule()
    _, decision = rule.advance(rule.start, round_of([made]))
    assert decision is NONE or decision.code == "handoff"
    return decision is not NONE


async def test_a_call_says_that_it_was_heard_and_ends_the_run(context: ToolContext) -> None:
    result = await call(context, reason="退款需要财务权限")
    assert decoded(result) == {"handed_off": True}
    assert is_stopped_by('{"reason": "退款需要财务权限"}', result)


@pytest.mark.parametrize(
    "arguments", [{}, {"reason": ""}, {"reason": 3}, {"reason": "x" * 2001}, {"why": "x"}]
)
async def test_a_call_without_a_reason_is_refused_and_ends_nothing(
    context: ToolContext, arguments: dict[str, object]
) -> None:
    result = await call(context, **arguments)
    assert error_of(result) == "bad_arguments"
    assert not is_stopped_by(json.dumps(arguments), result)


def test_it_changes_nothing_so_nobody_is_asked_before() -> None:
    tool = HandOff()
    assert tool.kind_of({"reason": "x"}) == tool.spec.kind == "read"
    assert tool.spec.consent == "by_kind"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"reason": " 需要财务权限\\n订单 42 "}', "需要财务权限\n订单 42"),
        ('{"reason": "\\u0000"}', None),
        ('{"reason": "  "}', None),
        ("{}", None),
        ("not JSON", None),
    ],
)
def test_the_reason_is_read_from_the_call(arguments: str, reason: str | None) -> None:
    assert reason_of(arguments) == reason
