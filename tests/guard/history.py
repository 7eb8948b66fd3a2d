"""Stored histories for the tests: messages as the store keeps them, evidence and all."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from guard import RULES, Attachment, Message, NoProgressCall, NoProgressGuard, Rules, evidence

GREP = NoProgressCall("grep_search", '{"path":"backend","pattern":"name"}', "0 matches")
WAIT = NoProgressCall("shell", '{"action":"await_async","session_id":"s"}', '{"completed":false}')


@dataclass
class History:
    """Messages of one session; ids are unique unless *recurring_ids*."""

    stores_evidence: bool = False
    recurring_ids: bool = False
    rules: Rules = RULES
    messages: list[Message] = field(default_factory=list)
    attachments: dict[str, Attachment] = field(default_factory=dict)
    replies: int = 0

    def add_user(self, text: str, synthetic: bool | None = None) -> None:
        mark = {} if synthetic is None else {"synthetic": synthetic}
        self.messages.append({"role": "user", "content": text, **mark})

    def add_calls(self, calls: Sequence[NoProgressCall]) -> list[str]:
        """Store the assistant message of a round, without results."""
        self.replies += 1
        prefix = "call" if self.recurring_ids else f"call_{self.replies}"
        ids = [f"{prefix}_{position}" for position in range(len(calls))]
        tool_calls = [
            {"id": id_, "function": {"name": call.tool_name, "arguments": call.arguments_json}}
            for id_, call in zip(ids, calls, strict=True)
        ]
        text = f"reply {self.replies}"
        self.messages.append({"role": "assistant", "content": text, "tool_calls": tool_calls})
        return ids

    def add_result(self, id_: str, call: NoProgressCall, harness: bool = False) -> None:
        message: dict[str, object] = {"role": "tool", "tool_call_id": id_}
        message["content"] = call.result_content
        if call.attachment is not None:
            self.attachments[id_] = call.attachment
        if self.stores_evidence:
            known = evidence(call, self.rules)
            message |= {"result_digest": known.result_digest, "exempt": known.exempt}
        if harness:
            message["harness"] = True
        self.messages.append(message)

    def add_round(self, *calls: NoProgressCall) -> str:
        """Store a finished round; the id of its last call."""
        ids = self.add_calls(calls)
        for id_, call in zip(ids, calls, strict=True):
            self.add_result(id_, call)
        return ids[-1] if ids else ""

    def add_rounds(self, count: int, *calls: NoProgressCall) -> None:
        for _ in range(count):
            self.add_round(*calls)


def finish_round(guard: NoProgressGuard, anchor: str, *calls: NoProgressCall) -> None:
    """Tell a live guard of one round."""
    for call in calls:
        guard.observe_call(call)
    guard.end_round(anchor)
