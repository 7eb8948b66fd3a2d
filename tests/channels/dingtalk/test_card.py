"""What a run looks like on a card, and the last words of each way to end."""

import json
from typing import get_args

import pytest

from channels import sentences
from channels.dingtalk.card import (
    card_id_of,
    render_end,
    render_ended,
    render_new,
    render_note,
    render_posted,
    render_progress,
    render_settled,
    render_stopping,
    render_text,
    render_unstreamed,
    run_id_of,
)
from channels.dingtalk.codes import Kind, classify_api, classify_oapi
from channels.dingtalk.decode import Address
from channels.dingtalk.text import TEXT_BYTES, space_tables, title_of
from channels.events import Compaction, OutcomeStatus, RunEvent
from channels.markdown import size
from channels.port import ChatAddress, Delivery, Locale, Turn
from channels.progress import Progress
from tests.channels.dingtalk.house import called, calling, saying, started

PERSON = Address("cid1", is_group=False, staff_id="staff1", robot_code="robot")
GROUP = Address("cidG", is_group=True, staff_id="staff1", robot_code="robot")


def ended(
    status: OutcomeStatus,
    text: str = "",
    answer: str = "",
    locale: Locale = "zh-CN",
    label: str = "",
) -> Delivery:
    """How a run ended."""
    chat = ChatAddress("dingtalk", "app", "cid1")
    turn = Turn("s1", "r1", chat, "asked", None, locale, label=label)
    return Delivery("d1", 1, turn, status, "code", text, answer)


def shown(*events: RunEvent, locale: Locale = "zh-CN", label: str = "") -> str:
    """The card after these events."""
    progress = Progress()
    for event in events:
        progress.emit(event)
    return render_progress(progress.shown, locale, label)


def test_a_card_goes_from_thinking_over_tools_to_the_answer() -> None:
    assert shown(started()) == "🤔 思考中…"
    assert shown(started(), *calling("grep_search")) == "🔧 正在使用 grep_search（第 1 轮）…"
    assert shown(started(), *calling("a"), called("a"), *saying("hi")) == "hi"
    assert shown(started(), *saying("hi"), *calling("shell", 2)) == (
        "hi\n\n---\n\n🔧 正在使用 shell（第 2 轮）…"
    )


def test_a_card_speaks_english_where_the_session_does() -> None:
    assert shown(started(), *calling("shell"), locale="en") == "🔧 Using shell (round 1)…"
    assert shown(Compaction("a1", "started"), locale="en") == "🗜 Shortening the history…"


def test_neither_arguments_nor_results_are_shown() -> None:
    text = shown(started(), *calling("grep_search"), called("grep_search"))
    assert "secret" not in text


def test_a_long_answer_fits_while_it_grows() -> None:
    text = shown(started(), *saying("长" * 20_000), *calling("shell", 2))
    assert size(text) <= TEXT_BYTES
    assert text.endswith("🔧 正在使用 shell（第 2 轮）…")


def test_a_card_that_is_full_says_how_far_the_answer_has_come() -> None:
    text = shown(started(), *saying("长" * 12_345))
    assert size(text) <= TEXT_BYTES
    assert text.startswith("长" * 5_000)
    assert text.endswith("（卡片已写满，回答仍在继续，已写 12,300 字；其余部分会在结束时发出）")
    assert shown(started(), *saying("长" * 12_399)) == text, "not each word is another text"
    assert "12,300 characters" in shown(started(), *saying("长" * 12_345), locale="en")


def test_a_card_goes_to_the_group_or_to_the_person() -> None:
    group = render_new("c1", "t1", GROUP, "zh-CN")
    person = render_new("c1", "t1", PERSON, "zh-CN")
    assert group["openSpaceId"] == "dtv1.card//IM_GROUP.cidG"
    assert group["imGroupOpenDeliverModel"] == {"robotCode": "robot"}
    assert person["openSpaceId"] == "dtv1.card//IM_ROBOT.staff1"
    assert person["imRobotOpenDeliverModel"] == {"spaceType": "IM_ROBOT", "robotCode": "robot"}
    assert group["callbackType"] == person["callbackType"] == "STREAM"


