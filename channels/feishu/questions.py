"""What a waiting run asks: as elements of its card, with what answers it, and as words; pure.

Each button carries its question, so that a press means the same after a restart, and never another
question than the one that its reader saw. A form takes any other answer.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from channels import markdown, sentences
from channels.asking import arguments_block, in_one_line, shortened
from channels.events import Interrupt
from channels.feishu.fields import Fields
from channels.feishu.harmless import harmless
from channels.port import Locale, Question

Action = Literal["approve", "deny"]
"""What a button of a question says under `do`."""

QUESTIONS_BYTES = 6_000
"""Of all that one run asks, which its questions share; as JSON it may be twice as much."""
LEAST_BYTES = 128
"""Of a question's words, and of what stands under them."""
BUTTONS_BYTES = 7_000
"""Of all buttons and fields as JSON; the next ones come when some questions are answered."""
ROW_BUTTONS = 4
"""Side by side; a narrow window puts them below each other."""
INPUT_CHARACTERS = 1_000
"""As much as the platform takes in a field; a message answers with more."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What stands on the card of a waiting run, below what was said."""

    elements: Sequence[Fields]
    """Of the card: words, buttons, fields."""
    text: str
    """Markdown: the same in words, for where there are no buttons."""
    verdicts: str
    """Markdown: the answers alone, each with its question."""
    answered: int
    """Questions that have an answer."""
    is_open: bool
    """Some have none."""


