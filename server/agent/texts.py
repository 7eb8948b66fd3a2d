"""The words that the harness puts into a prompt; byte-stable, fixed per session by its locale."""

from dataclasses import dataclass
from datetime import date
from typing import Final

from server.errors import Locale
from server.tools.base import INTERRUPTED_RESULT

_WEEKDAYS_ZH: Final = "一二三四五六日"
_WEEKDAYS_EN: Final = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)

_SYSTEM_ZH: Final = """\
你是 Headway,一个可以使用工具的助手。

- 先弄清对方要什么,再用最少的步骤完成;能直接回答的就直接回答。
- 文件路径都相对于工作区,不能离开工作区。
- 工具返回 error 时先读懂原因,不要原样重复同一个调用;结果没有变化就换一种做法,或说明当前结论与阻塞。
- 需要很久的命令用 shell 的 run_async 启动,再用 await_async 等待。
- 只陈述工具结果支持的事实;没有做到的事直接说没有做到。
- 使用用户的语言回答,格式用 Markdown。
- <system-notice>、<date-change> 与 <side-question> 是系统附加的说明,不是用户的话,不要复述。"""

_SYSTEM_EN: Final = """\
You are Headway, an assistant that can use tools.

- Find out what is wanted, then do it in as few steps as possible; answer directly where you can.
- File paths are relative to the workspace, which you cannot leave.
- When a tool returns an error, read why before anything else; never repeat the same call as it \
was. If results do not change, do something different, or say what you found and what blocks you.
- Start long commands with run_async of the shell tool, then wait with await_async.
- State only what results support; say plainly what was not done.
- Answer in the language of the user, in Markdown.
- <system-notice>, <date-change> and <side-question> are notes of the system, not words of the \
user; do not repeat them."""

_SUMMARY_ZH: Final = """\
请为下面的对话写一份交接摘要,供之后继续工作时使用。写明:用户要什么(保留原话中的关键要求)、\
已经完成了什么、得到的关键事实(文件、数值、结论)、尚未完成的事和下一步。只写摘要本身。"""
_SUMMARY_EN: Final = """\
Write a hand-over of the conversation below, for whoever goes on with the work. Say what the user \
wants (keep the key demands in their own words), what is done, the facts that were found (files, \
figures, conclusions), what is still open and what comes next. Write only the hand-over."""
_TITLE_ZH: Final = "用不超过十五个字为下面这段对话起一个标题。只写标题,不加引号和句号。"
_TITLE_EN: Final = (
    "Give the conversation below a title of at most six words. Write only the title, without "
    "quotes or a full stop."
)
_ASIDE_ZH: Final = (
    "<side-question>以下是旁路提问:以上历史来自主会话,它仍在自己继续。只回答这里的问题,"
    "不要接着做主会话的工作。</side-question>\n"
)
_ASIDE_EN: Final = (
    "<side-question>This is asked aside: the history above is the main session's, which goes on "
    "by itself. Answer only what is asked here; do not continue its work.</side-question>\n"
)
_QUIET_ZH: Final = (
    "\n\n[没有需要报告的内容时,什么也不要回答:返回空的回复,不要解释,也不要写“没有新情况”。]"
)
_QUIET_EN: Final = (
    "\n\n[If there is nothing to report, answer nothing at all: an empty reply, without an "
    "explanation and without saying that there is no news.]"
)


@dataclass(frozen=True, slots=True)
class PromptTexts:
    """The texts of one locale."""

    locale: Locale

    @property
    def system(self) -> str:
        """The system message; the same bytes in each request of a session."""
        return _SYSTEM_EN if self.locale == "en" else _SYSTEM_ZH

    @property
    def missing_result(self) -> str:
        """Stands where a call has no stored result, since providers refuse such a history."""
        return INTERRUPTED_RESULT

    def date_note(self, day: date) -> str:
        """Tells the day, in front of the first message of that day."""
        if self.locale == "en":
            return f"<date-change>{day.isoformat()}, {_WEEKDAYS_EN[day.weekday()]}</date-change>\n"
        return f"<date-change>{day.isoformat()} 星期{_WEEKDAYS_ZH[day.weekday()]}</date-change>\n"

    def file_note(self, path: str, media_type: str, size_bytes: int) -> str:
        """Tells where a file of a message lies."""
        if self.locale == "en":
            return f"\n[attached file: {path} ({media_type}, {size_bytes} bytes)]"
        return f"\n[附件:{path}({media_type},{size_bytes} 字节)]"

    def picture_note(self, call_id: str) -> str:
        """Goes with the picture of a tool result."""
        if self.locale == "en":
            return f"<system-notice>picture returned by tool call {call_id}</system-notice>"
        return f"<system-notice>工具调用 {call_id} 返回的图片</system-notice>"

    @property
    def aside_note(self) -> str:
        """In front of a side question's first message, lest the model go on with the main work."""
        return _ASIDE_EN if self.locale == "en" else _ASIDE_ZH

    @property
    def quiet_note(self) -> str:
        """Goes behind the words of a scheduled task that need not have anything to say."""
        return _QUIET_EN if self.locale == "en" else _QUIET_ZH

    @property
    def summary_request(self) -> str:
        """Asks for the summary of a compaction; the transcript is the user message."""
        return _SUMMARY_EN if self.locale == "en" else _SUMMARY_ZH

    def summary(self, summary: str, last_request: str) -> str:
        """The message that stands for the history that was dropped."""
        if self.locale == "en":
            return (
                "<conversation-summary>\nEarlier messages were left out; this is what they said."
                f"\n\n{summary}\n\nThe user's latest request, word for word:\n{last_request}\n"
                "</conversation-summary>"
            )
        return (
            f"<conversation-summary>\n更早的消息已省略,以下是摘要。\n\n{summary}\n\n"
            f"用户最近一次请求的原文:\n{last_request}\n</conversation-summary>"
        )

    @property
    def title_request(self) -> str:
        """Asks for a session's title; the conversation is the user message."""
        return _TITLE_EN if self.locale == "en" else _TITLE_ZH
