"""The texts of the guard, and placing reminders into a copy of the messages.

The texts stand together and are put together nowhere else: a request is built anew for every
round and after every restart, and a single changed byte would spoil the provider's prefix cache.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from guard.model import Locale, Message, NoProgressNotice, Nudge
from guard.policy import NO_PROGRESS_ABORT_AT, NO_PROGRESS_NUDGE_AT

NOTICE_TAG = "<system-notice>"
"""First in every message from the harness to the model; no user's text starts with it."""

MAX_NAME_CHARACTERS = 64
"""Of a tool's name in a text; providers allow no longer ones, models invent them."""

_FIRST: Mapping[Locale, str] = MappingProxyType(
    {
        "zh-CN": (
            "检测到重复调用:最近 {streak} 轮的工具调用与结果完全一致(工具:{tools})。\n"
            "继续重复不会产生新信息。请改变做法:调整参数/关键词/路径、改用其他工具,\n"
            "或基于已有结果直接向用户说明结论与当前阻塞。"
        ),
        "en": (
            "Repeated calls detected: the tool calls and results of the last {streak} rounds are "
            "exactly the same (tools: {tools}).\n"
            "Repeating them will bring nothing new. Change your approach: adjust the arguments, "
            "keywords or paths, use another tool,\n"
            "or tell the user your conclusion and what blocks you, from the results you have."
        ),
    }
)

_LAST: Mapping[Locale, str] = MappingProxyType(
    {
        "zh-CN": (
            "重复调用仍在继续:最近 {streak} 轮的工具调用与结果完全一致(工具:{tools})。\n"
            "若继续无变化,系统将在第 {limit} 轮自动中止本次执行。请立即换策略或直接给出结论。"
        ),
        "en": (
            "The repeated calls go on: the tool calls and results of the last {streak} rounds are "
            "exactly the same (tools: {tools}).\n"
            "If nothing changes, the system will stop this run at round {limit}. "
            "Change your strategy now or give your conclusion."
        ),
    }
)

_LOOP: Mapping[Locale, str] = MappingProxyType(
    {
        "zh-CN": (
            "检测到 Agent 连续 {streak} 轮重复执行同一组工具调用({tools})"
            "且结果没有任何变化,已自动中止本次执行以避免无限循环。请调整需求描述后重试。"
        ),
        "en": (
            "The agent made the same tool calls ({tools}) {streak} rounds in a row with no change "
            "in the results. This run was stopped to avoid an endless loop. "
            "Please adjust your request and try again."
        ),
    }
)


def build_no_progress_notice(
    streak: int, tool_names: Iterable[str], locale: Locale = "zh-CN"
) -> str:
    """The reminder for a streak; from the last reminder on it announces the end of the run."""
    limit = NO_PROGRESS_ABORT_AT if streak >= NO_PROGRESS_NUDGE_AT[-1] else 0
    return loop_notice(streak, tool_names, limit, locale)


def loop_notice(streak: int, tool_names: Iterable[str], limit: int, locale: Locale) -> str:
    """The reminder for a streak; it announces the end of the run at *limit*, if that is not 0."""
    texts = _LAST if limit else _FIRST
    return texts[locale].format(streak=streak, tools=joined_names(tool_names), limit=limit)


def build_loop_text(streak: int, tool_names: Iterable[str], locale: Locale = "zh-CN") -> str:
    """Why the run ended, for the user."""
    return _LOOP[locale].format(streak=streak, tools=joined_names(tool_names))


def apply_no_progress_notices(
    messages: Sequence[Message], notices: Iterable[NoProgressNotice]
) -> list[Message]:
    """A copy of the messages with each notice behind the results of its round.

    Pure. For messages as they are stored, not for a copy that has notices already. A notice whose
    anchor is not there is left out; `missing_anchors` names it.
    """
    due = defaultdict(list)
    for notice, index in _placed(messages, notices):
        if index is not None:
            due[index].append(render_notice(notice))
    rendered: list[Message] = []
    for index, message in enumerate(messages):
        rendered.append(message)
        rendered.extend(due.get(index, ()))
    return rendered


def missing_anchors(
    messages: Sequence[Message], notices: Iterable[NoProgressNotice]
) -> tuple[str, ...]:
    """The tool call ids of the notices that have no place in *messages*."""
    placed = _placed(messages, notices)
    return tuple(notice.after_tool_call_id for notice, index in placed if index is None)


def pin_notice(nudge: Nudge, messages: Iterable[Message]) -> NoProgressNotice:
    """The notice for a nudge whose round is the last of *messages*; exact when ids recur."""
    seen = Counter(tool_call_id(message) for message in messages if is_tool(message))
    occurrence = max(seen[nudge.after_tool_call_id] - 1, 0)
    return NoProgressNotice(nudge.after_tool_call_id, nudge.text, occurrence)


def render_notice(notice: NoProgressNotice) -> Message:
    """The notice as the message that the model sees."""
    return {"role": "user", "content": f"{NOTICE_TAG}\n{notice.text}\n</system-notice>"}


def role_of(message: object) -> object:
    """The role of a message; None for what is no message at all."""
    return message.get("role") if isinstance(message, Mapping) else None


def is_tool(message: Message) -> bool:
    """Whether the message is the result of a call."""
    return role_of(message) == "tool"


def tool_call_id(message: Message) -> str:
    """The id of the call that a tool message answers; "" when it has none."""
    call_id = message.get("tool_call_id")
    return call_id if isinstance(call_id, str) else ""


def _placed(
    messages: Sequence[Message], notices: Iterable[NoProgressNotice]
) -> list[tuple[NoProgressNotice, int | None]]:
    """Each notice once, with the index of the message it follows."""
    anchors: dict[tuple[str, int], int] = {}
    seen: Counter[str] = Counter()
    for index, message in enumerate(messages):
        if is_tool(message):
            call_id = tool_call_id(message)
            anchors[call_id, seen[call_id]] = index
            seen[call_id] += 1
    return [
        (notice, _group_end(messages, anchors.get((notice.after_tool_call_id, notice.occurrence))))
        for notice in dict.fromkeys(notices)
    ]


def _group_end(messages: Sequence[Message], index: int | None) -> int | None:
    """Where the results end: providers refuse a message between the results of one reply."""
    if index is None:
        return None
    while index + 1 < len(messages) and is_tool(messages[index + 1]):
        index += 1
    return index


def joined_names(names: Iterable[str]) -> str:
    """Each name once, fit for a text."""
    return "/".join(dict.fromkeys(map(_shown, names)))


def _shown(name: str) -> str:
    """A name fit for a text: models invent names with line breaks and worse."""
    return "".join(sign if sign.isprintable() else "?" for sign in name[:MAX_NAME_CHARACTERS])
