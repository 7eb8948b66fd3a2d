"""Forwards of several messages as quoted lines; pure."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels import markdown
from channels.feishu.forward import DEPTH_MAX, FORWARD_BYTES_MAX, MESSAGES_MAX, render

FORWARD = {"message_id": "om_f", "msg_type": "merge_forward"}


def item(
    number: int,
    kind: str = "text",
    content: Any = None,
    *,
    inside: str = "om_f",
    sender: str = "ou_ann",
    name: str = "",
    **more: Any,
) -> dict[str, Any]:
    """A message that a forward holds."""
    content = {"text": f"message {number}"} if content is None else content
    told = {"sender_name": name} if name else {}
    return {
        "message_id": f"om_{number}",
        "upper_message_id": inside,
        "msg_type": kind,
        "create_time": str(1_760_000_000_000 + number),
        "sender": {"id": sender, "id_type": "open_id", **told},
        "body": {"content": content if isinstance(content, str) else json.dumps(content)},
        **more,
    }


def test_each_message_is_a_quoted_line_with_its_sender() -> None:
    named = item(1, name="Ann Li", mentions=[{"key": "@_user_1", "id": "ou_bob", "name": "Bob"}])
    held = [named, item(2, sender="ou_bob"), item(3, sender="ou_carol"), item(4, sender="")]
    assert render([FORWARD, *held]).split("\n") == [
        "> Ann Li: message 1",
        "> Bob: message 2",
        "> ou_carol: message 3",
        "> unknown: message 4",
    ]


def test_messages_stand_in_the_order_in_which_they_were_written() -> None:
    held = [item(3), item(1), item(2)]
    assert render([FORWARD, *held]).count("message 1\n> ou_ann: message 2\n> ou_ann: message") == 1


def test_a_message_of_several_lines_is_quoted_on_each() -> None:
    assert render([FORWARD, item(1, content={"text": "one\n\ntwo"})]) == "> ou_ann: one\n>\n> two"


@pytest.mark.parametrize(
    ("kind", "content", "words"),
    [
        ("image", {"image_key": "i1"}, "[picture-1]"),
        ("file", {"file_key": "f1", "file_name": "plan.pdf"}, "[plan.pdf]"),
        ("audio", {"file_key": "f1", "duration": 1}, "[voice.opus]"),
        ("sticker", {"file_key": "f1"}, "[sticker]"),
        ("text", "no json", "[text]"),
        (
            "post",
            {"title": "News", "content": [[{"tag": "text", "text": "look"}, {"tag": "img"}]]},
            "News\n> look",
        ),
    ],
)
def test_whatever_was_forwarded_leaves_a_trace(kind: str, content: Any, words: str) -> None:
    assert render([FORWARD, item(1, kind, content)]) == f"> ou_ann: {words}"


def test_a_message_that_was_withdrawn_says_so() -> None:
    assert render([FORWARD, item(1, content="gone", deleted=True)]) == "> ou_ann: [withdrawn]"


def test_a_forward_in_a_forward_is_quoted_deeper() -> None:
    inner = item(1, "merge_forward", "Merged and Forwarded Message", sender="ou_bob")
    held = [inner, item(2, inside="om_1"), item(3)]
    assert render([FORWARD, *held]).split("\n") == [
        "> ou_bob: [forwarded messages]",
        "> > ou_ann: message 2",
        "> ou_ann: message 3",
    ]


def test_forwards_that_hold_each_other_or_lie_too_deep_end() -> None:
    circle = [item(1, "merge_forward", inside="om_2"), item(2, "merge_forward", inside="om_1")]
    into = [item(1, "merge_forward"), *circle]
    assert render([FORWARD, *into]).count("[forwarded messages]") == 3
    deep = [item(n, "merge_forward", inside=f"om_{n - 1}") for n in range(1, 30)]
    deep[0]["upper_message_id"] = "om_f"
    shown = render([FORWARD, *deep])
    assert shown.count("[forwarded messages]") == DEPTH_MAX
    assert shown.endswith(f"({29 - DEPTH_MAX} more messages are left out)")


def test_a_forward_of_very_many_messages_is_cut_and_says_so() -> None:
    held = [item(number) for number in range(1000)]
    shown = render([FORWARD, *held])
    assert len(shown.split("\n")) == MESSAGES_MAX + 1
    assert shown.endswith(f"({1000 - MESSAGES_MAX} more messages are left out)")


def test_a_forward_of_very_long_messages_is_cut_and_says_so() -> None:
    held = [item(number, content={"text": "字" * 50_000}) for number in range(100)]
    shown = render([FORWARD, *held])
    assert markdown.size(shown) < FORWARD_BYTES_MAX + 100
    assert "more messages are left out" in shown


def test_a_forward_that_holds_nothing_is_nothing() -> None:
    assert render([FORWARD]) == ""


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["om_f", "merge_forward"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["message_id", "upper_message_id", "msg_type", "sender", "id", "body", "mentions"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from([*FORWARD, "upper_message_id"]), VALUES)))
def test_no_answer_of_the_platform_breaks_the_rendering(held: list[dict[str, object]]) -> None:
    assert isinstance(render([FORWARD, *held]), str)
