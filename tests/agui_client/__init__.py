"""The real AG-UI client, driven from Python; skipped where Node is missing."""

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
_FILES = ("package.json", "package-lock.json", "run.mjs")
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AguiClient:
    """An installed client."""

    node: str
    folder: Path

    async def converse(
        self, url: str, token: str, thread_id: str, turns: Sequence[Mapping[str, object]]
    ) -> dict[str, Any]:
        """Say *turns* to a server and give what the client made of its answers."""
        headers = {"Authorization": f"Bearer {token}"}
        asked = {"url": f"{url}/agui", "headers": headers, "threadId": thread_id, "turns": turns}
        return await self._run(asked)

    async def replay(self, *streams: Sequence[Mapping[str, object]]) -> dict[str, Any]:
        """Give one client after the other a stream of events as if a server had sent it."""
        return await self._run({"streams": streams})

    async def _run(self, asked: Mapping[str, object]) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            self.node,
            "run.mjs",
            json.dumps(asked),
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(SECONDS):
                out, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, errors.decode()
        result: dict[str, Any] = json.loads(out)
        return result


async def installed_client(cache: Path) -> AguiClient:
    """The client as the set-up installed it here, else installed into *cache*.

    Without Node it skips the test, or fails it where everything is required.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        _cannot("node and npm are needed (Debian: nodejs npm)")
    assert node is not None, "else the test was skipped"
    assert npm is not None, "else the test was skipped"
    if _is_installed(HERE):
        return AguiClient(node, HERE)
    for name in _FILES:
        shutil.copyfile(HERE / name, cache / name)
    if not _is_installed(cache):
        await _install(npm, cache)
    return AguiClient(node, cache)


def _is_installed(folder: Path) -> bool:
    return (folder / "node_modules" / "@ag-ui" / "client" / "package.json").is_file()


async def _install(npm: str, folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        npm,
        "ci",
        "--no-audit",
        "--no-fund",
        cwd=folder,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS * 2):
        _, errors = await process.communicate()
    if process.returncode != 0:
        _cannot(f"the AG-UI client could not be installed: {errors.decode()[-500:]}")


def _cannot(reason: str) -> None:
    if os.environ.get("HEADWAY_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
