"""What people are told of scheduled tasks, where their answers go."""

from collections.abc import Sequence
from typing import Final

from server.errors import Locale, text_in

_FAILED: Final = (
    "定时任务「{title}」执行失败：{reason}",
    "The scheduled task “{title}” failed: {reason}",
)
_PAUSED: Final = (
    "定时任务「{title}」已连续失败 {count} 次，现已暂停，不再自动执行。排除原因后可以恢复。",
    "The scheduled task “{title}” failed {count} times in a row and is paused now. Resume it once "
    "the cause is mended.",
)
_PAUSED_TITLE: Final = ("定时任务「{title}」已暂停", "Scheduled task “{title}” is paused")
_PAUSED_REASON: Final = (
    "连续失败 {count} 次，最后一次：{reason}",
    "Failed {count} times in a row, the last time with: {reason}",
)
_NO_CONTENT: Final = (
    "定时任务「{title}」已执行，但没有返回任何内容。",
    "The scheduled task “{title}” ran, but returned no content.",
)
_WAITING: Final = (
    "定时任务「{title}」在等待答复：\n{questions}\n"
    "请在网页上打开这次执行的会话作答（会话 {session}）。",
    "The scheduled task “{title}” waits for an answer:\n{questions}\nPlease answer on the page, in "
    "the session of this run ({session}).",
)
_AT_WORK: Final = (
    "这个任务正在执行，请等它结束后再试。",
    "The task is at work already; try again when it has ended.",
)
_DAMAGED: Final = (
    "这个任务存储的内容已损坏，请先修改它的时间安排，或将它删除。",
    "What is stored of this task is damaged; give it a schedule again, or delete it.",
)
_STOPPING: Final = (
    "服务正在停止，请稍后重试。",
    "The server is about to stop; try again later.",
)
_ENDED_UNSEEN: Final = (
    "执行的会话已被删除，没有结果。",
    "The session of this run was deleted, so it has no result.",
)


def failed(locale: Locale, title: str, reason: str) -> str:
    """A run of the task failed."""
    return text_in(_FAILED, locale).format(title=title, reason=reason)


def paused(locale: Locale, title: str, count: int) -> str:
    """The task failed too often in a row."""
    return text_in(_PAUSED, locale).format(title=title, count=count)


def paused_title(locale: Locale, title: str) -> str:
    """Names the session that says so, where the task has no other place for it."""
    return text_in(_PAUSED_TITLE, locale).format(title=title)


def paused_reason(locale: Locale, reason: str, count: int) -> str:
    """Why the task is paused."""
    return text_in(_PAUSED_REASON, locale).format(reason=reason, count=count)


def no_content(locale: Locale, title: str) -> str:
    """The task ran and had nothing to say."""
    return text_in(_NO_CONTENT, locale).format(title=title)


def waiting(locale: Locale, title: str, questions: Sequence[str], session_id: str) -> str:
    """A run of the task asks something, and where to answer."""
    lines = "\n".join(f"- {question}" for question in questions)
    return text_in(_WAITING, locale).format(title=title, questions=lines, session=session_id)


def at_work(locale: Locale) -> str:
    """It cannot be started by hand now."""
    return text_in(_AT_WORK, locale)


def damaged(locale: Locale) -> str:
    """What is stored of a task cannot be read."""
    return text_in(_DAMAGED, locale)


def stopping(locale: Locale) -> str:
    """Nothing begins any more."""
    return text_in(_STOPPING, locale)


def ended_unseen(locale: Locale) -> str:
    """Why a run has no outcome."""
    return text_in(_ENDED_UNSEEN, locale)
