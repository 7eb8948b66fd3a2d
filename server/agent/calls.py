"""Runs the tool calls of one reply and takes the guard's evidence where a result is born."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, Literal

from channels.events import CallProgress, CallResult
from channels.port import RunSink
from guard import Attachment, Rules
from server.agent.consent import Consent, edited_arguments, with_word
from server.agent.context import RunContext
from server.agent.evidence import evidence_of, harness_evidence
from server.agent.pictures import data_uri
from server.agent.stopping import Stopped, unless_stopped
from server.errors import ToolError
from server.message import Message, Picture, ToolCall, clean_text
from server.store.actions import (
    Action,
    load_actions,
    restart_action,
    start_action,
)
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.files import StoredFile, insert_file
from server.store.ids import new_id
from server.tools.base import (
    ACTIONS,
    INTERRUPTED_RESULT,
    Found,
    Registry,
    ToolContext,
    ToolPicture,
    ToolResult,
    Unknown,
    error_result,
)
from server.tracing import current

log = logging.getLogger(__name__)

CANCELLED_RESULT: Final = '{"error":"cancelled"}'

_ERROR_CODE = re.compile(r'\{"error": "([a-z_]{1,40})"')
"""The head of what `error_result` makes."""

Effect = Literal["DONE", "UNKNOWN"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A call with the tool message that answers it."""

    message: Message
    tool_label: str
    """The tool's name for counting; models invent names without end."""
    effect: Effect | None = None
    """What is known of what it changed; None for a call that changes nothing."""


