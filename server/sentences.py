"""What the application says in a chat: answers to commands, and what became of a message."""

from collections.abc import Mapping
from typing import Final

from channels.errors import DeliveryTrouble
from server.errors import Locale, text_in
from server.session_state import SessionState

_HELP: Final = (
    "直接发消息即可对话；忙时消息会排队，按先后回答。\n"
    "/new 开始新会话\n/stop 停止当前任务并清空排队\n/status 查看状态\n"
    "/compact 压缩较长的上下文\n"
    "/side 问题 另开一路提问，不影响当前任务\n"
    "/approve 同意 /deny 拒绝等待确认的操作\n/help 显示本说明",
    "Just send a message; while I am busy, messages wait and are answered in their order.\n"
    "/new starts a new session\n/stop stops what runs and empties the queue\n"
    "/status tells how things stand\n/compact shortens a long context\n"
    "/side question asks aside, whatever runs\n"
    "/approve and /deny answer what waits\n/help shows this",
)
_NEW: Final = ("已开始新会话。", "A new session has begun.")
_STOPPED: Final = ("正在停止当前任务。", "Stopping what runs.")
_NOTHING_RUNS: Final = ("当前没有正在执行的任务。", "Nothing is running.")
_DROPPED: Final = ("已清空 {count} 条排队消息。", "{count} waiting messages were dropped.")
_COMPACTING: Final = ("开始压缩上下文。", "Shortening the context.")
_COMPACTED: Final = ("上下文整理完毕。", "The context is in order.")
_FULL: Final = (
    "排队的消息已达上限（{count} 条），这条消息没有保留，请稍后重发。",
    "{count} messages wait already; this one was not kept. Please send it again later.",
)
_GONE: Final = ("这条消息无法处理。", "This message cannot be handled.")
_UNREADABLE: Final = ("[附件 {name} 无法读取]", "[the attachment {name} could not be read]")
_SIDELINE: Final = ("旁路提问", "Side question")
_NOTHING_ASKED_ASIDE: Final = (
    "请在 /side 后面写上要问的问题，例如：/side 现在进行到哪一步了？",
    "Please write your question after /side, for example: /side how far are you?",
)
_MAY_IT_RUN: Final = ("要执行 {tool} 吗？", "May {tool} run?")
_VERDICTS: Final = {
    "APPROVED": ("{by} 已同意", "approved by {by}"),
    "DENIED": ("{by} 已拒绝", "refused by {by}"),
    "ANSWERED": ("{by} 已回答", "answered by {by}"),
    "CANCELLED": ("{by} 已取消", "cancelled by {by}"),
    "EXPIRED": ("已超时，无人答复", "nobody answered in time"),
}
_SOMEBODY: Final = ("有人", "somebody")
_NOT_OPEN: Final = ("这个问题已经处理过了：{verdict}。", "This was answered before: {verdict}.")
_NOTHING_ASKED: Final = ("当前没有等待确认的操作。", "Nothing waits for an answer.")
_SUBAGENT_FAILED: Final = ("后台子代理执行失败: {reason}", "Background subagent failed: {reason}")
_SUBAGENT_STOPPED: Final = ("子代理已停止。", "The subagent was stopped.")
_SUBAGENT_GOES_ON: Final = (
    "子代理尚未完成，转入后台继续。",
    "The subagent is not done yet and goes on in the background.",
)
_SUBAGENT_ROUND: Final = ("子代理第 {round} 轮", "Subagent: round {round}")
_NOT_TOLD: Final[Mapping[DeliveryTrouble, tuple[str, str]]] = {
    "gone": (
        "对方已无法送达（机器人不在会话中，或会话已解散、禁言）",
        "it cannot be reached any more: the bot was removed, or the chat is closed or muted",
    ),
    "refused": ("平台拒收了这条内容", "the platform does not take this content"),
    "forbidden": (
        "机器人的权限或配置有误，请联系管理员",
        "the bot lacks a permission or is set up wrongly; please tell its administrator",
    ),
    "unreachable": ("平台一直没有接收", "the platform did not take it in all that time"),
    "not_configured": ("该机器人已不在配置中", "this bot is not configured any more"),
    "fault": ("服务内部错误", "something went wrong inside the server"),
}
_STATUS: Final = {
    "IDLE": ("空闲", "idle"),
    "QUEUED": ("排队中", "queued"),
    "RUNNING": ("执行中", "running"),
    "WAITING": ("等待确认", "waiting for an answer"),
    "COMPLETED": ("已完成", "completed"),
    "FAILED": ("失败", "failed"),
    "CANCELLED": ("已停止", "stopped"),
}
_STATUS_LINE: Final = (
    "状态：{status}\n排队：{queue} 条\n用量：输入 {prompt}，输出 {completion} tokens",
    "Status: {status}\nWaiting: {queue}\nUsage: {prompt} tokens in, {completion} out",
)


