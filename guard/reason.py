"""Why a call failed, and what says of itself that it waits.

Both are read from a bounded part of the text, so that they cost the same for any result. They are
guesses, made to miss rather than to accuse: only rules beside the default one look at them.
"""

import re

from guard.complaint import is_usage, opens_as_failure
from guard.noise import has_any, masked, without_colours
from guard.verdict import HEAD_CHARACTERS, TAIL_CHARACTERS, failure_of, last_line

MAX_QUOTED_CHARACTERS = 600
"""Of a reason before it is made plain."""

MAX_QUOTE_CHARACTERS = 200
"""What stands in quotes is longer than paths are, or no quote."""

MAX_MIXED_CHARACTERS = 1000
"""Up to here a program's complaint is looked for among its other output."""

MAX_COLOURED_CHARACTERS = 20_000
"""Of a text with colours, the part in which its reason is looked for."""

MAX_REASON_CHARACTERS = 160

MAX_ARGUMENTS_CHARACTERS = 2_000
"""Of the arguments in which the words of a reason are looked for."""

_EXIT = re.compile(
    r"[\s\[(]*(?:<returncode>|(?:the )?(?:process |command )?"
    r"(?:(?:exited|failed|finished|completed) with |returned )?(?:non-zero )?"
    r"(?:exit |return )(?:code|status):? "
    r"|(?:process |command )?exited with code:? )(-?\d+)",
    re.IGNORECASE,
)
"""How a command's result begins, or its last line, that is text and not an object."""

_ERRNO = re.compile(
    r"(?:^fatal: .*|No such file or directory|Permission denied|command not found|Is a directory"
    r"|Not a directory|File exists|Read-only file system|Operation not permitted"
    r"|[Ss]yntax error.*|unexpected EOF.*|invalid option.*|(?:missing|extra) operand.*"
    r"|must be a directory|[Uu]nknown (?:option|primary|predicate).*"
    r"|missing argument.*|illegal option.*|Invalid argument|No space left on device"
    r"|没有那个文件或目录|权限不够|未找到命令|是一个目录|不是目录|文件已存在|只读文件系统"
    r"|不允许的操作|无效的参数|设备上没有空间)$"
)
"""How a line ends in which a program, named first, tells what went wrong."""

_ERRNO_WORDS = (
    "fatal: ",
    " directory",
    "Permission denied",
    "command not found",
    "File exists",
    "Read-only file system",
    "Operation not permitted",
    "yntax error",
    "unexpected EOF",
    "invalid option",
    "illegal option",
    "nknown ",
    " operand",
    " argument",
    "No space left on device",
)
"""One of them is in every such line; the longer they are, the faster it is known that none is."""

_CHINESE_ERRNO = ("目录", "权限", "命令", "文件", "操作", "参数", "空间")

_COLON = re.compile(r": |：")

_NODE = re.compile(r"(?:node:\S+|(?:file://)?/\S+):\d+\n[^\0]{0,600}?\n\w*Error\b")
"""How the trace of a script begins: with the place and its line."""

_RAISED = re.compile(
    r"^(?:Uncaught )?(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)|Error)\b.*",
    re.MULTILINE,
)
"""The line of a traceback that tells the reason; programs may print after it."""

_QUOTED = re.compile(
    rf"(?<!\w)'[^'\n]{{0,{MAX_QUOTE_CHARACTERS}}}'(?!\w)"
    rf"|\"[^\"\n]{{0,{MAX_QUOTE_CHARACTERS}}}\"|`[^`'\n]{{0,{MAX_QUOTE_CHARACTERS}}}[`']"
    rf"|[“「『《‘][^”」』》’\n]{{0,{MAX_QUOTE_CHARACTERS}}}[”」』》’]"
)
"""What a reason quotes is the argument, which a model words anew each time."""

_WORDS = re.compile(r"""[^\s"'`,;:=()\[\]{}<>|\\\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]{3,}""")
"""Names, paths and numbers, as they stand in arguments and in reasons alike."""

_CHINESE_WORDS = re.compile(r"[\u4e00-\u9fff]{2,}")

_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
"""How JSON may spell what is not ASCII."""

_COMMON = frozenset(
    """again all and any are argument been before can cannot command could denied directory does
    error exist exists expected failed file first for found from has have invalid its line
    message missing more near new not one only option permission please read such syntax than
    that the then there this try type unexpected unknown use value was were will with you your
    """.split()
)
"""Words of complaints, also where the arguments have them: they would be left out of one reason
and not of the next."""

_HEX = re.compile(r"\b(?:0x[0-9a-fA-F]+\b|(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b)")
"""What a reason has of ids; in a result they may be what changed."""

_TRANSPORT = re.compile(
    r"time[d\s-]*out|rate.?limit|too many requests|temporar|connection (?:reset|refused|aborted)"
    r"|\b(?:429|502|503|504)\b|service unavailable|bad gateway|overloaded|try again later"
    r"|econn(?:refused|reset|aborted)|etimedout|could not resolve|name resolution"
    r"|超时|繁忙|限流|过于频繁|稍后(?:再|重)|连接被?(?:拒绝|重置|中断)",
    re.IGNORECASE,
)

_WAITING = re.compile(
    r'"(?:status|state)"\s*:\s*"(?:running|queued|in_progress|in progress|not_ready)"'
    r"|<(?:status|state|retrieval_status)>\s*(?:running|queued|in_progress|not_ready|timeout)"
    r"|\b(?:status|state): (?:running|queued|in progress)\b"
    r"|\b(?:process|command|job|task|build) (?:is )?still running\b"
    r"|(?:状态|status|state)\"?\s*[:：]\s*\"?(?:运行中|正在运行|排队中|进行中|执行中)",
)
"""How a result says that what was asked about goes on. `pending` is not among them: orders are."""

