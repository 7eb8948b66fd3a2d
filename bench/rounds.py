"""What the server spends on a round of a run, beyond the tool, early and late in a long session."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import aiohttp

from bench.client import Client, open_client
from bench.clock import cpu_seconds
from bench.figure import Figure
from bench.process import Running, open_server
from server.tools.base import ToolContext
from server.tools.files import ListDir
from tests.fakes.llm import Play, Recorded, ScriptedGateway, call, reply, serve_gateway

TURNS = 3
ROUNDS = 410
EARLY = range(5, 16)
"""The tenth round and its neighbours."""
LATE = range(390, 410)
"""The four hundredth and its neighbours."""
PADDED_ROUNDS = 30
PADDED = range(5, 25)
"""The tenth of a session whose requests are as long, and its neighbours."""
TOOL_CALLS = 300
_SPELLINGS = (".", "./")
"""Two of the same folder, so that no round is the same as the one before it."""


class Meter:
    """Plays rounds, and reads the server's clock whenever it asks for the next."""

    def __init__(self) -> None:
        self.pid = 0
        self.rounds = 0
        self.seconds: list[float] = []
        """The CPU time of the server when each request had arrived."""

    def begin(self, rounds: int) -> None:
        """The next run has so many rounds."""
        self.rounds = rounds
        self.seconds = []

    def play(self, _: Recorded) -> Play:
        """The reply to one request."""
        self.seconds.append(cpu_seconds(self.pid))
        number = len(self.seconds)
        if number > self.rounds:
            return reply("done")
        return reply(calls=[call("list_dir", {"path": _SPELLINGS[number % 2]})])

    def spent(self, rounds: range) -> list[float]:
        """CPU seconds of each of these rounds, from one request to the next."""
        return [self.seconds[number] - self.seconds[number - 1] for number in rounds]


async def measure(folder: Path) -> list[Figure]:
    """A session of many rounds, and one of few whose requests are as long."""
    tool_seconds = await _tool_seconds(folder / "tool")
    meter = Meter()
    async with (
        serve_gateway(meter.play, title=_is_title, strict=False) as gateway,
        open_server(folder / "server", gateway.url) as server,
        aiohttp.ClientSession() as http,
    ):
        meter.pid = server.pid
        await _run(http, server, meter, PADDED_ROUNDS, "warm")
        early, late, padded = [], [], []
        for _ in range(TURNS):
            size_bytes = await _long_run(http, server, meter, gateway)
            early += meter.spent(EARLY)
            late += meter.spent(LATE)
            await _run(http, server, meter, PADDED_ROUNDS, "x" * size_bytes)
            padded += meter.spent(PADDED)
    return _figures(tool_seconds, early, late, padded)


async def _long_run(
    http: aiohttp.ClientSession, server: Running, meter: Meter, gateway: ScriptedGateway
) -> int:
    """Play the long session; how many bytes its late requests are longer than its early ones."""
    before = len(gateway.requests)
    await _run(http, server, meter, ROUNDS, "go")
    sizes = [len(request.body) for request in gateway.requests[before:]]
    return sizes[LATE[len(LATE) // 2] - 1] - sizes[EARLY[len(EARLY) // 2] - 1]


async def _run(
    http: aiohttp.ClientSession, server: Running, meter: Meter, rounds: int, text: str
) -> None:
    meter.begin(rounds)
    async with open_client(http, server.url) as client:
        await _to_the_end(client, text)


async def _to_the_end(client: Client, text: str) -> None:
    await client.ask(await client.open_session(), text)
    ended: Mapping[str, object] = await client.ended()
    if ended["type"] != "RUN_FINISHED":
        raise RuntimeError(f"the run ended with {ended['code']}")


async def _tool_seconds(folder: Path) -> float:
    """CPU time of the tool alone."""
    context = ToolContext("s", "r", "c", _empty(folder), "en", lambda _: None, lambda _: None)
    tool = ListDir()
    spent = []
    for _ in range(TOOL_CALLS):
        began = time.process_time()
        await tool.run({"path": "."}, context)
        spent.append(time.process_time() - began)
    return median(spent)


def _empty(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder.resolve()


def _is_title(request: Recorded) -> bool:
    return "tools" not in request.json


def _figures(
    tool_seconds: float, early: Sequence[float], late: Sequence[float], padded: Sequence[float]
) -> list[Figure]:
    beyond = (median(early) - tool_seconds) * 1000
    late_ms, padded_ms = ((median(spent) - tool_seconds) * 1000 for spent in (late, padded))
    return [
        Figure("round: CPU beyond the tool", beyond, "ms", None, 5.0, "measured"),
        Figure("round: number 400 against 10, same bytes", late_ms, "ms", padded_ms, 1.5),
    ]
