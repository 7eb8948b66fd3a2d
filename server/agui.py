"""Run events as AG-UI 1.0 events: bytes of JSON, the same for the socket and both SSE streams.

What the protocol's client refuses is never written: a `null`, a time that is not an integer,
a field it does not know. Pieces of a text, a thought or a call's arguments are most of what a
server sends, so they are spliced from parts and carry no time; everything else is encoded whole.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Final, assert_never

import msgspec

from channels.events import (
    AttachedFile,
    CallArguments,
    CallFinished,
    CallProgress,
    CallResult,
    CallStarted,
    Compaction,
    Discarded,
    Interrupt,
    InterruptReason,
    Outcome,
    ReasoningAdded,
    ReasoningFinished,
    ReasoningStarted,
    RoundFinished,
    RoundStarted,
    RunEvent,
    RunStarted,
    SubagentFailed,
    SubagentFinished,
    SubagentStarted,
    TextAdded,
    TextFinished,
    TextStarted,
    UserJoined,
)
from server.message import Message, files_of

PROTOCOL_VERSION = "1.0"

Delta = TextAdded | ReasoningAdded | CallArguments
DELTA_KINDS = (TextAdded, ReasoningAdded, CallArguments)
DELTA_TAIL = b'"}'
"""Ends what `delta_head` began, after any number of `escape`d texts."""

RESPONSE_SCHEMAS: Final[Mapping[InterruptReason, Mapping[str, object]]] = {
    "tool_call": {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "editedArgs": {"type": "object"},
            "note": {"type": "string"},
        },
        "required": ["approved"],
    },
    "input_required": {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": ["answer"],
    },
}
"""What answers an interrupt on `/agui`; the socket has `approval.respond`."""

_DISCARDED_HEAD = b'{"type":"CUSTOM","name":"headway.discarded"'

_Event = Mapping[str, object]


def render(event: RunEvent, session_id: str, now_ms: int) -> Sequence[bytes]:
    """The AG-UI events that *event* is shown as, in order.

    Args:
        session_id: Becomes the thread's id.
        now_ms: Milliseconds since the epoch.
    """
    if isinstance(event, DELTA_KINDS):
        return [delta_head(event) + escape(event.delta) + DELTA_TAIL]
    return [_encode({**fields, "timestamp": now_ms}) for fields in _events(event, session_id)]


def epoch_ms() -> int:
    """The time that events carry."""
    return time.time_ns() // 1_000_000


def delta_head(event: Delta) -> bytes:
    """An AG-UI event up to the first character of its `delta`."""
    match event:
        case TextAdded():
            kind, name, key = b"TEXT_MESSAGE_CONTENT", b"messageId", event.message_id
        case ReasoningAdded():
            kind, name, key = b"REASONING_MESSAGE_CONTENT", b"messageId", event.message_id
        case CallArguments():
            kind, name, key = b"TOOL_CALL_ARGS", b"toolCallId", event.call_id
        case _:
            assert_never(event)
    return b'{"type":"%s","%s":"%s","delta":"' % (kind, name, escape(key))


def escape(text: str) -> bytes:
    """The inside of *text* as a JSON string. Escaped texts may be put one after another."""
    return _encode(text)[1:-1]


def file_url(file_id: str) -> str:
    """Where a file of the store is fetched; relative, since the public address is not known."""
    return f"/api/files/{file_id}"


def user_message(message_id: str, text: str, files: Sequence[AttachedFile]) -> dict[str, object]:
    """A person's message in AG-UI's shape."""
    if not files:
        return {"id": message_id, "role": "user", "content": text}
    parts: list[object] = [{"type": "text", "text": text}] if text else []
    parts += map(_document, files)
    return {"id": message_id, "role": "user", "content": parts}


def _document(file: AttachedFile) -> dict[str, object]:
    source = {"type": "url", "value": file_url(file.file_id), "mimeType": file.media_type}
    about = {"fileId": file.file_id, "name": file.name}
    return {"type": "document", "source": source, "metadata": about}


def stored_message(message: Message) -> dict[str, object]:
    """A stored message in AG-UI's shape."""
    match message.role:
        case "user":
            files = [
                AttachedFile(file.file_id, file.name, file.media_type)
                for file in files_of(message.content)
            ]
            return user_message(message.id, message.text, files)
        case "assistant":
            return _assistant_message(message)
        case "tool":
            return {
                "id": message.id,
                "role": "tool",
                "content": message.text,
                "toolCallId": message.tool_call_id or "",
            }


