"""What the bot shows: cards in schema 2.0 and messages, as JSON texts, with all their sentences.

Pure. A live card shows where its run is and has a stop button; an ended one has neither the button
nor the typing, and where its run asks something it has what answers that. All keep below what the
platform refuses.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from channels import markdown, sentences
from channels.events import OutcomeStatus
from channels.feishu.fields import Fields
from channels.feishu.harmless import harmless, without_mentions
from channels.feishu.place import is_group
from channels.feishu.questions import Asked, render_questions
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
_SHEET_CHARACTERS = 6_000
"""A long answer is read from the sheet before its last one: the rest in vain, many times."""
_REASON_BYTES = 2_000
_AROUND_BYTES = 1_500
"""Of a card, beside its answer and what it asks."""
_LABEL_CHARACTERS = 80


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
    label: str = ""
    """Stands at the head; see `Turn.label`."""
    asked: Asked | None = None
    """Of a run that waits; then the answer is short enough for one card with it."""
    reason: str = ""
    """Why it failed, as the status has it."""
    status_alone: str = ""
    """The status without the reason."""

    def status_below(self, answer: str) -> str:
        """The status as it stands below *answer*, which may give the reason already."""
        return self.status_alone if self.reason and self.reason in answer else self.status

    @property
    def words(self) -> "Ending":
        """The same without buttons and fields, for a message that nobody can change later."""
        if self.asked is None:
            return self
        text = _markdown(self.asked.text, "questions")
        return replace(self, asked=replace(self.asked, elements=[text]))


@dataclass(frozen=True, slots=True)
class Stop:
    """What a stop button stops; whoever presses it has to be in that chat."""

    run_id: str
    chat_id: str


def face(shown: Shown, locale: Locale) -> Face:
    """Show where a run is: the phase, the round, the tool's name, never its arguments."""
    answer = markdown.limit_tables(_newest(shown.answer, locale), TABLES_MAX)
    return Face(_status(shown, locale), answer)


def _newest(answer: str, locale: Locale) -> str:
    """As much of a growing answer's end as a card takes.

    It is cut at places that stay for long, so that what is new is typed out.
    """
    start = max(0, len(answer) // _SHEET_CHARACTERS - 1) * _SHEET_CHARACTERS
    recent = harmless(answer[start:])
    if not start and markdown.size(recent) <= _LIVE_BYTES:
        return recent
    if answer.count("```", 0, start) % 2:  # cut inside of code
        recent = f"```\n{recent}"
    pages = markdown.split(recent, _LIVE_BYTES // 2)
    return f"{_earlier(locale)}\n\n{''.join(pages[-2:])}"


def _earlier(locale: Locale) -> str:
    if locale == "en":
        return "… (what came before is hidden here; the end shows all of it)"
    return "…（前面的内容暂时收起，结束后完整显示）"


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
    label = " ".join(delivery.turn.label.split())[:_LABEL_CHARACTERS]
    if delivery.status == "waiting" and delivery.questions:
        return _asking(delivery, answer, label)
    if delivery.status == "finished" and not answer.strip():
        answer = sentences.no_answer(locale)
    if delivery.status == "finished" and delivery.turn.reply_to is None:
        return Ending(f"🔔 {sentences.unasked(locale)}", answer, label)
    end = Ending(_ended(delivery.status, delivery.text, locale), answer, label)
    if delivery.status != "failed":
        return end
    return replace(end, reason=harmless(delivery.text.strip()), status_alone=_failed(locale))


def _asking(delivery: Delivery, answer: str, label: str) -> Ending:
    turn = delivery.turn
    asked = render_questions(
        delivery.questions, turn.chat.chat_id, turn.locale, is_group=is_group(turn)
    )
    if asked.is_open:
        status = _ended("waiting", "", turn.locale)
    else:
        status = "☑ Answered" if turn.locale == "en" else "☑ 已答复"
    room = CARD_BYTES_MAX - _AROUND_BYTES - len(_as_json(asked.elements))
    return Ending(status, _within(harmless(answer), room, turn.locale), label, asked)


def _within(text: str, json_bytes: int, locale: Locale) -> str:
    """As much of *text* as takes no more than *json_bytes* as JSON."""
    text = markdown.limit_tables(text, TABLES_MAX)
    limit = json_bytes
    while len(_as_json(text)) > json_bytes:
        text = markdown.truncate(text, limit, sentences.cut(locale))
        limit = limit * 2 // 3
    return text


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
            head = _failed(locale)
    if not reason:
        return head
    return f"{head}: {reason}" if is_english else f"{head}：{reason}"


def _failed(locale: Locale) -> str:
    return "❌ Failed" if locale == "en" else "❌ 任务失败"


def live(shown: Face, stop: Stop, locale: Locale, label: str = "") -> str:
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
    texts = [_markdown(shown.answer, ANSWER), _markdown(shown.status, STATUS)]
    elements = [*_headed(label), *texts, button]
    working = "⏳ Working…" if locale == "en" else "⏳ 正在处理…"
    return _card(elements, summary=working, is_streaming=True)  # written now and then only


def ended(end: Ending, part: str) -> str:
    """The card of a run that is over, or waits, with the first part of its answer."""
    elements = _headed(end.label)
    elements += [_markdown(part, ANSWER)] if part.strip() else []
    elements += end.asked.elements if end.asked else []
    elements.append(_markdown(harmless(end.status_below(part)), STATUS))
    return _card(elements, summary=_first_line(end.status))


def plain_card(part: str, label: str = "") -> str:
    """A card that only holds text: an answer without a progress card, or more of one."""
    return _card([*_headed(label), _markdown(part, ANSWER)], summary=_first_line(label or part))


def headed(label: str, text: str) -> str:
    """*text* of a message, under what its run is about, if that is no ordinary answer."""
    return f"{label}\n\n{text}" if label else text


def _headed(label: str) -> list[Fields]:
    words = harmless(" ".join(label.replace("*", "").split()))
    return [_markdown(f"**{words}**", "label")] if words else []


def parts_of(end: Ending, tables_max: int = TABLES_MAX) -> list[str]:
    """The answer so that each part fits into a card; the first one with all else that is told."""
    if end.asked is not None:
        return [markdown.limit_tables(end.answer, tables_max)]
    return parts(end.answer, tables_max) or [""]


def parts(text: str, tables_max: int = TABLES_MAX) -> list[str]:
    """Cut an answer so that each part fits into a card; none for a blank one."""
    text = harmless(text)
    for limit in _PART_BYTES:
        cut = [markdown.limit_tables(part, tables_max) for part in markdown.split(text, limit)]
        if all(len(_as_json(part)) <= CARD_BYTES_MAX for part in cut):
            break
    return cut


def text_message(text: str) -> str:
    """The content of a text message."""
    return json.dumps({"text": without_mentions(text)}, ensure_ascii=False)


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


def _as_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:60]
