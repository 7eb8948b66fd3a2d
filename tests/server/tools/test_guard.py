"""What the guard sees of real results: repetition counts, progress and waiting do not."""

import json
import random
from pathlib import Path

from PIL import Image

from guard import Abort, NoProgressCall, NoProgressGuard, is_no_progress_exempt, result_digest
from server.tools.base import Registry, ToolContext
from tests.server.tools.conftest import next_call


async def streak_after(
    rounds: int, name: str, arguments: dict[str, object], registry: Registry, context: ToolContext
) -> NoProgressGuard:
    guard = NoProgressGuard()
    text = json.dumps(arguments)
    for n in range(rounds):
        result = await registry.dispatch(name, text, next_call(context))
        guard.observe_call(NoProgressCall(name, text, result.content))
        guard.end_round(f"call-{n}")
    return guard


async def test_the_same_command_with_the_same_long_output_is_aborted_at_fifteen(
    registry: Registry, context: ToolContext
) -> None:
    arguments: dict[str, object] = {"action": "run", "command": "seq 100000"}
    guard = await streak_after(15, "shell", arguments, registry, context)
    assert guard.streak == 15
    assert isinstance(guard.take_action(), Abort)


async def test_the_same_search_is_aborted_at_fifteen(
    registry: Registry, context: ToolContext, workspace: Path
) -> None:
    for n in range(300):
        (workspace / f"{n}.txt").write_text("群名\n")
    arguments: dict[str, object] = {"path": ".", "pattern": "群名"}
    guard = await streak_after(15, "grep_search", arguments, registry, context)
    assert isinstance(guard.take_action(), Abort)


async def test_output_whose_cut_middle_changes_is_progress(
    registry: Registry, context: ToolContext
) -> None:
    arguments: dict[str, object] = {
        "action": "run",
        "command": "seq 20000; cat /proc/sys/kernel/random/uuid; seq 20000",
    }
    guard = await streak_after(6, "shell", arguments, registry, context)
    assert guard.streak == 1


async def test_waiting_for_a_command_does_not_count(
    registry: Registry, context: ToolContext
) -> None:
    started = await registry.dispatch(
        "shell", '{"action": "run", "command": "sleep 600", "run_async": true}', context
    )
    shell_id = json.loads(started.content)["session_id"]
    arguments: dict[str, object] = {
        "action": "await_async",
        "session_id": shell_id,
        "timeout_seconds": 0,
    }
    guard = await streak_after(20, "shell", arguments, registry, context)
    assert guard.streak == 0
    run = '{"action": "run", "command": "sleep 600", "timeout_seconds": 0}'
    unfinished = await registry.dispatch("shell", run, next_call(context))
    assert is_no_progress_exempt(NoProgressCall("shell", run, unfinished.content))


async def test_equal_pictures_have_one_digest(
    registry: Registry, context: ToolContext, workspace: Path
) -> None:
    pixels = random.Random(2).randbytes(2_100 * 300 * 3)
    Image.frombytes("RGB", (2_100, 300), pixels).save(workspace / "a.png")
    text = '{"path": "a.png"}'
    digests = set()
    for _ in range(2):
        result = await registry.dispatch("view_image", text, context)
        assert result.picture is not None
        digests.add((result_digest(NoProgressCall("view_image", text, result.content)),
                     result.picture.data))  # fmt: skip
    assert len(digests) == 1
