"""The offline stand-in for a model: no key, no network, the real tools.

It is used when no gateway is configured, and says so. Nothing is remembered between requests:
each reply follows from the request's messages alone, so a restart changes nothing.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

import msgspec

from server.errors import Locale
from server.llm.builtin_text import Texts, texts
from server.llm.port import (
    CallArguments,
    CallStarted,
    ModelEvent,
    ModelRequest,
    Reply,
    ReplyCall,
    TextDelta,
)
from server.message import Usage

BYTES_PER_TOKEN = 4
"""A rough count; nothing here has a tokenizer."""
TITLE_CHARS = 24
SHOWN_LINES = 5
"""How much of a text result a summary quotes."""

_PIECE = re.compile(r"\s*(?:[\u2e80-\uffef]{1,2}|[^\s\u2e80-\uffef]+)\s*|\s+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NOTE = re.compile(r"<[a-z][a-z-]*[ >]")
"""How texts begin that the harness put among the user's messages, such as its notices."""

_DEMO_CALLS: dict[str, tuple[str, Mapping[str, object]]] = {
    "loop": ("grep_search", {"pattern": "群名", "path": "."}),
    "shell-loop": ("shell", {"action": "run", "command": "ls missing-folder"}),
    "ask": ("ask_user", {"question": "1 + 1 = ?", "options": ["2", "3"]}),
    "subagent": ("spawn_subagent", {"task": "/demo loop"}),
}
"""Both incidents that the guard was made for: the same call, whatever comes back; and ways in."""

_DEMOS_OF_ONE_CALL = frozenset({"ask", "subagent"})
"""They end with what came back."""


_NOTES = re.compile(r"\A(?:<(date-change|side-question)>[^<]*</\1>\n)*")


class _Function(msgspec.Struct):
    name: str = ""


