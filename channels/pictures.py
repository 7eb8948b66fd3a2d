"""The pictures that chat models and browsers take, told by how their bytes begin."""

from typing import Final

_BEGINNINGS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_WEBP: Final = "image/webp"

PICTURE_TYPES: Final = frozenset({media_type for _, media_type in _BEGINNINGS} | {_WEBP})
"""SVG and HTML carry scripts and are never among them."""


def picture_type(data: bytes) -> str | None:
    """The media type of what *data* begins as; None for all but `PICTURE_TYPES`."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _WEBP
    return next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), None)
