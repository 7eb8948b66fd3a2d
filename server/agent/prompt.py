"""Renders the request copy of a history.

Rendering only ever adds: what a round adds is rendered once, when the next request needs it, so a
request is a byte prefix of the one after it and a round costs what it adds. All of it follows from
stored messages, so a restart renders the same bytes.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from guard import NoProgressNotice, apply_no_progress_notices
from server.agent.texts import PromptTexts
from server.message import FilePart, Message, files_of

_ENCODE: Final = msgspec.json.Encoder().encode

ChatMessage = dict[str, Any]
"""A message in OpenAI shape; it leaves this module as bytes only."""

UPLOAD_FOLDER: Final = "uploads"
"""Folder of the workspace in which files of a message lie for the tools."""


def upload_path(part: FilePart) -> str:
    """Where the file lies in the workspace, relative to it."""
    return f"{UPLOAD_FOLDER}/{part.file_id}-{part.name}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a request holds, without its content."""

    messages: int
    size_bytes: int
    digest: str
    """First 16 hex digits of a sha256 over all messages."""


class Prompt:
    """The rendered history of one session, ready to be sent."""

    def __init__(self, *, texts: PromptTexts, zone: ZoneInfo) -> None:
        self._texts = texts
        self._zone = zone
        self._last_date: date | None = None
        self._rendered = 0
        self._fragments: list[bytes] = []
        self._size_bytes = 0
        self._hash = hashlib.sha256()
        self._put({"role": "system", "content": texts.system})

    @property
    def fragments(self) -> Sequence[bytes]:
        """Encoded chat messages, the system message first."""
        return self._fragments

    @property
    def manifest(self) -> Manifest:
        """A summary of the request copy, for the log."""
        digest = self._hash.hexdigest()[:16]
        return Manifest(len(self._fragments), self._size_bytes, digest)

    def extend(
        self,
        history: Sequence[Message],
        notices: Sequence[NoProgressNotice],
        pictures: Mapping[str, str],
    ) -> None:
        """Render what *history* has gained since the last call.

        Args:
            history: The whole window; it only grew since the last call.
            notices: All notices so far; those of rounds rendered before are left alone.
            pictures: Data URIs by file id.
        """
        position = self._rendered
        while position < len(history):
            end = _end_of_group(history, position)
            self._render(history[position:end], notices, pictures)
            position = end
        self._rendered = position

    def _render(
        self,
        group: Sequence[Message],
        notices: Sequence[NoProgressNotice],
        pictures: Mapping[str, str],
    ) -> None:
        first = group[0]
        if first.role == "user":
            self._put(self._user(first, pictures))
        elif first.role == "assistant":
            rendered = [_assistant(first), *self._results(first, group[1:])]
            for message in apply_no_progress_notices(rendered, notices):
                self._put(message)
            for message in self._injected_pictures(group[1:], pictures):
                self._put(message)
        # A tool message that follows no call of its own has no place in a request.

    def _user(self, message: Message, pictures: Mapping[str, str]) -> ChatMessage:
        aside = self._texts.aside_note if message.is_aside else ""
        text = self._date_note(message) + aside + message.text
        files = files_of(message.content)
        shown = [part for part in files if part.file_id in pictures]
        named = "".join(
            self._texts.file_note(upload_path(part), part.media_type, part.size_bytes)
            for part in files
        )
        if not shown:
            return {"role": "user", "content": text + named}
        parts: list[ChatMessage] = [{"type": "text", "text": text + named}]
        parts += [_image_part(pictures[part.file_id]) for part in shown]
        return {"role": "user", "content": parts}

    def _date_note(self, message: Message) -> str:
        """Tell the model the day where it differs from the day of the message before."""
        day = message.created_at.astimezone(self._zone).date()
        if day == self._last_date:
            return ""
        self._last_date = day
        return self._texts.date_note(day)

    def _results(self, asked: Message, answers: Sequence[Message]) -> Iterable[ChatMessage]:
        """One tool message for each call, in the order of the calls."""
        by_id = {answer.tool_call_id: answer for answer in answers}
        for call in asked.tool_calls:
            answer = by_id.get(call.id)
            content = answer.text if answer is not None else self._texts.missing_result
            yield {"role": "tool", "tool_call_id": call.id, "content": content}

    def _injected_pictures(
        self, answers: Sequence[Message], pictures: Mapping[str, str]
    ) -> Iterable[ChatMessage]:
        """Chat completions take pictures in user messages only, so they follow the group."""
        for answer in answers:
            picture = answer.picture
            if picture is not None and picture.file_id in pictures:
                note = self._texts.picture_note(answer.tool_call_id or "")
                parts = [{"type": "text", "text": note}, _image_part(pictures[picture.file_id])]
                yield {"role": "user", "content": parts}

    def _put(self, message: Mapping[str, Any]) -> None:
        fragment = _ENCODE(message)
        self._fragments.append(fragment)
        self._hash.update(fragment)
        self._size_bytes += len(fragment)


def _end_of_group(history: Sequence[Message], start: int) -> int:
    """The position after the assistant message at *start* and its results."""
    end = start + 1
    if history[start].role == "assistant":
        while end < len(history) and history[end].role == "tool":
            end += 1
    return end


def _assistant(message: Message) -> ChatMessage:
    rendered: ChatMessage = {"role": "assistant", "content": message.text}
    if not message.tool_calls:
        return rendered
    if message.reasoning and message.reasoning_field:
        # Some providers refuse a tool turn whose reasoning does not come back.
        rendered[message.reasoning_field] = message.reasoning
    rendered["tool_calls"] = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.tool_calls
    ]
    return rendered


def _image_part(data_uri: str) -> ChatMessage:
    return {"type": "image_url", "image_url": {"url": data_uri}}
