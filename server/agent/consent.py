"""Which calls of a reply need a person's word before they run."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from channels.events import Interrupt
from server import sentences
from server.agent.context import RunContext
from server.errors import ToolError
from server.message import ToolCall
from server.settings import ApprovalMode, ApprovalSettings
from server.store.approvals import Answer as PersonsAnswer
from server.store.ids import new_id
from server.tools.arguments import decode, parse_arguments
from server.tools.ask import AskArguments
from server.tools.base import Kind, Registry, ToolResult, ToolSpec, error_result, json_result

_ASKED_KINDS: Final[Mapping[ApprovalMode, frozenset[Kind]]] = {
    "never": frozenset(),
    "sends": frozenset({"send"}),
    "writes": frozenset({"send", "write"}),
    "always": frozenset({"send", "write", "read"}),
}


class Consent:
    """Asks as the settings say for where the session came from."""

    def __init__(self, registry: Registry, settings: ApprovalSettings) -> None:
        self._registry = registry
        self._settings = settings

    def questions(self, context: RunContext, calls: Sequence[ToolCall]) -> list[Interrupt]:
        """What has to be answered before any of *calls* runs; a round waits as a whole."""
        waiting = (call for call in calls if call.id not in context.answers)
        asked = (self._question(context, call) for call in waiting)
        return [question for question in asked if question is not None]

    def said(self, context: RunContext, call: ToolCall) -> ToolResult | None:
        """The result that a person's word gives the call; None if it is to run."""
        approval = context.answers.get(call.id)
        if approval is None:
            return self._refusal(context, call)
        text = approval.answer.text if approval.answer is not None else ""
        if approval.status == "DENIED":
            note = f"the user refused this call: {text}" if text else "the user refused this call"
            return error_result("denied", note)
        return json_result({"answer": text}) if approval.status == "ANSWERED" else None

    def _refusal(self, context: RunContext, call: ToolCall) -> ToolResult | None:
        """What a call gets that needs a word which nobody can give."""
        spec = self._needing_word(context, call)
        if spec is None or _can_ask(context, spec):
            return None
        if spec.consent == "is_question":
            return None  # its run says so
        return error_result(
            "approval_required",
            "a person has to agree to this, and nobody can be asked here; leave it to whoever "
            "gave you the task",
        )

    def _question(self, context: RunContext, call: ToolCall) -> Interrupt | None:
        spec = self._needing_word(context, call)
        if spec is None or not _can_ask(context, spec):
            return None
        expires_at = datetime.now(UTC) + timedelta(minutes=self._settings.expire_minutes)
        if spec.consent != "is_question":
            return Interrupt(
                id=new_id(),
                call_id=call.id,
                tool_name=call.name,
                reason="tool_call",
                message=sentences.may_it_run(context.session.locale, call.name),
                arguments=call.arguments,
                expires_at=expires_at,
            )
        try:
            asked = decode(parse_arguments(call.arguments), AskArguments)
        except ToolError:
            return None  # its run tells the model what is wrong
        return Interrupt(
            id=new_id(),
            call_id=call.id,
            tool_name=call.name,
            reason="input_required",
            message=asked.question,
            options=tuple(asked.options),
            expires_at=expires_at,
        )

    def _needing_word(self, context: RunContext, call: ToolCall) -> ToolSpec | None:
        """The tool of a call that needs a person's word; None for any other call."""
        spec = self._registry.spec(call.name)
        if spec is None or spec.consent != "by_kind":
            return spec
        kind = self._registry.kind_of(call.name, call.arguments)
        return spec if kind in _ASKED_KINDS[self._mode(context)] else None

    def _mode(self, context: RunContext) -> ApprovalMode:
        session = context.session
        if session.kind == "scheduled":
            return self._settings.scheduled
        match session.origin:
            case "feishu":
                return self._settings.feishu
            case "dingtalk":
                return self._settings.dingtalk
            case _:
                return self._settings.web


def _can_ask(context: RunContext, spec: ToolSpec) -> bool:
    """Whether somebody is there: for a subagent nobody; for a task where the settings say so."""
    kind = context.session.kind
    return kind != "subagent" and not (kind == "scheduled" and spec.consent == "always")


def edited_arguments(context: RunContext, call: ToolCall) -> str | None:
    """What a person put in the place of the call's arguments; None if nothing."""
    answer = _answer(context, call)
    return None if answer is None else answer.edited_arguments


def with_word(context: RunContext, call: ToolCall, result: ToolResult) -> str:
    """The result as the model reads it: with what a person changed of its call, or had to say."""
    answer = _answer(context, call)
    fields: dict[str, object] = {}
    if answer is not None and answer.edited_arguments is not None:
        fields["edited_arguments"] = json.loads(answer.edited_arguments)
    if answer is not None and answer.text and context.answers[call.id].status == "APPROVED":
        fields["note_of_user"] = answer.text
    if not fields:
        return result.content
    return json.dumps({**fields, "result": result.content}, ensure_ascii=False)


def _answer(context: RunContext, call: ToolCall) -> PersonsAnswer | None:
    approval = context.answers.get(call.id)
    return None if approval is None else approval.answer
