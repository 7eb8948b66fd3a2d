"""What a run looks like in DingTalk: the AI card while it goes, the parts it ends with; pure.

The template has to have the variables `content` (Markdown, streamed), `state`, `note` and
`stoppable` (texts), and a button with the action id `stop` that is shown while `stoppable` is
`true`. What is asked is answered by a group of buttons whose source is the variable `btns`; a
template without it shows the question all the same, and the words to answer by. The platform's own
`flowStatus` decides whether the card spins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from channels import sentences
from channels.dingtalk.decode import Address
from channels.dingtalk.questions import NO_BUTTONS, render_questions
from channels.dingtalk.text import TEXT_BYTES, closed, headed, is_visible, space_tables
from channels.events import OutcomeStatus
from channels.markdown import size, split, truncate
from channels.port import Delivery, Locale, Turn
from channels.progress import Shown

CONTENT_KEY = "content"
"""The template's variable that is streamed."""
END_NOTE_BYTES = 4_000
"""At most, of the reason under a text that breaks off."""

FlowStatus = Literal["1", "2", "3", "5"]
"""Processing, writing, finished, failed; a streamed text sets "2" and the last ones by itself."""


@dataclass(frozen=True, slots=True)
class End:
    """The last words of a run."""

    parts: Sequence[str]
    """At least one; the first stands on the card if there is one, the others follow as messages."""
    state: str
    flow: FlowStatus
    buttons: str = NO_BUTTONS
    """Of what is asked; see `questions.Asked`."""
    answered: int = 0
    """Questions that somebody has answered; it is told again when there are more."""
    verdicts: str = ""
    """The answers alone, for where no card can show them."""

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
    card_id: str, template_id: str, address: Address, locale: Locale, label: str = ""
) -> dict[str, object]:
    """The request that creates the card of a run that begins and puts it into its chat."""
    params = {
        CONTENT_KEY: render_progress(Shown(), locale, label),
        "state": _say(locale, "进行中", "Running"),
        "note": "",
        "stoppable": "true",
        "btns": NO_BUTTONS,
        "flowStatus": "1",
    }
    return _creating(card_id, template_id, address, params)


def render_posted(card_id: str, template_id: str, address: Address, end: End) -> dict[str, object]:
    """The request that puts a card into its chat that is over already."""
    params = {**_settled(end), "flowStatus": end.flow}
    return _creating(card_id, template_id, address, params)


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


def render_unstreamed(card_id: str, content: str) -> dict[str, object]:
    """The request that shows *content* on a card whose text cannot be streamed."""
    return _setting(card_id, {CONTENT_KEY: content, "flowStatus": "2"})


def render_settled(card_id: str, end: End) -> dict[str, object]:
    """The request that shows how the run ended and takes the stop button away.

    The card spins until its last text is streamed, or `render_ended` sets all there is. On one that
    is over it shows what was answered since.
    """
    return _setting(card_id, _settled(end))


def render_ended(card_id: str, end: End, *, has_text: bool = True) -> dict[str, object]:
    """The request that ends a card whose text cannot be streamed.

    Args:
        has_text: False leaves the card's text as it is.
    """
    params = {**_settled(end), "flowStatus": end.flow}
    if not has_text:
        del params[CONTENT_KEY]
        params["btns"] = NO_BUTTONS  # nobody shall agree to what is not to be seen there
    return _setting(card_id, params)


def render_stopping(note: str) -> dict[str, object]:
    """What a press of the stop button is answered: a note, and the button goes."""
    return _changing({"note": note, "stoppable": "false"})


def render_note(note: str) -> dict[str, object]:
    """What any other press is answered: a note. The buttons go when the card shows the answer:
    here they could be those of the next question already."""
    return _changing({"note": note})


def render_progress(shown: Shown, locale: Locale, label: str = "") -> str:
    """The text of a card whose run goes on: what was said, and what is being done."""
    doing = _doing(shown, locale)
    if not shown.answer:
        return headed(label, doing)
    room = TEXT_BYTES - size(doing) - size(headed(label, "")) - 10
    said = space_tables(shown.answer)
    said = truncate(closed(said) if doing else said, room, _going_on(locale, len(said)))
    return headed(label, f"{said}\n\n---\n\n{doing}" if doing else said)


