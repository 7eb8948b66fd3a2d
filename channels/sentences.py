"""What bots say in a chat beside answers and cards: the sentences that all platforms share.

They are fixed texts of ours, so a platform's refusal or a model's words never get into them.
"""

from channels.port import Locale


def _in(locale: Locale, chinese: str, english: str) -> str:
    return english if locale == "en" else chinese


def queued(locale: Locale, position: int) -> str:
    """A message waits for the runs before it; *position* counts from 1."""
    return _in(
        locale,
        f"已排队（第 {position} 位），前面的任务结束后处理。发送 /stop 可停止并清空队列。",
        f"Queued (number {position}): it starts when what runs now is done. "
        "/stop ends that and empties the queue.",
    )


def stale(locale: Locale, count: int) -> str:
    """*count* messages arrived too late to be run."""
    messages = "1 message" if count == 1 else f"{count} messages"
    return _in(
        locale,
        f"我离线期间有 {count} 条消息送达过晚，未执行。仍需处理的请重新发送。",
        f"I was away, and {messages} came too late to be run. Please send again what matters.",
    )


def not_received(locale: Locale) -> str:
    """A message came while the application could not store it."""
    return _in(
        locale,
        "刚才的消息没有收到，请重发。",
        "Your last message could not be taken. Please send it again.",
    )


def not_allowed(locale: Locale, person_id: str) -> str:
    """Somebody is not on the list; the id is theirs, to be given to whoever runs the bot."""
    return _in(
        locale,
        f"你还没有使用这个机器人的权限。请把你的 ID 发给管理员开通：{person_id}",
        "You are not allowed to use this bot yet. "
        f"Give your id to whoever runs it, to be let in: {person_id}",
    )


def unreadable(locale: Locale) -> str:
    """A message is of a kind or form that cannot be read."""
    return _in(
        locale,
        "无法读取这条消息，请换成文字、图片或文件再发一次。",
        "I could not read this message. Please send it as text, a picture or a file.",
    )


def bare_mention(locale: Locale) -> str:
    """The bot was mentioned without a word."""
    return _in(
        locale,
        "我在。请直接说需要我做什么；发送 /help 查看可用命令。",
        "Here I am. Tell me what to do, or send /help for the commands.",
    )


def files_forbidden(locale: Locale) -> str:
    """The app lacks the right to read files of messages."""
    return _in(
        locale,
        "机器人没有读取文件的权限，请联系管理员开通。",
        "The bot lacks permission to read files. Please ask whoever runs it.",
    )


def file_unavailable(locale: Locale, name: str) -> str:
    """A file of a message could not be downloaded."""
    return _in(
        locale,
        f"文件「{name}」下载失败，请重新发送。",
        f"The file “{name}” could not be downloaded. Please send it again.",
    )


def file_too_big(locale: Locale, name: str, megabytes: int) -> str:
    """A file is over the limit, which is *megabytes*."""
    return _in(
        locale,
        f"文件「{name}」超过 {megabytes} MB，无法处理。",
        f"The file “{name}” is over {megabytes} MB and cannot be taken.",
    )


def no_transcript(locale: Locale) -> str:
    """A voice message came without its words, and nothing here can listen."""
    return _in(
        locale,
        "暂时听不了语音，请用文字发送。",
        "I cannot listen to voice messages. Please write it.",
    )


def stopping(locale: Locale) -> str:
    """The toast for a stop button that was pressed."""
    return _in(locale, "正在停止", "Stopping")


def not_stopped(locale: Locale) -> str:
    """The toast for a stop button whose press could not be taken; the run goes on."""
    return _in(
        locale,
        "暂时没能停止，请稍后再按一次。",
        "It could not be stopped just now. Please press again in a moment.",
    )


def already_over(locale: Locale) -> str:
    """The toast for a stop button of a run that has ended."""
    return _in(locale, "任务已经结束", "It has ended already")


def taken(locale: Locale) -> str:
    """The toast for an answer that takes a while to be written down."""
    return _in(locale, "已收到，正在处理", "Got it, one moment")


def how_to_answer(locale: Locale, calls: int, questions: int, *, is_group: bool) -> str:
    """How words answer what is open: *calls* that may be made or not, and *questions*.

    In a group the bot has to be mentioned. Nothing where nothing is open.
    """
    lines = []
    if calls == 1:
        lines.append(_in(locale, "发送 /approve 同意，/deny 拒绝。", "Send /approve or /deny."))
    elif calls:
        lines.append(
            _in(
                locale,
                "发送 /approve 全部同意，/deny 全部拒绝。",
                "/approve agrees to all of it, /deny refuses all of it.",
            )
        )
    if questions:
        lines.append(
            _in(
                locale,
                "直接回复即可作答；不想回答可发送 /deny。",
                "Answer with your next message, or send /deny if you would rather not.",
            )
        )
    if lines and is_group:
        lines.append(_in(locale, "在群里请 @ 我。", "Mention me in it."))
    return _in(locale, "", " ").join(lines)


def unasked(locale: Locale) -> str:
    """Stands for the state of what nobody asked for: it is told, and was never under way."""
    return _in(locale, "通知", "Notice")


def no_answer(locale: Locale) -> str:
    """A run finished and the model said nothing."""
    return _in(locale, "（本次没有返回内容）", "(No content was returned.)")


def failed(locale: Locale) -> str:
    """A run failed and left no reason to show."""
    return _in(
        locale,
        "任务失败，原因未知。请稍后重试。",
        "The task failed for an unknown reason. Please try again later.",
    )


def cut(locale: Locale) -> str:
    """Stands under a text that was too long for where it is shown."""
    return _in(locale, "\n\n…（内容过长，已截断）", "\n\n… (too long, cut here)")


def refused_content(locale: Locale) -> str:
    """The platform's content audit refused the answer."""
    return _in(
        locale,
        "回答未通过平台的内容审核，无法在这里显示。",
        "The platform's content check refused the answer, so it cannot be shown here.",
    )
