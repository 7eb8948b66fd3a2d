"""Presses of buttons as DingTalk pushes them, and what they are to us."""

import json
from typing import Any

import pytest

from channels.dingtalk.decode import decode_click
from channels.errors import Undecodable


def click_payload(**changes: Any) -> str:
    """A press of the stop button."""
    private = {"cardPrivateData": {"actionIds": ["stop"], "params": {"run": "r1"}}}
    made = {
        "outTrackId": "headway-r1",
        "type": "actionCallback",
        "corpId": "ding1",
        "userId": "staff1",
        "spaceType": "IM_GROUP",
        "spaceId": "cid1==",
        "extension": "{}",
        "content": json.dumps(private),
        **changes,
    }
    return json.dumps({name: value for name, value in made.items() if value is not None})


def action(**private: Any) -> str:
    """The content of a press."""
    return json.dumps({"cardPrivateData": private})


@pytest.mark.parametrize(
    ("changes", "wants_stop"),
    [
        ({}, True),
        ({"content": None, "value": action(actionIds=["btn_stop"])}, True),
        ({"content": {"cardPrivateData": {"actionIds": ["stop"]}}}, True),
        ({"content": action(actionIds=[], params={"do": "stop"})}, True),
        ({"content": action(actionIds=["like"])}, False),
        ({"content": action(actionIds="stop")}, False),
        ({"content": "not json"}, False),
        ({"content": None}, False),
    ],
)
def test_a_press_of_the_stop_button_is_known(changes: dict[str, Any], wants_stop: bool) -> None:
    click = decode_click(click_payload(**changes))
    assert (click.card_id, click.user_id) == ("headway-r1", "staff1")
    assert click.wants_stop is wants_stop


@pytest.mark.parametrize(
    ("actions", "decision"),
    [(["approve"], "approve"), (["deny"], "deny"), (["stop"], None), ([], None), ("deny", None)],
)
def test_a_press_of_a_questions_button_says_what_was_decided(
    actions: object, decision: str | None
) -> None:
    sent = action(actionIds=actions, params={"question": "q1", "answer": "甲"})
    click = decode_click(click_payload(content=sent))
    assert click.decision == decision
    assert click.params == {"question": "q1", "answer": "甲"}


def test_a_press_in_a_group_says_where() -> None:
    assert decode_click(click_payload()).conversation_id == "cid1=="
    assert decode_click(click_payload(spaceType="IM_ROBOT")).conversation_id == ""


@pytest.mark.parametrize("raw", ["", "not json", "{}", '{"outTrackId":"c"}', '{"userId":"u"}'])
def test_a_press_on_nothing_is_undecodable(raw: str) -> None:
    with pytest.raises(Undecodable):
        decode_click(raw)
