"""An OpenTelemetry collector on a real port of 127.0.0.1: it takes spans by OTLP over HTTP.

async with serve_collector() as collector:
    ...  # run a server whose OTEL_EXPORTER_OTLP_ENDPOINT is collector.url
    root = collector.one("invoke_agent main")
"""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

Value = str | int | float | bool | list[str]
PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True, slots=True)
class TakenEvent:
    """An event of a span."""

    name: str
    attributes: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class TakenSpan:
    """A span as it came; ids are hex digits."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for a root."""
    kind: str
    """`INTERNAL`, `CLIENT`."""
    attributes: Mapping[str, Value]
    events: tuple[TakenEvent, ...]
    links: tuple[tuple[str, str], ...]
    """The trace and the span that each leads to."""
    is_error: bool
    started_ns: int
    ended_ns: int


class FakeCollector:
    """Keeps what it takes."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        """What requests are answered."""
        self.answers = asyncio.Event()
        """Requests wait for it."""
        self.answers.set()
        self.tries = 0
        self.headers: Mapping[str, str] = {}
        """Of the last request, names in lower case."""
        self.bodies: list[bytes] = []
        """What was taken, unpacked."""
        self.spans: list[TakenSpan] = []
        self.resource: Mapping[str, Value] = {}

    def named(self, name: str) -> list[TakenSpan]:
        """The spans of that name, in the order in which they began."""
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.started_ns)

    def one(self, name: str) -> TakenSpan:
        """The one span of that name."""
        [span] = self.named(name)
        return span

    def inside(self, parent: TakenSpan) -> list[TakenSpan]:
        """The spans right below *parent*, in the order in which they began."""
        found = [span for span in self.spans if span.parent_id == parent.span_id]
        return sorted(found, key=lambda span: span.started_ns)

    async def take(self, request: web.Request) -> web.Response:
        """`POST /v1/traces`."""
        self.tries += 1
        await self.answers.wait()
        body = await request.read()
        if self.status != 200:
            return web.Response(status=self.status)
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        self._keep(body)
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type=PROTOBUF)

    def _keep(self, body: bytes) -> None:
        told = ExportTraceServiceRequest.FromString(body)
        self.bodies.append(body)
        for of_resource in told.resource_spans:
            self.resource = _values(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                self.spans += [_taken(span) for span in of_scope.spans]


def _taken(span: Span) -> TakenSpan:
    assert not span.status.message, "a status has no words"
    return TakenSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        attributes=_values(span.attributes),
        events=tuple(TakenEvent(event.name, _values(event.attributes)) for event in span.events),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        is_error=span.status.code == Status.StatusCode.STATUS_CODE_ERROR,
        started_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
    )


def _values(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Value:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [part.string_value for part in value.array_value.values]
    found: Value = getattr(value, str(kind))
    return found


@asynccontextmanager
async def serve_collector() -> AsyncIterator[FakeCollector]:
    """A collector that takes whatever comes."""
    collector = FakeCollector()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    collector.url = f"http://{host}:{port}"
    try:
        yield collector
    finally:
        collector.answers.set()
        await runner.cleanup()