class CallRunner:
    """Runs calls in the model's order, side by side where the tools allow it."""

    def __init__(
        self, registry: Registry, consent: Consent, store: Store, blobs: Blobs, rules: Rules
    ) -> None:
        self._registry = registry
        self._consent = consent
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
        for side_by_side, batch in self._batches(calls):
            if side_by_side:
                answers += _timed(await _all(self._run(context, call, sink) for call in batch))
            else:
                for call in batch:
                    answers.append(await self._run(context, call, sink))
        return answers

    async def settle(
        self, context: RunContext, calls: Sequence[ToolCall], sink: RunSink
    ) -> list[Answer]:
        """Answer the calls of a round that a dead process or a question left open.

        What had not begun, and what only reads, is run. Of any other call is asked what became of
        it: what was done is not done again, and the model is told of what nobody knows.
        """
        begun = await self._begun(context, calls)
        unfollowed = self._unfollowed(calls, begun)
        answers: list[Answer] = []
        for call in calls:
            may_repeat = call.id in unfollowed
            action = begun.get(call.id)
            answers.append(await self._settle(context, call, action, sink, may_repeat=may_repeat))
        return answers

    async def abandon(
        self, context: RunContext, calls: Sequence[ToolCall], sink: RunSink
    ) -> list[Answer]:
        """Answer the calls of a run that will not go on; those that waited for a word never ran."""
        begun = await self._begun(context, calls)
        waited = any(call.id in context.answers for call in calls)
        return [
            self._harness_answer(
                context,
                call,
                CANCELLED_RESULT if waited and call.id not in begun else INTERRUPTED_RESULT,
                sink,
                is_action=call.id in begun,
            )
            for call in calls
        ]

    def _label(self, call: ToolCall) -> str:
        return call.name if self._registry.spec(call.name) is not None else "unknown"

    def _batches(self, calls: Sequence[ToolCall]) -> list[tuple[bool, list[ToolCall]]]:
        """The calls in their order, in parts; whether those of a part run at the same time."""
        return [(key, list(group)) for key, group in groupby(calls, key=self._is_parallel)]

    def _is_parallel(self, call: ToolCall) -> bool:
        spec = self._registry.spec(call.name)
        return spec is not None and spec.parallel

    async def _begun(self, context: RunContext, calls: Sequence[ToolCall]) -> Mapping[str, Action]:
        async with self._store.read() as db:
            return await load_actions(db, context.session.id, [call.id for call in calls])

    def _unfollowed(self, calls: Sequence[ToolCall], begun: Mapping[str, Action]) -> set[str]:
        """Ids of the calls that none followed which began.

        One that was followed had come to its end: if its effect is not to be seen, what followed
        may have undone it.
        """
        found: set[str] = set()
        for side_by_side, batch in reversed(self._batches(calls)):
            for part in [batch] if side_by_side else [[call] for call in reversed(batch)]:
                found |= {call.id for call in part}
                if any(call.id in begun for call in part):
                    return found
        return found

    async def _settle(
        self,
        context: RunContext,
        call: ToolCall,
        begun: Action | None,
        sink: RunSink,
        *,
        may_repeat: bool,
    ) -> Answer:
        arguments = edited_arguments(context, call) or call.arguments
        is_first_try = context.run.attempt == 1  # nothing of what a question held back has begun
        is_wait = self._registry.kind_of(call.name, arguments) == "wait"
        if begun is None and (is_first_try or not is_wait):
            return await self._run(context, call, sink)
        is_action = begun is not None
        try:
            found = await unless_stopped(
                self._find(context, call, arguments, begun, sink), context.cancelled
            )
        except Stopped:
            return self._harness_answer(context, call, CANCELLED_RESULT, sink, is_action=is_action)
        if isinstance(found, ToolResult):
            return await self._answer(context, call, found, 0, sink, is_action=is_action)
        if found == "not_done" and (may_repeat or not is_action):
            return await self._run(context, call, sink, begun=begun)
        content = _interrupted(found)
        return self._harness_answer(context, call, content, sink, is_action=is_action)

    async def _find(
        self,
        context: RunContext,
        call: ToolCall,
        arguments: str,
        begun: Action | None,
        sink: RunSink,
    ) -> Found:
        """What became of a call; of one that was given up before, nothing more is known."""
        if begun is not None and begun.state == "UNKNOWN":
            return "unknown"
        mark = begun.mark if begun is not None else ""
        told = self._tool_context(context, call, sink)
        found = await self._registry.lookup(call.name, arguments, mark, told)
        log.info("[action] looked up tool=%s found=%s", self._label(call), _word(found))
        return found

    async def _run(
        self,
        context: RunContext,
        call: ToolCall,
        sink: RunSink,
        *,
        begun: Action | None = None,
    ) -> Answer:
        """Run *call*, or answer it as a person said; *begun* tells of a try that did nothing."""
        if context.cancelled.is_set():
            return self._harness_answer(
                context, call, CANCELLED_RESULT, sink, is_action=begun is not None
            )
        said = self._consent.said(context, call)
        if said is not None:
            return await self._answer(context, call, said, 0, sink, is_action=False)
        arguments = edited_arguments(context, call) or call.arguments
        told = self._tool_context(context, call, sink)
        is_action = self._registry.kind_of(call.name, arguments) in ACTIONS
        if is_action:
            using = self._act(context, call, arguments, told, is_again=begun is not None)
        else:
            using = self._registry.dispatch(call.name, arguments, told)
        started = time.monotonic()
        try:
            result = await self._traced(call, using, context.cancelled)
        except Stopped:
            return self._harness_answer(context, call, CANCELLED_RESULT, sink, is_action=is_action)
        elapsed_ms = round((time.monotonic() - started) * 1000)
        return await self._answer(context, call, result, elapsed_ms, sink, is_action=is_action)

    async def _traced(
        self, call: ToolCall, using: Coroutine[Any, Any, ToolResult], stopped: asyncio.Event
    ) -> ToolResult:
        """Await *using*, as `unless_stopped` does, in a span of the run's trace."""
        with current().calling(self._label(call), call.id) as span:
            try:
                result = await unless_stopped(using, stopped)
            except Stopped:
                span.failed("cancelled")
                raise
            if result.is_error:
                span.failed(_error_code(result))
            return result

    async def _act(
        self,
        context: RunContext,
        call: ToolCall,
        arguments: str,
        told: ToolContext,
        *,
        is_again: bool,
    ) -> ToolResult:
        """Run a call that writes or sends; that it begins is stored before."""
        try:
            mark = await self._registry.mark(call.name, arguments, told)
        except ToolError as error:
            return error_result(error.code, str(error))
        await self._begin(context, call, mark, is_again=is_again)
        return await self._registry.dispatch(call.name, arguments, told, mark)

    async def _begin(
        self, context: RunContext, call: ToolCall, mark: str, *, is_again: bool
    ) -> None:
        """Store that the call begins, before it does."""
        action = Action(
            session_id=context.session.id,
            call_id=call.id,
            run_id=context.run.id,
            tool_name=call.name,
            state="STARTED",
            mark=mark,
            created_at=datetime.now(UTC),
        )
        store = restart_action if is_again else start_action
        async with self._store.write() as db:
            await store(db, action, context.run.attempt)

    def _tool_context(self, context: RunContext, call: ToolCall, sink: RunSink) -> ToolContext:
        return ToolContext(
            session_id=context.session.id,
            run_id=context.run.id,
            call_id=call.id,
            workspace=context.workspace,
            locale=context.session.locale,
            progress=lambda text: sink.emit(CallProgress(call.id, call.name, text)),
            emit=sink.emit,
        )

    async def _answer(
        self,
        context: RunContext,
        call: ToolCall,
        result: ToolResult,
        elapsed_ms: int,
        sink: RunSink,
        *,
        is_action: bool,
    ) -> Answer:
        """The answer that a result makes; the guard judges what the tool said by itself."""
        picture, attachment = await self._keep_picture(context, result.picture)
        content = with_word(context, call, result)
        message = Message(
            id=new_id(),
            role="tool",
            content=content,
            created_at=datetime.now(UTC),
            run_id=context.run.id,
            tool_call_id=call.id,
            evidence=await evidence_of(
                context,
                call,
                result,
                attachment,
                elapsed_ms,
                self._registry.kind_of(call.name, call.arguments),
                self._rules,
            ),
            picture=picture,
            is_error=result.is_error,
        )
        sink.emit(
            CallResult(
                message_id=message.id,
                call_id=call.id,
                tool_name=call.name,
                content=content,
                is_error=result.is_error,
                duration_ms=elapsed_ms,
                truncated=result.truncated,
                exit_code=result.exit_code,
                picture_file_id=picture.file_id if picture else None,
                picture_media_type=picture.media_type if picture else None,
            )
        )
        effect: Effect | None = "UNKNOWN" if result.is_unsure else "DONE"
        return Answer(message, self._label(call), effect if is_action else None)

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
            shown_sha256=sha256,  # its tool made it ready
        )
        async with self._store.write() as db:
            await insert_file(db, file)
        uri = data_uri(picture.data)
        context.pictures[file.id] = uri
        return Picture(file.id, file.media_type), Attachment(uri, picture.media_type)

    def _harness_answer(
        self,
        context: RunContext,
        call: ToolCall,
        content: str,
        sink: RunSink,
        *,
        is_action: bool,
    ) -> Answer:
        """An answer that no tool gave; the guard neither counts nor clears its round."""
        message = Message(
            id=new_id(),
            role="tool",
            content=content,
            created_at=datetime.now(UTC),
            run_id=context.run.id,
            tool_call_id=call.id,
            evidence=harness_evidence(call, content, self._rules),
            is_error=True,
        )
        sink.emit(CallResult(message.id, call.id, call.name, content, is_error=True))
        return Answer(message, self._label(call), "UNKNOWN" if is_action else None)


