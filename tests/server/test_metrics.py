"""What the process counts of itself."""

from server.message import Usage
from server.metrics import Metrics


def samples(metrics: Metrics) -> dict[str, float]:
    lines = metrics.render().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_a_run_that_the_guard_stopped_is_counted_with_its_code() -> None:
    metrics = Metrics()
    for _ in range(15):
        metrics.round_closed("default@1")
    metrics.guard_spoke("abort", "no_progress", "default@1")
    metrics.run_ended("failed", "no_progress_loop", 15)
    found = samples(metrics)
    assert found['headway_runs_total{code="no_progress_loop",status="failed"}'] == 1
    assert found['headway_rounds_total{policy="default@1"}'] == 15
    verdict = 'policy="default@1",rule="no_progress",verdict="abort"'
    assert found[f"headway_guard_verdicts_total{{{verdict}}}"] == 1
    assert found['headway_run_rounds_bucket{le="15.0"}'] == 1
    assert found['headway_run_rounds_bucket{le="10.0"}'] == 0


def test_repetition_and_changes_of_state_are_counted_by_policy() -> None:
    metrics = Metrics()
    metrics.round_repeated("default@1", 700)
    metrics.round_repeated("default@1", 30)
    metrics.round_repeated("strict@1", 5)
    metrics.state_changed("strict@1")
    metrics.shadow_spoke("abort", "period", "strict@1")
    found = samples(metrics)
    assert found['headway_repeated_rounds_total{policy="default@1"}'] == 2
    assert found['headway_repeated_tokens_total{policy="default@1"}'] == 730
    assert found['headway_repeated_tokens_total{policy="strict@1"}'] == 5
    assert found['headway_state_changes_total{policy="strict@1"}'] == 1
    verdict = 'policy="strict@1",rule="period",verdict="abort"'
    assert found[f"headway_guard_shadow_verdicts_total{{{verdict}}}"] == 1
    assert not any(name.startswith("headway_guard_verdicts_total") for name in found)


def test_a_request_to_the_model_is_counted_with_its_tokens_and_times() -> None:
    metrics = Metrics()
    usage = Usage(100, 80, 7)
    metrics.llm_called("agent", error=None, usage=usage, total_ms=1500, first_token_ms=300)
    metrics.llm_called(
        "agent", error="model_timeout", usage=None, total_ms=120_000, first_token_ms=None
    )
    found = samples(metrics)
    assert found['headway_llm_calls_total{error="",purpose="agent"}'] == 1
    assert found['headway_llm_calls_total{error="model_timeout",purpose="agent"}'] == 1
    assert found['headway_llm_tokens_total{kind="cached"}'] == 80
    assert found['headway_llm_seconds_sum{until="first_token"}'] == 0.3
    assert found['headway_llm_seconds_count{until="end"}'] == 2


def test_tools_sockets_and_the_log_are_counted() -> None:
    metrics = Metrics()
    metrics.tool_called("shell", is_error=True, elapsed_ms=20)
    metrics.socket_opened()
    metrics.socket_opened()
    metrics.socket_closed()
    metrics.watch_event_log(lambda: 42)
    metrics.outbox_seen(3)
    found = samples(metrics)
    assert found['headway_tool_calls_total{error="yes",tool="shell"}'] == 1
    assert found["headway_ws_connections"] == 1
    assert found["headway_event_log_entries"] == 42
    assert found["headway_outbox_pending"] == 3


def test_tasks_are_counted_by_what_became_of_their_due_times() -> None:
    metrics = Metrics()
    metrics.task_started("due")
    metrics.task_started("manual")
    metrics.task_skipped("overlap")
    metrics.task_ended("FAILED", is_paused=False)
    metrics.task_ended("FAILED", is_paused=True)
    metrics.task_runs_wait(7)
    found = samples(metrics)
    assert found['headway_task_runs_total{trigger="due"}'] == 1
    assert found['headway_task_runs_total{trigger="manual"}'] == 1
    assert found['headway_task_skips_total{reason="overlap"}'] == 1
    assert found['headway_task_ends_total{status="FAILED"}'] == 2
    assert found["headway_task_pauses_total"] == 1
    assert found["headway_task_runs_waiting"] == 7


def test_two_servers_in_one_process_do_not_mix_their_counts() -> None:
    first, second = Metrics(), Metrics()
    first.round_closed("default@1")
    second.socket_opened()
    assert samples(first)['headway_rounds_total{policy="default@1"}'] == 1
    assert 'headway_rounds_total{policy="default@1"}' not in samples(second)