class _Call(msgspec.Struct):
    id: str = ""
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct):
    role: str
    content: str | list[Mapping[str, object]] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The words, without the notes that the prompt may put before them."""
        words = self.content or ""
        if isinstance(words, list):
            words = "\n".join(str(part["text"]) for part in words if "text" in part)
        return _NOTES.sub("", words)


class _Tool(msgspec.Struct):
    function: _Function = msgspec.field(default_factory=_Function)


_decode_message = msgspec.json.Decoder(_Message).decode
_decode_tools = msgspec.json.Decoder(list[_Tool]).decode


class BuiltinModel:
    """A `Model` that runs inside the server."""

    name = "builtin"

    def __init__(self, pace_seconds: float = 0.015) -> None:
        self._pace_seconds = pace_seconds
        """Pause before each piece, so that a page shows how streaming looks."""

    async def check(self) -> str | None:
        """None: there is nothing that could be missing."""
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the reply; see `Model.stream`. Usage is an estimate, see `_estimated`."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        messages = [_decode_message(message) for message in request.messages]
        text, calls = _answer(request, messages)
        first_token_ms: int | None = None
        for event in _events(text, calls):
            await asyncio.sleep(self._pace_seconds)
            if first_token_ms is None:
                first_token_ms = round((loop.time() - started) * 1000)
            yield event
        yield Reply(
            text=text,
            calls=calls,
            finish_reason="tool_calls" if calls else "stop",
            usage=_estimated(request, messages, text, calls),
            model=self.name,
            first_token_ms=first_token_ms,
            total_ms=round((loop.time() - started) * 1000),
        )


def _estimated(
    request: ModelRequest, messages: Sequence[_Message], text: str, calls: Sequence[ReplyCall]
) -> Usage:
    """About four bytes a token.

    Cached is what the request before had: all before the last assistant message. It is an
    estimate too, since no earlier request is remembered.
    """
    sizes = [len(message) for message in request.messages]
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    fixed = len(request.tools or b"")
    cached = sum(sizes[: replies[-1]]) + fixed if replies else 0
    sent = len(text.encode()) + sum(len(c.name) + len(c.arguments.encode()) for c in calls)
    return Usage(
        (sum(sizes) + fixed) // BYTES_PER_TOKEN,
        cached // BYTES_PER_TOKEN,
        max(sent // BYTES_PER_TOKEN, 1),
    )


def _events(text: str, calls: Sequence[ReplyCall]) -> Iterator[ModelEvent]:
    for piece in _PIECE.findall(text):
        yield TextDelta(piece)
    for place, scripted in enumerate(calls):
        yield CallStarted(place, scripted.name)
        yield CallArguments(place, scripted.arguments)


def _answer(
    request: ModelRequest, messages: Sequence[_Message]
) -> tuple[str, tuple[ReplyCall, ...]]:
    asked = _last_asked(messages)
    words = texts(_language(messages, asked))
    text = messages[asked].text.strip() if asked is not None else ""
    if request.purpose == "title":
        return _title(text) or words.untitled, ()
    if request.purpose == "compaction":
        return _summary(messages, words), ()
    since = messages[asked + 1 :] if asked is not None else []
    if not request.may_call:
        return words.first_line + _results_told(since, words), ()
    return _turn(text, since, _tool_names(request.tools), words, len(messages))


def _turn(
    text: str, since: Sequence[_Message], tools: frozenset[str], words: Texts, serial: int
) -> tuple[str, tuple[ReplyCall, ...]]:
    """The next reply to *text*, given what was said and done *since*."""
    command, _, demo = text.partition(" ")
    wanted = _wanted(text)
    results = [message for message in since if message.role == "tool"]
    if command == "/demo":
        if demo.strip() not in _DEMO_CALLS:
            return words.first_line + words.demos, ()
        wanted = _DEMO_CALLS[demo.strip()]
        is_one_call = demo.strip() in _DEMOS_OF_ONE_CALL
        if is_one_call and results:
            return words.first_line + _results_told(since, words), ()
        begins = words.demo_calls if is_one_call else words.demo_begins
        opening = "" if results else words.first_line + begins
    elif results:
        return words.first_line + _results_told(since, words), ()
    elif wanted is None:
        return words.first_line + _small_talk(text, words), ()
    else:
        opening = words.first_line + words.uses_tool.format(tool=wanted[0])
    name, arguments = wanted
    if name not in tools:
        return words.first_line + words.tool_missing.format(tool=name), ()
    encoded = msgspec.json.encode(arguments).decode()
    return opening, (ReplyCall(f"builtin-{serial}", name, encoded),)


def _last_asked(messages: Sequence[_Message]) -> int | None:
    """Where the last message stands that a person wrote."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        text = message.text.lstrip()
        if message.role == "user" and text and not _NOTE.match(text):
            return place
    return None


def _language(messages: Sequence[_Message], asked: int | None) -> Locale:
    """The language of the last text; a slash command has none, so then that of the prompt."""
    text = messages[asked].text if asked is not None else ""
    if not text or text.lstrip().startswith("/"):
        text = "".join(message.text for message in messages if message.role == "system") or "中"
    return "zh-CN" if _CJK.search(text) else "en"


def _tool_names(tools: bytes | None) -> frozenset[str]:
    return frozenset(tool.function.name for tool in _decode_tools(tools or b"[]"))


_ASKS: tuple[tuple[str, str], ...] = (
    ("list_dir", r"(?:(?:list|show)(?: the| all)? (?:files|folder|directory)|ls|dir)(?: in)?"),
    ("list_dir", r"(?:请)?(?:列出|列一下|显示|看看|查看)(?:当前|所有)*(?:目录|文件夹|文件列表)"),
    ("list_dir", r"(?:请)?(?:列出|列一下|显示)(?:当前|所有)*文件"),
    ("read_file", r"(?:read|cat)(?: the)?(?: file)?|(?:请)?(?:读取|读一下|查看)(?:文件)?"),
    ("grep_search", r"(?:search|grep|find)(?: for)?|(?:请)?(?:搜索|查找|搜一下)"),
    ("shell", r"(?:run|execute)(?: the)?(?: command)?|(?:请)?(?:运行|执行)(?:命令)?"),
)
_PATTERNS = tuple(
    (tool, re.compile(rf"(?:{asks})(?:[\s:：]+(?P<rest>.+))?", re.IGNORECASE | re.DOTALL))
    for tool, asks in _ASKS
)
_UNSPACED = re.compile(r"((?:请)?(?:读取|读一下|查看|搜索|查找|搜一下)(?:文件)?)(?=[^\s:：])")
"""Chinese needs no space after the verb; commands for the shell are asked for one all the same."""
_HELP = re.compile(r"/?help|\?|？|/?帮助|你(?:能|会)做什么.?|what can you do.?", re.IGNORECASE)
_HELLO = re.compile(r"(?:hi|hello|hey|你好|您好|嗨)[\s,!，。！~]*(?:there)?[!！]?", re.IGNORECASE)
_CLOCK = re.compile(
    r"what.{0,12}(?:time|date|day)\b|几点|(?:现在|当前).{0,3}时间|今天.{0,3}(?:几号|日期|星期)",
    re.I,
)
_ECHO = re.compile(r"(?:echo|say|repeat|复述|重复|跟我说)[\s:：]+(.+)", re.IGNORECASE | re.DOTALL)