def render_questions(
    questions: Sequence[Question], chat_id: str, locale: Locale, *, is_group: bool = False
) -> Asked:
    """What a run asks.

    Args:
        questions: At least one.
        chat_id: Whoever presses a button has to be there.
        is_group: The answer in words has to mention the bot.
    """
    numbered = [
        (f"{number}. " if len(questions) > 1 else "", question)
        for number, question in enumerate(questions, 1)
    ]
    open_ones = [one.interrupt for one in questions if not one.verdict]
    room = max(LEAST_BYTES, QUESTIONS_BYTES // len(questions) // 2)
    words = _fitting([_question(number, one, room, locale) for number, one in numbered], locale)
    how = _how_to_answer(open_ones, locale, is_group)
    verdicts = [
        f"{_head(number, one.interrupt, LEAST_BYTES, locale)}\n\n{_verdict(one)}"
        for number, one in numbered
        if one.verdict
    ]
    controls = _Controls(chat_id, locale)
    elements: list[Fields] = []
    for index, text in enumerate(words):
        elements.append({"tag": "markdown", "content": text})
        if index < len(numbered) and not numbered[index][1].verdict:
            elements += controls.of(numbered[index][1].interrupt, index + 1)
    if how:
        elements.append({"tag": "markdown", "content": how})
    return Asked(
        elements=elements,
        text="\n\n".join(filter(None, [*words, how])),
        verdicts="\n\n".join(_fitting(verdicts, locale)),
        answered=len(verdicts),
        is_open=bool(open_ones),
    )


def _fitting(texts: Sequence[str], locale: Locale) -> list[str]:
    """As many of *texts* as fit together, and a note if some are left out."""
    left = QUESTIONS_BYTES
    kept: list[str] = []
    for text in texts:
        left -= markdown.size(text)
        if left < 0:
            return [*kept, sentences.cut(locale).strip()]
        kept.append(text)
    return kept


def _question(number: str, question: Question, room: int, locale: Locale) -> str:
    interrupt = question.interrupt
    lines = [_head(number, interrupt, room, locale)]
    if interrupt.reason == "tool_call":
        lines.append(f"🔧 {in_one_line(interrupt.tool_name)}")
        lines.append(arguments_block(interrupt.arguments, room, locale))
    elif interrupt.options:
        options = "\n".join(f"- {in_one_line(option)}" for option in interrupt.options)
        lines.append(_prose(options, room, locale))
    if question.verdict:
        lines.append(_verdict(question))
    return "\n\n".join(filter(None, lines))


def _head(number: str, interrupt: Interrupt, room: int, locale: Locale) -> str:
    return _prose(f"❓ {number}{interrupt.message.strip()}", room, locale)


def _prose(text: str, room: int, locale: Locale) -> str:
    """A model's words: bounded, no code block left open, no table, nothing that acts."""
    whole = markdown.limit_tables("".join(markdown.split(harmless(text), _UNLIMITED)), 0)
    return markdown.truncate(whole, room, sentences.cut(locale)).rstrip()


_UNLIMITED = 1 << 30


def _verdict(question: Question) -> str:
    return f"☑ {harmless(in_one_line(question.verdict))}"


def _how_to_answer(interrupts: Sequence[Interrupt], locale: Locale, is_group: bool) -> str:
    calls = sum(interrupt.reason == "tool_call" for interrupt in interrupts)
    return sentences.how_to_answer(locale, calls, len(interrupts) - calls, is_group=is_group)


class _Controls:
    """Buttons and fields of one card, as far as there is room for them."""

    def __init__(self, chat_id: str, locale: Locale) -> None:
        self._chat_id = chat_id
        self._locale = locale
        self._left_bytes = BUTTONS_BYTES

    def of(self, interrupt: Interrupt, number: int) -> list[Fields]:
        """What answers the question; *number* makes names that are unique on the card."""
        if interrupt.reason == "tool_call":
            approve, deny = ("Approve", "Deny") if self._locale == "en" else ("同意", "拒绝")
            agreeing = self._button(approve, "primary", self._value(interrupt, "approve"))
            refusing = self._button(deny, "default", self._value(interrupt, "deny"))
            both = self._taken(_row([agreeing, refusing]))
            return [both] if both else []
        form = self._taken(self._form(interrupt, number))
        options = [
            self._button(shortened(option), "default", self._option(interrupt, option))
            for option in interrupt.options
        ]
        starts = range(0, len(options), ROW_BUTTONS)
        rows = [self._taken(_row(options[at : at + ROW_BUTTONS])) for at in starts]
        return [element for element in (*rows, form) if element]

    def _taken(self, element: Fields) -> Fields | None:
        """*element* if there is room for it."""
        size = markdown.size(json.dumps(element, ensure_ascii=False))
        if size > self._left_bytes:
            return None
        self._left_bytes -= size
        return element

    def _form(self, interrupt: Interrupt, number: int) -> Fields:
        is_english = self._locale == "en"
        field = {
            "tag": "input",
            "name": f"answer_{number}",
            "required": True,
            "width": "fill",
            "max_length": INPUT_CHARACTERS,
            "placeholder": _plain("Your answer" if is_english else "在这里作答"),
        }
        submit = {
            **self._button(
                "Answer" if is_english else "提交",
                "primary",
                self._value(interrupt, "approve"),
            ),
            "name": f"submit_{number}",
            "form_action_type": "submit",
        }
        return {"tag": "form", "name": f"form_{number}", "elements": [field, submit]}

    def _option(self, interrupt: Interrupt, option: str) -> Fields:
        return {**self._value(interrupt, "approve"), "answer": option}

    def _value(self, interrupt: Interrupt, action: Action) -> Fields:
        return {"do": action, "question": interrupt.id, "chat": self._chat_id}

    def _button(self, text: str, kind: str, value: Fields) -> Fields:
        return {
            "tag": "button",
            "text": _plain(text),
            "type": kind,
            "behaviors": [{"type": "callback", "value": value}],
        }


def _row(buttons: Sequence[Fields]) -> Fields:
    columns = [{"tag": "column", "width": "auto", "elements": [button]} for button in buttons]
    return {"tag": "column_set", "flex_mode": "flow", "columns": columns}


def _plain(text: str) -> Fields:
    return {"tag": "plain_text", "content": text}
