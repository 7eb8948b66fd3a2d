"""What a waiting run asks: its words, and what its buttons send."""

import json
from dataclasses import replace
from typing import Any

import pytest

from channels.dingtalk.questions import BUTTONS_MAX, QUESTIONS_BYTES, Asked, render_questions
from channels.markdown import size
from channels.port import Locale, Question
from tests.channels.questions import may_write, which


def render(*questions: Question, locale: Locale = "zh-CN", is_group: bool = False) -> Asked:
    return render_questions(questions, locale, is_group=is_group)


def sent(asked: Asked) -> dict[str, Any]:
    """What each button sends, by what stands on it."""
    return {button["text"]: button["event"]["params"] for button in json.loads(asked.buttons)}


def test_a_call_is_shown_with_its_arguments_its_buttons_and_the_words_to_answer_by() -> None:
    asked = render(may_write(arguments='{"path":"a.txt","content":"一\\n二"}'))
    assert asked.text == (
        "❓ 要执行 write_file 吗？\n\n🔧 write_file\n\n"
        '```json\n{\n  "path": "a.txt",\n  "content": "一\\n二"\n}\n```\n\n'
        "发送 /approve 同意，/deny 拒绝。"
    )
    assert sent(asked) == {
        "同意": {"actionId": "approve", "params": {"question": "q1"}},
        "拒绝": {"actionId": "deny", "params": {"question": "q1"}},
    }
    assert (asked.answered, asked.is_open, asked.verdicts) == (0, True, "")


def test_a_question_is_shown_with_its_options_and_each_answers_with_all_of_it() -> None:
    long = "第三个群，" * 20
    asked = render(which("q1", "", "甲", "乙\n组", long))
    assert asked.text.startswith(f"❓ 哪个群？\n\n- 甲\n- 乙 组\n- {long}\n\n直接回复即可作答")
    buttons = sent(asked)
    assert buttons["甲"] == {"actionId": "approve", "params": {"question": "q1", "answer": "甲"}}
    assert buttons["乙 组"]["params"]["answer"] == "乙\n组"
    *_, last = buttons
    assert len(last) == 40
    assert buttons[last]["params"]["answer"] == long
    assert json.loads(render(which()).buttons) == []


def test_several_questions_are_numbered_and_each_has_its_own_buttons() -> None:
    asked = render(may_write("q1"), which("q2", "", "甲"), may_write("q3"))
    assert {text: params["params"]["question"] for text, params in sent(asked).items()} == {
        "1. 同意": "q1",
        "1. 拒绝": "q1",
        "2. 甲": "q2",
        "3. 同意": "q3",
        "3. 拒绝": "q3",
    }
    assert "❓ 2. 哪个群？" in asked.text
    assert asked.text.endswith(
        "发送 /approve 全部同意，/deny 全部拒绝。直接回复即可作答；不想回答可发送 /deny。"
    )


def test_what_was_answered_has_its_answer_and_no_buttons() -> None:
    asked = render(may_write("q1", "安 已同意"), may_write("q2"))
    assert list(sent(asked)) == ["2. 同意", "2. 拒绝"]
    still_open, answered = asked.text.split("❓ 1. ")
    assert "☑" not in still_open
    assert "☑ 安 已同意" in answered
    assert asked.verdicts == "❓ 1. 要执行 write_file 吗？\n\n☑ 安 已同意"
    assert (asked.answered, asked.is_open) == (1, True)
    assert "发送 /approve 同意，/deny 拒绝。" in asked.text, "one is left"


def test_once_all_is_answered_nobody_is_told_how_to_answer() -> None:
    asked = render(may_write("q1", "安 已拒绝"), which("q2", "已超时，无人答复", "甲"))
    assert (asked.answered, asked.is_open, asked.buttons) == (2, False, "[]")
    assert "/approve" not in asked.text
    assert asked.text.endswith("☑ 已超时，无人答复")


def test_in_a_group_the_bot_has_to_be_mentioned() -> None:
    assert render(may_write(), is_group=True).text.endswith("在群里请 @ 我。")
    assert "@" not in render(may_write("q1", "安 已同意"), is_group=True).text
    assert render(which(), locale="en", is_group=True).text.endswith("Mention me in it.")


def test_buttons_speak_english_where_the_session_does() -> None:
    asked = render(may_write(), locale="en")
    assert list(sent(asked)) == ["Approve", "Deny"]
    assert asked.text.endswith("Send /approve or /deny.")


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


@pytest.mark.parametrize("count", [1, 3, 200])
def test_whatever_is_asked_fits_and_ends_with_how_to_answer(count: int) -> None:
    arguments = json.dumps({"path": "a.txt", "content": "长" * 30_000}, ensure_ascii=False)
    asked = render(*(may_write(f"q{n}", arguments=arguments) for n in range(count)))
    assert size(asked.text) <= QUESTIONS_BYTES + 200
    assert "内容过长，已截断" in asked.text
    assert '"content": "长' in asked.text or count > 100, "the beginning is better than nothing"
    assert "/approve" in asked.text.splitlines()[-1]
    assert asked.text.count("```") % 2 == 0
    assert 0 < len(json.loads(asked.buttons)) <= BUTTONS_MAX


def test_no_button_stands_there_without_its_question() -> None:
    arguments = json.dumps({"content": "长" * 500}, ensure_ascii=False)
    answered = [may_write(f"q{n}", "安 已同意", arguments) for n in range(100)]
    asked = render(*answered, *(may_write(f"q{n}", "", arguments) for n in range(100, 200)))
    numbers = {text.partition(".")[0] for text in sent(asked)}
    assert numbers == {str(n) for n in range(101, 106)}
    assert all(f"❓ {number}. 要执行" in asked.text for number in numbers)


def test_a_long_question_leaves_room_for_its_options() -> None:
    asked = which("q1", "", *(str(n) * 200 for n in range(8)))
    long = Question(replace(asked.interrupt, message="问" * 4000))
    text = render(long).text
    assert text.startswith("❓ 问问问")
    assert "\n- 00000" in text
    assert "\n- 77777" in text


def test_a_block_that_the_model_left_open_swallows_nothing() -> None:
    asked = which("q1", "", "甲").interrupt
    broken = Question(replace(asked, message="看看：\n```\ncode"))
    assert "code\n```\n\n- 甲" in render(broken).text