def _wanted(text: str) -> tuple[str, Mapping[str, object]] | None:
    """The tool that *text* plainly asks for, with its arguments."""
    spaced = _UNSPACED.sub(r"\1 ", text, count=1) if _UNSPACED.match(text) else text
    for wording in (text, spaced):
        for tool, pattern in _PATTERNS:
            match = pattern.fullmatch(wording)
            if match is None:
                continue
            rest = (match["rest"] or "").strip().strip("`\"'“”「」。")
            if rest or tool == "list_dir":
                return tool, _arguments(tool, rest)
    return None


def _arguments(tool: str, rest: str) -> Mapping[str, object]:
    if tool == "grep_search":
        return {"pattern": rest, "path": "."}
    if tool == "shell":
        return {"action": "run", "command": rest}
    return {"path": rest or "."}


def _small_talk(text: str, words: Texts) -> str:
    if echo := _ECHO.fullmatch(text):
        return echo[1].strip()
    if _HELP.fullmatch(text):
        return words.help
    if _HELLO.fullmatch(text):
        return words.greeting
    return words.no_clock if _CLOCK.search(text) else words.otherwise


def _results_told(since: Sequence[_Message], words: Texts) -> str:
    """A line for each result of the last round, and the beginning of what is plain text."""
    names = {call.id: call.function.name for m in since for call in m.tool_calls or ()}
    last_asking = max((i for i, m in enumerate(since) if m.tool_calls), default=0)
    told = [
        f"- `{names.get(message.tool_call_id or '', '?')}`: {_result_told(message.text, words)}"
        for message in since[last_asking:]
        if message.role == "tool"
    ]
    return "\n".join([words.results, "", *told])


def _result_told(content: str, words: Texts) -> str:
    facts = _facts(content)
    if "error" in facts:
        return words.failed.format(error=facts["error"])
    if "total_matches" in facts:
        return words.matches.format(count=facts["total_matches"])
    if "exit_code" in facts:
        return words.exit_code.format(code=facts["exit_code"]) + _quoted(
            str(facts.get("output", "")), words
        )
    lines = content.splitlines()
    return words.lines.format(count=len(lines)) + _quoted(content, words)


def _facts(content: str) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(content, type=dict[str, object])
    except msgspec.DecodeError:
        return {}


def _quoted(text: str, words: Texts) -> str:
    """The first lines of *text* as a code block inside a list item."""
    lines = text.splitlines()
    if not lines:
        return ""
    shown = [*lines[:SHOWN_LINES], *([words.more] if len(lines) > SHOWN_LINES else [])]
    return "\n\n" + "\n".join(f"      {line[:200]}" for line in shown)


def _title(text: str) -> str:
    """The first words, no longer than a title may be."""
    line = " ".join(text.split())
    if len(line) <= TITLE_CHARS:
        return line
    cut = line[:TITLE_CHARS]
    head, space, _ = cut.rpartition(" ")
    return head if space else cut


def _summary(messages: Sequence[_Message], words: Texts) -> str:
    asked = [m.text for m in messages if m.role == "user" and not _NOTE.match(m.text.lstrip())]
    calls = sum(len(message.tool_calls or ()) for message in messages)
    told = words.summary.format(asked=len(asked), calls=calls)
    return f"{told}\n{words.latest.format(text=asked[-1][:200])}" if asked else told
