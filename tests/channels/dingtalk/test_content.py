"""What a message says: words, quotes and files, in every shape that was seen."""

from typing import Any

import pytest

from channels.dingtalk.content import decode_locator
from tests.channels.dingtalk.payloads import ROBOT, decode, media, quoting, rich


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


def test_a_picture_that_cannot_be_fetched_is_named_where_it_stands() -> None:
    heard = rich({"text": "what is "}, {"type": "picture"}, {"text": " here?"})
    assert (heard.text, heard.files, heard.is_readable) == ("what is [picture] here?", (), True)


@pytest.mark.parametrize(
    "items", [[{"type": "picture"}], [{"type": "emoji", "unknown": 1}], [{"text": None}, {}]]
)
def test_rich_text_of_which_nothing_can_be_read_is_known_as_such(items: list[Any]) -> None:
    heard = rich(*items)
    assert not heard.is_readable
    assert heard.text == ""


@pytest.mark.parametrize("items", [[], [{"text": " "}], [{"text": "@Bot"}], [None, []]])
def test_rich_text_with_nothing_in_it_is_bare(items: list[Any]) -> None:
    heard = rich(*items)
    assert heard.is_readable
    assert heard.is_bare


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("a/b.pdf", "b.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\a\\b.pdf", "b.pdf"),
        ("/a/b/", "file"),
        ("..", "file"),
        ("", "file"),
        ("a\nb\x00.pdf", "ab.pdf"),
        ("\u202efdp.exe", "fdp.exe"),
        ("报告 终稿.pdf", "报告 终稿.pdf"),
    ],
)
def test_a_name_with_a_path_in_it_is_its_last_part(told: str, name: str) -> None:
    (file,) = media("file", downloadCode="d", fileName=told).files
    assert file.name == name


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
        ({"msgType": "richText", "content": [{"text": "before"}]}, "before"),
        ({"msgType": "markdown", "content": {"title": "t", "text": "before"}}, "before"),
        ({"msgType": "link", "content": {"title": "before", "messageUrl": "u"}}, "before"),
        ({"msgType": "text", "text": {"content": "before"}}, "before"),
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
        ({"msgType": "video", "content": {"downloadCode": "d", "videoType": "mov"}}, "video.mov"),
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
        ({"repliedMsg": {"msgType": "richText", "content": [{"type": "picture"}]}}, True),
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


def test_a_quote_of_what_a_robot_said_is_no_loss() -> None:
    heard = decode(text={"content": "why?", "isReplyMsg": True}, originalProcessQueryKey="k1")
    assert not heard.has_lost_quote
    assert heard.prompt == "why?"


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
