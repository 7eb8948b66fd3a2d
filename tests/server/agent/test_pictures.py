"""Pictures that people send: what a model is shown of them, in each request the same."""

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from channels.port import InboundFile
from server.store.files import StoredFile, insert_file, load_file
from server.store.ids import new_id
from server.store.sessions import Session
from server.tools.image import SIDE_CAP_PIXELS
from tests.fakes.llm import Recorded, forever, reply, serve_gateway
from tests.house import House, assert_prefixes, is_title, open_house, settings_for
from tests.server.store.rows import NOON


def encoded(picture: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def square(side_pixels: int) -> Image.Image:
    """Large in pixels and small in bytes, for the gateway bills by bytes."""
    return Image.new("RGB", (side_pixels, side_pixels), "red")


WHOLE = encoded(Image.new("RGB", (64, 64), "red"), "PNG")


async def keep(house: House, session: Session, data: bytes, media_type: str) -> StoredFile:
    """A file of the session as uploads and chats keep one."""
    file = StoredFile(
        id=new_id(),
        session_id=session.id,
        owner=session.owner,
        name="picture",
        media_type=media_type,
        size_bytes=len(data),
        sha256=await house.state["blobs"].write(data),
        created_at=NOON,
    )
    async with house.state["store"].write() as db:
        await insert_file(db, file)
    return file


def shown(request: Recorded) -> list[tuple[str, bytes]]:
    """Media type and bytes of each picture in a request."""
    contents = [message["content"] for message in request.messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [_read(part) for part in parts if part["type"] == "image_url"]


def _read(part: Mapping[str, Any]) -> tuple[str, bytes]:
    head, _, data = part["image_url"]["url"].partition(";base64,")
    return head.removeprefix("data:"), base64.b64decode(data)


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n" + b"junk" * 3_000, WHOLE[:-40], b"<svg/>", b""],
    ids=["junk", "cut", "other", "empty"],
)
async def test_what_cannot_be_read_as_a_picture_is_only_named(
    tmp_path: Path, sqlite_url: str, data: bytes
) -> None:
    async with serve_gateway(forever(reply("hello")), title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            file = await keep(house, session, data, "image/png")
            await house.ask(session, "look", files=[InboundFile(file.id)])
            assert shown(gateway.requests[0]) == []
            assert f"uploads/{file.id}-picture" in gateway.requests[0].messages[-1]["content"]
            assert (house.workspace / f"uploads/{file.id}-picture").read_bytes() == data
        async with open_house(settings) as house:
            await house.ask(session, "again")
        assert_prefixes(gateway.requests)


async def test_a_picture_that_is_sent_is_small_and_the_same_in_each_request(
    tmp_path: Path, database_url: str
) -> None:
    large = encoded(square(2_600), "JPEG", quality=95)
    async with serve_gateway(forever(reply("hello")), title=is_title) as gateway:
        settings = settings_for(tmp_path, database_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            file = await keep(house, session, large, "image/png")  # as its platform has it
            await house.ask(session, "look", files=[InboundFile(file.id)])
            [(media_type, data)] = shown(gateway.requests[0])
            with Image.open(io.BytesIO(data)) as picture:
                assert (picture.format, media_type) == ("JPEG", "image/jpeg")
                assert max(picture.size) == SIDE_CAP_PIXELS
            assert (house.workspace / f"uploads/{file.id}-picture").read_bytes() == large
            async with house.state["store"].read() as db:
                kept = await load_file(db, file.id)
            assert kept.shown_sha256 is not None
            assert await house.state["blobs"].read(kept.shown_sha256) == data
            assert await house.state["blobs"].read(kept.sha256) == large
        async with open_house(settings) as house:
            await house.ask(session, "again")
        assert_prefixes(gateway.requests)


async def test_what_a_model_was_shown_is_kept_and_not_made_anew(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with serve_gateway(forever(reply("hello")), title=is_title) as gateway:
        settings = settings_for(tmp_path, sqlite_url, gateway.url)
        async with open_house(settings) as house:
            session = await house.create()
            file = await keep(house, session, encoded(square(2_100), "PNG"), "image/png")
            await house.ask(session, "look", files=[InboundFile(file.id)])
            house.state["blobs"].path(file.sha256).unlink()
            await house.ask(session, "again")
        assert len(shown(gateway.requests[1])) == 1
        assert_prefixes(gateway.requests)


async def test_a_small_picture_is_shown_as_it_is(tmp_path: Path, sqlite_url: str) -> None:
    async with (
        serve_gateway(forever(reply("hello")), title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        file = await keep(house, session, WHOLE, "image/png")
        await house.ask(session, "look", files=[InboundFile(file.id)])
        assert shown(gateway.requests[0]) == [("image/png", WHOLE)]
