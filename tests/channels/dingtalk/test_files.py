"""Files that messages bring, and lines beside the card."""

import asyncio

import pytest

from channels import sentences
from channels.dingtalk.channel import FETCH_SECONDS
from channels.errors import FetchError
from channels.port import RemoteFile
from tests.channels.dingtalk.house import ZH, Bot, move_until, open_bot, said
from tests.fakes.clock import Clock
from tests.fakes.dingtalk import FakeDingTalk, Refusal, api_refusal
from tests.fakes.dingtalk_world import QPS_REFUSAL


async def test_a_picture_is_fetched_with_the_ending_that_it_has(bot: Bot) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(8)
    bot.platform.files["d1"] = (png, "application/octet-stream")
    await bot.platform.say(msgtype="picture", content={"downloadCode": "d1"})
    (file,) = bot.inbox.taken[0].remote_files
    fetched = await bot.channel.fetch(file)
    assert (fetched.data, fetched.name, fetched.media_type) == (png, "picture.png", "image/png")


async def test_a_file_without_a_robot_code_is_fetched_as_the_bot(bot: Bot) -> None:
    bot.platform.files["d1"] = (b"%PDF", "application/octet-stream")
    content = {"downloadCode": "d1", "fileName": "a.pdf"}
    await bot.platform.say(msgtype="file", content=content, robotCode=None)
    (file,) = bot.inbox.taken[0].remote_files
    fetched = await bot.channel.fetch(file)
    assert (fetched.name, fetched.media_type) == ("a.pdf", "application/pdf")


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (
            api_refusal(403, "Forbidden.AccessDenied.AccessTokenPermissionDenied"),
            sentences.files_forbidden(ZH),
        ),
        (api_refusal(400, "invalidParameter.downloadCode"), sentences.file_unavailable(ZH, "a")),
        (Refusal(200, {}), sentences.file_unavailable(ZH, "a")),
    ],
)
async def test_a_file_that_cannot_be_had_is_told(bot: Bot, refusal: Refusal, text: str) -> None:
    bot.platform.script("messageFiles/download", refusal)
    with pytest.raises(FetchError) as error:
        await bot.channel.fetch(RemoteFile('{"code":"d"}', "a", "text/plain"))
    assert error.value.user_text == text
    assert len(bot.platform.called("messageFiles/download")) == 1


@pytest.mark.parametrize("refusal", [QPS_REFUSAL, Refusal(502, {}), api_refusal(429, "later")])
async def test_a_file_waits_for_a_refusal_that_passes(
    platform: FakeDingTalk, refusal: Refusal
) -> None:
    clock = Clock()
    platform.files["d1"] = (b"%PDF", "application/pdf")
    async with open_bot(platform, clock=clock.channels) as bot:
        platform.script("messageFiles/download", refusal, refusal)
        fetching = asyncio.create_task(bot.channel.fetch(RemoteFile('{"code":"d1"}', "a.pdf", "")))
        await move_until(clock, fetching.done)
        assert (await fetching).data == b"%PDF"


async def test_a_file_that_stays_out_of_reach_is_told_in_time(platform: FakeDingTalk) -> None:
    clock = Clock()
    async with open_bot(platform, clock=clock.channels) as bot:
        platform.script("messageFiles/download", *[Refusal(502, {})] * 9)
        fetching = asyncio.create_task(bot.channel.fetch(RemoteFile('{"code":"d1"}', "a.pdf", "")))
        assert await move_until(clock, fetching.done) <= FETCH_SECONDS + 1
        with pytest.raises(FetchError) as error:
            await fetching
        assert error.value.user_text == sentences.file_unavailable(ZH, "a.pdf")


async def test_a_missing_right_is_complained_of_once_an_hour_in_each_chat(bot: Bot) -> None:
    await bot.platform.say("hello")
    for _ in range(3):
        await bot.channel.say(bot.turn(), sentences.files_forbidden(ZH))
    assert await said(bot.platform) == [sentences.files_forbidden(ZH)]
    await bot.channel.say(bot.turn(), "another line")
    assert await said(bot.platform, 2) == [sentences.files_forbidden(ZH), "another line"]


async def test_a_line_beside_the_card_holds_up_nobody(bot: Bot) -> None:
    await bot.platform.say("hello")
    hold = bot.platform.script("sendBySession").hold = asyncio.Event()
    async with asyncio.timeout(1):
        await bot.channel.say(bot.turn(), "a line")
    hold.set()
    assert await said(bot.platform) == ["a line"]
