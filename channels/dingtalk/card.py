"""What a run looks like in DingTalk: the AI card while it goes, the parts it ends with; pure.

The template has to have the variables `content` (Markdown, streamed), `state`, `note` and
`stoppable` (texts), and a button with the action id `stop` that is shown while `stoppable` is
`true`. The platform's own `flowStatus` decides whether the card spins.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from channels import sentences
from channels.dingtalk.decode import Address
from channels.events import OutcomeStatus
from channels.markdown import plain, size, split, truncate
from channels.port import Delivery, Locale
from channels.progress import Shown

CONTENT_KEY = "content"
"""The template's variable that is streamed."""
TEXT_BYTES = 18_000
"""Of one card or message; the platform takes about 20 000 with everything around it."""
TITLE_CHARACTERS = 20
"""Of a message; it is what a phone's notification shows."""
UNLIMITED_BYTES = 1 << 30
END_NOTE_BYTES = 4_000
"""At most, of the reason under a text that breaks off."""

FlowStatus = Literal["1", "3", "5"]
"""Processing, finished, failed; the platform sets "2" itself when text comes."""

_TABLE_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)+\|?\s*")


@dataclass(frozen=True, slots=True)
class End:
    """The last words of a run."""

    parts: Sequence[str]
    """At least one; the first stands on the card if there is one, the others follow as messages."""
    state: str
    flow: FlowStatus

    @property
    def is_failure(self) -> bool:
        """The platform marks the card as failed."""
        return self.flow == "5"


def card_id_of(run_id: str) -> str:
    """The id of a run's card: the same after a crash, so that the card is found again."""
    return f"headway-{run_id}"


def run_id_of(card_id: str) -> str | None:
    """The run that a card of ours shows."""
    prefix = card_id_of("")
    return card_id.removeprefix(prefix) if card_id.startswith(prefix) else None


def render_new(
    card_id: str, template_id: str, address: Address, locale: Locale
) -> dict[str, object]:
    """The request that creates a card and puts it into its chat."""
    space = "IM_GROUP" if address.is_group else "IM_ROBOT"
    target = address.conversation_id if address.is_group else address.staff_id
    body: dict[str, object] = {
        "cardTemplateId": template_id,
        "outTrackId": card_id,
        "cardData": {
            "cardParamMap": {
                CONTENT_KEY: render_progress(Shown(), locale),
                "state": _say(locale, "进行中", "Running"),
                "note": "",
                "stoppable": "true",
                "flowStatus": "1",
            }
        },
        "callbackType": "STREAM",
        "openSpaceId": f"dtv1.card//{space}.{target}",
    }
    if address.is_group:
        body["imGroupOpenSpaceModel"] = {"supportForward": True}
        body["imGroupOpenDeliverModel"] = {"robotCode": address.robot_code}
    else:
        body["imRobotOpenSpaceModel"] = {"supportForward": True}
        body["imRobotOpenDeliverModel"] = {
            "spaceType": "IM_ROBOT",
            "robotCode": address.robot_code,
        }
    return body


def render_text(
    card_id: str, guid: str, content: str, *, is_last: bool = False, is_failure: bool = False
) -> dict[str, object]:
    """The request that shows *content*, the whole text, on a card."""
    return {
        "outTrackId": card_id,
        "guid": guid,
        "key": CONTENT_KEY,
        "content": content,
        "isFull": True,
        "isFinalize": is_last and not is_failure,
        "isError": is_last and is_failure,
    }


def render_settled(card_id: str, end: End, *, has_text: bool = True) -> dict[str, object]:
    """The request that takes the stop button away and names how it ended.

    Args:
        has_text: False leaves the card's text as it is.
    """
    params = {
        **({CONTENT_KEY: end.parts[0]} if has_text else {}),
        "state": end.state,
        "note": "",
        "stoppable": "false",
        "flowStatus": end.flow,
    }
    return {
        "outTrackId": card_id,
        "cardData": {"cardParamMap": params},
        "cardUpdateOptions": {"updateCardDataByKey": True},
    }


def render_click(note: str, *, keep_button: bool = False) -> dict[str, object]:
    """What a press of the stop button is answered: a note, and the button goes."""
    params = {"note": note} if keep_button else {"note": note, "stoppable": "false"}
    return {
        "cardData": {"cardParamMap": params},
        "cardUpdateOptions": {"updateCardDataByKey": True},
    }


