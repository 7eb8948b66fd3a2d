"""What a waiting run asks: as Markdown, and as the buttons that answer it; pure.

The buttons go into one variable of the template, of the card builder's own type for groups of
buttons. Each carries its question, so that a press means the same after a restart, and never
another question than the one that its reader saw.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from channels import sentences
from channels.asking import arguments_block, in_one_line, shortened
from channels.dingtalk.decode import Action
from channels.dingtalk.text import closed
from channels.events import Interrupt
from channels.markdown import truncate
from channels.port import Locale, Question

QUESTIONS_BYTES = 12_000
"""Of all that one run asks, which its questions share; the rest of its card is for what was said
before."""
LEAST_BYTES = 128
"""Of a question's words, and of what stands under them."""
BUTTONS_MAX = 10
"""At once; the next ones come when some are answered."""
NO_BUTTONS = "[]"


@dataclass(frozen=True, slots=True)
class Asked:
    """What stands on the card of a waiting run, below what was said."""

    text: str
    """Markdown: the questions, with their answers as far as there are some, and how to answer."""
    verdicts: str
    """Markdown: the answers alone, each with its question."""
    answered: int
    """Questions that have an answer."""
    is_open: bool
    """Some have none."""
    buttons: str
    """JSON: the value of the template's group of buttons."""


def render_questions(
    questions: Sequence[Question], locale: Locale, *, is_group: bool = False
) -> Asked:
    """What a run asks.

    Args:
        questions: At least one.
        is_group: The answer in words has to mention the bot.
    """
    numbered = [
        (f"{number}. " if len(questions) > 1 else "", question)
        for number, question in enumerate(questions, 1)
    ]
    open_ones = [(number, one.interrupt) for number, one in numbered if not one.verdict]
    room = max(LEAST_BYTES, QUESTIONS_BYTES // len(questions) // 2)
    cut = sentences.cut(locale)
    # No button shall stand there without its question.
    open_first = sorted(numbered, key=lambda one: bool(one[1].verdict))
    text = truncate(
        "\n\n".join(_question(number, one, room, locale) for number, one in open_first),
        QUESTIONS_BYTES,
        cut,
    )
    verdicts = "\n\n".join(
        f"{_head(number, one.interrupt, LEAST_BYTES, locale)}\n\n{_verdict(one)}"
        for number, one in numbered
        if one.verdict
    )
    calls = sum(interrupt.reason == "tool_call" for _, interrupt in open_ones)
    how = sentences.how_to_answer(locale, calls, len(open_ones) - calls, is_group=is_group)
    return Asked(
        text=f"{text.rstrip()}\n\n{how}".rstrip(),
        verdicts=truncate(verdicts, QUESTIONS_BYTES, cut),
        answered=len(questions) - len(open_ones),
        is_open=bool(open_ones),
        buttons=_buttons(open_ones, locale),
    )


def _question(number: str, question: Question, room: int, locale: Locale) -> str:
    interrupt = question.interrupt
    lines = [_head(number, interrupt, room, locale)]
    if interrupt.reason == "tool_call":
        lines.append(f"🔧 {interrupt.tool_name}")
        lines.append(arguments_block(interrupt.arguments, room, locale))
    elif interrupt.options:
        options = "\n".join(f"- {in_one_line(option)}" for option in interrupt.options)
        lines.append(truncate(options, room, sentences.cut(locale)))
    if question.verdict:
        lines.append(_verdict(question))
    return "\n\n".join(filter(None, lines))


def _head(number: str, interrupt: Interrupt, room: int, locale: Locale) -> str:
    words = closed(f"❓ {number}{interrupt.message.strip()}")
    return truncate(words, room, sentences.cut(locale)).rstrip()


def _verdict(question: Question) -> str:
    return f"☑ {question.verdict}"


def _buttons(asked: Sequence[tuple[str, Interrupt]], locale: Locale) -> str:
    buttons: list[dict[str, object]] = []
    for number, interrupt in asked:
        mine = _buttons_of(number, interrupt, locale)
        if len(buttons) + len(mine) > BUTTONS_MAX:
            break
        buttons += mine
    return json.dumps(buttons, ensure_ascii=False) if buttons else NO_BUTTONS


def _buttons_of(number: str, interrupt: Interrupt, locale: Locale) -> list[dict[str, object]]:
    if interrupt.reason == "input_required":
        return [
            _button(number + shortened(option), "approve", interrupt.id, answer=option)
            for option in interrupt.options
        ]
    approve, deny = ("Approve", "Deny") if locale == "en" else ("同意", "拒绝")
    return [
        _button(number + approve, "approve", interrupt.id),
        _button(number + deny, "deny", interrupt.id),
    ]


def _button(text: str, action: Action, question_id: str, answer: str = "") -> dict[str, object]:
    params = {"question": question_id, **({"answer": answer} if answer else {})}
    return {
        "text": text,
        "color": "gray" if action == "deny" else "blue",
        "status": "normal",
        "event": {"type": "sendCardRequest", "params": {"actionId": action, "params": params}},
    }
