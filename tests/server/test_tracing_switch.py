"""Traces of real server processes: switched on, off, and where OpenTelemetry is not installed."""

import signal
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from server.errors import SettingsError
from server.tracing import SILENT, open_tracing
from tests.fakes.collector import serve_collector
from tests.server.test_cli import ending, environment, run, serving, started, type_in

ROOT = Path(__file__).parents[2]


def without_opentelemetry(folder: Path) -> Path:
    """A folder in which a server does not find OpenTelemetry, as if it were not installed."""
    package = folder / "bare" / "opentelemetry"
    package.mkdir(parents=True)
    missing = 'raise ModuleNotFoundError("No module named opentelemetry", name="opentelemetry")\n'
    (package / "__init__.py").write_text(missing, "utf-8")
    return package.parent


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_SERVICE_NAME": "headway"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "TRUE"},
        {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9",
            "OTEL_TRACES_EXPORTER": "none",
        },
    ],
)
async def test_without_an_endpoint_or_switched_off_there_are_no_traces(
    environment: Mapping[str, str],
) -> None:
    async with open_tracing(environment, "openai") as tracer:
        assert tracer is SILENT


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"]
)
async def test_another_protocol_stops_the_start(name: str) -> None:
    asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", name: "grpc"}
    with pytest.raises(SettingsError, match=f"^{name}: only http/protobuf is spoken$"):
        async with open_tracing(asked, "openai"):
            pass


async def test_a_value_that_the_sdk_refuses_stops_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    with pytest.raises(SettingsError, match="^OTEL_"):
        async with open_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, "openai"):
            pass


async def test_without_the_extra_the_server_runs(tmp_path: Path) -> None:
    folder = without_opentelemetry(tmp_path)
    environ = environment(tmp_path / "data")
    # Unforked, since this is about what is imported at start.
    async with serving(environ, folder, is_forked=False) as (_, url):
        chat = started(environ, "chat", "--url", url, folder=folder, is_forked=False)
        async with chat as process:
            type_in(process, "hello\n")
            code, out, err = await ending(process)
    assert (code, err) == (0, "")
    assert "Built-in offline model" in out


async def test_traces_without_the_extra_stop_the_start_and_name_it(tmp_path: Path) -> None:
    folder = without_opentelemetry(tmp_path)
    asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    environ = {**environment(tmp_path / "data"), **asked}
    code, out, err = await run(environ, "serve", "--port", "0", folder=folder)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == (
        "headway: OTEL_EXPORTER_OTLP_ENDPOINT: needs OpenTelemetry; install headway[otel]"
    )
    assert "Traceback" not in err


async def test_nothing_of_opentelemetry_is_imported_until_somebody_asks_for_traces() -> None:
    code = (
        "import asyncio, sys; import server.cli; from server.tracing import open_tracing\n"
        "async def main():\n"
        "    async with open_tracing({}, 'openai'): pass\n"
        "asyncio.run(main()); print([name for name in sys.modules if 'opentelemetry' in name])"
    )
    process = await create_subprocess_exec(sys.executable, "-c", code, stdout=PIPE, cwd=ROOT)
    out, _ = await process.communicate()
    assert out.decode().strip() == "[]"


async def test_a_stopped_server_has_sent_its_last_spans(tmp_path: Path) -> None:
    async with serve_collector() as collector:
        asked = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/v1/traces"}
        environ = {**environment(tmp_path / "data"), **asked}
        async with serving(environ, tmp_path) as (server, url):
            async with started(environ, "chat", "--url", url, folder=tmp_path) as process:
                type_in(process, "/demo loop\n")
                await ending(process)
            async with aiohttp.ClientSession(url) as http, http.get("/metrics") as response:
                metrics = await response.text()
            server.send_signal(signal.SIGINT)
            code, _, err = await ending(server)
    assert code == 0
    assert "[trace] spans are sent" in err
    assert "Traceback" not in err
    root = collector.one("invoke_agent main")
    assert root.attributes["error.type"] == "no_progress_loop"
    assert len(collector.named("execute_tool grep_search")) == 15
    [provider] = {span.attributes["gen_ai.provider.name"] for span in collector.inside(root)[:1]}
    assert provider == "headway"
    for line in (
        'headway_rounds_total{policy="default@1"} 15.0',
        'headway_repeated_rounds_total{policy="default@1"} 14.0',
        'headway_runs_total{code="no_progress_loop",status="failed"} 1.0',
        'headway_guard_verdicts_total{policy="default@1",rule="no_progress",verdict="abort"} 1.0',
    ):
        assert line in metrics.splitlines(), metrics