_SLEEP = re.compile(
    r"\bsleep(?:\s+(?:-s(?:econds)?\s+)?|\(\s*)(?:[5-9]|[0-9]{2,})(?![0-9]*\.)", re.IGNORECASE
)
"""A command that lets at least five seconds pass before it looks."""

_WAITING_WORDS = ("running", "queued", "progress", "not_ready", "timeout")
_CHINESE_WAITING = ("运行中", "正在运行", "排队中", "进行中", "执行中")


def error_class(text: str, arguments: str = "") -> str | None:
    """The normalised reason of a failure, at most 160 characters; None when it is none.

    Args:
        text: The result.
        arguments: Of the call. A reason names what was asked for, which is no part of it: a model
            asks for something else each time, and fails for the same reason.
    """
    if "\x1b" in text[:HEAD_CHARACTERS]:
        text = without_colours(text[:MAX_COLOURED_CHARACTERS])
    reason = _reason(text, arguments)
    return None if reason is None else _normalised(reason, arguments)


def _reason(text: str, arguments: str) -> str | None:
    """The words that tell why the call failed; None when it did not."""
    if not text:
        return None
    if text.startswith(("{", "[{")):
        return failure_of(text)
    at_once = _EXIT.match(text)
    if at_once is not None:
        return _silent_or(at_once[1], text[at_once.end() :].lstrip(" :.])"))
    code, before = _exited(text)
    if code == "0":
        return None
    if opens_as_failure(text) or (text[0] in "nf/" and _NODE.match(text)):
        return _raised(text) or text[:HEAD_CHARACTERS]
    if is_usage(text, arguments):
        lines = text[:MAX_MIXED_CHARACTERS].split("\n")
        return next((line for line in lines if "rror: " in line), lines[0])
    return _silent_or(code, before) if code else _errno(text)


def _silent_or(code: str, output: str) -> str | None:
    """The last words of a command that failed; None for one that did not, or without a word."""
    last = last_line(output) if code != "0" else ""
    return f"exit {code}: {last}" if last else None


def _exited(text: str) -> tuple[str, str]:
    """The code with which a command ended by the last line of its result, and what is before."""
    tail = text[-TAIL_CHARACTERS:]
    if "xit" not in tail and "eturn " not in tail:
        return "", ""
    before, _, last = tail.rstrip().rpartition("\n")
    found = _EXIT.match(last)
    return ("", "") if found is None else (found[1], before)


def is_transport(reason: str) -> bool:
    """Whether another try may help: the tool was not reached or was busy."""
    return _TRANSPORT.search(reason) is not None


def says_it_waits(text: str) -> bool:
    """Whether the result says of what was asked about that it goes on."""
    head = text[:HEAD_CHARACTERS]
    head = (_unescaped(head) if "\\u" in head else head).lower()
    words = _WAITING_WORDS if head.isascii() else _WAITING_WORDS + _CHINESE_WAITING
    return has_any(head, words) and _WAITING.search(head) is not None


def sleeps(arguments: str) -> bool:
    """Whether the call lets time pass before it looks, as a shell does between two looks."""
    return has_any(arguments, ("sleep", "Sleep")) and _SLEEP.search(arguments) is not None


def _errno(text: str) -> str | None:
    """The first in order of the lines in which programs say what went wrong.

    Outputs of several processes run into each other in another order each time.
    """
    part = text[:MAX_MIXED_CHARACTERS]
    if not has_any(part, _ERRNO_WORDS) and (part.isascii() or not has_any(part, _CHINESE_ERRNO)):
        return None
    found = [line for line in part.split("\n") if _COLON.search(line) and _ERRNO.search(line)]
    return min(found) if found else None


def _raised(text: str) -> str:
    """What a traceback tells; its frames are the same for many reasons."""
    if text.startswith("Traceback"):
        found = _RAISED.findall(text[-TAIL_CHARACTERS:])
        return found[-1] if found else last_line(text)
    head = text[:MAX_MIXED_CHARACTERS]
    if not has_any(head, ("\n    at ", "\n\tat ", "\ngoroutine ")):
        return ""
    found = _RAISED.findall(head)
    return found[0] if found else head.split("\n", 1)[0]


def _normalised(reason: str, arguments: str) -> str:
    named = _QUOTED.sub("·", reason[:MAX_QUOTED_CHARACTERS])
    if arguments:
        asked = set(_WORDS.findall(arguments[:MAX_ARGUMENTS_CHARACTERS])) - _COMMON
        named = _WORDS.sub(lambda word: "·" if word[0] in asked else word[0], named)
        if _CHINESE_WORDS.search(named):
            named = _without_chinese(named, arguments[:MAX_ARGUMENTS_CHARACTERS])
    plain = _HEX.sub("·", masked(named))
    return " ".join(plain.lower().split())[:MAX_REASON_CHARACTERS]


def _without_chinese(reason: str, arguments: str) -> str:
    """*reason* without the Chinese words of the arguments: no blank sets them apart in it."""
    asked = set(_CHINESE_WORDS.findall(_unescaped(arguments)))
    for word in sorted(asked, key=lambda word: (-len(word), word)):
        reason = reason.replace(word, "·")
    return reason


def _unescaped(text: str) -> str:
    """JSON's text with the letters that it may spell as codes."""
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text)
