"""What a bot hears and how it answers, on real sockets and through the real SDK."""

import asyncio
from typing import Any

import pytest

from channels.errors import FetchError
from channels.feishu.channel import FeishuChannel, FeishuConfig, Patience, open_feishu
from channels.port import ChatAddress, RemoteFile
from tests.channels.feishu.clock import MovedClock
from tests.channels.feishu.inbox import MemoryInbox, begin, finish
from tests.fakes.feishu import BOT, SECRET, FakeFeishu
from tests.fakes.feishu_chats import Bubble
from tests.fakes.feishu_lines import Push


def said(feishu: FakeFeishu, chat_id: str = "oc_1") -> list[str]:
    return [bubble.text for bubble in feishu.chat(chat_id).visible()]


def texts(inbox: MemoryInbox) -> list[str]:
    return [inbound.text for inbound, _ in inbox.taken]


async def done(*pushes: Push) -> None:
    async with asyncio.timeout(15):
        await asyncio.gather(*(push.done.wait() for push in pushes))


# Messages


async def test_a_message_is_submitted_with_both_keys_and_what_an_answer_needs(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    push = feishu.say("oc_1", "hello", is_group=True, thread_id="omt_1", root_id="om_0")
    await done(push)
    [(inbound, _)] = inbox.taken
    message_id = push.event["event"]["message"]["message_id"]
    event_id = push.event["header"]["event_id"]
    assert inbound.keys == (f"feishu:{BOT}:msg:{message_id}", f"feishu:{BOT}:ev:{event_id}")
    assert inbound.chat == ChatAddress("feishu", BOT, "oc_1", "omt_1")
    assert inbound.text == "hello"
    assert inbound.reply_to is not None
    assert message_id in inbound.reply_to
    assert push.ack_seconds is not None
    assert push.ack_seconds < 1
    assert channel.health().acks == 1


async def test_two_equal_events_in_one_tick_are_one_message(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    event = feishu.message_event("oc_1", "text", {"text": "hello"})
    pushes = [feishu.send(event) for _ in range(5)]
    await done(*pushes)
    assert texts(inbox) == ["hello"]
    assert [push.acks for push in pushes] == [[200]] * 5
    assert channel.health().duplicates == 4


async def test_a_message_is_known_again_hours_after_its_run(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    clock = MovedClock()
    async with open_feishu([config], inbox, clock.channels) as channels:
        event = feishu.message_event("oc_1", "text", {"text": "hello"})
        await done(feishu.send(event))
        await finish(channels[BOT], await inbox.turn(), "answer")
        for seconds in (15, 301, 3600, 21600):
            clock.advance(seconds)
            push = feishu.send(event)
            await done(push)
            assert push.acks == [200]
    assert texts(inbox) == ["hello"]
    assert said(feishu) == ["answer\n✅ 已完成"]


async def test_a_message_that_was_not_kept_is_asked_for_again_and_runs_once(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().lines.ladder = (0.1, 0.1, 0.1)
    inbox.is_unavailable = True
    push = feishu.say("oc_1", "hello")
    await feishu.until(lambda: push.acks == [500])
    inbox.is_unavailable = False
    await done(push)
    assert push.acks[-1] == 200
    assert texts(inbox) == ["hello"]


async def test_a_second_push_is_not_acknowledged_before_the_first_is_kept(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().lines.ladder = ()
    inbox.gate = asyncio.Event()
    event = feishu.message_event("oc_1", "text", {"text": "hello"})
    first, second = feishu.send(event), feishu.send(event)
    await feishu.until(lambda: channel.health().duplicates == 1)
    assert not first.acks
    assert not second.acks
    inbox.is_unavailable = True
    inbox.gate.set()
    await done(first, second)
    assert (first.acks, second.acks) == ([500], [500])


async def test_a_store_that_hangs_is_acknowledged_in_time_as_a_failure(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().lines.ladder = (0.1,)
    inbox.gate = asyncio.Event()
    push = feishu.say("oc_1", "hello")
    await feishu.until(lambda: push.acks == [500])
    assert push.ack_seconds is not None
    assert push.ack_seconds < 3
    inbox.gate.set()
    await done(push)
    assert push.acks == [500, 200]
    assert texts(inbox) == ["hello"]


async def test_what_the_application_refuses_is_answered_with_its_words(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.refuses_with = "队列已满"
    push = feishu.say("oc_1", "hello")
    await done(push)
    assert push.acks == [200]
    await feishu.until(lambda: said(feishu) == ["队列已满"])


async def test_a_backlog_is_told_once_and_what_is_young_runs_in_its_order(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    ages = (2400, 1800, 60 * 11, 300, 120, 540, 240)
    events = [
        feishu.message_event("oc_1", "text", {"text": f"age {age}"}, age_seconds=age)
        for age in ages
    ]
    command = feishu.message_event("oc_1", "text", {"text": "/stop"}, age_seconds=70)
    pushes = [feishu.send(event) for event in [*events, command]]
    await done(*pushes)
    assert texts(inbox) == ["age 540", "age 300", "age 240", "age 120"]
    assert inbox.commands == []
    assert all(push.acks == [200] for push in pushes)
    await feishu.until(lambda: any("4 条消息" in text for text in said(feishu)))
    assert len([text for text in said(feishu) if "条消息" in text]) == 1
    assert channel.health().stale == 4


async def test_late_messages_of_which_nobody_was_told_come_again(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    feishu.app().lines.ladder = (0.1,) * 99
    ages = (2400, 1800)
    events = [
        feishu.message_event("oc_1", "text", {"text": f"age {age}"}, age_seconds=age)
        for age in ages
    ]
    async with open_feishu([config], inbox) as channels:
        pushes = [feishu.send(event) for event in events]
        await feishu.until(lambda: channels[BOT].health().stale == 2)
    assert said(feishu) == []
    assert not any(push.is_acked for push in pushes)
    async with open_feishu([config], inbox):
        await done(*pushes)
    [notice] = said(feishu)
    assert "2 条消息" in notice
    assert inbox.taken == []


async def test_a_bare_mention_and_odd_messages_are_answered_in_words(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    pushes = [
        feishu.say("oc_1", "", is_group=True),
        feishu.send(feishu.message_event("oc_2", "post", "not json")),
        feishu.send(feishu.message_event("oc_3", "sticker", {"file_key": "f"})),
    ]
    await done(*pushes)
    await feishu.until(lambda: all(said(feishu, chat) for chat in ("oc_1", "oc_2", "oc_3")))
    assert "/help" in said(feishu)[0]
    assert "无法读取" in said(feishu, "oc_2")[0]
    assert "无法读取" in said(feishu, "oc_3")[0]
    assert inbox.taken == []


async def test_who_may_not_use_the_bot_is_told_their_id_once_an_hour(
    feishu: FakeFeishu, inbox: MemoryInbox
) -> None:
    clock = MovedClock()
    config = FeishuConfig(BOT, SECRET, domain=feishu.url)
    async with open_feishu([config], inbox, clock.channels):
        await done(feishu.say("oc_1", "one"))
        await feishu.until(lambda: len(said(feishu)) == 1)
        assert "ou_alice" in said(feishu)[0]
        await done(feishu.say("oc_1", "two"))
        await done(feishu.say("oc_2", "three"))
        await feishu.until(lambda: len(said(feishu, "oc_2")) == 1)
        assert len(said(feishu)) == 1
        clock.advance(3601)
        await done(feishu.say("oc_1", "four", age_seconds=-3601))
        await feishu.until(lambda: len(said(feishu)) == 2)
    assert inbox.taken == []


async def test_a_message_of_its_own_that_comes_back_is_not_run(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    await done(feishu.say("oc_1", "", is_group=True))
    await feishu.until(lambda: said(feishu))
    own = feishu.chat("oc_1").visible()[0].message_id
    push = feishu.say("oc_1", "echo", is_group=True, message_id=own)
    await done(push)
    assert push.acks == [200]
    assert inbox.taken == []


async def test_bots_that_talk_to_each_other_stop(feishu: FakeFeishu, inbox: MemoryInbox) -> None:
    config = FeishuConfig(BOT, SECRET, domain=feishu.url, allow=("*",), allow_bots=True)
    async with open_feishu([config], inbox):
        for number in range(6):
            event = of_a_bot(feishu, str(number))
            await done(feishu.send(event))
            await done(feishu.send(event))  # a repeat is no turn
        assert texts(inbox) == ["0", "1", "2"]
        await done(feishu.say("oc_1", "a person", is_group=True))
        await done(feishu.send(of_a_bot(feishu, "6")))
    assert texts(inbox)[3:] == ["a person", "6"]


def of_a_bot(feishu: FakeFeishu, text: str) -> dict[str, Any]:
    said = {"text": f"@_user_1 {text}"}
    event = feishu.message_event("oc_1", "text", said, is_group=True, sender="ou_other")
    event["event"]["sender"]["sender_type"] = "bot"
    return event


async def test_events_that_nobody_needs_are_acknowledged(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    whole = {"schema": "2.0", "header": {"event_type": "im.message.message_read_v1"}}
    pushes = [feishu.app().lines.push(event) for event in (whole, {"odd": 1})]
    await done(*pushes)
    assert [push.acks for push in pushes] == [[200], [200]]


async def test_messages_without_an_event_id_are_different_messages(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    for text in ("one", "two"):
        event = feishu.message_event("oc_1", "text", {"text": text})
        del event["header"]["event_id"]
        await done(feishu.send(event))
    assert texts(inbox) == ["one", "two"]


async def test_a_submission_that_breaks_off_holds_up_nobody_and_is_asked_for_again(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.breaks_with = asyncio.CancelledError()
    first = feishu.send(feishu.message_event("oc_1", "text", {"text": "one"}), again=False)
    await done(first)
    assert first.acks == [500]
    inbox.breaks_with = None
    await done(feishu.say("oc_1", "two"), feishu.send(first.event))
    assert sorted(texts(inbox)) == ["one", "two"]


async def test_a_fault_of_the_application_is_told_to_the_operator_without_a_word_of_the_message(
    feishu: FakeFeishu,
    inbox: MemoryInbox,
    channel: FeishuChannel,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inbox.breaks_with = RuntimeError("a secret word")
    push = feishu.send(feishu.message_event("oc_1", "text", {"text": "one"}), again=False)
    await done(push)
    assert push.acks == [500]
    assert "RuntimeError" in caplog.text
    assert "secret word" not in caplog.text


# Busy, reactions, commands


async def test_a_waiting_message_is_told_its_place_and_a_steered_one_what_happens(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.states = [("started", None), ("queued", 1), ("queued", 2), ("steered", None)]
    for number in range(4):
        await done(feishu.say("oc_1", f"message {number}"))
    await feishu.until(lambda: len(said(feishu)) == 3)
    assert "1" in said(feishu)[0]
    assert "2" in said(feishu)[1]
    assert "当前任务" in said(feishu)[2]


async def test_a_reaction_stands_from_receipt_to_the_end(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.states = [("started", None)]
    await done(feishu.say("oc_1", "hello"))
    bubble = feishu.chat("oc_1").bubbles[0]
    await feishu.until(lambda: list(bubble.reactions.values()) == ["OnIt"])
    turn = await inbox.turn()
    begin(channel, turn)
    await finish(channel, turn, "answer")
    await feishu.until(lambda: bubble.reactions == {})


@pytest.mark.parametrize("text", ["/stop", "/STOP", " /Stop "])
async def test_a_command_is_carried_out_and_answered(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, text: str
) -> None:
    event = feishu.message_event("oc_1", "text", {"text": f"@_user_1{text}"}, is_group=True)
    await done(feishu.send(event))
    await done(feishu.send(event))
    assert inbox.commands == [(ChatAddress("feishu", BOT, "oc_1"), "stop", "ou_alice")]
    await feishu.until(lambda: said(feishu) == ["did stop"])


async def test_a_slow_command_is_acknowledged_and_answered_later(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.gate = asyncio.Event()
    push = feishu.say("oc_1", "/compact")
    await done(push)
    assert push.acks == [200]
    assert push.ack_seconds is not None
    assert push.ack_seconds < 2
    inbox.gate.set()
    await feishu.until(lambda: said(feishu) == ["did compact"])


async def test_a_command_that_is_lost_after_its_acknowledgement_is_told(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    inbox.gate = asyncio.Event()
    await done(feishu.say("oc_1", "/new"))
    inbox.is_unavailable = True
    inbox.gate.set()
    await feishu.until(lambda: any("没有收到" in text for text in said(feishu)))


async def test_a_command_that_could_not_be_kept_is_asked_for_again(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().lines.ladder = (0.1, 0.1)
    inbox.is_unavailable = True
    push = feishu.say("oc_1", "/new")
    await feishu.until(lambda: push.acks == [500])
    inbox.is_unavailable = False
    await done(push)
    assert len(inbox.commands) == 1


# Files and quotes


async def test_files_of_a_message_can_be_fetched(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.resources["img_1"] = (b"\x89PNG", "", "image/png")
    feishu.resources["f_1"] = (b"%PDF", "a.pdf", "application/octet-stream")
    await done(
        feishu.send(feishu.message_event("oc_1", "image", {"image_key": "img_1"})),
        feishu.send(
            feishu.message_event("oc_2", "file", {"file_key": "f_1", "file_name": "a.pdf"})
        ),
    )
    found = [await channel.fetch(one) for inbound, _ in inbox.taken for one in inbound.remote_files]
    assert {(one.data, one.name, one.media_type) for one in found} == {
        (b"\x89PNG", "picture-1.png", "image/png"),
        (b"%PDF", "a.pdf", "application/pdf"),
    }


async def test_a_voice_message_is_fetched_as_sound(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.resources["f_v"] = (b"OggS", "", "application/octet-stream")
    spoken = {"file_key": "f_v", "duration": 2000}
    await done(feishu.send(feishu.message_event("oc_1", "audio", spoken)))
    [file] = inbox.taken[0][0].remote_files
    found = await channel.fetch(file)
    assert (found.data, found.name) == (b"OggS", "voice.opus")
    assert found.media_type.startswith("audio/")
    assert feishu.called("GET", "/resources/f_v")[0].query == {"type": "file"}


async def test_a_forward_is_fetched_as_quoted_lines_with_names(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.names["ou_bob"] = "Bob"
    await done(feishu.send(forward(feishu, "om_f")))
    [(inbound, _)] = inbox.taken
    [file] = inbound.remote_files
    found = await channel.fetch(file)
    assert (found.name, found.media_type) == ("forwarded-messages.txt", "text/plain")
    assert found.data.decode() == "> Bob: who goes?\n> ou_carol: [picture-1]"


async def test_a_quoted_forward_is_fetched_with_what_it_holds(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    forward(feishu, "om_f")
    await done(feishu.say("oc_1", "sum it up", parent_id="om_f", root_id="om_f", is_group=True))
    [file] = inbox.taken[0][0].remote_files
    assert b"> ou_bob: who goes?" in (await channel.fetch(file)).data


@pytest.mark.parametrize("is_empty", [False, True])
async def test_a_forward_that_cannot_be_read_is_told(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel, is_empty: bool
) -> None:
    await done(feishu.send(forward(feishu, "om_f")))
    if is_empty:
        feishu.tenant.bubble("om_f").children.clear()
    else:
        feishu.tenant.bubble("om_f").is_gone = True
    with pytest.raises(FetchError) as error:
        await channel.fetch(inbox.taken[0][0].remote_files[0])
    assert "forwarded-messages.txt" in error.value.user_text


def forward(feishu: FakeFeishu, message_id: str) -> dict[str, Any]:
    """The event of a forward of two messages."""
    placeholder = "Merged and Forwarded Message"
    event = feishu.message_event("oc_1", "merge_forward", placeholder, message_id=message_id)
    feishu.tenant.bubble(message_id).children = [
        Bubble("om_c1", "oc_9", "text", {"text": "who goes?"}, "ou_bob"),
        Bubble("om_c2", "oc_9", "image", {"image_key": "i1"}, "ou_carol"),
    ]
    return event


async def test_a_quoted_message_is_fetched_with_the_run(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.message_event("oc_1", "text", {"text": "the quoted words"}, message_id="om_q")
    await done(feishu.say("oc_1", "what is that", parent_id="om_q", root_id="om_q"))
    [file] = inbox.taken[0][0].remote_files
    found = await channel.fetch(file)
    assert (found.data, found.media_type) == (b"the quoted words", "text/plain")


async def test_a_quoted_message_keeps_the_names_in_it(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.message_event("oc_1", "text", {"text": "ask @_user_1 first"}, message_id="om_q")
    feishu.tenant.bubble("om_q").mentions = [("@_user_1", "ou_carol", "Carol")]
    await done(feishu.say("oc_1", "why", parent_id="om_q", root_id="om_q"))
    [file] = inbox.taken[0][0].remote_files
    assert (await channel.fetch(file)).data == b"ask @Carol first"


async def test_a_quoted_answer_of_the_bot_is_fetched_with_its_words(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    await done(feishu.say("oc_1", "hello"))
    turn = await inbox.turn()
    begin(channel, turn)
    await finish(channel, turn, "forty-two")
    [card] = feishu.chat("oc_1").visible()
    quoted = card.message_id
    await done(feishu.say("oc_1", "why", parent_id=quoted, root_id=quoted))
    [file] = inbox.taken[1][0].remote_files
    assert b"forty-two" in (await channel.fetch(file)).data


async def test_a_quoted_message_that_is_gone_is_empty(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    await done(feishu.say("oc_1", "what is that", parent_id="om_none", root_id="om_none"))
    [file] = inbox.taken[0][0].remote_files
    assert (await channel.fetch(file)).data == b""


async def test_a_missing_permission_is_said_to_the_person_and_to_the_operator(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    feishu.app().scopes.add("im:resource")
    await done(feishu.send(feishu.message_event("oc_1", "image", {"image_key": "img_1"})))
    with pytest.raises(FetchError) as error:
        await channel.fetch(inbox.taken[0][0].remote_files[0])
    assert "权限" in error.value.user_text
    assert len(feishu.called("GET", "/resources/")) == 1
    health = channel.health()
    assert health.state == "degraded"
    assert "im:resource" in health.reason


@pytest.mark.parametrize("locator", ["", "{}", "not json", '{"message_id": "om_1", "key": "no"}'])
async def test_a_file_that_is_not_there_is_told(channel: FeishuChannel, locator: str) -> None:
    file = RemoteFile(locator, "a.pdf", "application/pdf")
    with pytest.raises(FetchError) as error:
        await channel.fetch(file)
    assert "a.pdf" in error.value.user_text


# Lines beside the card


async def test_a_line_is_said_beside_the_card_and_never_raises(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    await done(feishu.say("oc_1", "hello"))
    turn = await inbox.turn()
    await channel.say(turn, "a line")
    assert said(feishu) == ["a line"]
    feishu.chat("oc_1").closed_with = 230002
    await channel.say(turn, "another")
    assert said(feishu) == ["a line"]


async def test_a_line_whose_answer_was_lost_is_said_once(
    feishu: FakeFeishu, inbox: MemoryInbox, config: FeishuConfig
) -> None:
    patience = Patience(call_seconds=0.3)
    async with open_feishu([config], inbox, patience=patience) as channels:
        await done(feishu.say("oc_1", "hello"))
        turn = await inbox.turn()
        feishu.fail("POST", "/reply", is_late=True, seconds=1)
        await channels[BOT].say(turn, "a line")
        await channels[BOT].say(turn, "a line")
    assert said(feishu) == ["a line", "a line"]