def render_end(delivery: Delivery, shown: str = "", *, is_group: bool = False) -> End:
    """How the run ended.

    Args:
        delivery: From the application; its locale counts.
        shown: What the card showed last, kept where the run left no answer.
        is_group: Where a bot has to be mentioned to be answered.
    """
    locale, label = delivery.turn.locale, delivery.turn.label
    said = space_tables((delivery.answer or shown).strip())
    state = _STATES[delivery.status][locale == "en"]
    match delivery.status:
        case "finished":
            if delivery.turn.reply_to is None:
                state = sentences.unasked(locale)
            return End(_parts(said, sentences.no_answer(locale), label), state, "3")
        case "failed":
            reason = delivery.text.strip() or sentences.failed(locale)
            return End([_broken_off(said, f"❌ {reason}", delivery.turn)], state, "5")
        case "cancelled":
            note = f"⏹ {delivery.text.strip() or state}"
            return End([_broken_off(said, note, delivery.turn)], state, "3")
        case "waiting" if delivery.questions:
            return _asking(delivery, said, state, is_group)
        case "waiting":
            text = delivery.text.strip()
            question = text if text and text not in said else ""
            return End(_parts(f"{said}\n\n{question}".strip(), state, label), state, "3")


def render_refused(locale: Locale) -> str:
    """What stands in for a text that the platform does not take."""
    return _say(
        locale,
        "平台没有接受这条回答，无法在这里显示。",
        "The platform did not take this answer, so it cannot be shown here.",
    )


def render_lost_quote(locale: Locale) -> str:
    """What is said of a quoted message that the platform did not pass on."""
    return _say(
        locale,
        "钉钉没有给出被引用消息的内容，我看不到它。需要的话，请把文字或文件直接发给我。",
        "DingTalk did not pass on the message that you quoted, so I cannot see it. "
        "If it matters, please send me its text or file.",
    )


def _setting(card_id: str, params: Mapping[str, str]) -> dict[str, object]:
    return {"outTrackId": card_id, **_changing(params)}


def _changing(params: Mapping[str, str]) -> dict[str, object]:
    """What sets these variables and leaves the others as they are."""
    return {
        "cardData": {"cardParamMap": params},
        "cardUpdateOptions": {"updateCardDataByKey": True},
    }


def _creating(
    card_id: str, template_id: str, address: Address, params: Mapping[str, str]
) -> dict[str, object]:
    space = "IM_GROUP" if address.is_group else "IM_ROBOT"
    target = address.conversation_id if address.is_group else address.staff_id
    body: dict[str, object] = {
        "cardTemplateId": template_id,
        "outTrackId": card_id,
        "cardData": {"cardParamMap": params},
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


def _settled(end: End) -> dict[str, str]:
    return {
        CONTENT_KEY: end.parts[0],
        "state": end.state,
        "note": "",
        "stoppable": "false",
        "btns": end.buttons,
    }


def _asking(delivery: Delivery, said: str, state: str, is_group: bool) -> End:
    """One part in any case: the question stands on the card, with its buttons."""
    locale, label = delivery.turn.locale, delivery.turn.label
    asked = render_questions(delivery.questions, locale, is_group=is_group)
    return End(
        [_above(said, asked.text, delivery.turn)],
        state if asked.is_open else _say(locale, "已答复", "Answered"),
        "3",
        asked.buttons,
        asked.answered,
        headed(label, asked.verdicts),
    )


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


def _going_on(locale: Locale, characters: int) -> str:
    """Stands under the beginning of an answer that is too long for its card, while it grows.

    By hundreds, so that not every word is another text for the card.
    """
    written = f"{characters // 100 * 100:,}"
    return _say(
        locale,
        f"\n\n…（卡片已写满，回答仍在继续，已写 {written} 字；其余部分会在结束时发出）",
        f"\n\n… (The card is full, the answer goes on: {written} characters so far. "
        "The rest follows when it is done.)",
    )


def _parts(text: str, otherwise: str, label: str) -> Sequence[str]:
    """*text* in parts that fit; *otherwise* where a reader would see nothing of it."""
    is_blank = not is_visible(text) or not closed(text).strip()  # a block that was only opened
    return split(headed(label, otherwise if is_blank else text), TEXT_BYTES)


def _broken_off(said: str, note: str, turn: Turn) -> str:
    """The text as far as it came, and why it ends here."""
    return _above(said, truncate(note, END_NOTE_BYTES, sentences.cut(turn.locale)), turn)


def _above(said: str, note: str, turn: Turn) -> str:
    """As much of *said* as fits above *note*, of which nothing is cut."""
    said = closed(said)
    if not is_visible(said):
        return headed(turn.label, note)
    room = TEXT_BYTES - size(note) - size(headed(turn.label, "")) - 10
    said = truncate(said, room, sentences.cut(turn.locale))
    return headed(turn.label, f"{said}\n\n---\n\n{note}")


def _say(locale: Locale, chinese: str, english: str) -> str:
    return english if locale == "en" else chinese