def test_all_variables_of_a_card_are_texts() -> None:
    end = render_end(ended("finished", answer="done"))
    for body in (
        render_new("c1", "t1", GROUP, "en"),
        render_unstreamed("c1", "text"),
        render_settled("c1", end),
        render_ended("c1", end),
        render_posted("c1", "t1", PERSON, end),
        render_stopping("note"),
        render_note("note"),
    ):
        assert '"cardParamMap"' in json.dumps(body)
        params = body["cardData"]["cardParamMap"]  # type: ignore[index]
        assert all(isinstance(value, str) for value in params.values())


def test_a_text_is_whole_and_the_last_one_says_so() -> None:
    on = render_text("c1", "g1", "hi")
    last = render_text("c1", "g2", "hi", is_last=True)
    failed = render_text("c1", "g3", "hi", is_last=True, is_failure=True)
    flags = [(b["isFull"], b["isFinalize"], b["isError"]) for b in (on, last, failed)]
    assert flags == [(True, False, False), (True, True, False), (True, False, True)]


def test_a_finished_run_ends_with_its_answer() -> None:
    end = render_end(ended("finished", answer="done"))
    assert (list(end.parts), end.flow, end.state) == (["done"], "3", "已完成")


def test_a_run_that_said_nothing_says_that() -> None:
    assert render_end(ended("finished")).parts == [sentences.no_answer("zh-CN")]
    for nothing in (" \n", "\u200b", "\u3000", "```", "```python\n"):
        end = render_end(ended("finished", answer=nothing))
        assert end.parts == [sentences.no_answer("zh-CN")]
        assert render_end(ended("waiting", answer=nothing)).parts == ["等待回复"]


def test_a_failed_run_keeps_its_text_and_gives_the_reason() -> None:
    end = render_end(ended("failed", text="模型限流", answer="half"))
    assert (list(end.parts), end.flow) == (["half\n\n---\n\n❌ 模型限流"], "5")


def test_a_reason_under_a_code_block_that_broke_off_stands_outside_of_it() -> None:
    end = render_end(ended("failed", "太忙", answer="```python\nprint(1)"))
    assert end.parts == ["```python\nprint(1)\n```\n\n\n---\n\n❌ 太忙"]
    card = shown(started(), *saying("```\nx"), *calling("shell", 2))
    assert card.startswith("```\nx\n```\n")


def test_a_failed_run_without_an_answer_keeps_what_the_card_showed() -> None:
    assert render_end(ended("failed", text="模型限流"), "half").parts == [
        "half\n\n---\n\n❌ 模型限流"
    ]


@pytest.mark.parametrize("text", ["", " \n "])
def test_a_failure_without_words_has_a_reason_all_the_same(text: str) -> None:
    (part,) = render_end(ended("failed", text=text)).parts
    assert part == f"❌ {sentences.failed('zh-CN')}"


def test_a_stopped_run_is_not_a_failure() -> None:
    end = render_end(ended("cancelled", answer="half"))
    assert (list(end.parts), end.flow, end.state) == (["half\n\n---\n\n⏹ 已停止"], "3", "已停止")


def test_a_waiting_run_asks_its_question_once() -> None:
    assert render_end(ended("waiting", text="继续吗?", answer="看过了。继续吗?")).parts == [
        "看过了。继续吗?"
    ]
    assert render_end(ended("waiting", text="继续吗?", answer="看过了。")).parts == [
        "看过了。\n\n继续吗?"
    ]


LABEL = "每日简报"


