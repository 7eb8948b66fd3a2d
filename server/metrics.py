"""What the process counts of itself, for Prometheus.

No label names a session, a run, a user or a model: they have no bound, and no business there.
"""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from channels.port import Health
from server.message import Usage
from server.tools.mcp import McpHealth

SECONDS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
"""Bounds of the latency buckets: a model's first token to the longest tool."""
ROUNDS = (1, 2, 3, 5, 10, 15, 20, 50, 100, 200, 500)


class _Channels(Collector):
    """How the bots are; a bot's own id is a label, since there are few and they are configured."""

    def __init__(self, health: Callable[[], Sequence[Health]]) -> None:
        self._health = health

    def collect(self) -> Iterable[Metric]:
        """One sample of each figure for each bot."""
        gauges = {
            name: GaugeMetricFamily(f"headway_channel_{name}", text, labels=["platform", "app"])
            for name, text in _CHANNEL_GAUGES.items()
        }
        for bot in self._health():
            figures = {
                "up": 1.0 if bot.state == "up" else 0.0,
                "last_frame_seconds": bot.last_frame_seconds,
                "reconnects": bot.reconnects,
                "duplicates": bot.duplicates,
                "stale": bot.stale,
                "throttle_waits": bot.throttle_waits,
                "acks": bot.acks,
                "ack_seconds_max": bot.ack_seconds_max,
            }
            for name, figure in figures.items():
                if figure is not None:
                    gauges[name].add_metric([bot.platform, bot.app_id], figure)
        return gauges.values()


class _McpServers(Collector):
    """How the MCP servers are; they are configured, so their names may be a label."""

    def __init__(self, health: Callable[[], Sequence[McpHealth]]) -> None:
        self._health = health

    def collect(self) -> Iterable[Metric]:
        """One sample of each figure for each server."""
        up = GaugeMetricFamily(
            "headway_mcp_up", "1 while the server is connected", labels=["server"]
        )
        tools = GaugeMetricFamily(
            "headway_mcp_tools", "Tools that the server listed last", labels=["server"]
        )
        for server in self._health():
            up.add_metric([server.name], 1.0 if server.state == "up" else 0.0)
            tools.add_metric([server.name], server.tools)
        return up, tools


_CHANNEL_GAUGES = {
    "up": "1 while the bot hears its platform",
    "last_frame_seconds": "Age of the last frame of the long connection",
    "reconnects": "Connections made anew",
    "duplicates": "Messages that were pushed again and recognised",
    "stale": "Messages that came too late to be run",
    "throttle_waits": "Times that a call waited for its budget",
    "acks": "Messages acknowledged",
    "ack_seconds_max": "The slowest acknowledgement",
}


