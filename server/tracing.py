"""What a run tells its trace: spans that go to a collector, or nothing at all.

Traces are asked for by OpenTelemetry's own variables, which its SDK reads as well; without them
nothing of it is imported. Spans hold names, codes, digests and figures, never what people, models
or tools said.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from threading import Thread
from typing import Final, Protocol

from channels.events import Outcome
from server.errors import SettingsError
from server.llm.port import AttemptFailed, Purpose, Reply
from server.store.decisions import Decision
from server.store.runs import Run
from server.store.sessions import Session

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 2.0
"""What a collector gets for the last spans when the server ends."""

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Either asks for traces."""
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL: Final = "http/protobuf"


class CallSpan(Protocol):
    """A call that is under way."""

    def failed(self, code: str) -> None:
        """It has no good result; *code* is the error's, of a closed set, never its words."""


class RunSpan(Protocol):
    """A run that is under way."""

    @property
    def is_recording(self) -> bool:
        """Whether anybody gets what is told here."""

    def follows(self, trace_id: str, run_id: str) -> None:
        """It works for that run, or goes on from it."""

    def requested(self, purpose: Purpose, model: str, end: Reply | AttemptFailed) -> None:
        """A request to the model ended just now; each try is one."""

    def calling(self, tool: str, call_id: str) -> AbstractContextManager[CallSpan]:
        """A call, from its begin to its end, however it ends.

        Args:
            tool: A name of the registry, `unknown` for any other: models invent them.
        """

    def judged(self, decision: Decision) -> None:
        """The policy judged a round, which is stored."""

    def ended(self, outcome: Outcome) -> None:
        """The run has its outcome; without one its span says that it was interrupted."""


class Tracer(Protocol):
    """Where runs begin their spans."""

    def run(self, run: Run, session: Session, trace_id: str) -> AbstractContextManager[RunSpan]:
        """A run, as the root of its trace, from its begin to its end.

        Args:
            trace_id: 32 hex digits, not all 0.
        """


class _Silent:
    """Stands where nobody asked for traces."""

    is_recording = False

    def failed(self, code: str) -> None:
        pass

    def follows(self, trace_id: str, run_id: str) -> None:
        pass

    def requested(self, purpose: Purpose, model: str, end: Reply | AttemptFailed) -> None:
        pass

    def calling(self, tool: str, call_id: str) -> AbstractContextManager[CallSpan]:
        return _SILENCE

    def judged(self, decision: Decision) -> None:
        pass

    def ended(self, outcome: Outcome) -> None:
        pass

    def run(self, run: Run, session: Session, trace_id: str) -> AbstractContextManager[RunSpan]:
        return _SILENCE


_SILENT: Final = _Silent()
_SILENCE: Final = nullcontext(_SILENT)

SILENT: Final[Tracer] = _SILENT
"""The tracer of a server that sends no traces."""

_current: ContextVar[RunSpan] = ContextVar("run_span", default=_SILENT)


def current() -> RunSpan:
    """The span of the run that this task works for; a silent one outside of runs."""
    return _current.get()


@contextmanager
def traced(tracer: Tracer, run: Run, session: Session, trace_id: str) -> Iterator[RunSpan]:
    """The span of *run*, current in the block and in the tasks that are started there."""
    with tracer.run(run, session, trace_id) as span:
        before = _current.set(span)
        try:
            yield span
        finally:
            _current.reset(before)


@asynccontextmanager
async def open_tracing(environment: Mapping[str, str], provider: str) -> AsyncIterator[Tracer]:
    """The tracer that *environment* asks for, else a silent one.

    Closing it sends what is left, in a bounded time.

    Args:
        environment: Of this process: the SDK looks at it by itself for all but the switch.
        provider: Who answers requests to the model, by the name that the conventions have for him.
    Raises:
        SettingsError: Traces are asked for and cannot be sent.
    """
    switch = _switch(environment)
    if switch is None:
        yield SILENT
        return
    try:
        # Only here, since it brings the SDK, which is not installed with every Headway.
        from server.tracing_sdk import SdkTracer
    except ModuleNotFoundError:
        raise SettingsError(f"{switch}: needs OpenTelemetry; install headway[otel]") from None
    tracer = SdkTracer(provider)
    log.info("[trace] spans are sent")
    try:
        yield tracer
    finally:
        if not await _in_time(tracer.close):
            tracer.give_up()
            log.warning("[trace] the collector did not take the last spans")


def _switch(environment: Mapping[str, str]) -> str | None:
    """The variable that asks for traces, unless another one forbids them."""
    given = {name: value.strip().lower() for name, value in environment.items() if value}
    if given.get("OTEL_SDK_DISABLED") == "true" or given.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    asking = next((name for name in ENDPOINTS if name in given), None)
    protocol = next((name for name in PROTOCOLS if name in given), None)
    if asking is not None and protocol is not None and given[protocol] != PROTOCOL:
        raise SettingsError(f"{protocol}: only {PROTOCOL} is spoken")
    return asking


async def _in_time(close: Callable[[], None]) -> bool:
    """Whether *close* came to its end in `FLUSH_SECONDS`; if not, it is left to itself.

    Its thread is none of the loop's own, for those are waited for when a process ends.
    """
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def work() -> None:
        try:
            close()
        finally:
            with suppress(RuntimeError):  # the loop is gone, and nobody waits
                loop.call_soon_threadsafe(done.set)

    Thread(target=work, name="trace-flush", daemon=True).start()
    with suppress(TimeoutError):
        async with asyncio.timeout(FLUSH_SECONDS):
            await done.wait()
    return done.is_set()