def render_progress(shown: Shown, locale: Locale) -> str:
    """The text of a card whose run goes on: what was said, and what is being done."""
    doing = _doing(shown, locale)
    if not shown.answer:
        return doing
    room = TEXT_BYTES - size(doing) - 10
    said = space_tables(shown.answer)
    said = truncate(_closed(said) if doing else said, room, sentences.cut(locale))
    return f"{said}\n\n---\n\n{doing}" if doing else said


def render_end(delivery: Delivery, shown: str = "") -> End:
    """How the run ended.

    Args:
        delivery: From the application; its locale counts.
        shown: What the card showed last, kept where the run left no answer.
    """
    locale = delivery.turn.locale
    said = space_tables((delivery.answer or shown).strip())
    state = _STATES[delivery.status][locale == "en"]
    match delivery.status:
        case "finished":
            return End(_parts(said, sentences.no_answer(locale)), state, "3")
        case "failed":
            reason = delivery.text.strip() or sentences.failed(locale)
            return End([_broken_off(said, f"❌ {reason}", locale)], state, "5")
        case "cancelled":
            return End(
                [_broken_off(said, f"⏹ {delivery.text.strip() or state}", locale)], state, "3"
            )
        case "waiting":
            text = delivery.text.strip()
            question = text if text and text not in said else ""
            return End(_parts(f"{said}\n\n{question}".strip(), state), state, "3")


def render_refused(locale: Locale) -> str:
    """What stands in for a text that the platform does not take."""
    return _say(
        locale,
        "平台没有接受这条回答，无法在这里显示。",
        "The platform did not take this answer, so it cannot be shown here.",
    )


def title_of(text: str, locale: Locale) -> str:
    """The title that a message needs: the beginning of its text."""
    for line in plain(text).splitlines():
        if words := line.strip():
            return words[:TITLE_CHARACTERS]
    return _say(locale, "回复", "Reply")


def space_tables(text: str) -> str:
    """*text* with an empty line before each table; without one DingTalk shows bare characters."""
    lines: list[str] = []
    fence = ""
    source = text.split("\n")
    for number, line in enumerate(source):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        begins_table = (
            not fence
            and "|" in line
            and number + 1 < len(source)
            and _TABLE_RULE.fullmatch(source[number + 1]) is not None
        )
        if begins_table and lines and lines[-1].strip() and "|" not in lines[-1]:
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


_STATES: Mapping[OutcomeStatus, tuple[str, str]] = {
    "finished": ("已完成", "Finished"),
    "failed": ("失败", "Failed"),
    "cancelled": ("已停止", "Stopped"),
    "waiting": ("等待回复", "Waiting for you"),
}


def _doing(shown: Shown, locale: Locale) -> str:
    """What goes on now; empty while the model speaks."""
    if shown.is_compacting:
        return _say(locale, "🗜 正在整理上下文…", "🗜 Shortening the history…")
    if shown.tool is not None:
        return _say(
            locale,
            f"🔧 正在使用 {shown.tool}（第 {shown.round} 轮）…",
            f"🔧 Using {shown.tool} (round {shown.round})…",
        )
    if shown.phase == "answering" and shown.answer:
        return ""
    if shown.round > 1:
        return _say(
            locale, f"🤔 思考中（第 {shown.round} 轮）…", f"🤔 Thinking (round {shown.round})…"
        )
    return _say(locale, "🤔 思考中…", "🤔 Thinking…")


def _parts(text: str, otherwise: str) -> Sequence[str]:
    """*text* in parts that fit; *otherwise* where a reader would see nothing of it."""
    parts = split(text, TEXT_BYTES) if _is_visible(text) else []
    return parts or [otherwise]  # nothing is left of a code block that was only opened


def _is_visible(text: str) -> bool:
    return any(character.isprintable() and character != " " for character in text)


def _closed(text: str) -> str:
    """*text* whose last code block does not swallow what is put under it."""
    return "".join(split(text, UNLIMITED_BYTES))


def _broken_off(said: str, note: str, locale: Locale) -> str:
    """The text as far as it came, and why it ends here; both fit."""
    note = truncate(note, END_NOTE_BYTES, sentences.cut(locale))
    if not _is_visible(said):
        return note
    said = truncate(_closed(said), TEXT_BYTES - END_NOTE_BYTES - 10, sentences.cut(locale))
    return f"{said}\n\n---\n\n{note}"


def _say(locale: Locale, chinese: str, english: str) -> str:
    return english if locale == "en" else chinese
