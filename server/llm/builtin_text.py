"""What the offline stand-in says, in both languages."""

from dataclasses import dataclass

from server.errors import Locale


@dataclass(frozen=True, slots=True)
class Texts:
    """All its sentences in one language."""

    first_line: str
    """Begins every answer, so that nobody takes it for a real model."""
    help: str
    greeting: str
    no_clock: str
    otherwise: str
    uses_tool: str
    tool_missing: str
    demos: str
    demo_begins: str
    demo_calls: str
    untitled: str
    results: str
    failed: str
    matches: str
    exit_code: str
    lines: str
    more: str
    summary: str
    latest: str


_CHINESE = Texts(
    first_line="（内置离线模型：尚未配置模型网关，以下内容由程序按固定规则生成。）\n\n",
    help=(
        "我能演示完整的流程，但不会思考。可以这样试：\n\n"
        "- `列出文件`\n"
        "- `读取 README.md`\n"
        "- `搜索 关键词`\n"
        "- `运行 ls -la`\n"
        "- `复述 一句话`\n"
        "- `/demo loop`：重放同一个搜索反复调用的事故，看保护机制如何提醒并中止\n"
        "- `/demo shell-loop`：重放同一条命令反复执行的事故\n"
        "- `/demo ask`：执行暂停，等待你的回答\n"
        "- `/demo subagent`：把事故交给一个子代理，它失败而主会话继续\n\n"
        "要使用真正的模型，请设置 HEADWAY_MODEL_BASE_URL、HEADWAY_MODEL 和 HEADWAY_MODEL_API_KEY。"
    ),
    greeting="你好！发送 `帮助` 可以看到我能做什么。",
    no_clock="我不知道现在的时间：离线模型没有时钟。可以试试 `运行 date`。",
    otherwise="我不会回答这样的问题，只认识几条固定的指令。发送 `帮助` 查看它们。",
    uses_tool="我来调用工具 `{tool}`。",
    tool_missing="这个会话里没有工具 `{tool}`，所以做不到。",
    demos=(
        "可用的演示：`/demo loop`（同一个搜索）、`/demo shell-loop`（同一条命令）、"
        "`/demo ask`（向你提问）、`/demo subagent`（子代理）。"
    ),
    demo_begins="演示开始：接下来每一轮都是完全相同的调用，并且无视所有提醒，直到被中止。",
    demo_calls="演示开始：接下来只调用一次工具，并告诉你结果。",
    untitled="新会话",
    results="工具的结果：",
    failed="失败：{error}",
    matches="找到 {count} 处匹配",
    exit_code="退出码 {code}",
    lines="共 {count} 行",
    more="……",
    summary="（内置离线模型的摘要）此前用户发了 {asked} 条消息，模型调用了 {calls} 次工具。",
    latest="用户最近的话：{text}",
)

_ENGLISH = Texts(
    first_line=(
        "(Built-in offline model: no model gateway is configured, so this text comes from fixed "
        "rules.)\n\n"
    ),
    help=(
        "I can show how everything works, but I cannot think. Try:\n\n"
        "- `list files`\n"
        "- `read README.md`\n"
        "- `search WORD`\n"
        "- `run ls -la`\n"
        "- `echo some words`\n"
        "- `/demo loop`: replays an incident where one search was repeated for ever; watch the "
        "guard remind and stop it\n"
        "- `/demo shell-loop`: the same with one command\n"
        "- `/demo ask`: the run pauses and waits for your answer\n"
        "- `/demo subagent`: the incident in a subagent, which fails while the session goes on\n\n"
        "For a real model set HEADWAY_MODEL_BASE_URL, HEADWAY_MODEL and HEADWAY_MODEL_API_KEY."
    ),
    greeting="Hello! Send `help` to see what I can do.",
    no_clock="I do not know the time: the offline model has no clock. Try `run date`.",
    otherwise="I cannot answer that; I know a few fixed commands only. Send `help` to see them.",
    uses_tool="I am calling the tool `{tool}`.",
    tool_missing="This session has no tool `{tool}`, so I cannot do that.",
    demos=(
        "There are four demos: `/demo loop` (one search), `/demo shell-loop` (one command), "
        "`/demo ask` (a question to you) and `/demo subagent`."
    ),
    demo_begins=(
        "The demo begins: each round now makes the very same call and ignores every reminder, "
        "until it is stopped."
    ),
    demo_calls="The demo begins: one tool is called once, and you are told what it gave back.",
    untitled="New session",
    results="What the tools gave back:",
    failed="failed: {error}",
    matches="{count} matches",
    exit_code="exit code {code}",
    lines="{count} lines",
    more="…",
    summary=(
        "(Summary by the built-in offline model) So far the user sent {asked} messages and the "
        "model called tools {calls} times."
    ),
    latest="The user's last words: {text}",
)


def texts(locale: Locale) -> Texts:
    """The sentences in the language of *locale*."""
    return _ENGLISH if locale == "en" else _CHINESE
