"""What a waiting run asks: its words, and what its buttons and fields send."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.feishu import card
from channels.feishu.questions import Asked, render_questions
from channels.port import ChatAddress, Delivery, Locale, Question, Turn
from tests.channels.questions import asking, may_write, which
from tests.fakes.feishu_chats import check_card, elements_in


def render(*questions: Question, locale: Locale = "zh-CN", is_group: bool = False) -> Asked:
    return render_questions(questions, "oc_1", locale, is_group=is_group)


def parts(asked: Asked, tag: str) -> list[dict[str, Any]]:
    whole = {"body": {"elements": list(asked.elements)}}
    return [one for one in elements_in(whole) if one["tag"] == tag]


def values(asked: Asked) -> list[tuple[str, dict[str, Any]]]:
    """What stands on each button, and what it sends."""
    buttons = parts(asked, "button")
    return [(one["text"]["content"], one["behaviors"][0]["value"]) for one in buttons]


def words(asked: Asked) -> str:
    return "\n\n".join(one["content"] for one in parts(asked, "markdown"))


def delivery(*questions: Question, answer: str = "", chat_type: str = "p2p") -> Delivery:
    reply_to = json.dumps({"message_id": "om_1", "chat_id": "oc_1", "chat_type": chat_type})
    chat = ChatAddress("feishu", "cli_test", "oc_1")
    turn = Turn("s1", "run1", chat, reply_to, None, "zh-CN")
    return asking(turn, *questions, answer=answer)


def whole_card(told: Delivery) -> dict[str, Any]:
    """The card, which the platform takes."""
    end = card.ending(told)
    [part] = card.parts_of(end)
    whole: dict[str, Any] = json.loads(card.ended(end, part))
    check_card(whole)
    check_card(json.loads(card.ended(end.words, part)))
    return whole


def test_a_call_is_shown_with_its_arguments_its_buttons_and_the_words_to_answer_by() -> None:
    asked = render(may_write(arguments='{"path":"a.txt","content":"一\\n二"}'))
    assert words(asked) == (
        "❓ 要执行 write_file 吗？\n\n🔧 write_file\n\n"
        '```json\n{\n  "path": "a.txt",\n  "content": "一\\n二"\n}\n```\n\n'
        "发送 /approve 同意，/deny 拒绝。"
    )
    assert asked.text == words(asked)
    assert values(asked) == [
        ("同意", {"do": "approve", "question": "q1", "chat": "oc_1"}),
        ("拒绝", {"do": "deny", "question": "q1", "chat": "oc_1"}),
    ]
    assert (asked.answered, asked.is_open, asked.verdicts) == (0, True, "")


def test_a_question_has_a_button_for_each_option_and_a_field_for_any_other_answer() -> None:
    long = "第三个群，" * 20
    asked = render(which("q1", "", "甲", "乙\n组", long, "丁", "戊"))
    assert asked.text.startswith(f"❓ 哪个群？\n\n- 甲\n- 乙 组\n- {long}\n- 丁")
    assert asked.text.endswith("直接回复即可作答；不想回答可发送 /deny。")
    *options, submit = values(asked)
    assert [label for label, _ in options][:2] == ["甲", "乙 组"]
    assert [value["answer"] for _, value in options] == ["甲", "乙\n组", long, "丁", "戊"]
    assert len(options[2][0]) == 40
    assert submit == ("提交", {"do": "approve", "question": "q1", "chat": "oc_1"})
    [form] = parts(asked, "form")
    assert [part["tag"] for part in form["elements"]] == ["input", "button"]
    assert form["elements"][0]["required"] is True
    assert form["elements"][1]["form_action_type"] == "submit"


def test_several_questions_are_numbered_and_each_has_what_answers_it_below() -> None:
    asked = render(may_write("q1"), which("q2", "", "甲"), which("q3"))
    tags = [one["tag"] for one in asked.elements]
    assert tags == [
        *("markdown", "column_set"),
        *("markdown", "column_set", "form"),
        *("markdown", "form"),
        "markdown",
    ]
    assert [value["question"] for _, value in values(asked)] == ["q1", "q1", "q2", "q2", "q3"]
    assert "❓ 2. 哪个群？" in asked.text
    assert len(whole_card(delivery(may_write("q1"), which("q2"), which("q3")))) > 0


def test_what_was_answered_has_its_answer_and_no_buttons() -> None:
    asked = render(may_write("q1", "安 已同意"), may_write("q2"))
    assert {value["question"] for _, value in values(asked)} == {"q2"}
    first, second = asked.text.split("❓ 2. ")
    assert first.endswith("☑ 安 已同意\n\n")
    assert "☑" not in second
    assert asked.verdicts == "❓ 1. 要执行 write_file 吗？\n\n☑ 安 已同意"
    assert (asked.answered, asked.is_open) == (1, True)
    assert "发送 /approve 同意，/deny 拒绝。" in asked.text, "one is left"


def test_once_all_is_answered_nobody_is_told_how_to_answer() -> None:
    questions = [may_write("q1", "安 已拒绝"), which("q2", "已超时，无人答复", "甲")]
    asked = render(*questions)
    assert (asked.answered, asked.is_open, values(asked)) == (2, False, [])
    assert "/approve" not in asked.text
    assert asked.text.endswith("☑ 已超时，无人答复")
    assert card.ending(delivery(*questions)).status == "☑ 已答复"


def test_in_a_group_the_bot_has_to_be_mentioned() -> None:
    for chat_type, has_to in (("group", True), ("p2p", False)):
        whole = whole_card(delivery(may_write(), chat_type=chat_type))
        assert ("在群里请 @ 我。" in json.dumps(whole, ensure_ascii=False)) is has_to
    assert "@" not in render(may_write("q1", "安 已同意"), is_group=True).text
    assert render(which(), locale="en", is_group=True).text.endswith("Mention me in it.")


def test_buttons_speak_english_where_the_session_does() -> None:
    asked = render(may_write(), which("q2"), locale="en")
    assert [label for label, _ in values(asked)] == ["Approve", "Deny", "Answer"]
    assert "Send /approve or /deny." in asked.text


@pytest.mark.parametrize(
    "arguments",
    ["no json\n```\n\n# agreed", '{"a": "```\\n\\n# agreed"}', "[" * 5000, '{"a": "\\n```"}'],
)
def test_no_argument_breaks_out_of_its_block(arguments: str) -> None:
    text = render(may_write(arguments=arguments)).text
    fences = [line for line in text.splitlines() if line.lstrip().startswith("```")]
    assert fences == ["```json", "```"]
    assert "\n# agreed" not in text


def test_what_nobody_could_see_is_written_out() -> None:
    hidden = json.dumps({"command": "ls\u202e gnp.\u200b\x07"}, ensure_ascii=False)
    text = render(may_write(arguments=hidden)).text
    assert "ls\\u202e gnp.\\u200b\\u0007" in text
    assert "\\ud800" in render(may_write(arguments='{"a": "\\ud800"}')).text


@pytest.mark.parametrize("arguments", ["", " ", "{}"])
def test_a_call_without_arguments_is_named_all_the_same(arguments: str) -> None:
    assert "🔧 write_file" in render(may_write(arguments=arguments)).text


def test_a_question_calls_nobody_and_leaves_no_code_block_open() -> None:
    asked = which("q1", "", "甲").interrupt
    broken = replace(asked, message="<at id=all></at> 看看：\n```\ncode")
    text = render(Question(broken)).text
    assert "<at" not in text
    assert "code\n```\n\n- 甲" in text
    assert "<at" not in render(may_write("q1", "<at id=all> 已同意")).text


@pytest.mark.parametrize("count", [1, 3, 8, 200])
@pytest.mark.parametrize("filling", ["长", '"', "\\", "\n", "😀"])
def test_whatever_is_asked_fits_and_ends_with_how_to_answer(count: int, filling: str) -> None:
    arguments = json.dumps({"path": "a.txt", "content": filling * 30_000}, ensure_ascii=False)
    questions = [may_write(f"q{n}", arguments=arguments) for n in range(count)]
    asked = render(*questions)
    whole_card(delivery(*questions, answer=filling * 30_000))
    assert "内容过长，已截断" in asked.text
    assert "/approve" in asked.text.splitlines()[-1]
    assert asked.text.count("```") % 2 == 0
    assert values(asked)


def test_many_options_leave_room_for_the_field() -> None:
    options = [str(number) + "选" * 199 for number in range(8)]
    questions = [which(f"q{number}", "", *options) for number in range(4)]
    whole_card(delivery(*questions, answer="字" * 9000))
    assert parts(render(*questions), "form")


def test_what_was_said_before_stands_above_as_far_as_there_is_room() -> None:
    whole = whole_card(delivery(may_write(), answer="先说几句。" * 9000))
    first, *_ = whole["body"]["elements"]
    assert first["content"].startswith("先说几句。先说几句。")
    assert first["content"].endswith("已截断）")
    tables = "| a |\n| --- |\n| 1 |\n\n" * 9
    whole_card(delivery(Question(replace(which().interrupt, message=tables)), answer=tables))


@given(st.text(max_size=4000), st.text(max_size=4000), st.lists(st.text(max_size=200), max_size=8))
def test_the_platform_takes_every_question(message: str, said: str, options: list[str]) -> None:
    asked = replace(which("q1", "", *options).interrupt, message=message)
    call = replace(may_write(arguments=said).interrupt, message=message)
    whole_card(delivery(Question(asked), Question(call), answer=said))