def help_text(locale: Locale) -> str:
    """What can be said to the bot."""
    return text_in(_HELP, locale)


def new_session(locale: Locale) -> str:
    """The chat speaks to a new session."""
    return text_in(_NEW, locale)


def stopped(locale: Locale, *, was_running: bool, dropped: int) -> str:
    """What a stop did."""
    lines = [text_in(_STOPPED if was_running else _NOTHING_RUNS, locale)]
    if dropped:
        lines.append(text_in(_DROPPED, locale).format(count=dropped))
    return "\n".join(lines)


def compacting(locale: Locale) -> str:
    """The context is being made shorter."""
    return text_in(_COMPACTING, locale)


def compacted(locale: Locale) -> str:
    """The context is as short as it gets."""
    return text_in(_COMPACTED, locale)


def queue_is_full(locale: Locale, count: int) -> str:
    """A message was not kept."""
    return text_in(_FULL, locale).format(count=count)


def cannot_be_handled(locale: Locale) -> str:
    """A message was not kept, for no reason that a person could mend."""
    return text_in(_GONE, locale)


def unreadable(locale: Locale, name: str) -> str:
    """Stands in a message for a file that could not be had."""
    return text_in(_UNREADABLE, locale).format(name=name)


def sideline_label(locale: Locale) -> str:
    """Stands at the head of an answer to a side question."""
    return text_in(_SIDELINE, locale)


def nothing_asked_aside(locale: Locale) -> str:
    """A side question without words."""
    return text_in(_NOTHING_ASKED_ASIDE, locale)


def may_it_run(locale: Locale, tool_name: str) -> str:
    """The question before a call."""
    return text_in(_MAY_IT_RUN, locale).format(tool=tool_name)


def verdict(locale: Locale, status: str, by: str | None) -> str:
    """Who answered a question, and how."""
    return text_in(_VERDICTS[status], locale).format(by=by or text_in(_SOMEBODY, locale))


def answered_before(locale: Locale, verdict: str) -> str:
    """Somebody was faster."""
    return text_in(_NOT_OPEN, locale).format(verdict=verdict)


def nothing_asked(locale: Locale) -> str:
    """There is no question to answer."""
    return text_in(_NOTHING_ASKED, locale)


def subagent_failed(locale: Locale, reason: str) -> str:
    """The last message of a subagent that failed, and what its parent's model is told."""
    return text_in(_SUBAGENT_FAILED, locale).format(reason=reason)


def subagent_stopped(locale: Locale) -> str:
    """A subagent ended before it was done."""
    return text_in(_SUBAGENT_STOPPED, locale)


def subagent_goes_on(locale: Locale) -> str:
    """A call waits no longer for a subagent."""
    return text_in(_SUBAGENT_GOES_ON, locale)


def subagent_round(locale: Locale, number: int) -> str:
    """How far a subagent is that a call waits for."""
    return text_in(_SUBAGENT_ROUND, locale).format(round=number)


def not_told(locale: Locale, trouble: DeliveryTrouble) -> str:
    """Why a chat could not be told something; ends without a full stop, for it closes a line."""
    return text_in(_NOT_TOLD[trouble], locale)


def status(locale: Locale, state: SessionState) -> str:
    """How a session stands."""
    lines = [
        text_in(_STATUS_LINE, locale).format(
            status=text_in(_STATUS[state.session.status], locale),
            queue=len(state.queue),
            prompt=state.usage.prompt_tokens,
            completion=state.usage.completion_tokens,
        )
    ]
    if state.session.execution_error is not None:
        lines.append(state.session.execution_error.message)
    return "\n".join(lines)
