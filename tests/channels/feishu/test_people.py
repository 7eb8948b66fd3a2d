"""Who wrote, by name; and what people say beside ordinary messages: answers, side questions."""

import asyncio
import time
from typing import Any

import pytest

from channels.feishu.channel import FeishuChannel, FeishuConfig, open_feishu
from tests.channels.feishu.clock import MovedClock
from tests.channels.feishu.inbox import MemoryInbox
from tests.channels.feishu.payloads import mention
from tests.channels.feishu.watching import done
from tests.fakes.feishu import FakeFeishu
from tests.fakes.feishu_lines import Push


async def said(feishu: FakeFeishu, text: str, **how: Any) -> Push:
    push = feishu.say("oc_1", text, **how)
    await push.done.wait()
    return push


def senders(inbox: MemoryInbox) -> list[str]:
    return [inbound.sender for inbound, _ in inbox.taken]


async def test_a_person_is_named_and_asked_for_once(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.names["ou_alice"] = "Alice\nB"
    for text in ("a", "b"):
        await said(feishu, text)
    assert senders(inbox) == ["Alice B", "Alice B"]
    assert len(feishu.called("GET", "/contact/v3/users/ou_alice")) == 1


async def test_a_name_that_a_mention_tells_is_not_asked_for(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    push = feishu.say("oc_1", "ask @_user_2", mentions=[mention("@_user_2", "ou_bob", "Bob")])
    await push.done.wait()
    await said(feishu, "here I am", sender="ou_bob")
    assert senders(inbox)[1] == "Bob"
    assert not feishu.called("GET", "/contact/v3/users/ou_bob")


@pytest.mark.parametrize("scope", ["contact:contact.base:readonly", "contact:user.base:readonly"])
async def test_without_the_permission_people_have_short_ids_and_nothing_is_missing(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, scope: str
) -> None:
    feishu.app().scopes.add(scope)
    feishu.names["ou_0123456789abcdef"] = "Alice"
    for _ in range(2):
        await said(feishu, "hi", sender="ou_0123456789abcdef")
    assert senders(inbox) == ["ou_01234567…"] * 2
    assert len(feishu.called("GET", "/contact")) == 1
    assert channel.health().state == "up"


async def test_a_permission_that_is_granted_later_is_found(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    clock = MovedClock()
    feishu.app().scopes.add("contact:contact.base:readonly")
    feishu.names["ou_alice"] = "Alice"
    async with open_feishu([config], inbox, clock.channels):
        await said(feishu, "a")
        feishu.app().scopes.clear()
        await said(feishu, "b")
        clock.advance(3601)
        await said(feishu, "c", age_seconds=-3601)
    assert senders(inbox) == ["ou_alice", "ou_alice", "Alice"]


async def test_a_platform_that_takes_its_time_delays_no_message_and_is_not_asked_twice(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.names["ou_alice"] = "Alice"
    slow = feishu.fail("GET", "/contact", gate=asyncio.Event())
    began = time.monotonic()
    push = await said(feishu, "a")
    assert push.acks == [200]
    assert time.monotonic() - began < 2.5
    await said(feishu, "b")
    assert slow.gate is not None
    slow.gate.set()
    await feishu.until(lambda: feishu.called("GET", "/contact"))
    await said(feishu, "c")
    assert senders(inbox) == ["ou_alice", "ou_alice", "Alice"]
    assert len(feishu.called("GET", "/contact")) == 1


async def test_people_who_write_at_once_do_not_wait_for_each_others_names(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.fail("GET", "/contact", gate=asyncio.Event(), times=9)
    people = [f"ou_{number}" for number in range(4)]
    pushes = [feishu.say("oc_1", "hi", sender=person, is_group=True) for person in people]
    await done(*pushes)
    assert senders(inbox) == people
    assert all(push.ack_seconds is not None and push.ack_seconds < 1 for push in pushes)


@pytest.mark.parametrize(
    ("text", "command"),
    [("/approve", "approve"), ("/Deny", "deny"), (" ／APPROVE ", "approve")],
)
async def test_an_answer_in_words_is_a_command_of_whoever_gave_it(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, text: str, command: str
) -> None:
    feishu.names["ou_alice"] = "Alice"
    push = feishu.say("oc_1", text, is_group=True)
    await push.done.wait()
    [(chat, given, sender)] = inbox.commands
    assert (chat.chat_id, given, sender) == ("oc_1", command, "Alice")
    await feishu.until(lambda: feishu.chat("oc_1").visible())
    assert feishu.chat("oc_1").visible()[0].text == f"did {command}"
    assert inbox.taken == []


async def test_an_answer_that_comes_late_agrees_to_nothing(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    event = feishu.message_event("oc_1", "text", {"text": "/approve"}, age_seconds=61)
    await feishu.send(event).done.wait()
    assert inbox.commands == []


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("/side how far?", "how far?"),
        ("／Side\nhow far?", "how far?"),
        ("/side", ""),
    ],
)
async def test_a_side_question_is_a_message_without_its_command(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, text: str, asked: str
) -> None:
    await feishu.say("oc_1", text, is_group=True).done.wait()
    [(inbound, _)] = inbox.taken
    assert (inbound.is_sideline, inbound.text) == (True, asked)


@pytest.mark.parametrize("text", ["/sidestep", "see /side", "/sides x"])
async def test_what_only_looks_like_a_side_question_is_none(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, text: str
) -> None:
    await said(feishu, text)
    [(inbound, _)] = inbox.taken
    assert (inbound.is_sideline, inbound.text) == (False, text)


async def test_a_side_question_about_a_file_that_is_quoted_brings_it(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    await said(feishu, "/side what is this?", parent_id="om_7", root_id="om_7")
    [(inbound, _)] = inbox.taken
    assert inbound.is_sideline
    assert len(inbound.remote_files) == 1


async def test_a_side_question_that_the_application_refuses_is_answered_with_why(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.refuses_with = "在 /side 后面写上问题。"
    await said(feishu, "/side")
    await feishu.until(lambda: feishu.chat("oc_1").visible())
    assert feishu.chat("oc_1").visible()[0].text == "在 /side 后面写上问题。"
