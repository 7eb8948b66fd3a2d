"""What the bot shows: cards in schema 2.0 and messages, as JSON texts, with all their sentences.

Pure. A live card shows where its run is and has a stop button; an ended one has neither the button
nor the typing. Both keep below what the platform refuses.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from channels import markdown, sentences
from channels.events import OutcomeStatus
from channels.feishu.fields import Fields
from channels.port import Delivery, Locale
from channels.progress import Shown

ANSWER = "answer"
STATUS = "status"
"""Ids of the elements that are written while the run goes; at most 20 characters."""

STOP = "stop"
"""What the stop button's value says under `do`."""

CARD_BYTES_MAX = 28_000
"""Of the card as JSON; the platform's limit is 30 KB."""
TABLES_MAX = 3
"""More than 3 to 5 tables make a card unacceptable, by field reports."""
_PART_BYTES = (20_000, 12_000, 9_000)
"""Tried in turn: how much a text grows as JSON depends on its quotes and line ends."""
_LIVE_BYTES = 12_000
"""Of an answer while it grows: even if each byte is escaped, the card is not too big."""
_REASON_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class Face:
    """What a live card shows."""

    status: str
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, for its card and for the messages that stand in for it."""

    status: str
    """One line with the reason; empty where the answer says it all."""
    answer: str


@dataclass(frozen=True, slots=True)
class Stop:
    """What a stop button stops; whoever presses it has to be in that chat."""

    run_id: str
    chat_id: str


def face(shown: Shown, locale: Locale) -> Face:
    """Show where a run is: the phase, the round, the tool's name, never its arguments."""
    beginning = shown.answer[: 2 * _LIVE_BYTES]  # the rest would be read in vain, many times
    answer = markdown.limit_tables(harmless(beginning), TABLES_MAX)
    answer = markdown.truncate(answer, _LIVE_BYTES, sentences.cut(locale))
    return Face(_status(shown, locale), answer)


def _status(shown: Shown, locale: Locale) -> str:
    is_english = locale == "en"
    if shown.is_compacting:
        return "🗂 Tidying up the context…" if is_english else "🗂 正在整理上下文…"
    where = ""
    if shown.round > 1:
        where = f" (round {shown.round})" if is_english else f"（第 {shown.round} 轮）"
    match shown.phase:
        case "tool":
            tool = shown.tool or ""
            return f"🔧 Using {tool}{where}…" if is_english else f"🔧 正在使用 {tool}{where}…"
        case "answering":
            return f"✍️ Answering{where}…" if is_english else f"✍️ 正在回复{where}…"
        case "thinking" | "done":
            return f"💭 Thinking{where}…" if is_english else f"💭 正在思考{where}…"


def ending(delivery: Delivery, shown_answer: str = "") -> Ending:
    """How a run ended; what was shown of the answer stands in where the outcome has none."""
    locale = delivery.turn.locale
    answer = delivery.answer or shown_answer
    if delivery.status == "finished" and not answer.strip():
        answer = sentences.no_answer(locale)
    return Ending(_ended(delivery.status, delivery.text, locale), answer)


def _ended(status: OutcomeStatus, reason: str, locale: Locale) -> str:
    is_english = locale == "en"
    reason = markdown.truncate(reason.strip(), _REASON_BYTES, "…")
    match status:
        case "finished":
            return "✅ Done" if is_english else "✅ 已完成"
        case "cancelled":
            return "⏹ Stopped" if is_english else "⏹ 已停止"
        case "waiting":
            head = "⏸ Waiting for your answer" if is_english else "⏸ 等待你的回复"
        case "failed":
            if not reason:
                return f"❌ {sentences.failed(locale)}"
            head = "❌ Failed" if is_english else "❌ 任务失败"
    if not reason:
        return head
    return f"{head}: {reason}" if is_english else f"{head}：{reason}"


def live(shown: Face, stop: Stop, locale: Locale) -> str:
    """The card of a run that goes on."""
    button: Fields = {
        "tag": "button",
        "element_id": "stop",
        "text": {"tag": "plain_text", "content": "Stop" if locale == "en" else "停止"},
        "type": "danger",
        "behaviors": [
            {
                "type": "callback",
                "value": {"do": STOP, "run": stop.run_id, "chat": stop.chat_id},
            }
        ],
    }
    elements = [_markdown(shown.answer, ANSWER), _markdown(shown.status, STATUS), button]
    return _card(elements, summary=shown.status, is_streaming=True)


def ended(end: Ending, part: str) -> str:
    """The card of a run that is over, with the first part of its answer."""
    elements = [_markdown(part, ANSWER)] if part.strip() else []
    elements.append(_markdown(harmless(end.status), STATUS))
    return _card(elements, summary=_first_line(end.status))


def plain_card(part: str) -> str:
    """A card that only holds text: an answer without a progress card, or more of one."""
    return _card([_markdown(part, ANSWER)], summary=_first_line(part))


def parts(text: str, tables_max: int = TABLES_MAX) -> list[str]:
    """Cut an answer so that each part fits into a card; none for a blank one."""
    text = harmless(text)
    for limit in _PART_BYTES:
        cut = [markdown.limit_tables(part, tables_max) for part in markdown.split(text, limit)]
        if all(len(_markdown_json(part)) <= CARD_BYTES_MAX for part in cut):
            break
    return cut


def text_message(text: str) -> str:
    """The content of a text message."""
    return json.dumps({"text": _without_mentions(text)}, ensure_ascii=False)


def card_reference(card_id: str) -> str:
    """The content of the message that shows a card made before."""
    return json.dumps({"type": "card", "data": {"card_id": card_id}})


def toast(text: str, *, is_warning: bool = False) -> Fields:
    """The answer to a click; it changes nothing of the card."""
    return {"toast": {"type": "warning" if is_warning else "info", "content": text}}


def _card(elements: Sequence[Fields], *, summary: str, is_streaming: bool = False) -> str:
    config = {
        "streaming_mode": is_streaming,
        "update_multi": True,
        "summary": {"content": summary},
    }
    card = {"schema": "2.0", "config": config, "body": {"elements": list(elements)}}
    return json.dumps(card, ensure_ascii=False)


def _markdown(content: str, element_id: str) -> Fields:
    return {"tag": "markdown", "element_id": element_id, "content": content}


def _markdown_json(part: str) -> bytes:
    return json.dumps(part, ensure_ascii=False).encode("utf-8", "replace")


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:60]


_PICTURE = re.compile(r"!\[([^\]\n]*)\]\((?!img_)([^)\n]*)\)")
_TAG = re.compile(r"<(?=/?\s*(?:at|person)\b)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def harmless(text: str) -> str:
    """Take from *text* what a card would act upon or choke on; code stays as it is.

    A model's `<at id=all>` would call everybody, and a picture that is no upload of ours makes the
    platform refuse the whole card, so it becomes a link.
    """
    text = _CONTROL.sub("", text)
    return _outside_code(text, lambda line: _PICTURE.sub(r"[\1](\2)", _TAG.sub("&#60;", line)))


def _without_mentions(text: str) -> str:
    """A text message knows no entities: a blank of no width keeps the tag from being one."""
    return _TAG.sub("<\u200b", _CONTROL.sub("", text))


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    fence = ""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence:
            lines[number] = change(line)
    return "\n".join(lines)
