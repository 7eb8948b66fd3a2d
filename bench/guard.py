"""The guard alone: a round against the plainest digest of its result, and its growth."""

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from statistics import median

from bench.clock import in_turns
from bench.figure import Figure
from guard import Message, NoProgressCall, NoProgressGuard, scan_no_progress_notices
from guard.policies import DEFAULT, STRICT, Policy, PolicyGuard
from guard.rounds import round_call

RESULT_BYTES = 4096
ROUNDS_PER_BATCH = 200
TURNS = 15
GUARDS = 40
"""Lived through side by side; one round of one guard is too short to be measured."""
_LINE = 'INFO  build: compiled module "server" in 12 ms, 3 warnings\n'


def measure() -> list[Figure]:
    """All figures of the guard."""
    shapes = _shapes().items()
    rounds = [_round(shape, name, text) for shape, (name, text) in shapes]
    policies = [_all_rules(shape, name, text) for shape, (name, text) in shapes]
    return [*rounds, *policies, _scan(), _life()]


def _shapes() -> Mapping[str, tuple[str, str]]:
    """Results of 4 KB as tools give them, with the tool's name."""
    shell = {"session_id": "s-1", "output": "", "exit_code": 0, "completed": True, "message": ""}
    match = {"path": "server/agent/loop.py", "line": 117, "text": "async def execute(self):"}
    number = {"id": 2**60, "value": 1.25, "share": 3.0, "timestamp": 1760000000.5}
    return {
        "plain text": ("read_file", (_LINE * 100)[:RESULT_BYTES]),
        "shell": ("shell", json.dumps(shell | {"output": (_LINE * 100)[: RESULT_BYTES - 110]})),
        "matches": ("grep_search", _records(match)),
        "numbers": ("query", _records(number)),
    }


def _records(record: Mapping[str, object]) -> str:
    count = RESULT_BYTES // (len(json.dumps(record)) + 2)
    return json.dumps({"success": True, "total": count, "rows": [record] * count})


def _round(shape: str, name: str, text: str) -> Figure:
    call = _call(name, text)
    # Text that is no JSON takes the plainest way as a JSON string.
    plain = text if text.startswith("{") else json.dumps(text)
    guarded, digested = in_turns([partial(_guarded, call), partial(_digested, plain)], turns=TURNS)
    return Figure(
        f"guard: round with 4 KB of {shape}",
        guarded / ROUNDS_PER_BATCH * 1e6,
        "µs",
        digested / ROUNDS_PER_BATCH * 1e6,
        target=2.0,
    )


def _all_rules(shape: str, name: str, text: str) -> Figure:
    """What all rules cost together, evidence and all, against the default rule alone."""
    call = _call(name, text)
    everything, default = in_turns(
        [partial(_judged, STRICT, call), partial(_judged, DEFAULT, call)], turns=TURNS
    )
    return Figure(
        f"guard: all rules, 4 KB of {shape}",
        everything / ROUNDS_PER_BATCH * 1e6,
        "µs",
        default / ROUNDS_PER_BATCH * 1e6,
        target=2.0,
    )


def _call(name: str, text: str) -> NoProgressCall:
    return NoProgressCall(name, '{"path":"server","pattern":"execute","max_results":50}', text)


def _judged(policy: Policy, call: NoProgressCall) -> None:
    guard = PolicyGuard(policy)
    for _ in range(ROUNDS_PER_BATCH):
        guard.end_round([round_call(call)])


def _guarded(call: NoProgressCall) -> None:
    guard = NoProgressGuard()
    for _ in range(ROUNDS_PER_BATCH):
        guard.observe_call(call)
        guard.end_round("call-1")
        guard.take_action()


def _digested(text: str) -> None:
    for _ in range(ROUNDS_PER_BATCH):
        sha256(json.dumps(json.loads(text), sort_keys=True).encode()).hexdigest()


def _scan() -> Figure:
    """Per round: a scan that is linear costs the same in a long history as in a short one."""
    short, long = 500, 5000

    def scan(history: list[Message], times: int) -> Callable[[], None]:
        def batch() -> None:
            for _ in range(times):
                scan_no_progress_notices(history)

        return batch

    few, many = in_turns([scan(_history(short), long // short), scan(_history(long), 1)], turns=5)
    per_round = 1e6 / long
    return Figure(
        f"guard: scan, per round of {long:,} against {short}",
        many * per_round,
        "µs",
        few * per_round,
        target=1.25,
    )


def _history(rounds: int) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": "go", "synthetic": False}]
    for number in range(rounds):
        function = {"name": "list_dir", "arguments": f'{{"path":"folder-{number // 4}"}}'}
        call = {"id": f"call-{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        result = json.dumps({"entries": ["a", "b"], "count": 2})
        messages.append({"role": "tool", "tool_call_id": f"call-{number}", "content": result})
    return messages


def _life() -> Figure:
    """What a round costs late in a run against early in it."""
    early, late, width = 10, 1000, 11
    guards = [NoProgressGuard() for _ in range(GUARDS)]
    spent: dict[int, float] = {}
    number = 0
    for around in (early, late):
        while number < around - width // 2:
            _live(guards, number)
            number += 1
        seconds = []
        for _ in range(width):
            began = time.process_time()
            _live(guards, number)
            seconds.append(time.process_time() - began)
            number += 1
        spent[around] = median(seconds) / GUARDS * 1e6
    return Figure(
        f"guard: round {late:,} of a run against round {early}",
        spent[late],
        "µs",
        spent[early],
        target=1.25,
    )


def _live(guards: list[NoProgressGuard], number: int) -> None:
    call = NoProgressCall("list_dir", '{"path":"."}', f'{{"entries":["a"],"count":{number % 3}}}')
    for guard in guards:
        guard.observe_call(call)
        guard.end_round(f"call-{number}")
        guard.take_action()
