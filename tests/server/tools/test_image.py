"""Looking at real pictures, broken ones and bombs."""

import io
import random
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image

from server.tools.image import PICTURE_CAP_BYTES, SIDE_CAP_PIXELS
from tests.server.tools.conftest import Call, decoded, error_of


def noise(width: int, height: int) -> Image.Image:
    return Image.frombytes("RGB", (width, height), random.Random(1).randbytes(width * height * 3))


@pytest.mark.parametrize(
    ("form", "media_type"),
    [
        ("PNG", "image/png"),
        ("JPEG", "image/jpeg"),
        ("GIF", "image/gif"),
        ("WEBP", "image/webp"),
    ],
)
async def test_a_small_picture_is_sent_as_it_is(
    form: str, media_type: str, workspace: Path, call: Call
) -> None:
    noise(30, 20).save(workspace / "picture", form)
    content = (workspace / "picture").read_bytes()
    result = await call("view_image", path="picture")
    assert decoded(result) == {
        "media_type": "image",
        "path": "picture",
        "width": 30,
        "height": 20,
        "format": form.lower(),
        "size_bytes": len(content),
    }
    assert result.picture is not None
    assert (result.picture.data, result.picture.media_type) == (content, media_type)


async def test_a_format_that_models_do_not_take_becomes_png(workspace: Path, call: Call) -> None:
    noise(30, 20).save(workspace / "a.bmp")
    result = await call("view_image", path="a.bmp")
    assert decoded(result)["format"] == "bmp"
    assert result.picture is not None
    assert result.picture.media_type == "image/png"
    with Image.open(io.BytesIO(result.picture.data)) as sent:
        assert sent.tobytes() == noise(30, 20).tobytes()


@pytest.mark.parametrize("name", ["large.png", "large.jpg"])
async def test_a_large_picture_is_made_smaller_always_to_the_same_bytes(
    name: str, workspace: Path, call: Call
) -> None:
    noise(3_000, 1_500).save(workspace / name)
    result = await call("view_image", path=name)
    again = await call("view_image", path=name)
    fields = decoded(result)
    assert (fields["width"], fields["height"]) == (3_000, 1_500)
    assert result.picture is not None
    assert result.picture == again.picture
    assert len(result.picture.data) <= PICTURE_CAP_BYTES
    with Image.open(io.BytesIO(result.picture.data)) as sent:
        assert max(sent.size) <= SIDE_CAP_PIXELS
        assert sent.size[0] == 2 * sent.size[1]


async def test_a_changed_picture_has_other_bytes(workspace: Path, call: Call) -> None:
    Image.new("RGB", (20, 20), "red").save(workspace / "a.png")
    one = await call("view_image", path="a.png")
    Image.new("RGB", (20, 20), "blue").save(workspace / "a.png")
    two = await call("view_image", path="a.png")
    assert one.picture != two.picture


async def test_transparency_survives_shrinking(workspace: Path, call: Call) -> None:
    Image.new("RGBA", (2_500, 10), (255, 0, 0, 100)).save(workspace / "a.png")
    result = await call("view_image", path="a.png")
    assert result.picture is not None
    with Image.open(io.BytesIO(result.picture.data)) as sent:
        assert sent.mode == "RGBA"


def _png(width: int, height: int, body: bytes) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [8_000, 12_000, 60_000])
async def test_a_bomb_is_not_decoded(side: int, workspace: Path, call: Call) -> None:
    (workspace / "bomb.png").write_bytes(_png(side, side, zlib.compress(b"\x00" * 1_000)))
    assert error_of(await call("view_image", path="bomb.png")) == "too_large"


async def test_what_is_no_picture_or_is_broken_is_told(workspace: Path, call: Call) -> None:
    noise(50, 50).save(workspace / "whole.png")
    whole = (workspace / "whole.png").read_bytes()
    broken = {
        "text.png": b"hello",
        "empty.png": b"",
        "half.png": whole[: len(whole) // 2],
        "body.png": _png(10, 10, b"nonsense"),
        "page.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "script.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    }
    for name, content in broken.items():
        (workspace / name).write_bytes(content)
        assert error_of(await call("view_image", path=name)) == "not_an_image", name


async def test_pictures_with_random_damage_never_break_the_tool(
    workspace: Path, call: Call
) -> None:
    chance = random.Random(7)
    for form in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"):
        buffer = io.BytesIO()
        noise(16, 16).save(buffer, form)
        for _ in range(25):
            content = bytearray(buffer.getvalue())
            for _ in range(8):
                content[chance.randrange(len(content))] = chance.randrange(256)
            (workspace / "damaged").write_bytes(content)
            result = await call("view_image", path="damaged")
            if result.is_error:
                assert error_of(result) in {"not_an_image", "too_large"}, form
