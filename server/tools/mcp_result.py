"""What an MCP server answered, as the model gets it."""

import base64
import binascii
import json
from dataclasses import replace
from typing import Final

from mcp import types

from server.errors import ToolError
from server.tools.base import ToolPicture, ToolResult, error_result
from server.tools.image import picture_of

EMPTY: Final = "(no output)"
_NO_REASON: Final = "the tool failed and did not say why"


def has_picture(answer: types.CallToolResult) -> bool:
    """Whether rendering takes long enough for a thread."""
    return any(_picture_data(block) is not None for block in answer.content)


def render(answer: types.CallToolResult) -> ToolResult:
    """Texts and notes on what is no text, in the server's order; the first picture goes along.

    Structured content is rendered as JSON in the place of the texts, which repeat it for clients
    that do not know it.
    """
    picture: ToolPicture | None = None
    texts: list[str] = []
    notes: list[str] = []
    for block in answer.content:
        data = _picture_data(block)
        if isinstance(block, types.TextContent):
            texts.append(block.text)
        elif data is None:
            assert not isinstance(block, types.ImageContent), "a picture has data"
            notes.append(_note(block))
        elif picture is not None:
            notes.append("[another picture, left out]")
        else:
            picture = _picture(data)
            if picture is None:
                notes.append("[a picture that cannot be shown]")
    if answer.structured_content is not None:
        texts = [json.dumps(answer.structured_content, ensure_ascii=False)]
    content = "\n".join([*texts, *notes])
    if answer.is_error:
        return replace(error_result("failed", content or _NO_REASON), picture=picture)
    return ToolResult(content or (EMPTY if picture is None else "(a picture)"), picture)


def _note(block: types.AudioContent | types.ResourceLink | types.EmbeddedResource) -> str:
    if isinstance(block, types.AudioContent):
        return f"[audio, {block.mime_type}, left out]"
    if isinstance(block, types.ResourceLink):
        words = f"[link to {block.name}: {block.uri}]"
        return f"{words} {block.description}" if block.description else words
    resource = block.resource
    if isinstance(resource, types.TextResourceContents):
        return f"[{resource.uri}]\n{resource.text}"
    return f"[{resource.uri}, {resource.mime_type or 'binary'}, left out]"


def _picture_data(block: types.ContentBlock) -> str | None:
    """The base64 text of a picture."""
    if isinstance(block, types.ImageContent):
        return block.data
    if isinstance(block, types.EmbeddedResource):
        resource = block.resource
        if isinstance(resource, types.BlobResourceContents) and (
            resource.mime_type or ""
        ).startswith("image/"):
            return resource.blob
    return None


def _picture(data: str) -> ToolPicture | None:
    try:
        return picture_of(base64.b64decode(data, validate=True), "the picture")
    except (ToolError, binascii.Error, ValueError):
        return None