def test_a_label_stands_above_all_that_a_card_ever_shows() -> None:
    texts = [
        shown(started(), label=LABEL),
        shown(started(), *saying("hi"), label=LABEL),
        shown(started(), *saying("hi"), *calling("shell", 2), label=LABEL),
        *(
            render_end(ended(status, "因", answer, label=LABEL)).parts[0]
            for status in get_args(OutcomeStatus)
            for answer in ("", "hi", "```")
        ),
    ]
    assert [text for text in texts if not text.startswith(f"**{LABEL}**\n\n")] == []
    assert [text for text in texts if text.count(LABEL) != 1] == []
    assert "hi" in texts[1]


def test_a_label_leaves_no_text_without_room() -> None:
    long = "长" * 20_000
    parts = render_end(ended("finished", answer=long, label=LABEL)).parts
    ends = [render_end(ended("failed", long, long, label=LABEL)).parts[0]]
    ends += [shown(started(), *saying(long), *calling("shell", 2), label=LABEL), *parts]
    assert all(size(text) <= TEXT_BYTES for text in ends)
    assert LABEL not in "".join(parts[1:])


def test_a_label_is_one_line_whatever_somebody_called_a_task() -> None:
    text = shown(started(), label="** 一\n\n# 二**" + "长" * 200)
    head, rest = text.split("\n\n", 1)
    assert head.startswith("**一 # 二长")
    assert (len(head), rest) == (84, "🤔 思考中…")


def test_a_long_answer_is_cut_into_parts_that_fit() -> None:
    answer = "```python\n" + "x" * 9000 + "\n" + "长" * 9000 + "\n```\nend"
    parts = render_end(ended("finished", answer=answer)).parts
    assert len(parts) > 1
    assert all(size(part) <= TEXT_BYTES for part in parts)
    assert all(part.count("```") % 2 == 0 for part in parts)


def test_a_long_failure_is_one_part_that_fits_and_gives_the_reason() -> None:
    (part,) = render_end(ended("failed", text="因" * 9000, answer="长" * 9000)).parts
    assert size(part) <= TEXT_BYTES
    assert "❌ 因" in part


def test_a_table_gets_the_empty_line_that_the_platform_needs() -> None:
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert space_tables(f"text\n{table}") == f"text\n\n{table}"
    assert space_tables(f"text\n\n{table}") == f"text\n\n{table}"
    assert space_tables(table) == table
    assert space_tables(f"```\ntext\n{table}\n```") == f"```\ntext\n{table}\n```"


def test_a_title_is_the_beginning_of_the_text_and_never_empty() -> None:
    assert title_of("\n## **Result** of all\nmore", "en") == "Result of all"
    assert title_of("", "zh-CN") == "回复"
    assert len(title_of("长" * 100, "zh-CN")) == 20


def test_a_cards_id_leads_to_its_run() -> None:
    assert run_id_of(card_id_of("r1")) == "r1"
    assert run_id_of("somebody-elses") is None


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "InvalidAuthentication", Kind.TOKEN),
        (401, "", Kind.TOKEN),
        (403, "Forbidden.AccessDenied.QpsLimitForApi", Kind.THROTTLED),
        (403, "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi", Kind.THROTTLED),
        (429, "", Kind.THROTTLED),
        (403, "Forbidden.AccessDenied.AccessTokenPermissionDenied", Kind.PERMISSION),
        (400, "param.templateUnpublished", Kind.TEMPLATE),
        (500, "unknownError", Kind.TEMPLATE),
        (500, "ServiceUnavailable", Kind.BROKEN),
        (502, "", Kind.BROKEN),
        (400, "somethingNew", Kind.BAD),
    ],
)
def test_refusals_of_the_openapi_mean_what_the_table_says(
    status: int, code: str, kind: Kind
) -> None:
    assert classify_api(status, code).kind == kind


def test_refusals_of_the_old_face_mean_what_the_table_says() -> None:
    known = {300001: Kind.EXPIRED, 130101: Kind.THROTTLED, 40014: Kind.TOKEN, 77: Kind.BAD}
    for errcode, kind in known.items():
        refused = classify_oapi(errcode)
        assert refused is not None
        assert refused.kind == kind
    assert classify_oapi(0) is None
