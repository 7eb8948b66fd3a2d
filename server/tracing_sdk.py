"""Spans by OpenTelemetry's SDK, sent over HTTP by a thread of its own."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from channels.events import Outcome
from channels.faults import is_told
from server import trace_names as names
from server.errors import SettingsError
from server.llm.port import AttemptFailed, Purpose, Reply
from server.message import Usage
from server.store.decisions import Decision
from server.store.runs import Run
from server.store.sessions import Session

INTERRUPTED: Final = "interrupted"
"""The error of a run or call that this process left without an end."""

_SENDER_LOG: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class _RunIds(RandomIdGenerator):
    """Random ids, but for the roots of runs: theirs are known wherever the run is."""

    def __init__(self) -> None:
        self._trace_id = 0
        self._span_id: int | None = None

    def expect(self, trace_id: str, span_id: int | None) -> None:
        """The next span is a root, and has these ids."""
        self._trace_id = int(trace_id, 16)
        self._span_id = span_id

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        span_id, self._span_id = self._span_id, None
        return span_id or super().generate_span_id()


def root_span_id(run_id: str) -> int:
    """Of the span of a run's first attempt, so that others can point at it without asking."""
    return int(sha256(f"span of {run_id}".encode()).hexdigest()[:16], 16) or 1


class _Seldom(logging.Filter):
    """Lets the 1st, 2nd, 4th, 8th … line of the sender pass, and none of them as an error.

    It writes one for each batch that was not taken, and nobody has to act at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self.count += 1
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        return is_told(self.count)


class _Sender(SpanExporter):
    """Sends batches to the collector; one that is not taken is lost."""

    def __init__(self) -> None:
        self._otlp: SpanExporter = OTLPSpanExporter()
        self._log = logging.getLogger(_SENDER_LOG)
        self._seldom = _Seldom()
        self._log.addFilter(self._seldom)
        self._is_closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._otlp.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._seldom.count = 0
        return result

    def shutdown(self) -> None:
        """Let go of the collector, and of a try that waits to be made again."""
        if not self._is_closed:
            self._is_closed = True
            self._otlp.shutdown()
            self._log.removeFilter(self._seldom)


class SdkTracer:
    """Begins the spans of runs; see `Tracer`."""

    def __init__(self, provider: str) -> None:
        """Raises SettingsError when the SDK refuses one of its variables."""
        self._ids = _RunIds()
        self._sender = _Sender()
        try:
            self._processor: SpanProcessor = BatchSpanProcessor(self._sender)
            sdk = TracerProvider(
                resource=_resource(), id_generator=self._ids, shutdown_on_exit=False
            )
        except ValueError as error:
            self._sender.shutdown()
            raise SettingsError(f"OTEL_*: the SDK refuses a value: {error}") from None
        sdk.add_span_processor(self._processor)
        self._tracer = sdk.get_tracer("headway")
        self._provider = provider

    @contextmanager
    def run(self, run: Run, session: Session, trace_id: str) -> Iterator["SdkRunSpan"]:
        """See `Tracer.run`; further attempts are further roots of the same trace."""
        self._ids.expect(trace_id, root_span_id(run.id) if run.attempt <= 1 else None)
        attributes: dict[str, AttributeValue] = {
            names.OPERATION_NAME: names.INVOKE_AGENT,
            names.PROVIDER_NAME: self._provider,
            names.AGENT_NAME: session.kind,
            names.CONVERSATION_ID: session.id,
            names.RUN_ID: run.id,
            names.RUN_TRIGGER: run.trigger,
            names.RUN_ATTEMPT: run.attempt,
        }
        name = f"{names.INVOKE_AGENT} {session.kind}"
        span = self._tracer.start_span(name, Context(), attributes=attributes)
        told = SdkRunSpan(self._tracer, span, self._provider, session.id)
        try:
            yield told
        finally:
            told.close()

    def close(self) -> None:
        """Send what is left; blocks until it was sent, or given up."""
        self._processor.shutdown()

    def give_up(self) -> None:
        """Try no more to send anything."""
        self._sender.shutdown()


class SdkRunSpan:
    """A run as the root of its trace; see `RunSpan`."""

    is_recording = True

    def __init__(self, tracer: Tracer, span: Span, provider: str, session_id: str) -> None:
        self._tracer = tracer
        self._span = span
        self._inside = set_span_in_context(span, Context())
        self._provider = provider
        self._session_id = session_id
        self._has_outcome = False

    def follows(self, trace_id: str, run_id: str) -> None:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        root = SpanContext(
            int(trace_id, 16), root_span_id(run_id), is_remote=True, trace_flags=sampled
        )
        self._span.add_link(root)

    def requested(self, purpose: Purpose, model: str, end: Reply | AttemptFailed) -> None:
        """The span begins when the request did, by the time that it took."""
        ended_at = time.time_ns()
        attributes: dict[str, AttributeValue] = {
            names.OPERATION_NAME: names.CHAT,
            names.PROVIDER_NAME: self._provider,
            names.CONVERSATION_ID: self._session_id,
            names.REQUEST_MODEL: model,
            names.REQUEST_STREAM: True,
            names.PURPOSE: purpose,
        }
        if end.first_token_ms is not None:
            attributes[names.TIME_TO_FIRST_CHUNK] = end.first_token_ms / 1000
        if end.usage is not None:
            attributes |= _tokens(end.usage)
        if isinstance(end, Reply) and end.finish_reason is not None:
            attributes[names.FINISH_REASONS] = [end.finish_reason]
        span = self._tracer.start_span(
            f"{names.CHAT} {model}",
            self._inside,
            SpanKind.CLIENT,
            attributes,
            start_time=ended_at - end.total_ms * 1_000_000,
        )
        if isinstance(end, AttemptFailed):
            _fail(span, end.error)
        span.end(ended_at)

    def calling(self, tool: str, call_id: str) -> AbstractContextManager["SdkCallSpan"]:
        return self._calling(tool, call_id)

    @contextmanager
    def _calling(self, tool: str, call_id: str) -> Iterator["SdkCallSpan"]:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION_NAME: names.EXECUTE_TOOL,
            names.TOOL_NAME: tool,
            names.TOOL_CALL_ID: call_id,
            names.CONVERSATION_ID: self._session_id,
        }
        name = f"{names.EXECUTE_TOOL} {tool}"
        span = self._tracer.start_span(name, self._inside, attributes=attributes)
        told = SdkCallSpan(span)
        try:
            yield told
            told.has_end = True
        finally:
            told.close()

    def judged(self, decision: Decision) -> None:
        attributes: dict[str, AttributeValue] = {
            names.GUARD_ROUND: decision.round,
            names.GUARD_VERDICT: decision.verdict,
            names.GUARD_RULE: decision.rule,
            names.GUARD_POLICY: decision.policy,
            names.GUARD_STREAK: decision.streak,
            names.GUARD_ACTION_DIGEST: decision.action_digest,
            names.GUARD_RESULT_DIGEST: decision.result_digest,
        }
        if decision.stop_reason:
            attributes[names.GUARD_STOP_REASON] = decision.stop_reason
        self._span.add_event(names.GUARD_DECISION, attributes)

    def ended(self, outcome: Outcome) -> None:
        self._has_outcome = True
        usage = Usage(outcome.prompt_tokens, outcome.cached_tokens, outcome.completion_tokens)
        attributes: dict[str, AttributeValue] = {
            names.RUN_STATUS: outcome.status,
            names.RUN_CODE: outcome.code,
            names.RUN_ROUNDS: outcome.rounds,
        }
        self._span.set_attributes(attributes | _tokens(usage))
        if outcome.status == "failed":
            _fail(self._span, outcome.code)

    def close(self) -> None:
        """End the span."""
        if not self._has_outcome:
            _fail(self._span, INTERRUPTED)
        self._span.end()


class SdkCallSpan:
    """A call; see `CallSpan`."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.has_end = False
        """It gave a result, or said why not."""

    def failed(self, code: str) -> None:
        self.has_end = True
        _fail(self._span, code)

    def close(self) -> None:
        """End the span."""
        if not self.has_end:
            _fail(self._span, INTERRUPTED)
        self._span.end()


def _resource() -> Resource:
    """What the environment says of this process; its name is ours where it gives none."""
    found = Resource.create()
    if str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return found.merge(Resource({SERVICE_NAME: "headway"}))
    return found


def _fail(span: Span, code: str) -> None:
    """Without a description: that would be words."""
    span.set_attribute(names.ERROR_TYPE, code)
    span.set_status(Status(StatusCode.ERROR))


def _tokens(usage: Usage) -> dict[str, AttributeValue]:
    return {
        names.INPUT_TOKENS: usage.prompt_tokens,
        names.CACHED_TOKENS: usage.cached_tokens,
        names.OUTPUT_TOKENS: usage.completion_tokens,
    }
