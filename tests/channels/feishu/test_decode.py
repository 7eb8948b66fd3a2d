"""Reading what Feishu pushes; pure."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.errors import Undecodable
from channels.feishu import content
from channels.feishu.decode import Click, Message, Other, decode_event
from channels.feishu.place import (
    Handle,
    forwarded_file,
    handle_from,
    locator_from,
    place_for,
    quoted_file,
    remote_file,
    reply_to,
)
from channels.feishu.rules import (
    Ask,
    Bare,
    Ignore,
    NotAllowed,
    Order,
    judge,
)
from channels.port import ChatAddress, Turn
from tests.channels.feishu.payloads import (
    BOT_MENTION,
    RULES,
    decoded,
    event,
    judged,
    mention,
    text_of,
)

CAROL = mention("@_user_2", "ou_carol", "Carol")


def test_a_message_is_read_with_all_its_ids() -> None:
    message = decoded()
    assert message.event_id == "ev_1"
    assert message.message_id == "om_1"
    assert message.chat_id == "oc_g1"
    assert message.is_group
    assert message.sender.ids == {"ou_alice", "on_alice"}
    assert message.sent_at == 1_760_000_000.0


def test_the_mention_of_the_bot_is_cut_out_and_others_stay_by_name() -> None:
    said = judged({"text": "@_user_1 ask @_user_2 about it"}, mentions=[BOT_MENTION, CAROL])
    assert text_of(said) == "ask @Carol about it"


def test_one_placeholder_that_begins_another_is_not_mixed_up() -> None:
    ten = mention("@_user_10", "ou_dan", "Dan")
    said = judged({"text": "@_user_1 hi @_user_10"}, mentions=[BOT_MENTION, ten])
    assert text_of(said) == "hi @Dan"


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("@_user_1你好", "你好"),
        ("@_user_1hello", "hello"),
        ("你好@_user_1", "你好"),
        ("@_user_1 问@_user_2吧", "问@Carol吧"),
        ("@_all请看@_user_1", "请看"),
    ],
)
def test_a_mention_needs_no_blank_beside_it(text: str, read_as: str) -> None:
    assert text_of(judged({"text": text}, mentions=[BOT_MENTION, CAROL])) == read_as


def test_half_of_a_character_is_replaced_since_nothing_could_store_it() -> None:
    assert text_of(judged('{"text": "@_user_1 a\\ud83d"}')) == "a\ufffd"


@pytest.mark.parametrize("told", ["nan", "inf", "", int("9" * 400), None, [], "x"])
def test_a_time_that_makes_no_sense_is_none(told: object) -> None:
    assert decoded(create_time=told).sent_at == 0


def test_a_mention_in_mid_sentence_leaves_no_gap_and_indentation_stays() -> None:
    said = judged({"text": "do @_user_1 this:\n    x  =  1"})
    assert text_of(said) == "do this:\n    x  =  1"


@pytest.mark.parametrize("mentions", [[], [mention("@_all", "", "everyone")]])
def test_a_call_to_everybody_is_heard_only_where_that_is_wanted(mentions: list[Any]) -> None:
    said = {"text": "@_all please read"}
    assert judged(said, mentions=mentions) == Ignore("mention_all")
    wanted = replace(RULES, respond_to_mention_all=True)
    assert text_of(judged(said, mentions=mentions, rules=wanted)) == "please read"


def test_a_call_to_everybody_and_to_the_bot_is_heard() -> None:
    assert text_of(judged({"text": "@_all @_user_1 hi"})) == "hi"


def test_a_word_that_begins_like_a_call_to_everybody_is_none() -> None:
    wanted = replace(RULES, respond_to_mention_all=True)
    said = judged({"text": "@_all_hands at nine"}, mentions=[], rules=wanted)
    assert said == Ignore("no_mention")


@pytest.mark.parametrize("text", ["@_user_1", "@_user_1  ", " @_user_1\n"])
def test_a_bare_mention_is_answered(text: str) -> None:
    assert judged({"text": text}) == Bare()


def test_a_bare_mention_with_a_quote_asks_about_the_quote() -> None:
    said = judged({"text": "@_user_1"}, parent_id="om_b", root_id="om_b")
    assert said == Ask("", (), "om_b")


def test_of_two_bots_that_are_mentioned_each_is_asked_and_told_of_the_other() -> None:
    other = mention("@_user_2", "ou_otherbot", "Helper")
    said = judged({"text": "@_user_1 @_user_2 hi"}, mentions=[BOT_MENTION, other])
    assert text_of(said) == "@Helper hi"


def test_nothing_but_a_call_to_everybody_is_a_bare_mention_where_it_is_heard() -> None:
    wanted = replace(RULES, respond_to_mention_all=True)
    assert judged({"text": "@_all"}, mentions=[], rules=wanted) == Bare()
    assert judged({"text": "@_all"}, mentions=[]) == Ignore("mention_all")


def test_a_message_to_somebody_else_is_ignored() -> None:
    carol = mention("@_user_1", "ou_carol", "Carol")
    assert judged(mentions=[carol]) == Ignore("no_mention")


def test_alone_with_the_bot_no_mention_is_needed() -> None:
    assert text_of(judged({"text": "hi"}, chat_type="p2p", mentions=[])) == "hi"


@pytest.mark.parametrize(
    ("sender", "mentions", "reason"),
    [
        ({"sender_type": "app", "sender_id": {"open_id": "ou_bot"}}, [BOT_MENTION], "own"),
        ({"sender_type": "bot", "sender_id": {"open_id": "ou_otherbot"}}, [], "bot"),
        ({"sender_type": "bot", "sender_id": {"open_id": "ou_otherbot"}}, [BOT_MENTION], "bot"),
        ({"sender_type": "user", "sender_id": {"open_id": "ou_bot"}}, [BOT_MENTION], "own"),
    ],
)
def test_programs_are_not_answered(
    sender: dict[str, Any], mentions: list[Any], reason: str
) -> None:
    assert judged(sender=sender, mentions=mentions) == Ignore(reason)  # type: ignore[arg-type]  # a parameter


def test_another_bot_that_mentions_this_one_is_answered_where_allowed() -> None:
    other = {"sender_type": "bot", "sender_id": {"open_id": "ou_otherbot"}}
    allowed = replace(RULES, allow_bots=True)
    assert text_of(judged(sender=other, rules=allowed)) == "hello"
    assert judged(sender=other, mentions=[], rules=allowed) == Ignore("bot")


def test_an_event_of_another_app_is_ignored() -> None:
    assert judged(app_id="cli_B") == Ignore("other_app")


@pytest.mark.parametrize("allow", [("ou_alice",), ("on_alice",), ("oc_g1",), ("x", "*")])
def test_the_list_knows_people_by_any_id_and_chats(allow: tuple[str, ...]) -> None:
    assert text_of(judged(rules=replace(RULES, allow=allow))) == "hello"


@pytest.mark.parametrize("allow", [(), ("ou_bob",)])
def test_who_is_not_on_the_list_is_told_their_id(allow: tuple[str, ...]) -> None:
    assert judged(rules=replace(RULES, allow=allow)) == NotAllowed("ou_alice")


def test_who_is_not_on_the_list_is_told_nothing_unless_the_bot_was_meant() -> None:
    assert judged(rules=replace(RULES, allow=()), mentions=[]) == Ignore("no_mention")


@pytest.mark.parametrize(
    "text",
    ["/new", "@_user_1 /NEW", " @_user_1 /New ", "／new", "/new @_user_1", "@_user_1\u3000／ＮＥＷ"]
    + ["@_user_1\u200b/new\ufeff", "@_user_1\n/new", "@_user_1\xa0/new\u3000"],
)
def test_a_command_is_one_after_a_mention_and_in_any_case(text: str) -> None:
    assert judged({"text": text}, chat_type="p2p") == Order("new")


@pytest.mark.parametrize("text", ["/newer", "say /new", "/new thing", "/restart"])
def test_what_only_looks_like_a_command_is_asked(text: str) -> None:
    assert text_of(judged({"text": f"@_user_1 {text}"})) == text


# Replies and topics


def test_a_chain_of_replies_is_no_topic_and_quotes_its_parent() -> None:
    message = decoded(root_id="om_a", parent_id="om_b", thread_id="")
    verdict = judge(message, RULES)
    assert isinstance(verdict, Ask)
    assert verdict.quoted_message_id == "om_b"
    assert json.loads(reply_to(message))["thread_id"] == ""


def test_a_message_in_a_topic_quotes_nothing_by_standing_there() -> None:
    message = decoded(root_id="om_a", parent_id="om_a", thread_id="omt_1")
    verdict = judge(message, RULES)
    assert isinstance(verdict, Ask)
    assert verdict.quoted_message_id == ""
    turn = Turn("s", "r", ChatAddress("feishu", "a", "oc_g1"), reply_to(message), None, "en")
    assert place_for(turn).in_thread


def test_a_turn_that_no_message_began_is_shown_in_its_chat() -> None:
    turn = Turn("s", "r", ChatAddress("feishu", "a", "oc_9"), None, None, "en")
    assert place_for(turn).chat_id == "oc_9"
    assert place_for(turn).message_id == ""


# Other events


def test_a_click_tells_who_where_and_what() -> None:
    whole = {
        "header": {"event_id": "ev2", "event_type": "card.action.trigger", "app_id": "cli_test"},
        "event": {
            "operator": {"open_id": "ou_1", "union_id": "on_1"},
            "action": {"tag": "button", "value": {"do": "stop", "run": "r1"}},
            "context": {"open_message_id": "om_3", "open_chat_id": "oc_1"},
        },
    }
    click = decode_event(json.dumps(whole).encode())
    assert isinstance(click, Click)
    assert click.operator.open_id == "ou_1"
    assert (click.chat_id, click.message_id) == ("oc_1", "om_3")
    assert click.value == {"do": "stop", "run": "r1"}
    assert click.answer == ""


@pytest.mark.parametrize(
    ("written", "answer"),
    [({"answer_1": "丙\n群"}, "丙\n群"), ({"answer_1": ""}, ""), ({"a": None}, ""), ("x", "")],
)
def test_a_click_on_a_form_tells_what_was_written(written: Any, answer: str) -> None:
    pressed = {"tag": "button", "name": "submit_1", "value": {}, "form_value": written}
    header = {"event_id": "ev2", "event_type": "card.action.trigger", "app_id": "cli_test"}
    whole = {"header": header, "event": {"action": pressed}}
    click = decode_event(json.dumps(whole).encode())
    assert isinstance(click, Click)
    assert click.answer == answer


def test_an_event_that_nobody_handles_is_known_as_such() -> None:
    whole = {"header": {"event_id": "e", "event_type": "im.message.message_read_v1"}}
    assert decode_event(json.dumps(whole).encode()) == Other("e", "", "im.message.message_read_v1")


@pytest.mark.parametrize("payload", [b"", b"not json", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_event_is_refused(payload: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_event(payload)


def test_a_message_without_an_id_is_refused() -> None:
    with pytest.raises(Undecodable):
        decode_event(event(message_id=""))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["tag", "text", "content", "zh_cn", "post", "user_id", "files", "title"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON_VALUES, st.sampled_from(["text", "post", "image", "audio", "merge_forward", ""]))
def test_no_content_whatever_breaks_the_reading(value: object, kind: str) -> None:
    message = decode_event(event(json.dumps(value), kind))
    assert isinstance(message, Message)
    content.read(message, "ou_bot")


@given(JSON_VALUES)
def test_no_event_whatever_breaks_the_decoding(value: object) -> None:
    header = {"event_type": "im.message.receive_v1"}
    whole = {"header": header, "event": {"message": value, "sender": value}}
    with pytest.raises(Undecodable):
        decode_event(json.dumps(whole).encode())


# What is stored


def test_a_locator_says_what_to_download() -> None:
    said = judged({"file_key": "f_1", "file_name": "a.pdf"}, "file", chat_type="p2p")
    assert isinstance(said, Ask)
    where = locator_from(remote_file(decoded(), said.resources[0]).locator)
    assert where is not None
    assert (where.message_id, where.resource_key, where.kind) == ("om_1", "f_1", "file")
    where = locator_from(quoted_file(decoded(), "om_q").locator)
    assert where is not None
    assert (where.message_id, where.resource_key) == ("om_q", "")
    where = locator_from(forwarded_file(decoded()).locator)
    assert where is not None
    assert (where.message_id, where.kind) == ("om_1", "forward")


@pytest.mark.parametrize("text", [None, "", "not json", "{}", "[1]"])
def test_a_handle_that_makes_no_sense_is_none(text: str | None) -> None:
    assert handle_from(text) is None


def test_a_handle_survives_being_stored() -> None:
    handle = Handle("card_1", "om_1", 7)
    assert handle_from(handle.as_json()) == handle


@pytest.mark.parametrize("text", ["", "not json", "{}", '{"key": "f_1"}'])
def test_a_locator_that_makes_no_sense_is_none(text: str) -> None:
    assert locator_from(text) is None
