"""Loads a session's history and takes from it all that a run needs to go on."""

import asyncio
import base64
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from guard import NoProgressGuard, NoProgressTail, Rules, scan_no_progress_notices
from server.agent.context import RunContext
from server.agent.prompt import Prompt
from server.agent.texts import PromptTexts
from server.agent.uploads import place_uploads
from server.errors import NotFound
from server.message import Message, files_of
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.files import files_by_id
from server.store.messages import last_seq, load_prompt_messages
from server.store.runs import Run
from server.store.sessions import Session
from server.store.toolsets import bind_toolset, load_toolset, toolset_digest
from server.store.usage import run_usage
from server.tools.base import Registry

log = logging.getLogger(__name__)

VISIBLE_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Media types that chat models take as pictures."""


_TOOLLESS: Final = frozenset({"compact", "deliver"})
"""Triggers of runs that show no tools to the model, and so fix none."""


class History:
    """Builds run contexts from the store."""

    def __init__(
        self, store: Store, blobs: Blobs, rules: Rules, workspace: Path, registry: Registry
    ) -> None:
        self._store = store
        self._registry = registry
        self._workspace = workspace
        self._blobs = blobs
        self._rules = rules

    async def open(self, run: Run, session: Session, cancelled: asyncio.Event) -> RunContext:
        """The context of a run as the store has it, after a restart as well.

        Args:
            cancelled: Set when a person stops the run.
        """
        async with self._store.read() as db:
            messages = await load_prompt_messages(db, session.id)
            newest_seq = await last_seq(db, session.id)
            usage = await run_usage(db, run.id)
            tools_json = await load_toolset(db, session.id)
        context = RunContext(
            session=session,
            run=run,
            prompt=new_prompt(session),
            messages=[],
            notices=[],
            guard=NoProgressGuard(rules=self._rules, locale=session.locale),
            workspace=self._workspace,
            tools_json=await self._fixed(run, tools_json),
            rounds=rounds_of(run, messages),
            usage=usage,
            cancelled=cancelled,
        )
        await self._place_files(messages)
        await self._apply(context, messages, newest_seq)
        return context

    async def _fixed(self, run: Run, tools_json: bytes | None) -> bytes:
        """The session's tools as the model first saw them; with its first run, those of now.

        What the process offers changes with its version and with MCP servers. A request must not:
        a prompt that begins otherwise than the one before is paid for anew as a whole.
        """
        offered = self._registry.definitions_json()
        if tools_json is None:
            if run.trigger in _TOOLLESS:
                return offered
            async with self._store.write() as db:
                tools_json = await bind_toolset(db, run.session_id, offered, datetime.now(UTC))
        if tools_json != offered:
            log.info(
                "[prompt] tools changed in mid-session session=%s fixed=%s offered=%s",
                run.session_id,
                toolset_digest(tools_json)[:16],
                toolset_digest(offered)[:16],
            )
        return tools_json

    async def reload(self, context: RunContext) -> None:
        """Take the history anew after it was compacted; notices and streak follow from it."""
        async with self._store.read() as db:
            messages = await load_prompt_messages(db, context.session.id)
            newest_seq = await last_seq(db, context.session.id)
        context.prompt = new_prompt(context.session)
        await self._apply(context, messages, newest_seq)

    async def _apply(
        self, context: RunContext, messages: Sequence[Message], newest_seq: int
    ) -> None:
        """Give *context* these messages, and what the guard makes of them."""
        scan = scan_no_progress_notices(
            [as_chat(message) for message in messages],
            tail=stored_tail(messages),
            rules=self._rules,
            locale=context.session.locale,
        )
        context.clear()
        context.extend(messages)
        context.last_seq = newest_seq  # superseded messages are not in the window
        context.notices = list(scan.notices)
        context.guard.reset_from(scan.tail)
        context.last_tool_names = scan.tool_names
        context.call_ids = {call.id for message in messages for call in message.tool_calls}
        context.pictures = await self.load_pictures(messages)

    async def admit_files(self, context: RunContext, messages: Sequence[Message]) -> None:
        """Give the run the files of *messages* that joined it, as `open` does for earlier ones."""
        await self._place_files(messages)
        context.pictures |= await self.load_pictures(messages)

    async def _place_files(self, messages: Sequence[Message]) -> None:
        files = [part for message in messages for part in files_of(message.content)]
        await place_uploads(self._store, self._blobs, files, self._workspace)

    async def load_pictures(self, messages: Sequence[Message]) -> dict[str, str]:
        """Data URIs of every picture the prompt of *messages* shows."""
        wanted = set(_picture_ids(messages))
        if not wanted:
            return {}
        async with self._store.read() as db:
            files = await files_by_id(db, sorted(wanted))
        pictures: dict[str, str] = {}
        for file in files.values():
            try:
                data = await self._blobs.read(file.sha256)
            except NotFound:
                continue
            pictures[file.id] = data_uri(data, file.media_type)
        return pictures


def new_prompt(session: Session) -> Prompt:
    """An empty prompt in the session's language and time zone."""
    return Prompt(texts=PromptTexts(session.locale), zone=ZoneInfo(session.timezone))


def rounds_of(run: Run, messages: Iterable[Message]) -> int:
    """How many rounds the run began; compaction may have hidden some, the row counts all."""
    seen = sum(1 for m in messages if m.run_id == run.id and m.role == "assistant")
    return max(run.rounds, seen)


def stored_tail(messages: Sequence[Message]) -> NoProgressTail | None:
    """The tail that the compaction at the head of *messages* kept."""
    if not messages or messages[0].summary_of is None:
        return None
    return decode_tail(messages[0].summary_of.tail_json)


def encode_tail(tail: NoProgressTail | None) -> str | None:
    """The tail as it stands in a compaction record."""
    if tail is None:
        return None
    return json.dumps([tail.streak, tail.last_round_key, list(tail.nudged_at)])


def decode_tail(text: str | None) -> NoProgressTail | None:
    """The reverse of `encode_tail`."""
    if text is None:
        return None
    streak, last_round_key, nudged_at = json.loads(text)
    return NoProgressTail(streak, last_round_key, tuple(nudged_at))


def as_chat(message: Message) -> Mapping[str, Any]:
    """The message in the shape that the guard scans, with the evidence taken at its birth."""
    chat: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "user":
        chat["synthetic"] = message.synthetic
    if message.tool_calls:
        chat["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        chat["tool_call_id"] = message.tool_call_id
    if message.evidence is not None:
        chat["result_digest"] = message.evidence.result_digest
        chat["exempt"] = message.evidence.exempt
        chat["harness"] = message.evidence.harness
    return chat


def data_uri(data: bytes, media_type: str) -> str:
    """A picture as it stands in a request."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def _picture_ids(messages: Sequence[Message]) -> Iterable[str]:
    for message in messages:
        if message.picture is not None:
            yield message.picture.file_id
        for part in files_of(message.content):
            if part.media_type in VISIBLE_PICTURES:
                yield part.file_id
