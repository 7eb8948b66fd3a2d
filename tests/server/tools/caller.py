"""A process that makes one call of the shell tool and stays, for tests to kill.

It stores nothing: what it leaves is in the workspace alone.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from server.tools.base import Registry, ToolContext
from server.tools.shell import Shells, ShellTool

_ROOT = Path(__file__).parents[3]


def context_of(workspace: Path, call_id: str) -> ToolContext:
    """The context of a call in a session of its own."""
    return ToolContext(
        session_id="lost",
        run_id="r",
        call_id=call_id,
        workspace=workspace,
        locale="en",
        progress=lambda line: None,
        emit=lambda event: None,
    )


@asynccontextmanager
async def open_caller(
    workspace: Path, call_id: str, arguments: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process; killed when left."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.server.tools.caller", str(workspace), call_id, arguments,
        cwd=_ROOT, env={"PATH": os.environ["PATH"]}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _main(workspace: Path, call_id: str, arguments: str) -> None:
    context = context_of(workspace, call_id)
    async with Shells(os.environ) as shells:
        registry = Registry([ShellTool(shells)])
        mark = await registry.mark("shell", arguments, context)
        result = await registry.dispatch("shell", arguments, context, mark)
        print(result.content, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
