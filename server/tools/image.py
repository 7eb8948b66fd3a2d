"""`view_image`: a picture of the workspace, made small enough for a model."""

import asyncio
import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from channels.pictures import PICTURE_TYPES
from server.errors import ToolError
from server.tools.arguments import Arguments, decode, schema_of
from server.tools.base import Kind, ToolContext, ToolPicture, ToolResult, ToolSpec, json_result
from server.tools.files import PathText
from server.tools.workspace import open_file, os_errors, relative, resolve

if TYPE_CHECKING:
    from PIL import Image

SIDE_CAP_PIXELS = 2_000
"""Vision models scale larger pictures down themselves and bill for the tokens."""

PICTURE_CAP_BYTES = 5_000_000
"""What the strictest of the common gateways admits per picture."""

FILE_CAP_BYTES = 50_000_000
"""Larger files are scans or raw pictures; decoding one would take the server's memory."""

PIXEL_CAP = 50_000_000
"""200 MB decoded. Small files can claim far more: such a one is a bomb or a mistake."""

IMAGE_SECONDS = 30.0
"""Decoding and shrinking the largest admitted picture takes about 3 s."""

_SENT_AS_IT_IS = {kind.removeprefix("image/").upper(): kind for kind in sorted(PICTURE_TYPES)}
_READ = (*_SENT_AS_IT_IS, "BMP", "TIFF", "ICO", "PPM")
"""Formats that Pillow decodes itself; others would start a foreign program."""


_BROKEN = (
    OSError,
    ValueError,
    SyntaxError,
    LookupError,
    ArithmeticError,
    TypeError,
    struct.error,
    Warning,  # where warnings are errors
)
"""What Pillow's decoders raise on files that are not what they claim to be."""


class ViewImageArguments(Arguments, frozen=True):
    """What `view_image` takes."""

    path: PathText


@dataclass(frozen=True, slots=True)
class _View:
    picture: ToolPicture
    width: int
    height: int
    format: str


class ViewImage:
    """Shows a picture file to the model."""

    spec = ToolSpec(
        name="view_image",
        description=(
            "Look at a picture file (PNG, JPEG, GIF, WebP, BMP, TIFF). "
            "The picture itself follows the result."
        ),
        parameters=schema_of(ViewImageArguments),
        kind="read",
        parallel=True,
        timeout_seconds=IMAGE_SECONDS,
        output_cap_bytes=8_000,
    )

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "read"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        path = decode(arguments, ViewImageArguments).path
        return await asyncio.to_thread(_look, context.workspace, path)


def picture_of(content: bytes, name: str) -> ToolPicture:
    """The picture in *content*, decoded and made small enough for a model; takes a thread's time.

    Raises:
        ToolError: It is none, or too large.
    """
    return _view(content, name).picture


def _look(workspace: Path, path: str) -> ToolResult:
    place = resolve(workspace, path)
    with open_file(place, path) as file, os_errors(path):
        content = file.read(FILE_CAP_BYTES + 1)
    if len(content) > FILE_CAP_BYTES:
        raise ToolError("too_large", f"{path}: is larger than {FILE_CAP_BYTES // 1_000_000} MB")
    view = _view(content, path)
    return json_result(
        {
            "media_type": "image",
            "path": relative(workspace, place),
            "width": view.width,
            "height": view.height,
            "format": view.format.lower(),
            "size_bytes": len(content),
        },
        picture=view.picture,
    )


def _view(content: bytes, path: str) -> _View:
    """Decode *content* wholly: a gateway would refuse a request with a broken picture in it."""
    pillow = _pillow()
    try:
        with pillow.open(io.BytesIO(content), formats=_READ) as image:
            width, height = image.size
            if width * height > PIXEL_CAP:
                raise ToolError("too_large", f"{path}: {width} × {height} is too many pixels")
            image.load()
            picture = _as_it_is(content, image) or _shrunk(image)
            return _View(picture, width, height, image.format or "")
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise ToolError("too_large", f"{path}: claims far too many pixels") from None
    except _BROKEN:
        raise ToolError("not_an_image", f"{path}: is broken, or of no known format") from None


def _as_it_is(content: bytes, image: "Image.Image") -> ToolPicture | None:
    media_type = _SENT_AS_IT_IS.get(image.format or "")
    if media_type is None or len(content) > PICTURE_CAP_BYTES or max(image.size) > SIDE_CAP_PIXELS:
        return None
    return ToolPicture(content, media_type)


def _shrunk(image: "Image.Image") -> ToolPicture:
    """The same picture always gives the same bytes, else the guard would see progress."""
    pictures = (_encode(image, side) for side in (SIDE_CAP_PIXELS, 1_400, 1_000, 700))
    for picture in pictures:
        if len(picture.data) <= PICTURE_CAP_BYTES:
            return picture
    raise ToolError("too_large", "the picture cannot be made small enough")


def _encode(image: "Image.Image", side_pixels: int) -> ToolPicture:
    small = image.convert("RGBA" if image.has_transparency_data else "RGB")
    small.thumbnail((side_pixels, side_pixels))
    out = io.BytesIO()
    if image.format == "JPEG":
        small.save(out, "JPEG", quality=85)
        return ToolPicture(out.getvalue(), "image/jpeg")
    small.save(out, "PNG")
    return ToolPicture(out.getvalue(), "image/png")


def _pillow() -> ModuleType:
    """Imported at the first picture, in a thread: it takes 35 ms that most servers never need."""
    from PIL import Image

    return Image