def _assistant_message(message: Message) -> dict[str, object]:
    fields: dict[str, object] = {"id": message.id, "role": "assistant"}
    if message.text:
        fields["content"] = message.text
    if message.tool_calls:
        fields["toolCalls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return fields


def is_discarded(body: bytes) -> bool:
    """Whether *body* is the event that withdraws what was shown."""
    return body.startswith(_DISCARDED_HEAD)


def messages_snapshot(messages: Sequence[Mapping[str, object]], now_ms: int) -> bytes:
    """The event that replaces what a client holds; AG-UI's own message shape."""
    return _encode({"type": "MESSAGES_SNAPSHOT", "messages": messages, "timestamp": now_ms})


def run_error(code: str, message: str, now_ms: int) -> bytes:
    """A stream's only event: there is no run."""
    return _encode({"type": "RUN_ERROR", "message": message, "code": code, "timestamp": now_ms})


def _encode(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A gateway may cut a text between the halves of a surrogate pair.
        return msgspec.json.encode(_mended(value))


def _mended(value: object) -> object:
    """*value* with lone surrogates replaced by U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_mended(key): _mended(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_mended(item) for item in value]
    return value


def _events(event: RunEvent, session_id: str) -> list[_Event]:
    match event:
        case RunStarted():
            return [_run_started(event, session_id)]
        case Outcome():
            return [_outcome(event, session_id)]
        case RoundStarted() | RoundFinished():
            return [_step(event)]
        case TextStarted() | TextFinished() | UserJoined():
            return _text(event)
        case ReasoningStarted() | ReasoningFinished():
            return _reasoning(event)
        case CallStarted() | CallFinished() | CallResult() | CallProgress():
            return [_call(event)]
        case SubagentStarted() | SubagentFinished() | SubagentFailed():
            return [_subagent(event)]
        case Compaction():
            return [_compaction(event)]
        case Discarded():
            withdrawn = {
                "messageIds": list(event.message_ids),
                "toolCallIds": list(event.call_ids),
            }
            return [{"type": "CUSTOM", "name": "headway.discarded", "value": withdrawn}]
        case TextAdded() | ReasoningAdded() | CallArguments():
            raise AssertionError("a delta is spliced, never built")
        case _:
            assert_never(event)


def _run_started(event: RunStarted, session_id: str) -> _Event:
    ids = {"threadId": session_id, "runId": event.run_id}
    fields: dict[str, object] = {
        "type": "RUN_STARTED",
        **ids,
        "protocolVersion": PROTOCOL_VERSION,
    }
    if event.parent_run_id is not None:
        fields["parentRunId"] = event.parent_run_id
    if event.message_id is not None:
        message = user_message(event.message_id, event.text, event.files)
        fields["input"] = {**ids, "messages": [message]}
    return fields


def _step(event: RoundStarted | RoundFinished) -> _Event:
    kind = "STEP_STARTED" if isinstance(event, RoundStarted) else "STEP_FINISHED"
    return {"type": kind, "stepName": f"round-{event.number}"}


def _text(event: TextStarted | TextFinished | UserJoined) -> list[_Event]:
    key = event.message_id
    end: _Event = {"type": "TEXT_MESSAGE_END", "messageId": key}
    match event:
        case TextStarted():
            return [{"type": "TEXT_MESSAGE_START", "messageId": key, "role": "assistant"}]
        case TextFinished():
            return [end]
        case UserJoined():
            return [*_joined(event), end]


def _joined(event: UserJoined) -> Iterator[_Event]:
    """A text message has no parts in AG-UI, so files go with its beginning."""
    start: dict[str, object] = {
        "type": "TEXT_MESSAGE_START",
        "messageId": event.message_id,
        "role": "user",
    }
    if event.files:
        start["metadata"] = {"files": list(map(_document, event.files))}
    yield start
    if event.text:
        yield {
            "type": "TEXT_MESSAGE_CONTENT",
            "messageId": event.message_id,
            "delta": event.text,
        }


def _reasoning(event: ReasoningStarted | ReasoningFinished) -> list[_Event]:
    key = event.message_id
    if isinstance(event, ReasoningStarted):
        return [
            {"type": "REASONING_START", "messageId": key},
            {"type": "REASONING_MESSAGE_START", "messageId": key, "role": "reasoning"},
        ]
    return [
        {"type": "REASONING_MESSAGE_END", "messageId": key},
        {"type": "REASONING_END", "messageId": key},
    ]


def _call(event: CallStarted | CallFinished | CallResult | CallProgress) -> _Event:
    match event:
        case CallStarted():
            return {
                "type": "TOOL_CALL_START",
                "toolCallId": event.call_id,
                "toolCallName": event.tool_name,
                "parentMessageId": event.message_id,
            }
        case CallFinished():
            return {"type": "TOOL_CALL_END", "toolCallId": event.call_id}
        case CallProgress():
            content = {
                "toolCallId": event.call_id,
                "toolName": event.tool_name,
                "text": event.text,
            }
            return _activity(f"progress-{event.call_id}", "TOOL_PROGRESS", content)
        case CallResult():
            return {
                "type": "TOOL_CALL_RESULT",
                "messageId": event.message_id,
                "toolCallId": event.call_id,
                "content": _result_content(event),
                "metadata": _result_metadata(event),
            }


def _result_content(event: CallResult) -> str | list[object]:
    if event.picture_file_id is None:
        return event.content
    source = {"type": "url", "value": file_url(event.picture_file_id)}
    if event.picture_media_type is not None:
        source["mimeType"] = event.picture_media_type
    return [{"type": "text", "text": event.content}, {"type": "image", "source": source}]


def _result_metadata(event: CallResult) -> _Event:
    metadata: dict[str, object] = {"durationMs": event.duration_ms}
    if event.is_error:
        metadata["isError"] = True
    if event.truncated:
        metadata["truncated"] = True
    if event.exit_code is not None:
        metadata["exitCode"] = event.exit_code
    return metadata


def _subagent(event: SubagentStarted | SubagentFinished | SubagentFailed) -> _Event:
    key = event.run_id
    match event:
        case SubagentStarted():
            return {
                "type": "SUBAGENT_STARTED",
                "subagentRunId": key,
                "name": event.name,
                "parentToolCallId": event.call_id,
                "metadata": {"sessionId": event.session_id},
            }
        case SubagentFinished():
            return {"type": "SUBAGENT_FINISHED", "subagentRunId": key}
        case SubagentFailed():
            return {
                "type": "SUBAGENT_ERROR",
                "subagentRunId": key,
                "message": event.text,
                "code": event.code,
            }


def _compaction(event: Compaction) -> _Event:
    content: dict[str, object] = {"state": event.state, "droppedMessages": event.dropped_messages}
    return _activity(event.activity_id, "COMPACTION", content)


def _activity(message_id: str, kind: str, content: Mapping[str, object]) -> _Event:
    return {
        "type": "ACTIVITY_SNAPSHOT",
        "messageId": message_id,
        "activityType": kind,
        "content": content,
        "replace": True,
    }


def _outcome(event: Outcome, session_id: str) -> _Event:
    metadata: dict[str, object] = {**event.metadata, "rounds": event.rounds}
    if event.status == "failed":
        metadata |= {"retryable": event.retryable, "runId": event.run_id}
        ended: dict[str, object] = {
            "type": "RUN_ERROR",
            "message": event.text,
            "code": event.code,
            "metadata": metadata,
        }
    else:
        ended = {
            "type": "RUN_FINISHED",
            "threadId": session_id,
            "runId": event.run_id,
            "outcome": _finished(event),
            "metadata": metadata,
        }
    if usage := _usage(event):
        ended["usage"] = usage
    return ended


def _finished(event: Outcome) -> _Event:
    if event.status == "cancelled":
        return {"type": "cancelled"}
    if event.status == "waiting":
        return {"type": "interrupt", "interrupts": [_interrupt(one) for one in event.interrupts]}
    return {"type": "success"}


def _interrupt(interrupt: Interrupt) -> _Event:
    fields: dict[str, object] = {
        "id": interrupt.id,
        "reason": interrupt.reason,
        "message": interrupt.message,
        "toolCallId": interrupt.call_id,
        "responseSchema": RESPONSE_SCHEMAS[interrupt.reason],
        "metadata": {"toolName": interrupt.tool_name, "options": list(interrupt.options)},
    }
    if interrupt.expires_at is not None:
        fields["expiresAt"] = interrupt.expires_at.astimezone(UTC).isoformat()
    return fields


def _usage(event: Outcome) -> list[_Event]:
    """One entry, or none where no model answered."""
    if not (event.prompt_tokens or event.completion_tokens):
        return []
    entry: dict[str, object] = {
        "inputTokens": event.prompt_tokens,
        "outputTokens": event.completion_tokens,
        "totalTokens": event.prompt_tokens + event.completion_tokens,
        "cachedInputTokens": event.cached_tokens,
    }
    if event.model:
        entry["model"] = event.model
    return [entry]
