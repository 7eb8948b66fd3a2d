"""What a message says: rich text of every shape, cards, files, forwards; pure."""

from typing import Any

import pytest

from channels.feishu import cardwords
from channels.feishu.content import UNREADABLE, read
from channels.feishu.rules import Ask, CannotRead, Ignore
from tests.channels.feishu.payloads import BOT_MENTION, decoded, judged, mention, text_of

CAROL = mention("@_user_2", "ou_carol", "Carol")


# Rich text


def test_a_post_of_two_pictures_has_both_in_order() -> None:
    post = {
        "title": "",
        "content": [
            [{"tag": "img", "image_key": "img_1"}],
            [{"tag": "img", "image_key": "img_2"}],
        ],
    }
    said = judged(post, "post")
    assert isinstance(said, Ask)
    assert [(one.key, one.kind) for one in said.resources] == [
        ("img_1", "image"),
        ("img_2", "image"),
    ]


def test_every_element_of_a_post_is_written_out() -> None:
    post = {
        "title": "Title",
        "content": [
            [
                {"tag": "at", "user_id": "@_user_1", "user_name": "Bot"},
                {"tag": "text", "text": " see "},
                {"tag": "a", "text": "this", "href": "https://example.com"},
                {"tag": "text", "text": " says "},
                {"tag": "at", "user_id": "@_user_2", "user_name": "Carol"},
            ],
            [{"tag": "emotion", "emoji_type": "SMILE"}],
            [{"tag": "code_block", "language": "PYTHON", "text": "x = 1\n"}],
            [{"tag": "hr"}],
            [{"tag": "md", "text": "**bold**"}],
            [{"tag": "media", "file_key": "f_1", "image_key": "i_1", "file_name": "a.mp4"}],
        ],
    }
    said = judged(post, "post", mentions=[BOT_MENTION, CAROL])
    assert isinstance(said, Ask)
    assert said.text == (
        "Title\nsee [this](https://example.com) says @Carol\n[SMILE]\n"
        "```python\nx = 1\n```\n---\n**bold**"
    )
    assert [(one.key, one.kind, one.media_type) for one in said.resources] == [
        ("f_1", "file", "video/mp4")
    ]


@pytest.mark.parametrize(
    ("post", "text"),
    [
        ({"content": [{"tag": "text", "text": "flat"}]}, "flat"),
        (
            {"post": {"zh_cn": {"title": "", "content": [[{"tag": "text", "text": "loc"}]]}}},
            "loc",
        ),
        ({"en_us": {"title": "T", "content": [[{"tag": "text", "text": "b"}]]}}, "T\nb"),
        ({"title": "", "content_v2": [[{"tag": "text", "text": "v2"}]]}, "v2"),
        ({"content": {"zh_cn": {"content": [[{"tag": "text", "text": "in"}]]}}}, "in"),
        ({"zh_cn": None, "en_us": {"content": [[{"tag": "text", "text": "en"}]]}}, "en"),
        ({"title": "", "zh_cn": {"content": [[{"tag": "text", "text": "under"}]]}}, "under"),
        ({"content": ["a row", [{"tag": "text", "text": "another"}]]}, "a row\nanother"),
        ({"content": [{"tag": "text", "text": "a"}, [{"tag": "text", "text": "b"}]]}, "a\nb"),
        ({"content": [[{"tag": "unheard_of", "text": "words"}]]}, "words"),
        ({"elements": [[{"tag": "markdown", "content": "of a card"}]]}, "of a card"),
        ({"title": "only a title", "content": []}, "only a title"),
        (
            {"content": [[{"tag": "md", "text": 'ask <at user_id="@_user_2"></at> it'}]]},
            "ask @Carol it",
        ),
        (
            {
                "content": [
                    [
                        {"tag": "text", "text": "see "},
                        {"tag": "code_block", "language": "GO", "text": "a ``` b"},
                        {"tag": "text", "text": "there"},
                    ]
                ]
            },
            "see\n````go\na ``` b\n````\nthere",
        ),
    ],
)
def test_a_post_of_an_odd_shape_is_read(post: dict[str, Any], text: str) -> None:
    assert text_of(judged(post, "post", mentions=[BOT_MENTION, CAROL])) == text


def test_a_post_that_names_the_bot_by_its_id_is_for_it() -> None:
    post = {"content": [[{"tag": "at", "user_id": "ou_bot"}, {"tag": "text", "text": " hi"}]]}
    assert text_of(judged(post, "post", mentions=[])) == "hi"


def test_a_file_beside_an_empty_post_is_attached() -> None:
    post = {
        "title": "",
        "content": [[]],
        "content_v2": [[]],
        "files": [{"file_key": "file_1", "file_name": "note.py"}],
    }
    said = judged(post, "post")
    assert isinstance(said, Ask)
    assert [(one.key, one.name) for one in said.resources] == [("file_1", "note.py")]


@pytest.mark.parametrize(
    "odd",
    [
        "not json",
        {"zh_cn": None},
        "[]",
        "null",
        '"text"',
        "{}",
        {"content": [[{"tag": "unheard_of"}]]},
    ],
)
def test_a_post_that_makes_no_sense_cannot_be_read(odd: Any) -> None:
    assert judged(odd, "post") == CannotRead()


def test_a_call_to_everybody_in_a_post_is_known() -> None:
    post = {"content": [[{"tag": "at", "user_id": "all"}, {"tag": "text", "text": " read"}]]}
    assert judged(post, "post", mentions=[]) == Ignore("mention_all")


# Other kinds


