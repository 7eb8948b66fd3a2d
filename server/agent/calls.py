"""Runs the tool calls of one reply and takes the guard's evidence where a result is born."""

import asyncio
import json
import logging
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from channels.events import CallProgress, CallResult
from channels.port import RunSink
from guard import Attachment, NoProgressCall, Rules, evidence
from server.agent.context import RunContext
from server.agent.history import data_uri
from server.agent.stopping import Stopped, unless_stopped
from server.message import Evidence, Message, Picture, ToolCall
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.files import StoredFile, insert_file
from server.store.ids import new_id
from server.tools.base import Registry, ToolContext, ToolPicture, ToolResult

log = logging.getLogger(__name__)

CANCELLED_RESULT: Final = '{"error":"cancelled"}'
INTERRUPTED_RESULT: Final = (
    '{"error":"interrupted","message":"outcome unknown, verify before repeating"}'
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A call with the tool message that answers it."""

    message: Message
    tool_label: str
    """The tool's name for counting; models invent names without end."""


class CallRunner:
    """Runs calls in the model's order, side by side where the tools allow it."""

    def __init__(self, registry: Registry, store: Store, blobs: Blobs, rules: Rules) -> None:
        self._registry = registry
        self._store = store
        self._blobs = blobs
        self._rules = rules

    async def run(
        self, context: RunContext, calls: Sequence[ToolCall], sink: RunSink
    ) -> list[Answer]:
        """Run *calls*; the answers keep their order.

        After a person's stop the calls that had not ended are answered by the harness.
        Cancelling cancels the running tools and waits for them.
        """
        answers: list[Answer] = []
        for side_by_side, group in groupby(calls, key=self._is_parallel):
            batch = list(group)
            if side_by_side:
                answers += await _all(self._run(context, call, sink) for call in batch)
            else:
                for call in batch:
                    answers.append(await self._run(context, call, sink))
        return answers

    async def settle(
        self, context: RunContext, calls: Sequence[ToolCall], sink: RunSink
    ) -> list[Answer]:
        """Answer the calls of a round that a dead process left open.

        Calls that only read are run; what became of any other is unknown, and the model is told.
        """
        answers: list[Answer] = []
        for call in calls:
            if self._registry.kind_of(call.name, call.arguments) == "read":
                answers.append(await self._run(context, call, sink))
            else:
                answers.append(self._harness_answer(context, call, INTERRUPTED_RESULT, sink))
        return answers

    def abandon(
        self, context: RunContext, calls: Sequence[ToolCall], sink: RunSink
    ) -> list[Answer]:
        """Answer the calls of a run that will not go on."""
        return [self._harness_answer(context, call, INTERRUPTED_RESULT, sink) for call in calls]

    def _label(self, call: ToolCall) -> str:
        return call.name if self._registry.spec(call.name) is not None else "unknown"

    def _is_parallel(self, call: ToolCall) -> bool:
        spec = self._registry.spec(call.name)
        return spec is not None and spec.parallel

    async def _run(self, context: RunContext, call: ToolCall, sink: RunSink) -> Answer:
        if context.cancelled.is_set():
            return self._harness_answer(context, call, CANCELLED_RESULT, sink)
        started = time.monotonic()
        tool_context = ToolContext(
            session_id=context.session.id,
            run_id=context.run.id,
            call_id=call.id,
            workspace=context.workspace,
            locale=context.session.locale,
            progress=lambda text: sink.emit(CallProgress(call.id, call.name, text)),
        )
        try:
            result = await unless_stopped(
                self._registry.dispatch(call.name, call.arguments, tool_context),
                context.cancelled,
            )
        except Stopped:
            return self._harness_answer(context, call, CANCELLED_RESULT, sink)
        elapsed_ms = round((time.monotonic() - started) * 1000)
        return await self._answer(context, call, result, elapsed_ms, sink)

    async def _answer(
        self,
        context: RunContext,
        call: ToolCall,
        result: ToolResult,
        elapsed_ms: int,
        sink: RunSink,
    ) -> Answer:
        picture, attachment = await self._keep_picture(context, result.picture)
        message = Message(
            id=new_id(),
            role="tool",
            content=result.content,
            created_at=datetime.now(UTC),
            run_id=context.run.id,
            tool_call_id=call.id,
            evidence=self._evidence(context, call, result, attachment, elapsed_ms),
            picture=picture,
            is_error=result.is_error,
        )
        sink.emit(
            CallResult(
                message_id=message.id,
                call_id=call.id,
                tool_name=call.name,
                content=result.content,
                is_error=result.is_error,
                duration_ms=elapsed_ms,
                truncated=result.truncated,
                exit_code=result.exit_code,
                picture_file_id=picture.file_id if picture else None,
                picture_media_type=picture.media_type if picture else None,
            )
        )
        return Answer(message, self._label(call))

    def _evidence(
        self,
        context: RunContext,
        call: ToolCall,
        result: ToolResult,
        attachment: Attachment | None,
        elapsed_ms: int,
    ) -> Evidence:
        seen = NoProgressCall(call.name, call.arguments, result.content, attachment)
        found = evidence(seen, self._rules)
        for fault in set(found.faults) - context.faults:
            context.faults.add(fault)
            log.warning("[no-progress] fell back to the text rule: %s", fault)
        return Evidence(
            action_digest=found.action_digest,
            result_digest=found.result_digest,
            exempt=found.exempt,
            error_class=_error_class(result),
            elapsed_ms=elapsed_ms,
        )

    async def _keep_picture(
        self, context: RunContext, picture: ToolPicture | None
    ) -> tuple[Picture | None, Attachment | None]:
        """Store a picture before anybody is told of it, so that whoever asks finds it."""
        if picture is None:
            return None, None
        sha256 = await self._blobs.write(picture.data)
        file = StoredFile(
            id=new_id(),
            session_id=context.session.id,
            owner=context.session.owner,
            name="picture",
            media_type=picture.media_type,
            size_bytes=len(picture.data),
            sha256=sha256,
            created_at=datetime.now(UTC),
        )
        async with self._store.write() as db:
            await insert_file(db, file)
        uri = data_uri(picture.data, picture.media_type)
        context.pictures[file.id] = uri
        return Picture(file.id, file.media_type), Attachment(uri, picture.media_type)

    def _harness_answer(
        self, context: RunContext, call: ToolCall, content: str, sink: RunSink
    ) -> Answer:
        """An answer that no tool gave; the guard neither counts nor clears its round."""
        seen = evidence(NoProgressCall(call.name, call.arguments, content), self._rules)
        message = Message(
            id=new_id(),
            role="tool",
            content=content,
            created_at=datetime.now(UTC),
            run_id=context.run.id,
            tool_call_id=call.id,
            evidence=Evidence(
                seen.action_digest, seen.result_digest, seen.exempt, "harness", harness=True
            ),
            is_error=True,
        )
        sink.emit(CallResult(message.id, call.id, call.name, content, is_error=True))
        return Answer(message, self._label(call))


async def _all(runs: Iterable[Coroutine[None, None, Answer]]) -> list[Answer]:
    """Await all; the first failure is raised only when none of them runs any more."""
    ended = await asyncio.gather(*runs, return_exceptions=True)
    answers: list[Answer] = []
    for end in ended:
        if isinstance(end, BaseException):
            raise end
        answers.append(end)
    return answers


def _error_class(result: ToolResult) -> str | None:
    """The code of an error result, for rules that look at kinds of failure."""
    if not result.is_error:
        return None
    try:
        code = json.loads(result.content).get("error")
    except (ValueError, AttributeError):
        return "error"
    return code if isinstance(code, str) else "error"
