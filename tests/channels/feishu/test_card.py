"""What cards say and how they keep below the limits; pure."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.events import OutcomeStatus
from channels.feishu import card
from channels.feishu.card import Face, Stop
from channels.feishu.harmless import harmless as harmless_of
from channels.port import ChatAddress, Delivery, Locale, Turn
from channels.progress import Running, Shown, Spoken
from tests.fakes.feishu_chats import check_card

STOP = Stop("run1", "oc_1")
TABLE = "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def delivery(
    answer: str = "", status: OutcomeStatus = "finished", text: str = "", locale: Locale = "zh-CN"
) -> Delivery:
    turn = Turn("s1", "run1", ChatAddress("feishu", "cli_test", "oc_1"), "om_1", None, locale)
    return Delivery("d1", 1, turn, status, "code", text, answer)


def shown(text: str) -> dict[str, Any]:
    """A card that the platform would take."""
    decoded: dict[str, Any] = json.loads(text)
    check_card(decoded)
    return decoded


def texts(whole: dict[str, Any]) -> list[str]:
    return [one["content"] for one in whole["body"]["elements"] if "content" in one]


@pytest.mark.parametrize(
    ("state", "chinese", "english"),
    [
        (Shown(), "💭 正在思考…", "💭 Thinking…"),
        (Shown(round=3), "💭 正在思考（第 3 轮）…", "💭 Thinking (round 3)…"),
        (
            Shown("tool", 2, running=(Running("c1", "shell"),)),
            "🔧 正在使用 shell（第 2 轮）…",
            "🔧 Using shell (round 2)…",
        ),
        (Shown("answering", 1), "✍️ 正在回复…", "✍️ Answering…"),
        (Shown(is_compacting=True), "🗂 正在整理上下文…", "🗂 Tidying up the context…"),
    ],
)
def test_a_live_card_says_where_its_run_is(state: Shown, chinese: str, english: str) -> None:
    assert card.face(state, "zh-CN").status == chinese
    assert card.face(state, "en").status == english


def test_a_live_card_streams_and_can_be_stopped_in_its_chat() -> None:
    whole = shown(card.live(Face("working", "so far"), STOP, "zh-CN"))
    assert whole["config"]["streaming_mode"] is True
    assert whole["config"]["summary"]["content"] == "⏳ 正在处理…"
    assert texts(whole) == ["so far", "working"]
    [button] = [one for one in whole["body"]["elements"] if one["tag"] == "button"]
    value = button["behaviors"][0]["value"]
    assert value == {"do": "stop", "run": "run1", "chat": "oc_1"}


@pytest.mark.parametrize(
    ("status", "text", "line"),
    [
        ("finished", "", "✅ 已完成"),
        ("cancelled", "已停止", "⏹ 已停止"),
        ("failed", "没有进展", "❌ 任务失败：没有进展"),
        ("failed", "", "❌ 任务失败，原因未知。请稍后重试。"),
        ("failed", "  ", "❌ 任务失败，原因未知。请稍后重试。"),
        ("waiting", "", "⏸ 等待你的回复"),
        ("waiting", "选哪个?", "⏸ 等待你的回复：选哪个?"),
    ],
)
def test_an_end_is_said_in_one_line(status: OutcomeStatus, text: str, line: str) -> None:
    end = card.ending(delivery("the answer", status, text))
    assert (end.status, end.answer) == (line, "the answer")
    whole = shown(card.ended(end, "the answer"))
    assert whole["config"]["streaming_mode"] is False
    assert texts(whole) == ["the answer", line]
    assert all(one["tag"] == "markdown" for one in whole["body"]["elements"])


def test_a_finished_run_without_a_word_says_so() -> None:
    assert card.ending(delivery("  \n")).answer == "（本次没有返回内容）"


def test_a_failed_run_keeps_what_was_shown_of_its_answer() -> None:
    end = card.ending(delivery("", "failed", "why"), "half an ans")
    assert end.answer == "half an ans"
    assert card.ending(delivery("", "failed", "why")).answer == ""


def test_a_reason_that_the_answer_gives_is_said_once_but_in_the_list_of_chats_too() -> None:
    reason = "两步没有进展"
    end = card.ending(delivery(f"**已核实**\n- F1\n\n**停止原因**\n{reason}", "failed", reason))
    [first] = card.parts_of(end)
    whole = shown(card.ended(end, first))
    assert texts(whole) == [first, "❌ 任务失败"]
    assert whole["config"]["summary"]["content"] == f"❌ 任务失败：{reason}"
    elsewhere = shown(card.ended(end, "**已核实**\n- F1"))
    assert texts(elsewhere)[-1] == f"❌ 任务失败：{reason}"


@given(st.text(max_size=60_000))
def test_every_part_of_every_answer_is_a_card_that_the_platform_takes(answer: str) -> None:
    end = card.ending(delivery(answer))
    for part in card.parts(end.answer):
        shown(card.ended(end, part))
        shown(card.plain_card(part))


@pytest.mark.parametrize(
    "answer",
    ["😀" * 20_000, '"\\\n' * 20_000, "字" * 30_000, "x" * 200_000, "\x01" * 30_000 + "end"],
)
def test_long_answers_are_cut_so_that_they_fit_as_json(answer: str) -> None:
    parts = card.parts(answer)
    for part in parts:
        shown(card.plain_card(part))
    assert sum(len(part) for part in parts) >= len(answer.replace("\x01", "").strip())
    face = card.face(Shown("answering", spoken=(Spoken("m", answer),)), "zh-CN")
    shown(card.live(face, STOP, "zh-CN"))


@pytest.mark.parametrize("unit", ["这是第{}句话。", "word {}\n", "```\ncode {}\n```\n\n"])
def test_a_growing_answer_is_shown_where_it_grows(unit: str) -> None:
    whole = "".join(unit.format(number) for number in range(6_000))
    before, jumps = "", 0
    for end in range(200, len(whole), 200):
        now = card.face(Shown("answering", spoken=(Spoken("m", whole[:end]),)), "zh-CN").answer
        assert whole[:end].strip("`\n")[-4:] in now[-60:]
        jumps += not now.startswith(before.rstrip("`\n"))
        before = now
    assert jumps <= len(whole.encode()) / 4_000


def test_a_code_block_is_closed_and_opened_again_where_it_is_cut() -> None:
    answer = "```python\n" + "line = 1\n" * 4000 + "```"
    parts = card.parts(answer)
    assert len(parts) > 1
    for part in parts:
        assert part.startswith("```python\n")
        assert part.rstrip().endswith("```")


def test_more_tables_than_a_card_holds_become_code() -> None:
    answer = "\n\n".join([TABLE] * 8)
    [part] = card.parts(answer)
    shown(card.plain_card(part))
    assert part.count("```") >= 2
    [plain] = card.parts(answer, 0)
    assert plain.count("```") > part.count("```")


@pytest.mark.parametrize(
    ("said", "harmless"),
    [
        ("<at id=all></at> hi", "&#60;at id=all>&#60;/at> hi"),
        ("<AT user_id='x'>", "&#60;AT user_id='x'>"),
        ("<attic> a < b", "<attic> a < b"),
        ("![a cat](https://example.com/c.png)", "[a cat](https://example.com/c.png)"),
        ("![mine](img_v2_1)", "![mine](img_v2_1)"),
        ("```\n<at id=all></at>\n```", "```\n<at id=all></at>\n```"),
        ("a\x00b\x1bc\ud800", "abc"),
    ],
)
def test_what_a_card_would_act_upon_is_made_harmless(said: str, harmless: str) -> None:
    assert harmless_of(said) == harmless


def test_a_text_message_calls_nobody() -> None:
    sent = json.loads(card.text_message('<at user_id="all">all</at> "quoted"'))
    assert "<at" not in sent["text"]
    assert '"quoted"' in sent["text"]


def test_a_reason_cannot_call_anybody_either() -> None:
    end = card.ending(delivery("", "failed", "<at id=all></at>"))
    assert texts(shown(card.ended(end, ""))) == ["❌ 任务失败：&#60;at id=all>&#60;/at>"]