def test_a_picture_and_a_file_are_attached() -> None:
    said = judged({"image_key": "img_1"}, "image", chat_type="p2p")
    assert isinstance(said, Ask)
    assert said.resources[0].kind == "image"
    said = judged({"file_key": "f_1", "file_name": "a.pdf"}, "file", chat_type="p2p")
    assert isinstance(said, Ask)
    assert said.resources[0].name == "a.pdf"
    assert said.resources[0].media_type == "application/pdf"


def test_a_voice_message_is_attached_as_sound() -> None:
    said = judged({"file_key": "f_a", "duration": 2000}, "audio", chat_type="p2p")
    assert isinstance(said, Ask)
    [voice] = said.resources
    assert (voice.key, voice.kind, voice.name) == ("f_a", "file", "voice.opus")
    assert voice.media_type.startswith("audio/")


@pytest.mark.parametrize("placeholder", ["Merged and Forwarded Message", "", {"text": "x"}])
def test_a_forward_of_several_messages_is_to_be_asked_for(placeholder: Any) -> None:
    said = judged(placeholder, "merge_forward", chat_type="p2p", mentions=[])
    assert said == Ask("", (), "", is_forward=True)


def test_a_forward_into_a_group_is_for_nobody() -> None:
    assert judged("x", "merge_forward", mentions=[]) == Ignore("no_mention")


@pytest.mark.parametrize("kind", ["sticker", "share_chat", "image", "audio", "unheard_of"])
def test_a_kind_without_words_cannot_be_read(kind: str) -> None:
    assert judged({"x": 1}, kind, chat_type="p2p") == CannotRead()


# Shapes that nobody has documented


def nested(depth: int, **outer: Any) -> dict[str, Any]:
    """Words inside of so many elements of a kind that is unheard of."""
    element: dict[str, Any] = {"tag": "text", "text": "deep"}
    for _ in range(depth):
        element = {"tag": "quote", "elements": [element]}
    return {"content": [[element, {"tag": "text", "text": " end"}]], **outer}


@pytest.mark.parametrize(("depth", "text"), [(0, "deep end"), (7, "deep end"), (300, "end")])
def test_words_inside_of_unknown_elements_are_read_to_a_depth(depth: int, text: str) -> None:
    assert text_of(judged(nested(depth), "post")) == text


def test_what_an_unknown_element_holds_is_read_like_any_other() -> None:
    inside = [
        {"tag": "text", "text": "ask "},
        {"tag": "at", "user_id": "@_user_2"},
        {"tag": "img", "image_key": "img_1"},
        {"tag": "at", "user_id": "@_user_1"},
    ]
    post = {"content": [[{"tag": "blockquote", "children": inside}], [[[inside[0]]]]]}
    said = judged(post, "post", mentions=[BOT_MENTION, CAROL])
    assert isinstance(said, Ask)
    assert said.text == "ask @Carol\nask"
    assert [one.key for one in said.resources] == ["img_1"]


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ann\\a.pdf", "a.pdf"),
        ("folder/", "file"),
        (" ", "file"),
        (7, "7"),
    ],
)
def test_of_a_path_the_name_of_the_file_is_kept(told: object, name: str) -> None:
    said = judged({"file_key": "f_1", "file_name": told}, "file", chat_type="p2p")
    assert isinstance(said, Ask)
    assert [one.name for one in said.resources] == [name]


# Cards

HOST = {"tag": "div", "text": {"tag": "lark_md", "content": "host a"}}
SENT = {
    "schema": "2.0",
    "header": {"title": {"tag": "plain_text", "content": "Alarm"}},
    "body": {
        "elements": [
            {"tag": "markdown", "content": "**disk** full"},
            {
                "tag": "column_set",
                "columns": [
                    {
                        "tag": "column",
                        "elements": [
                            {"tag": "div", "text": {"tag": "lark_md", "content": "host a"}}
                        ],
                    }
                ],
            },
            {"tag": "button", "text": {"tag": "plain_text", "content": "Mute"}},
        ]
    },
}
OLDER = {
    "header": {"title": {"tag": "plain_text", "content": "Alarm"}},
    "elements": [
        {"tag": "div", "fields": [{"text": {"tag": "lark_md", "content": "**disk** full"}}]},
        {"tag": "note", "elements": [{"tag": "plain_text", "content": "host a"}]},
        {"tag": "action", "actions": [{"tag": "button", "text": {"content": "Mute"}}]},
    ],
}


@pytest.mark.parametrize("card", [SENT, OLDER])
def test_a_card_as_it_was_sent_is_read_without_its_buttons(card: dict[str, Any]) -> None:
    assert text_of(judged(card, "interactive")) == "Alarm\n**disk** full\nhost a"


def test_a_card_in_the_shape_of_a_post_is_read_as_one() -> None:
    card = {"title": "Alarm", "elements": [[{"tag": "text", "text": "disk full"}]]}
    assert text_of(judged(card, "interactive")) == "Alarm\ndisk full"


def test_of_a_card_that_only_the_platform_can_tell_it_is_asked_for() -> None:
    words = "请升级至最新版本客户端，以查看内容"
    shown = [{"tag": "img", "image_key": "img_old"}, {"tag": "text", "text": words}]
    card = {"title": None, "elements": [shown]}
    assert judged(card, "interactive") == Ask("", (), "", is_forward=True)
    assert judged({}, "interactive") == Ask("", (), "", is_forward=True)


def test_a_card_of_any_depth_is_read_in_no_time() -> None:
    card: dict[str, Any] = {"tag": "markdown", "content": "deep"}
    for _ in range(500):
        card = {"tag": "column", "elements": [card], "text": {}, "title": "", "fields": [None]}
    assert cardwords.words_of(card) == ""
    assert read(decoded("[" * 100_000, "interactive"), "ou_bot") == UNREADABLE
