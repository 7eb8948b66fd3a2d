"""The server as its operators run it: a process with an environment, an address and a log."""

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import aiohttp

from tests.forkserver import FORKS, ForkedProcess

ADMIN, ANN, BOB = "admin-token", "ann-token", "bob-token"
GATEWAY_KEY = "sk-gateway-key-0815"

START_SECONDS = 40.0
STOP_SECONDS = 20.0

_ADDRESS = re.compile(r"http://\S+")


@dataclass(frozen=True, slots=True)
class Installation:
    """What a server is started on, as often as a test likes: a folder and its settings."""

    folder: Path
    gateway_url: str | None = None
    """Without one the built-in model answers."""
    variables: dict[str, str] = field(default_factory=dict)
    """Settings beside the usual ones, without their prefix."""

    @property
    def data_dir(self) -> Path:
        """Holds the database, unless the settings name another."""
        return self.folder / "data"

    @property
    def workspace(self) -> Path:
        """Where the tools work."""
        return self.data_dir / "workspace"

    @property
    def database_url(self) -> str:
        """The database, as Headway takes it."""
        return self.variables.get("DATABASE_URL", f"sqlite:///{self.data_dir / 'headway.db'}")

    @property
    def log(self) -> str:
        """What every server that was started here wrote to its standard error."""
        return self._log_path.read_text("utf-8") if self._log_path.exists() else ""

    @property
    def _log_path(self) -> Path:
        return self.folder / "server.log"

    def environment(self) -> Mapping[str, str]:
        """All that the process gets to see."""
        settings = {
            "DATA_DIR": str(self.data_dir),
            "TOKENS": f"{ADMIN},ann={ANN},bob={BOB}",
            "TIMEZONE": "Asia/Shanghai",
            "LOG_LEVEL": "DEBUG",
            "PORT": "0",
        }
        if self.gateway_url is not None:
            settings |= {
                "MODEL_BASE_URL": self.gateway_url,
                "MODEL_API_KEY": GATEWAY_KEY,
                "MODEL": "scripted",
            }
        named = {f"HEADWAY_{name}": value for name, value in (settings | self.variables).items()}
        inherited = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder)}
        return inherited | named

    async def serve(self) -> ForkedProcess:
        """Start a server; whoever calls ends it."""
        return await self._fork("serve")

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code of a command that ends by itself, and what it said on standard error."""
        before = len(self.log)
        process = await self._fork(*arguments)
        try:
            async with asyncio.timeout(START_SECONDS):
                code = await process.wait()
        finally:
            await kill(process)
        return code, self.log[before:]

    async def _fork(self, *arguments: str) -> ForkedProcess:
        with self._open_log() as log:
            order = ["headway", *arguments]
            return await FORKS.spawn(order, self.environment(), self.folder, log)

    def _open_log(self) -> IO[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self._log_path.open("ab")


class ServerProcess:
    """One life of a server; made by `open_server`."""

    def __init__(self, process: ForkedProcess, http: aiohttp.ClientSession) -> None:
        self.url = ""
        self.output = ""
        """What it wrote to its standard output until it was ready."""
        self._process = process
        self._http = http

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """The process is gone."""
        return self._process.returncode is not None

    async def started(self) -> None:
        """Wait until it says where it is, and answers there."""
        async with asyncio.timeout(START_SECONDS):
            while not self.url:
                line = (await self._process.stdout.readline()).decode()
                assert line, "the server ended before it was ready"
                self.output += line
                if found := _ADDRESS.search(line):
                    self.url = found[0]
        status, _ = await self.get("/healthz")
        assert status == 200

    async def get(self, path: str, token: str = ANN) -> tuple[int, Any]:
        """Status and JSON of a GET."""
        headers = {"Authorization": f"Bearer {token}"}
        async with self._http.get(f"{self.url}{path}", headers=headers) as response:
            return response.status, await response.json()

    async def session(self, session_id: str, token: str = ANN) -> Any:
        """A session as REST shows it."""
        status, body = await self.get(f"/api/sessions/{session_id}", token)
        assert status == 200, body
        return body

    async def messages(self, session_id: str) -> list[dict[str, Any]]:
        """The newest messages of a session as REST shows them."""
        status, body = await self.get(f"/api/sessions/{session_id}/messages?limit=200")
        assert status == 200, body
        messages: list[dict[str, Any]] = body["messages"]
        return messages

    async def sigkill(self) -> None:
        """End it as a lost machine does."""
        await kill(self._process)

    async def sigterm(self) -> float:
        """End it as an operator does: seconds until it was gone, with nothing to complain of.

        It lets the signal end it after all was closed, so that who sent it sees it obeyed.
        """
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_SECONDS):
            await self._process.wait()
        assert self._process.returncode == -signal.SIGTERM
        return time.monotonic() - began


@asynccontextmanager
async def open_server(place: Installation) -> AsyncIterator[ServerProcess]:
    """A server that has started; one that the test has not ended is ended by SIGTERM.

    Its log must be free of tracebacks. Where the test failed, the log goes with it.
    """
    before = len(place.log)
    process = await place.serve()
    timeout = aiohttp.ClientTimeout(total=30)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as http:
            server = ServerProcess(process, http)
            await server.started()
            yield server
        if not server.has_ended:
            await server.sigterm()
        assert "Traceback" not in place.log[before:]
    except BaseException:
        print(place.log[before:])
        raise
    finally:
        await kill(process)


async def kill(process: ForkedProcess) -> None:
    """End it as a lost machine does, unless it has ended."""
    process.kill()
    await process.wait()
    await process.stdout.read()  # else its pipe is closed by the garbage collector