class Metrics:
    """The counters of one server; it has a registry of its own, so two do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._count_runs(self._registry)
        self._count_calls(self._registry)
        self._count_tasks(self._registry)
        self._measure_depths(self._registry)

    def _count_runs(self, registry: CollectorRegistry) -> None:
        self._runs = Counter(
            "headway_runs", "Runs that ended", ["status", "code"], registry=registry
        )
        self._run_rounds = Histogram(
            "headway_run_rounds", "Rounds of runs that ended", buckets=ROUNDS, registry=registry
        )
        self._rounds = Counter(
            "headway_rounds", "Rounds that were closed", ["policy"], registry=registry
        )
        self._repeated_rounds = Counter(
            "headway_repeated_rounds",
            "Rounds that repeated the one before",
            ["policy"],
            registry=registry,
        )
        self._repeated_tokens = Counter(
            "headway_repeated_tokens",
            "Tokens of rounds that repeated the one before",
            ["policy"],
            registry=registry,
        )
        self._state_changes = Counter(
            "headway_state_changes",
            "Rounds that changed what a progress contract looks at",
            ["policy"],
            registry=registry,
        )
        self._verdicts = Counter(
            "headway_guard_verdicts",
            "What policies said of closed rounds, beyond letting them pass",
            ["verdict", "rule", "policy"],
            registry=registry,
        )
        self._shadow_verdicts = Counter(
            "headway_guard_shadow_verdicts",
            "What policies would have said that only record",
            ["verdict", "rule", "policy"],
            registry=registry,
        )

    def _count_calls(self, registry: CollectorRegistry) -> None:
        self._llm_calls = Counter(
            "headway_llm_calls", "Requests to the model", ["purpose", "error"], registry=registry
        )
        self._llm_tokens = Counter(
            "headway_llm_tokens", "Tokens of the model", ["kind"], registry=registry
        )
        self._llm_seconds = Histogram(
            "headway_llm_seconds",
            "Time of requests to the model",
            ["until"],
            buckets=SECONDS,
            registry=registry,
        )
        self._tool_calls = Counter(
            "headway_tool_calls", "Calls of tools", ["tool", "error"], registry=registry
        )
        self._tool_seconds = Histogram(
            "headway_tool_seconds", "Time of calls", ["tool"], buckets=SECONDS, registry=registry
        )

    def _count_tasks(self, registry: CollectorRegistry) -> None:
        self._task_runs = Counter(
            "headway_task_runs", "Runs that tasks began", ["trigger"], registry=registry
        )
        self._task_skips = Counter(
            "headway_task_skips", "Due times that did not run", ["reason"], registry=registry
        )
        self._task_ends = Counter(
            "headway_task_ends", "How runs of tasks ended", ["status"], registry=registry
        )
        self._task_pauses = Counter(
            "headway_task_pauses", "Tasks paused by their failures", registry=registry
        )
        self._task_waits = Gauge(
            "headway_task_runs_waiting",
            "Runs of tasks that wait for their turn at the last look",
            registry=registry,
        )

    def _measure_depths(self, registry: CollectorRegistry) -> None:
        self._sockets = Gauge("headway_ws_connections", "Open WebSockets", registry=registry)
        self._depth = Gauge(
            "headway_event_log_entries", "Events kept for readers", registry=registry
        )
        self._outbox = Gauge(
            "headway_outbox_pending", "Deliveries that wait at the last look", registry=registry
        )

    def run_ended(self, status: str, code: str, rounds: int) -> None:
        """A run has its outcome."""
        self._runs.labels(status, code).inc()
        self._run_rounds.observe(rounds)

    def round_closed(self, policy: str) -> None:
        """A round was stored with its results; *policy* judges the run."""
        self._rounds.labels(policy).inc()

    def round_repeated(self, policy: str, tokens: int) -> None:
        """A round was the same as the one before, and its reply cost so many tokens."""
        self._repeated_rounds.labels(policy).inc()
        self._repeated_tokens.labels(policy).inc(tokens)

    def state_changed(self, policy: str) -> None:
        """After a round, something that a progress contract looks at was different."""
        self._state_changes.labels(policy).inc()

    def guard_spoke(self, verdict: str, rule: str, policy: str) -> None:
        """A run's policy nudged or aborted."""
        self._verdicts.labels(verdict, rule, policy).inc()

    def shadow_spoke(self, verdict: str, rule: str, policy: str) -> None:
        """A policy that only records would have nudged or aborted."""
        self._shadow_verdicts.labels(verdict, rule, policy).inc()

    def llm_called(
        self,
        purpose: str,
        *,
        error: str | None,
        usage: Usage | None,
        total_ms: int,
        first_token_ms: int | None,
    ) -> None:
        """A request to the model ended; *error* is a code of `LLMError`."""
        self._llm_calls.labels(purpose, error or "").inc()
        self._llm_seconds.labels("end").observe(total_ms / 1000)
        if first_token_ms is not None:
            self._llm_seconds.labels("first_token").observe(first_token_ms / 1000)
        if usage is not None:
            self._llm_tokens.labels("prompt").inc(usage.prompt_tokens)
            self._llm_tokens.labels("cached").inc(usage.cached_tokens)
            self._llm_tokens.labels("completion").inc(usage.completion_tokens)

    def tool_called(self, tool: str, *, is_error: bool, elapsed_ms: int) -> None:
        """A call ended; *tool* is a name of the registry, `unknown` for any other.

        Models invent names without end.
        """
        self._tool_calls.labels(tool, "yes" if is_error else "no").inc()
        self._tool_seconds.labels(tool).observe(elapsed_ms / 1000)

    def task_started(self, trigger: str) -> None:
        """A due time, or a person, began a run of a task."""
        self._task_runs.labels(trigger).inc()

    def task_skipped(self, reason: str) -> None:
        """A due time did not run."""
        self._task_skips.labels(reason).inc()

    def task_ended(self, status: str, *, is_paused: bool) -> None:
        """A run of a task ended, or waits for an answer.

        Args:
            is_paused: It failed once too often, and the task with it.
        """
        self._task_ends.labels(status).inc()
        if is_paused:
            self._task_pauses.inc()

    def task_runs_wait(self, count: int) -> None:
        """So many runs of tasks had no turn yet when somebody looked."""
        self._task_waits.set(count)

    def socket_opened(self) -> None:
        """A WebSocket said hello."""
        self._sockets.inc()

    def socket_closed(self) -> None:
        """A WebSocket that said hello is gone."""
        self._sockets.dec()

    def watch_event_log(self, depth: Callable[[], int]) -> None:
        """Ask *depth* for the number of events kept, each time the metrics are read."""
        self._depth.set_function(depth)

    def watch_channels(self, health: Callable[[], Sequence[Health]]) -> None:
        """Ask *health* how the bots are, each time the metrics are read."""
        self._registry.register(_Channels(health))

    def watch_mcp(self, health: Callable[[], Sequence[McpHealth]]) -> None:
        """Ask *health* how the MCP servers are, each time the metrics are read."""
        self._registry.register(_McpServers(health))

    def outbox_seen(self, pending: int) -> None:
        """So many deliveries waited when somebody looked."""
        self._outbox.set(pending)

    def render(self) -> bytes:
        """Everything in Prometheus' text form."""
        return generate_latest(self._registry)
