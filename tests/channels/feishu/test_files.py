"""What a message brings with it: files, voice, forwards, and what it quotes."""

from typing import Any

import pytest

from channels.errors import FetchError
from channels.feishu.channel import FeishuChannel
from channels.port import RemoteFile
from tests.channels.feishu.inbox import MemoryInbox, begin, finish
from tests.channels.feishu.watching import done
from tests.fakes.feishu import FakeFeishu
from tests.fakes.feishu_chats import Bubble, extract


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


async def test_a_card_that_is_forwarded_alone_is_fetched_as_it_was_sent(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    elements = [{"tag": "markdown", "content": "**disk** full"}]
    sent = {"schema": "2.0", "body": {"elements": elements}}
    event = feishu.message_event("oc_1", "interactive", extract(sent), message_id="om_c")
    feishu.tenant.bubble("om_c").content = sent
    await done(feishu.send(event))
    [file] = inbox.taken[0][0].remote_files
    assert (await channel.fetch(file)).data == b"**disk** full"
    feishu.fail("GET", "card_msg_content_type", 230001)
    with pytest.raises(FetchError):
        await channel.fetch(file)


async def test_of_a_quoted_card_that_is_not_given_as_it_was_sent_the_extract_is_read(
    feishu: FakeFeishu, inbox: MemoryInbox, channel: FeishuChannel
) -> None:
    quoted = {"body": {"elements": [{"tag": "markdown", "content": "disk full"}]}}
    feishu.message_event("oc_1", "interactive", quoted, message_id="om_c")
    feishu.fail("GET", "card_msg_content_type", 230001)
    await done(feishu.say("oc_1", "why", parent_id="om_c", root_id="om_c"))
    [file] = inbox.taken[0][0].remote_files
    assert (await channel.fetch(file)).data == b"disk full"


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
