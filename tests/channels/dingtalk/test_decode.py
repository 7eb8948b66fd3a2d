"""Payloads as DingTalk pushes them, and what they are to us."""

import json
from typing import Any

import pytest

from channels.dingtalk.decode import (
    Address,
    Heard,
    decode_address,
    decode_locator,
    decode_message,
    encode_address,
    strip_mentions,
)
from channels.errors import Undecodable

ROBOT = "ding_test"


def payload(**changes: Any) -> dict[str, Any]:
    """A message of one person to the bot alone; None leaves a field out."""
    made: dict[str, Any] = {
        "msgId": "msgA==",
        "msgtype": "text",
        "text": {"content": "hello"},
        "conversationType": "1",
        "conversationId": "cidAb+C/d==",
        "senderStaffId": "staff01",
        "senderId": "$:LWCP_v1:$x",
        "senderNick": "Alice",
        "chatbotUserId": "$:LWCP_v1:$bot",
        "robotCode": ROBOT,
        "sessionWebhook": "http://sim/robot/sendBySession?session=s1",
        "sessionWebhookExpiredTime": 1760005400000,
        "createAt": 1760000000000,
        "isInAtList": True,
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


def decode(**changes: Any) -> Heard:
    """That message, decoded."""
    return decode_message(json.dumps(payload(**changes)), ROBOT)


def rich(*items: Any) -> Heard:
    """A rich text of these elements."""
    return decode(msgtype="richText", text=None, content={"richText": list(items)})


def media(msgtype: str, **content: Any) -> Heard:
    """A message that is one file."""
    return decode(msgtype=msgtype, text=None, content=content)


def quoting(**replied: Any) -> Heard:
    """An answer to something."""
    return decode(text={"content": "why?", "isReplyMsg": True, "repliedMsg": replied})


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


@pytest.mark.parametrize("text", ["", "  ", " @Bot ", "@Bot"])
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


def test_a_picture_a_file_and_a_video_are_fetched_later() -> None:
    (picture,) = media("picture", downloadCode="d").files
    (file,) = media("file", downloadCode="d", fileName="a.pdf").files
    (video,) = media("video", downloadCode="d", duration=3, videoType="mov").files
    assert decode_locator(picture.locator) == ("d", ROBOT)
    assert (picture.name, picture.media_type) == ("picture", "application/octet-stream")
    assert (file.name, file.media_type) == ("a.pdf", "application/pdf")
    assert (video.name, video.media_type) == ("video.mov", "video/quicktime")


def test_a_payload_without_a_robot_code_takes_the_bots_own() -> None:
    heard = decode(msgtype="picture", content={"downloadCode": "d"}, robotCode=None)
    assert decode_locator(heard.files[0].locator) == ("d", ROBOT)


def test_speech_is_what_the_platform_heard_in_it() -> None:
    heard = media("audio", downloadCode="d", recognition="turn on", duration=2000)
    assert (heard.text, heard.files, heard.needs_transcript) == ("turn on", (), False)
    assert media("audio", downloadCode="d", duration=2000).needs_transcript


def test_rich_text_keeps_words_links_and_pictures_in_order() -> None:
    heard = rich(
        {"text": "look "},
        {"type": "picture", "downloadCode": "d1"},
        {"text": "here", "href": "https://example.com"},
        {"text": "\n@Carol"},
        {"type": "picture", "downloadCode": "d2", "pictureDownloadCode": "p2"},
        {"type": "emoji", "unknown": 1},
    )
    assert heard.text == "look [here](https://example.com)\n@Carol"
    assert [decode_locator(file.locator)[0] for file in heard.files] == ["d1", "d2"]


def test_two_pictures_without_a_word_are_both_attached() -> None:
    heard = rich(
        {"type": "picture", "downloadCode": "d1"}, {"type": "picture", "downloadCode": "d2"}
    )
    assert not heard.is_bare
    assert heard.is_readable
    assert [decode_locator(file.locator)[0] for file in heard.files] == ["d1", "d2"]


@pytest.mark.parametrize(
    "changes",
    [
        {"content": {"richText": [[{"text": "flat"}]]}},
        {"content": '{"richText": [{"text": "flat"}]}'},
        {"content": {"richText": ["flat"]}},
        {"content": {"richText": [{"msgType": "text", "content": "flat"}]}},
        {"content": [{"text": "flat"}]},
        {"richText": {"content": [{"type": "text", "text": "flat"}]}},
    ],
)
def test_rich_text_is_read_in_every_shape_seen(changes: dict[str, Any]) -> None:
    assert decode(msgtype="richText", text=None, **changes).text == "flat"


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


@pytest.mark.parametrize(
    ("replied", "quote"),
    [
        ({"msgType": "text", "content": {"text": "before"}}, "before"),
        ({"msgType": "text", "content": '{"text": "before"}'}, "before"),
        ({"msgType": "text", "content": "before"}, "before"),
        (
            {
                "msgType": "richText",
                "content": {
                    "richText": [
                        {"msgType": "text", "content": "be"},
                        {"text": "fore"},
                        {"type": "picture", "downloadCode": "d"},
                    ]
                },
            },
            "before",
        ),
        ({"msgType": "file", "content": {"fileName": "a.pdf"}}, "a.pdf"),
        (
            {
                "msgType": "interactiveCard",
                "content": {"cardData": {"cardParamMap": {"content": "before"}}},
            },
            "before",
        ),
        ({"msgType": "interactiveCard", "content": None}, ""),
        ({"msgType": "text", "content": {"text": "vJCRdg/leSx\n||3||1||132"}}, ""),
    ],
)
def test_a_quote_stands_before_the_text(replied: dict[str, Any], quote: str) -> None:
    heard = quoting(**replied)
    assert heard.quote == quote
    assert heard.prompt == (f"> {quote}\n\nwhy?" if quote else "why?")


@pytest.mark.parametrize(
    ("replied", "name"),
    [
        ({"msgType": "picture", "content": {"downloadCode": "d"}}, "picture"),
        ({"msgType": "file", "content": {"downloadCode": "d", "fileName": "a.pdf"}}, "a.pdf"),
        ({"msgType": "richText", "content": {"richText": [{"downloadCode": "d"}]}}, "file"),
    ],
)
def test_a_quoted_file_is_attached(replied: dict[str, Any], name: str) -> None:
    heard = quoting(**replied)
    assert [file.name for file in heard.files] == [name]
    assert decode_locator(heard.files[0].locator) == ("d", ROBOT)
    assert not heard.has_lost_quote


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ({"repliedMsg": {"msgType": "unknownMsgType", "msgId": "m1"}}, True),
        ({"repliedMsg": {"msgType": "audio", "content": {"downloadCode": "d"}}}, True),
        ({"repliedMsg": {"msgType": "text", "content": {"text": "||3||1||132"}}}, True),
        ({"isReplyMsg": True}, True),
        ({"repliedMsg": {"msgType": "interactiveCard", "senderId": "$:LWCP_v1:$bot"}}, False),
        ({"repliedMsg": {"msgType": "audio", "content": {"recognition": "turn on"}}}, False),
        ({"isReplyMsg": False}, False),
        ({}, False),
    ],
)
def test_a_quote_of_which_nothing_came_is_known_as_lost(
    text: dict[str, Any], is_lost: bool
) -> None:
    assert decode(text={"content": "why?", **text}).has_lost_quote is is_lost


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"summary": '["Bob:1","Bob:2"]', "chatRecord": '[{"content":"1"},{"content":"2"}]'},
         "Bob: 1\nBob: 2"),
        ({"summary": "Ann: 1\nBob: [file]"}, "Ann: 1\nBob: [file]"),
        ({"summary": '["Bob:1"]', "chatRecord": '[{"content":"1"},{"content":"a: 2"}]'},
         "1\na: 2"),
        ({"chatRecord": [{"senderName": "Ann", "msgType": "text", "content": {"text": "1"}},
                         {"senderNick": "Bob", "msgType": "picture", "content": {}},
                         {"msgType": "file", "content": '{"fileName":"a.pdf"}'}, "odd", {}]},
         "Ann: 1\nBob: [picture]\na.pdf\n[…]"),
    ],
)  # fmt: skip
def test_messages_that_were_forwarded_together_are_read_line_by_line(
    content: dict[str, Any], text: str
) -> None:
    heard = decode(msgtype="chatRecord", text=None, content=content)
    assert heard.quote == text
    assert heard.prompt == "\n".join(f"> {line}" for line in text.split("\n"))
    assert heard.is_readable
    assert not heard.is_bare
    quoted = quoting(msgType="chatRecord", content=content)
    assert (quoted.quote, quoted.text, quoted.has_lost_quote) == (text, "why?", False)


@pytest.mark.parametrize(
    "content", [None, {}, {"summary": "[]", "chatRecord": "[]"}, {"summary": 1, "chatRecord": "x"}]
)
def test_forwarded_messages_of_which_nothing_came_cannot_be_read(content: Any) -> None:
    assert not decode(msgtype="chatRecord", text=None, content=content).is_readable
