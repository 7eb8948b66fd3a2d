"""Payloads as DingTalk pushes them, and what they are to us."""

import json
from typing import Any

import pytest

from channels.dingtalk.decode import (
    Address,
    decode_address,
    decode_message,
    encode_address,
    strip_mentions,
)
from channels.errors import Undecodable
from tests.channels.dingtalk.payloads import ROBOT, decode, payload


def test_a_text_has_all_that_it_takes_to_answer_it() -> None:
    heard = decode()
    assert (heard.text, heard.sender_id, heard.sent_at) == ("hello", "staff01", 1760000000.0)
    assert heard.address == Address(
        conversation_id="cidAb+C/d==",
        is_group=False,
        staff_id="staff01",
        robot_code=ROBOT,
        webhook="http://sim/robot/sendBySession?session=s1",
        webhook_until_ms=1760005400000,
        message_id="msgA==",
    )
    assert decode_address(encode_address(heard.address)) == heard.address


@pytest.mark.parametrize("text", ["", "null", "[]", "not json", '{"conversation_id":1,"x":2}'])
def test_what_is_no_address_is_none(text: str) -> None:
    assert decode_address(text) is None


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (" @Bot /new ", "new"),
        ("/new", "new"),
        ("/STOP", "stop"),
        ("@Bot @Other /Status", "status"),
        ("/compact", "compact"),
        ("/help", "help"),
        ("@Bot /Approve", "approve"),
        ("@Bot\u3000/STOP", "stop"),
        ("@Bot\u2005/stop\u2005", "stop"),
        ("\u200b/stop\ufeff", "stop"),
        ("@Bot\u200b/stop", "stop"),
        ("@Bot ／Stop", "stop"),
        ("/deny", "deny"),
        ("/side /stop", None),
        ("/demo loop", None),
        ("please /new", None),
        ("/newer", None),
    ],
)
def test_a_command_counts_after_a_mention_and_in_any_case(text: str, command: str | None) -> None:
    heard = decode(conversationType="2", text={"content": text})
    assert heard.command == command


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("/side why?", "why?"),
        (" @Bot /SIDE\n why?\nand how? ", "why?\nand how?"),
        ("/side", ""),
        ("@Bot /side ", ""),
        ("/side /stop", "/stop"),
        ("@Bot\u3000／Side\u3000why?", "why?"),
        ("/sidewalk", None),
        ("a /side b", None),
    ],
)
def test_a_side_question_is_what_stands_behind_the_command(text: str, asked: str | None) -> None:
    heard = decode(conversationType="2", text={"content": text})
    assert heard.is_sideline is (asked is not None)
    assert not heard.is_bare
    if asked is not None:
        assert (heard.prompt, heard.command) == (asked, None)


def test_a_side_question_about_a_quote_brings_the_quote() -> None:
    replied = {"msgType": "text", "content": {"text": "a word"}}
    heard = decode(text={"content": "/side", "isReplyMsg": True, "repliedMsg": replied})
    assert (heard.prompt, heard.is_sideline) == ("> a word", True)


def test_a_name_is_one_line_and_may_be_missing() -> None:
    assert decode(senderNick=" Alice\n L. ").sender_name == "Alice L."
    assert decode(senderNick=None).sender_name == ""


def test_the_names_of_others_stay_in_the_text() -> None:
    assert decode(text={"content": " ask @Carol about it"}).prompt == "ask @Carol about it"
    assert strip_mentions("mail a@b.c") == "mail a@b.c"


@pytest.mark.parametrize(
    "text", ["", "  ", " @Bot ", "@Bot", "@Bot\u2005@Other\u200b", "@a" * 300_000]
)
def test_a_mention_alone_is_bare(text: str) -> None:
    assert decode(conversationType="2", text={"content": text}).is_bare


def test_a_mention_alone_that_quotes_something_is_about_the_quote() -> None:
    heard = decode(
        text={
            "content": "  ",
            "isReplyMsg": True,
            "repliedMsg": {"msgType": "text", "content": {"text": "two\nlines"}},
        }
    )
    assert not heard.is_bare
    assert heard.prompt == "> two\n> lines"


def test_a_group_message_that_does_not_name_the_bot_is_none_for_it() -> None:
    assert not decode(conversationType="2", isInAtList=False).is_mention
    assert decode(conversationType="2", isInAtList=None).is_mention
    assert decode(conversationType="1", isInAtList=False).is_mention


def test_people_from_outside_have_the_id_that_the_platform_made() -> None:
    heard = decode(senderStaffId=None)
    assert heard.sender_id == "$:LWCP_v1:$x"
    assert heard.address.staff_id == ""


def test_the_bots_own_words_are_an_echo() -> None:
    assert decode(senderId="$:LWCP_v1:$bot").is_echo
    assert not decode().is_echo
    assert not decode(senderId=None, chatbotUserId=None).is_echo


@pytest.mark.parametrize(
    "changes",
    [
        {"text": None},
        {"text": "hello"},
        {"msgtype": "unknownMsgType"},
        {"msgtype": None},
        {"msgtype": "richText", "content": None},
        {"msgtype": "richText", "content": {"richText": None}},
        {"msgtype": "richText", "content": "not json"},
        {"msgtype": "picture", "content": {}},
        {"msgtype": "picture", "content": []},
        {"msgtype": "file", "content": {"fileName": "a.pdf"}},
    ],
)
def test_what_cannot_be_read_can_still_be_answered(changes: dict[str, Any]) -> None:
    heard = decode(**changes)
    assert not heard.is_readable
    assert heard.address.webhook


@pytest.mark.parametrize(
    "raw",
    ["", "not json", "[]", "null", '"text"', "{}", '{"msgId":"m"}', '{"conversationId":"c"}']
    + ["[" * 100_000],
)
def test_what_names_no_message_or_chat_is_undecodable(raw: str) -> None:
    with pytest.raises(Undecodable):
        decode_message(raw, ROBOT)


@pytest.mark.parametrize(
    "value", [True, 1.5, 10**30, float("inf"), "soon", "9" * 5000, [], {}, None, "1760000000000"]
)
def test_odd_values_in_the_head_never_raise(value: Any) -> None:
    for name in payload():
        if name not in ("msgId", "conversationId"):
            decode_message(json.dumps(payload(**{name: value})), ROBOT)


def test_times_may_be_texts() -> None:
    heard = decode(createAt="1760000000000", sessionWebhookExpiredTime="1760005400000")
    assert heard.sent_at == 1760000000.0
    assert heard.address.webhook_until_ms == 1760005400000


def test_a_message_without_a_time_has_no_age() -> None:
    assert decode(createAt=None).sent_at is None


def test_what_no_store_could_hold_is_replaced() -> None:
    heard = decode(
        senderNick="A\ud83d", text={"content": "a\x00b\udc00c"}, conversationId="c\ud800"
    )
    assert (heard.sender_name, heard.text) == ("A\ufffd", "ab\ufffdc")
    assert decode_address(encode_address(heard.address)) == heard.address
    encode_address(heard.address).encode()


def test_a_long_text_is_whole() -> None:
    long = "字" * 10_000 + "\n\n" + "| a | b |\n|---|---|\n" * 100 + "end"
    assert decode(text={"content": long}).prompt == long