async def _all(runs: Iterable[Coroutine[None, None, Answer]]) -> list[Answer]:
    """Await all; the first failure is raised only when none of them runs any more."""
    ended = await asyncio.gather(*runs, return_exceptions=True)
    answers: list[Answer] = []
    for end in ended:
        if isinstance(end, BaseException):
            raise end
        answers.append(end)
    return answers


def _timed(answers: Sequence[Answer]) -> list[Answer]:
    """Calls that ran side by side: together they took as long as the longest of them."""
    timed: list[Answer] = []
    reached_ms = 0
    for answer in answers:
        evidence = answer.message.evidence
        assert evidence is not None, "every answer is born with its evidence"
        wall_ms = max(0, evidence.elapsed_ms - reached_ms)
        reached_ms += wall_ms
        evidence = replace(evidence, wall_ms=wall_ms)
        timed.append(replace(answer, message=replace(answer.message, evidence=evidence)))
    return timed


def _error_code(result: ToolResult) -> str:
    """The code of a failure, without the words that follow it."""
    found = _ERROR_CODE.match(result.content)
    return found[1] if found is not None else "error"


def _word(found: Found) -> str:
    if isinstance(found, ToolResult):
        return "done"
    return "unknown" if isinstance(found, Unknown) else found


def _interrupted(found: Found) -> str:
    """What the model reads of a call that was cut, with what its tool can tell of it."""
    if not isinstance(found, Unknown):
        return INTERRUPTED_RESULT
    fields = {**json.loads(INTERRUPTED_RESULT), "detail": clean_text(found.detail)}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
