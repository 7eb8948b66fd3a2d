"""Replay: stored messages to reminders and tail, through the guard that the live run uses."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from guard.canonical import text_of
from guard.model import (
    Attachment,
    Locale,
    Message,
    NoProgressCall,
    NoProgressNotice,
    NoProgressScanResult,
    NoProgressTail,
    Nudge,
)
from guard.notice import NOTICE_TAG, is_tool, role_of, tool_call_id
from guard.policy import RULES, Rules
from guard.streak import NoProgressGuard


def scan_no_progress_notices(
    messages: Iterable[Message],
    attachments: Mapping[str, Attachment] | None = None,
    tail: NoProgressTail | None = None,
    rules: Rules = RULES,
    locale: Locale = "zh-CN",
) -> NoProgressScanResult:
    """What a guard would say that had lived through *messages*. Never raises.

    Args:
        messages: As stored. A tool message may carry `result_digest`, `exempt` and `harness`, a
            user message `synthetic`.
        attachments: Pictures by tool call id; needed only where a digest is not stored.
        tail: As it stood before the first of *messages*: kept by a compaction.
    """
    guard = NoProgressGuard(tail, rules, locale)
    notices: list[NoProgressNotice] = []
    seen: Counter[str] = Counter()
    for head, results in groups(messages):
        if is_real_user(head):
            guard.reset_from(None)
        seen.update(map(tool_call_id, results))
        calls = _round(head, results, attachments or {})
        if not calls:
            continue
        anchor = list(calls)[-1][0]
        nudge = _replay(guard, anchor, [call for _, call in calls])
        if nudge is not None:
            notices.append(NoProgressNotice(anchor, nudge.text, seen[anchor] - 1))
    return NoProgressScanResult(tuple(notices), guard.tail, guard.tool_names, guard.faults)


def _replay(guard: NoProgressGuard, anchor: str, calls: Sequence[NoProgressCall]) -> Nudge | None:
    for call in calls:
        guard.observe_call(call)
    guard.end_round(anchor)
    action = guard.take_action()
    return action if isinstance(action, Nudge) else None


def groups(messages: Iterable[Message]) -> Iterator[tuple[Message, list[Message]]]:
    """Each message that is not a tool result, with the tool results directly behind it."""
    head: Message = {}
    results: list[Message] = []
    for message in messages:
        if is_tool(message):
            results.append(message)
            continue
        yield head, results
        head, results = message, []
    yield head, results


def _round(
    head: Message, results: Sequence[Message], attachments: Mapping[str, Attachment]
) -> list[tuple[str, NoProgressCall]]:
    """The calls of a finished round with their ids; none when a result is missing.

    Results that the harness wrote for a round it could not finish say nothing about the model:
    such a round neither counts nor clears.
    """
    if any(result.get("harness") is True for result in results):
        return []
    return [
        (call_id, stored_call(name, arguments, result, attachments.get(call_id)))
        for call_id, name, arguments, result in answered(head, results)
    ]


def answered(head: Message, results: Sequence[Message]) -> list[tuple[str, str, str, Message]]:
    """Id, tool, arguments and result of each call of *head*; none when a result is missing."""
    unclaimed: defaultdict[str, deque[Message]] = defaultdict(deque)
    for result in results:
        unclaimed[tool_call_id(result)].append(result)
    calls: list[tuple[str, str, str, Message]] = []
    for call_id, name, arguments in requested(head):
        if not unclaimed[call_id]:
            return []
        calls.append((call_id, name, arguments, unclaimed[call_id].popleft()))
    return calls


def stored_call(
    name: str, arguments: str, result: Message, attachment: Attachment | None
) -> NoProgressCall:
    """The call as it was stored; its evidence is believed."""
    digest, exempt = result.get("result_digest"), result.get("exempt")
    return NoProgressCall(
        name,
        arguments,
        text_of(result.get("content")),
        attachment,
        digest if isinstance(digest, str) else None,
        exempt if isinstance(exempt, bool) else None,
    )


def requested(head: Message) -> Iterator[tuple[str, str, str]]:
    """Id, tool and arguments of each call in an assistant message."""
    calls = head.get("tool_calls") if role_of(head) == "assistant" else None
    for call in calls if isinstance(calls, list | tuple) else ():
        fields = call if isinstance(call, Mapping) else {}
        function = fields.get("function")
        wanted = function if isinstance(function, Mapping) else {}
        call_id = fields.get("id")
        yield (
            call_id if isinstance(call_id, str) else "",
            text_of(wanted.get("name")),
            text_of(wanted.get("arguments")),
        )


def is_real_user(message: Message) -> bool:
    """Whether a person speaks: by the mark of the store, without one by how the text begins."""
    if role_of(message) != "user":
        return False
    mark = message.get("synthetic")
    if isinstance(mark, bool):
        return not mark
    return not _opening(message.get("content")).lstrip().startswith(NOTICE_TAG)


def _opening(content: object) -> str:
    """The first text of a content; a picture may stand behind it."""
    if not isinstance(content, list):
        return text_of(content)
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return next((text for text in texts if isinstance(text, str)), "")
